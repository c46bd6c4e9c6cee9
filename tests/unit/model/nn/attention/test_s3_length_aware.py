"""The length-aware mode: the reference gets one document without padding, the module pads it to any bucket."""

import pytest
import torch

from model.config.encoder import EncoderConfig
from model.nn.attention.s3 import S3Attention, SkeletonAttention, Smoother
from tests.support import reference
from tests.support.configs import changed, with_options
from tests.support.numerics import close, randomise, same
from tests.support.tokens import LENGTHS, mask_of, tokens


@pytest.fixture
def aware(config: EncoderConfig) -> EncoderConfig:
    return changed(config, mode="length-aware")


@pytest.mark.parametrize("kernel_size", [1, 3, 9])
@pytest.mark.parametrize("use_fourier", [True, False])
def test_smoother_equals_reference(aware: EncoderConfig, use_fourier: bool, kernel_size: int) -> None:
    config = with_options(aware, use_fourier=use_fourier, kernel_size=kernel_size)
    smoother = Smoother(config)
    state = randomise(smoother)
    x, lengths = tokens(config)
    smoothed = smoother(x, mask_of(x, lengths))
    for b, length in enumerate(LENGTHS):
        assert close(smoothed[b, :length], reference.smoother(x[b, :length].numpy(), state, config))


def test_smoother_beyond_dense_lengths_equals_reference(aware: EncoderConfig) -> None:
    smoother = Smoother(aware)
    state = randomise(smoother)
    smoother.is_dense = False
    x, lengths = tokens(aware)
    for bucket in (24, 17):
        short = lengths <= bucket
        smoothed = smoother(x[short, :bucket], mask_of(x, lengths)[short, :bucket])
        for found, row, length in zip(smoothed, x[short], lengths[short].tolist(), strict=True):
            assert close(found[:length], reference.smoother(row[:length].numpy(), state, aware))


@pytest.mark.filterwarnings(r"ignore:`isinstance\(treespec, LeafSpec\)` is deprecated:FutureWarning")
def test_graph_for_one_short_length_has_no_spectrum_and_the_same_output(aware: EncoderConfig) -> None:
    smoother = Smoother(aware).requires_grad_(False)
    randomise(smoother)
    x, lengths = tokens(aware)
    x, mask = x[:, :6], mask_of(x, lengths)[:, :6]
    program = torch.export.export(smoother, (x, mask))
    used = {node.name for node in program.graph.nodes if node.users}
    assert "b_inverse_dft" in used
    assert "b_forward_dft" not in used
    assert same(program.module()(x, mask), smoother(x, mask))


def test_skeleton_attention_equals_reference(aware: EncoderConfig) -> None:
    layer = SkeletonAttention(aware, torch.Generator().manual_seed(0))
    state = randomise(layer)
    h, lengths = tokens(aware)
    attended = layer(h, lengths, mask_of(h, lengths))
    for found, row, length in zip(attended, h, lengths.tolist(), strict=True):
        assert close(found[:length], reference.skeleton_attention(row[:length].numpy(), state, aware))


def test_rows_are_sampled_within_the_document_at_equal_distances(aware: EncoderConfig) -> None:
    layer = SkeletonAttention(aware, torch.Generator().manual_seed(0))
    positions = torch.arange(24.0).reshape(1, 24, 1).expand(4, -1, 12)
    rows = layer._rows(positions, torch.tensor([24, 10, 5, 2], dtype=torch.int32))
    expected = [[2, 7, 12, 16, 21], [1, 3, 5, 7, 9], [0, 1, 2, 3, 4], [0, 0, 1, 1, 1]]
    assert rows[:, :, 0].tolist() == expected
    assert torch.equal(rows, rows[:, :, :1].expand_as(rows))


def test_attention_equals_reference(aware: EncoderConfig) -> None:
    layer = S3Attention(aware, torch.Generator().manual_seed(0))
    state = randomise(layer)
    x, lengths = tokens(aware)
    attended = layer(x, lengths)
    for b, length in enumerate(LENGTHS):
        assert close(attended[b, :length], reference.attention(x[b, :length].numpy(), state, aware))


@pytest.mark.parametrize("use_fourier", [True, False])
def test_attention_of_the_smoother_alone_equals_reference(aware: EncoderConfig, use_fourier: bool) -> None:
    config = with_options(aware, use_rows=False, use_columns=False, use_fourier=use_fourier)
    layer = S3Attention(config, torch.Generator().manual_seed(0))
    state = randomise(layer)
    assert not any(name.startswith("skeleton") for name in state)
    x, lengths = tokens(config)
    for found, row, length in zip(layer(x, lengths), x, lengths.tolist(), strict=True):
        assert close(found[:length], reference.attention(row[:length].numpy(), state, config))
