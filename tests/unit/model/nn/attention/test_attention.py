"""What holds for every attention of the registry, in every mode."""

import warnings
from pathlib import Path
from typing import Any

import onnx
import pytest
import torch
from torch import nn

import model.export.graphs
from model.config.attentions import OPTIONS as OPTION_CLASSES
from model.config.encoder import EncoderConfig
from model.nn.attention import ATTENTIONS, create_attention
from model.nn.attention.base import Attention
from model.nn.classifier import PaperClassifier
from model.nn.encoder import Blocks
from model.tasks.graphs import ExportGraph, golden_documents
from tests.support import attention_reference, reference
from tests.support.configs import changed, with_attention
from tests.support.numerics import expect_gradient_everywhere, randomise
from tests.support.tokens import LENGTHS, tokens

OPTIONS: dict[str, dict[str, Any]] = {
    "dba": {"compressed_length": 5, "inner_dim": 4},
    "linformer": {"projected_length": 5},
    "nystrom": {"num_landmarks": 5, "num_steps": 16, "kernel_size": 5},
    "performer": {"num_features": 9},
    "s3": {"num_segments": 3, "num_rows": 5, "num_columns": 4},
    "skyformer": {"num_landmarks": 7, "gamma": 0.1, "num_steps": 16},
}
"""Sizes for the small encoder; enough steps for the iterations to converge, because the references invert exactly."""
# Inverses take up to 16 steps; the condition number of the matrix amplifies their rounding errors.
INVERTED, EXACT = 1e-7, 1e-12
MODES = ("paper", "paper-masked", "length-aware")


@pytest.fixture(params=sorted(ATTENTIONS))
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=MODES)
def small(config: EncoderConfig, name: str, request: pytest.FixtureRequest) -> EncoderConfig:
    return with_attention(config, name, options=OPTIONS.get(name, {}), mode=request.param)


def layer_of(config: EncoderConfig) -> Attention:
    return create_attention(config, torch.Generator().manual_seed(0))


def same(ours: torch.Tensor, theirs: Any, config: EncoderConfig) -> bool:
    tolerance = INVERTED if config.attention in ("nystrom", "skyformer") else EXACT
    return bool(abs(ours.detach().numpy() - theirs).max() <= tolerance * max(1.0, abs(theirs).max()))


def expected(x: torch.Tensor, length: int, state: reference.State, config: EncoderConfig) -> Any:
    """Output for one document x (seq_len, C), without the padding that the layer does not read."""
    reads_padding = config.mode == "paper" or (config.mode == "paper-masked" and config.attention == "s3")
    x = x if reads_padding else x[:length]
    if config.attention == "s3":
        return reference.attention(x.numpy(), state, config, length)
    return attention_reference.attention(x.numpy(), state, config)


def test_equals_reference(small: EncoderConfig) -> None:
    layer = layer_of(small)
    state = randomise(layer)
    x, lengths = tokens(small)
    out = layer(x, lengths)
    assert out.shape == x.shape
    for b, length in enumerate(LENGTHS):
        theirs = expected(x[b], length, state, small)
        assert same(out[b, : len(theirs)], theirs, small)


def test_gradient_reaches_every_parameter(small: EncoderConfig) -> None:
    blocks = Blocks(small).double()
    x, lengths = tokens(small)
    blocks(x, lengths).square().sum().backward()
    expect_gradient_everywhere(blocks)


def test_eval_is_deterministic_and_reloaded_weights_give_identical_outputs(
    small: EncoderConfig, tmp_path: Path
) -> None:
    dropout = changed(small.dropout, attention=0.5)
    blocks = Blocks(changed(small, dropout=dropout)).double().eval()
    x, lengths = tokens(small)
    assert torch.equal(blocks(x, lengths), blocks(x, lengths))
    torch.save(blocks.state_dict(), tmp_path / "blocks.pt")
    other = Blocks(changed(small, sampling_seed=9)).double().eval()
    other.load_state_dict(torch.load(tmp_path / "blocks.pt", weights_only=True))
    assert torch.equal(other(x, lengths), blocks(x, lengths))
    blocks.train()
    assert not torch.equal(blocks(x, lengths), blocks(x, lengths))


