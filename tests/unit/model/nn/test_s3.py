from pathlib import Path

import pytest
import torch
from torch import nn

from model.config.encoder import EncoderConfig
from model.nn.attention.s3 import S3Attention, SkeletonAttention, Smoother
from model.nn.classifier import ByteClassifier
from model.nn.encoder import Block
from model.nn.ops.fourier import fourier_convolution, segment_means
from tests.support import reference
from tests.support.configs import changed, with_options
from tests.support.numerics import close, expect_gradient_everywhere, randomise

Documents = tuple[torch.Tensor, torch.Tensor]


def random_tokens(config: EncoderConfig) -> torch.Tensor:
    generator = torch.Generator().manual_seed(2)
    return torch.randn(2, config.seq_len, config.dim, dtype=torch.float64, generator=generator)


def test_fourier_convolution_uses_each_channels_own_segment(config: EncoderConfig) -> None:
    x = random_tokens(config)
    kernel = torch.randn(config.seq_len // 2 + 1, config.dim, 2, dtype=torch.float64)
    ours = fourier_convolution(segment_means(x, 3), kernel, config.seq_len)
    for b in range(2):
        assert close(ours[b], reference.fourier_convolution(x[b].numpy(), kernel.numpy(), 3))


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


def test_block_equals_reference(config: EncoderConfig) -> None:
    layer = Block(config, torch.Generator().manual_seed(0))
    state = randomise(layer)
    x = random_tokens(config)
    for b in range(2):
        assert close(layer(x)[b], reference.block(x[b].numpy(), state, config))


def test_classifier_equals_reference(config: EncoderConfig, documents: Documents) -> None:
    model = ByteClassifier(config, 3)
    state = randomise(model)
    logits = model(*documents)
    for b, (document, length) in enumerate(zip(*documents, strict=True)):
        assert close(logits[b], reference.classifier(bytes(document[:length].tolist()), state, config))


@pytest.mark.parametrize("use_fourier", [True, False])
def test_gradient_reaches_every_parameter(config: EncoderConfig, documents: Documents, use_fourier: bool) -> None:
    model = ByteClassifier(with_options(config, use_fourier=use_fourier), 3)
    nn.functional.cross_entropy(model(*documents), torch.tensor([0, 1, 2, 0, 1])).backward()
    expect_gradient_everywhere(model)


def test_encoder_without_fourier_trains(without_fourier: EncoderConfig, documents: Documents) -> None:
    torch.manual_seed(0)
    model = ByteClassifier(without_fourier, 3)
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-2)
    losses = []
    for _ in range(30):
        loss = nn.functional.cross_entropy(model(*documents), torch.tensor([0, 1, 2, 0, 1]))
        losses.append(loss.item())
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    assert losses[-1] < 0.1 * losses[0]


def test_standardise_head_equals_standardised_inputs(config: EncoderConfig, documents: Documents) -> None:
    model = ByteClassifier(config, 2)
    randomise(model)
    first = model.head[0]
    assert isinstance(first, nn.Linear)
    weight = first.weight.clone()
    pooled = model.encoder(*documents).mean(dim=1)
    standardised = (pooled - pooled.mean(dim=0)) / pooled.std(dim=0)
    model.standardise_head(*documents)
    assert close(first(pooled), (standardised @ weight.T).detach().numpy())


def test_standardise_head_changes_nothing_but_the_first_layer_of_the_head(
    config: EncoderConfig, documents: Documents
) -> None:
    model = ByteClassifier(config, 2)
    randomise(model)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    model.standardise_head(*documents)
    changed = {name for name, tensor in model.state_dict().items() if not torch.equal(tensor, before[name])}
    assert changed == {"head.0.weight", "head.0.bias"}


def test_reloaded_model_is_identical(config: EncoderConfig, documents: Documents, tmp_path: Path) -> None:
    model = ByteClassifier(config, 2).eval()
    torch.save(model.state_dict(), tmp_path / "model.pt")
    # Another seed draws other rows and columns: only the file can bring the right ones back.
    other = ByteClassifier(changed(config, sampling_seed=9), 2).eval()
    rows = "encoder.blocks.0.attention.skeleton.rows"
    assert not torch.equal(model.state_dict()[rows], other.state_dict()[rows])
    other.load_state_dict(torch.load(tmp_path / "model.pt", weights_only=True))
    assert torch.equal(model(*documents), other(*documents))


def test_answer_does_not_depend_on_batch_mates(config: EncoderConfig, documents: Documents) -> None:
    model = ByteClassifier(config, 2).double().eval()
    document, lengths = documents
    together = model(document, lengths)
    for i in range(len(lengths)):
        alone = model(document[i : i + 1], lengths[i : i + 1])[0]
        assert close(together[i], alone.detach().numpy())


def test_nul_is_not_padding(config: EncoderConfig) -> None:
    model = ByteClassifier(config, 2).double().eval()
    document = torch.zeros(2, config.seq_len, dtype=torch.uint8)
    short, long = model(document, torch.tensor([3, 4], dtype=torch.int32))
    assert not torch.allclose(short, long)


def test_bytes_beyond_the_length_are_not_read(config: EncoderConfig, documents: Documents) -> None:
    model = ByteClassifier(config, 2).double().eval()
    document, lengths = documents
    dirty = torch.where(torch.arange(config.seq_len) < lengths[:, None], document, 77)
    assert not torch.equal(dirty, document)
    assert torch.equal(model(dirty, lengths), model(document, lengths))


def test_bfloat16_stays_close_to_float32(config: EncoderConfig, documents: tuple[torch.Tensor, torch.Tensor]) -> None:
    """Mixed precision as on a GPU: the Fourier convolution stays in float32, gradients are finite."""
    model = ByteClassifier(config, 3)
    model.eval()
    expected = model(*documents).detach()
    with torch.autocast("cpu", torch.bfloat16):
        mixed = model(*documents)
    assert mixed.dtype == torch.bfloat16
    # bfloat16 has 8 bits: 2**-8 a step, over the some ten matrix products from bytes to logits.
    assert (mixed - expected).abs().max() <= 10 * 2**-8 * max(1.0, float(expected.abs().max()))
    model.train()
    with torch.autocast("cpu", torch.bfloat16):
        loss = nn.functional.cross_entropy(model(*documents).float(), torch.tensor([0, 1, 2, 0, 1]))
    loss.backward()
    assert all(p.grad is not None and bool(p.grad.isfinite().all()) for p in model.parameters())
