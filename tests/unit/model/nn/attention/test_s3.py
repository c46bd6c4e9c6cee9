import pytest
import torch

from model.config.encoder import EncoderConfig
from model.nn.attention.s3 import S3Attention, SkeletonAttention, Smoother
from tests.support import reference
from tests.support.configs import with_options
from tests.support.numerics import close, randomise


def random_tokens(config: EncoderConfig) -> torch.Tensor:
    generator = torch.Generator().manual_seed(2)
    return torch.randn(2, config.seq_len, config.dim, dtype=torch.float64, generator=generator)


def test_smoother_equals_reference(config: EncoderConfig) -> None:
    smoother = Smoother(config)
    state = randomise(smoother)
    x = random_tokens(config)
    for b in range(2):
        assert close(smoother(x)[b], reference.smoother(x[b].numpy(), state, config))


@pytest.fixture
def without_fourier(config: EncoderConfig) -> EncoderConfig:
    return with_options(config, use_fourier=False)


def test_smoother_without_fourier_equals_reference(without_fourier: EncoderConfig) -> None:
    smoother = Smoother(without_fourier)
    state = randomise(smoother)
    x = random_tokens(without_fourier)
    for b in range(2):
        assert close(smoother(x)[b], reference.smoother(x[b].numpy(), state, without_fourier))


def test_smoother_without_stem_equals_reference(config: EncoderConfig) -> None:
    without_stem = with_options(config, use_stem=False)
    smoother = Smoother(without_stem)
    assert not any("conv" in name for name, _ in smoother.named_parameters())
    state = randomise(smoother)
    x = random_tokens(without_stem)
    for b in range(2):
        assert close(smoother(x)[b], reference.smoother(x[b].numpy(), state, without_stem))


def test_smoother_without_fourier_has_no_kernel_and_half_the_convolution(
    config: EncoderConfig, without_fourier: EncoderConfig
) -> None:
    shapes = {name: tuple(parameter.shape) for name, parameter in Smoother(config).named_parameters()}
    assert shapes.pop("kernel") == (config.seq_len // 2 + 1, config.dim, 2)
    shapes["conv.weight"] = (config.dim, config.dim, 3)
    assert {name: tuple(p.shape) for name, p in Smoother(without_fourier).named_parameters()} == shapes


@pytest.mark.parametrize("use_fourier", [True, False])
def test_smoother_mixes_distant_tokens_by_fourier_alone(config: EncoderConfig, use_fourier: bool) -> None:
    smoother = Smoother(with_options(config, use_fourier=use_fourier))
    randomise(smoother)
    smoother.norm.bias.data.fill_(100.0)  # above the threshold of the ReLU, so that no change is hidden
    x = random_tokens(config)
    changed = x.clone()
    changed[:, 10] += 1.0
    moved = (smoother(changed) - smoother(x)).abs().amax(dim=(0, 2)) > 1e-9
    expected = set(range(config.seq_len)) if use_fourier else {9, 10, 11}
    assert set(moved.nonzero().flatten().tolist()) == expected


def test_skeleton_attention_equals_reference(config: EncoderConfig) -> None:
    layer = SkeletonAttention(config, torch.Generator().manual_seed(0))
    state = randomise(layer)
    h = random_tokens(config)
    for found, row in zip(layer(h), h, strict=True):
        assert close(found, reference.skeleton_attention(row.numpy(), state, config))


def test_attention_equals_reference(config: EncoderConfig) -> None:
    layer = S3Attention(config, torch.Generator().manual_seed(0))
    state = randomise(layer)
    x = random_tokens(config)
    for b in range(2):
        assert close(layer(x)[b], reference.attention(x[b].numpy(), state, config))
