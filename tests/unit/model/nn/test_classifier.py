"""The classifier of bytes, as published."""

from pathlib import Path

import pytest
import torch
from torch import nn

from model.config.encoder import EncoderConfig
from model.nn.classifier import ByteClassifier
from tests.support import reference
from tests.support.configs import changed, with_options
from tests.support.numerics import close, expect_gradient_everywhere, randomise

Documents = tuple[torch.Tensor, torch.Tensor]


@pytest.fixture
def without_fourier(config: EncoderConfig) -> EncoderConfig:
    return with_options(config, use_fourier=False)


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
