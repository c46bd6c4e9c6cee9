"""The classifier of bytes, in the modes of the paper."""

import warnings
from pathlib import Path

import pytest
import torch
from torch import nn

import model.export.graphs
from model.config.encoder import EncoderConfig
from model.nn.classifier import PaperClassifier
from model.tasks.graphs import ExportGraph, golden_documents
from tests.support import reference
from tests.support.configs import changed, with_options
from tests.support.numerics import close, expect_gradient_everywhere, randomise

Documents = tuple[torch.Tensor, torch.Tensor]


@pytest.fixture(params=["paper", "paper-masked"])
def config(config: EncoderConfig, request: pytest.FixtureRequest) -> EncoderConfig:
    return changed(config, mode=request.param)


@pytest.fixture
def without_fourier(config: EncoderConfig) -> EncoderConfig:
    return with_options(config, use_fourier=False)


def test_classifier_equals_reference(config: EncoderConfig, documents: Documents) -> None:
    model = PaperClassifier(config, 3)
    state = randomise(model)
    logits = model(*documents)
    for b, (document, length) in enumerate(zip(*documents, strict=True)):
        assert close(logits[b], reference.classifier(bytes(document[:length].tolist()), state, config))


@pytest.mark.parametrize("use_fourier", [True, False])
def test_gradient_reaches_every_parameter(config: EncoderConfig, documents: Documents, use_fourier: bool) -> None:
    model = PaperClassifier(with_options(config, use_fourier=use_fourier), 3)
    nn.functional.cross_entropy(model(*documents), torch.tensor([0, 1, 2, 0, 1])).backward()
    expect_gradient_everywhere(model)


def test_encoder_without_fourier_trains(without_fourier: EncoderConfig, documents: Documents) -> None:
    torch.manual_seed(0)
    model = PaperClassifier(without_fourier, 3)
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
    model = PaperClassifier(config, 2)
    randomise(model)
    first = model.head[0]
    assert isinstance(first, nn.Linear)
    weight = first.weight.clone()
    pooled = model.pooled(*documents)
    standardised = (pooled - pooled.mean(dim=0)) / pooled.std(dim=0)
    model.standardise_head(*documents)
    assert close(first(pooled), (standardised @ weight.T).detach().numpy())


def test_standardise_head_changes_only_the_first_layer_of_the_head(config: EncoderConfig, documents: Documents) -> None:
    model = PaperClassifier(config, 2)
    randomise(model)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    model.standardise_head(*documents)
    changed = {name for name, tensor in model.state_dict().items() if not torch.equal(tensor, before[name])}
    assert changed == {"head.0.weight", "head.0.bias"}


def test_reloaded_model_is_identical(config: EncoderConfig, documents: Documents, tmp_path: Path) -> None:
    model = PaperClassifier(config, 2).eval()
    torch.save(model.state_dict(), tmp_path / "model.pt")
    # Another seed samples other rows and columns: only the file can restore the original ones.
    other = PaperClassifier(changed(config, sampling_seed=9), 2).eval()
    rows = "encoder.blocks.0.attention.skeleton.rows"
    assert not torch.equal(model.state_dict()[rows], other.state_dict()[rows])
    other.load_state_dict(torch.load(tmp_path / "model.pt", weights_only=True))
    assert torch.equal(model(*documents), other(*documents))


def test_logits_do_not_depend_on_the_rest_of_the_batch(config: EncoderConfig, documents: Documents) -> None:
    model = PaperClassifier(config, 2).double().eval()
    document, lengths = documents
    together = model(document, lengths)
    for i in range(len(lengths)):
        alone = model(document[i : i + 1], lengths[i : i + 1])[0]
        assert close(together[i], alone.detach().numpy())


def test_nul_is_not_padding(config: EncoderConfig) -> None:
    model = PaperClassifier(config, 2).double().eval()
    document = torch.zeros(2, config.seq_len, dtype=torch.uint8)
    short, long = model(document, torch.tensor([3, 4], dtype=torch.int32))
    assert not torch.allclose(short, long)


def test_bytes_beyond_the_length_are_not_read(config: EncoderConfig, documents: Documents) -> None:
    model = PaperClassifier(config, 2).double().eval()
    document, lengths = documents
    dirty = torch.where(torch.arange(config.seq_len) < lengths[:, None], document, 77)
    assert not torch.equal(dirty, document)
    assert torch.equal(model(dirty, lengths), model(document, lengths))


def test_bfloat16_stays_close_to_float32(config: EncoderConfig, documents: tuple[torch.Tensor, torch.Tensor]) -> None:
    """Mixed precision as on a GPU: the Fourier convolution stays in float32, and gradients are finite."""
    model = PaperClassifier(config, 3)
    model.eval()
    expected = model(*documents).detach()
    with torch.autocast("cpu", torch.bfloat16):
        mixed = model(*documents)
    assert mixed.dtype == torch.bfloat16
    # bfloat16 has 8 bits: an error of 2**-8 in each of about ten matrix products from bytes to logits.
    assert (mixed - expected).abs().max() <= 10 * 2**-8 * max(1.0, float(expected.abs().max()))
    model.train()
    with torch.autocast("cpu", torch.bfloat16):
        loss = nn.functional.cross_entropy(model(*documents).float(), torch.tensor([0, 1, 2, 0, 1]))
    loss.backward()
    assert all(p.grad is not None and bool(p.grad.isfinite().all()) for p in model.parameters())


def test_mean_counts_padding_as_zero_if_masked(config: EncoderConfig, documents: Documents) -> None:
    model = PaperClassifier(config, 2)
    randomise(model)
    x, lengths = model.encoder(*documents), documents[1]
    counted = [int(length) if config.masks_padding else config.seq_len for length in lengths]
    for mean, row, count in zip(model.pooled(*documents), x, counted, strict=True):
        assert close(mean, row[:count].detach().numpy().sum(axis=0) / config.seq_len)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_backends_agree(config: EncoderConfig, tmp_path: Path) -> None:
    """Eager, ONNX Runtime and TorchScript, in one batch and row by row, to 1e-5."""
    torch.manual_seed(0)
    model_ = PaperClassifier(changed(config, num_layers=1), 3).eval()
    source = ExportGraph("model", model_, golden_documents(config.seq_len), ("logits",), (config.seq_len,))
    output = model.export.graphs.eager(source)
    with warnings.catch_warnings():
        graph = model.export.graphs.write_graph(source, output, tmp_path)
    fitting = model.export.graphs.fitting(source.golden, output, config.seq_len)
    model.export.graphs.check_agreement(graph, tmp_path, *fitting)
