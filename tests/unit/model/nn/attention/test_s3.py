import pytest
import torch

from model.config.encoder import EncoderConfig
from model.nn.attention.s3 import (
    DENSE_LENGTH,
    SHORT,
    SHORT_LENGTH,
    S3Attention,
    SkeletonAttention,
    Smoother,
)
from model.nn.ops.fourier import short_fourier_convolution
from tests.support import reference
from tests.support.configs import changed, with_options
from tests.support.numerics import close, randomise, same
from tests.support.tokens import LENGTHS, mask_of, tokens


def random_tokens(config: EncoderConfig) -> torch.Tensor:
    generator = torch.Generator().manual_seed(2)
    return torch.randn(2, config.seq_len, config.dim, dtype=torch.float64, generator=generator)


def test_smoother_equals_reference(config: EncoderConfig) -> None:
    smoother = Smoother(config)
    state = randomise(smoother)
    x = random_tokens(config)
    for b in range(2):
        assert close(smoother(x)[b], reference.smoother(x[b].numpy(), state, config))


@pytest.mark.parametrize("seq_len", [DENSE_LENGTH // 2, DENSE_LENGTH, 2 * DENSE_LENGTH])
def test_short_documents_are_convolved_alike_in_a_graph_of_their_own(
    config: EncoderConfig, seq_len: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    changed_config = changed(config, seq_len=seq_len)
    smoother, x = Smoother(changed_config).requires_grad_(False), random_tokens(changed_config)
    randomise(smoother)
    lengths = list[int]()

    def spied(segments: torch.Tensor, taps: torch.Tensor) -> torch.Tensor:
        lengths.append(segments.shape[1])
        return short_fourier_convolution(segments, taps)

    monkeypatch.setattr("model.nn.attention.s3.short_fourier_convolution", spied)
    longest = min(seq_len // SHORT, SHORT_LENGTH)
    for length in (1, 7, longest, longest + 1):
        expected = smoother.convolve(x[:, :length])
        with monkeypatch.context() as patch:
            patch.setattr("torch.compiler.is_exporting", lambda: True)
            assert same(smoother.convolve(x[:, :length]), expected)
    assert lengths == [1, 7, longest]


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
def test_only_the_fourier_part_of_the_smoother_mixes_distant_tokens(config: EncoderConfig, use_fourier: bool) -> None:
    smoother = Smoother(with_options(config, use_fourier=use_fourier))
    randomise(smoother)
    smoother.norm.bias.data.fill_(100.0)  # above the threshold of the ReLU, so that every change is visible
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


@pytest.fixture
def masked(config: EncoderConfig) -> EncoderConfig:
    return changed(config, mode="paper-masked")


def test_masked_skeleton_attention_equals_reference(masked: EncoderConfig) -> None:
    layer = SkeletonAttention(masked, torch.Generator().manual_seed(0))
    state = randomise(layer)
    h, lengths = tokens(masked)
    attended = layer(h, mask=mask_of(h, lengths))
    for found, row, length in zip(attended, h, LENGTHS, strict=True):
        assert close(found, reference.skeleton_attention(row.numpy(), state, masked, length))


def test_masked_attention_equals_reference(masked: EncoderConfig) -> None:
    layer = S3Attention(masked, torch.Generator().manual_seed(0))
    state = randomise(layer)
    x, lengths = tokens(masked)
    for found, row, length in zip(layer(x, lengths), x, LENGTHS, strict=True):
        assert close(found, reference.attention(row.numpy(), state, masked, length))


@pytest.mark.parametrize("part", ["use_rows", "use_columns"])
def test_mask_hides_keys_and_values_at_padding(masked: EncoderConfig, part: str) -> None:
    other_part = {"use_rows": "use_columns", "use_columns": "use_rows"}[part]
    layer = SkeletonAttention(with_options(masked, **{other_part: False}), torch.Generator().manual_seed(0))
    randomise(layer.requires_grad_(False))
    h, lengths = tokens(masked)
    mask = mask_of(h, lengths)
    padded = lengths < masked.seq_len
    assert (layer.rows >= lengths[padded].unsqueeze(1)).any(1).sum() > 3, "padding must be among the sampled rows"
    other = torch.where(mask.bool(), h, 3.0)
    difference = (layer(other, mask=mask) - layer(h, mask=mask)).abs() * mask
    assert float(difference.max()) == 0.0
    unmasked = ((layer(other) - layer(h)).abs() * mask).amax(dim=(1, 2)) > 1e-6
    assert unmasked[padded].sum() > 3
    assert not unmasked[~padded].any()


def test_smoother_reads_padding_although_the_attention_is_masked(masked: EncoderConfig) -> None:
    layer = S3Attention(masked, torch.Generator().manual_seed(0))
    randomise(layer.requires_grad_(False))
    x, lengths = tokens(masked)
    mask = mask_of(x, lengths)
    other = torch.where(mask.bool(), x, 3.0)
    moved = ((layer(other, lengths) - layer(x, lengths)).abs() * mask).amax(dim=(1, 2)) > 1e-6
    padded = lengths < masked.seq_len
    assert moved[padded].sum() > 3
    assert not moved[~padded].any()


def test_modes_of_the_paper_differ_by_padding_alone(config: EncoderConfig, masked: EncoderConfig) -> None:
    layer, other = (S3Attention(mode, torch.Generator().manual_seed(0)) for mode in (config, masked))
    randomise(layer)
    randomise(other)
    x, lengths = tokens(config)
    same = [torch.equal(a, b) for a, b in zip(layer(x, lengths), other(x, lengths), strict=True)]
    assert same == [length == config.seq_len for length in LENGTHS]
    assert torch.equal(other(x), layer(x, lengths))
