"""Blocks that compute in float16."""

import copy

import pytest
import torch
from torch import Tensor, nn

from model.config.encoder import EncoderConfig
from model.nn.attention import s3
from model.nn.classifier import PaperClassifier
from model.nn.encoder import Blocks
from model.nn.float16 import Float16Blocks, with_float16_blocks
from tests.support.configs import changed

Documents = tuple[Tensor, Tensor]


@pytest.fixture(params=[s3.DENSE_LENGTH, 0], ids=["dense", "factored"])
def dense_length(request: pytest.FixtureRequest) -> int:
    """Largest length with a dense Fourier convolution; longer ones have an FFT, which does not compute in float16."""
    length: int = request.param
    return length


@pytest.fixture(params=["paper", "paper-masked", "length-aware"])
def classifier(
    config: EncoderConfig, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, dense_length: int
) -> PaperClassifier:
    torch.manual_seed(0)
    monkeypatch.setattr(s3, "DENSE_LENGTH", dense_length)
    return PaperClassifier(changed(config, mode=request.param), 2).eval()


def test_weights_and_activations_of_blocks_are_in_float16(classifier: PaperClassifier, documents: Documents) -> None:
    converted = with_float16_blocks(classifier)
    assert isinstance(converted, PaperClassifier)
    blocks = converted.encoder.blocks
    assert isinstance(blocks, Float16Blocks)
    seen = list[torch.dtype]()

    def see(_: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        seen.extend((inputs[0].dtype, output.dtype))

    for module in blocks.blocks.modules():
        if not list(module.children()):
            module.register_forward_hook(see)
    converted(*documents)
    assert set(seen) == {torch.float16}
    for name, parameter in converted.named_parameters():
        expected = torch.float16 if name.startswith("encoder.blocks.") else torch.float32
        assert parameter.dtype == expected, name


@torch.no_grad()
def test_outputs_are_close_to_those_in_float32(classifier: PaperClassifier, documents: Documents) -> None:
    converted = with_float16_blocks(classifier)
    assert converted is not None
    found, expected = converted(*documents), classifier(*documents)
    assert found.dtype == torch.float32
    error = (found - expected).abs().max() / expected.abs().max().clamp(min=1)
    assert 0 < error <= 1e-2


def test_model_itself_does_not_change(classifier: PaperClassifier) -> None:
    before = copy.deepcopy(classifier.state_dict())
    assert with_float16_blocks(classifier) is not classifier
    assert isinstance(classifier.encoder.blocks, Blocks)
    for name, tensor in classifier.state_dict().items():
        assert tensor.dtype == before[name].dtype
        assert torch.equal(tensor, before[name])


def test_model_without_blocks_is_not_converted(config: EncoderConfig) -> None:
    assert with_float16_blocks(nn.Sequential(nn.Linear(2, 2))) is None
    assert with_float16_blocks(PaperClassifier(changed(config, num_layers=0), 2)) is None