def test_answer_does_not_depend_on_neighbours(small: EncoderConfig) -> None:
    """With the default, small number of iterations: a dependence of the initial value on the batch would be visible."""
    few = {key: value for key, value in small.options.model_dump().items() if key != "num_steps"}
    layer = layer_of(changed(small, options=few)).double().eval()
    x, lengths = tokens(small)
    x = x * torch.logspace(-2, 1.5, len(LENGTHS), dtype=torch.float64).reshape(-1, 1, 1)
    together = layer(x, lengths)
    for b, length in enumerate(LENGTHS):
        alone = layer(x[b : b + 1], lengths[b : b + 1])[0]
        assert same(together[b, :length], alone[:length].detach().numpy(), small)


def test_output_does_not_depend_on_padding(config: EncoderConfig, name: str) -> None:
    """Neither the content nor the amount of padding changes the output."""
    small = with_attention(config, name, options=OPTIONS.get(name, {}), mode="length-aware")
    blocks = Blocks(small).double().eval()
    x, lengths = tokens(small)
    out = blocks(x, lengths)
    real = torch.arange(small.seq_len) < lengths.unsqueeze(1)
    other = blocks(torch.where(real.unsqueeze(-1), x, 1e3), lengths)
    fitting = lengths <= 13
    shorter = blocks(x[fitting, :13], lengths[fitting])
    for b, length in enumerate(LENGTHS):
        assert same(other[b, :length], out[b, :length].detach().numpy(), small)
        if length <= 13:
            assert same(shorter[b, :length], out[b, :length].detach().numpy(), small)


@pytest.mark.parametrize("scale", [0.0, 1e-3, 30.0, 1e4])
def test_extreme_inputs_have_finite_outputs_and_gradients(small: EncoderConfig, scale: float) -> None:
    blocks = Blocks(small)
    x, lengths = tokens(small)
    x = (scale * x).float().requires_grad_()
    out = blocks(x, lengths)
    assert bool(out.isfinite().all())
    out.sum().backward()
    assert x.grad is not None
    assert bool(x.grad.isfinite().all())


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_backends_agree(name: str, tmp_path: Path) -> None:
    """Eager, ONNX Runtime and TorchScript agree to 1e-5 in every bucket, in one batch and row by row.

    No graph has the operator DFT, which is slow on CPUs and not supported by CUDA.
    """
    layers = 2 if name == "dba" else 1  # dba's layers share the latent sequence; tracing takes seconds per layer
    # Each further step would add the same operators to the graph.
    steps = {"num_steps": 2} if name in ("nystrom", "skyformer") else {}
    config = with_attention(EncoderConfig(seq_len=512, dim=32, num_layers=layers, ffn_dim=32), name, options=steps)
    torch.manual_seed(0)
    classifier = PaperClassifier(config, 3).eval()
    source = ExportGraph("model", classifier, golden_documents(512), ("logits",), (256, 512))
    output = model.export.graphs.eager(source)
    with warnings.catch_warnings():
        graph = model.export.graphs.write_graph(source, output, tmp_path)
    for bucket in source.buckets:
        fitting = model.export.graphs.fitting(source.golden, output, bucket)
        model.export.graphs.check_agreement(graph, tmp_path, *fitting)
    assert "DFT" not in {node.op_type for node in onnx.load(tmp_path / "model.onnx").graph.node}


def test_every_attention_has_options() -> None:
    assert ATTENTIONS.keys() == OPTION_CLASSES.keys()


def test_bfloat16_gradients_are_finite(name: str, config: EncoderConfig) -> None:
    small = with_attention(config, name, options=OPTIONS.get(name, {}), mode="length-aware")
    torch.manual_seed(0)
    classifier = PaperClassifier(small, 3)
    documents = torch.randint(0, 256, (len(LENGTHS), 24), dtype=torch.uint8)
    with torch.autocast("cpu", torch.bfloat16):
        logits = classifier(documents, torch.tensor(LENGTHS, dtype=torch.int32))
        loss = nn.functional.cross_entropy(logits.float(), torch.tensor([0, 1, 2, 0, 1, 2, 0]))
    loss.backward()
    assert all(p.grad is not None and bool(p.grad.isfinite().all()) for p in classifier.parameters())
