"""Blocks and means, for complete and for shorter documents."""

import pytest
import torch

from model.config.encoder import EncoderConfig
from model.nn.encoder import Block, masked_mean
from tests.support import reference
from tests.support.configs import changed, with_options
from tests.support.numerics import close, randomise
from tests.support.tokens import LENGTHS, tokens


def random_tokens(config: EncoderConfig) -> torch.Tensor:
    generator = torch.Generator().manual_seed(2)
    return torch.randn(2, config.seq_len, config.dim, dtype=torch.float64, generator=generator)


def test_block_equals_reference(config: EncoderConfig) -> None:
    layer = Block(config, torch.Generator().manual_seed(0))
    state = randomise(layer)
    x = random_tokens(config)
    for b in range(2):
        assert close(layer(x)[b], reference.block(x[b].numpy(), state, config))


@pytest.fixture
def aware(config: EncoderConfig) -> EncoderConfig:
    return changed(config, mode="length-aware")


@pytest.mark.parametrize("use_fourier", [True, False])
def test_length_aware_block_equals_reference(aware: EncoderConfig, use_fourier: bool) -> None:
    config = with_options(aware, use_fourier=use_fourier)
    layer = Block(config, torch.Generator().manual_seed(0))
    state = randomise(layer)
    x, lengths = tokens(config)
    out = layer(x, lengths)
    for b, length in enumerate(LENGTHS):
        assert close(out[b, :length], reference.block(x[b, :length].numpy(), state, config))


def test_all_tokens_are_read_if_no_lengths_are_given(aware: EncoderConfig) -> None:
    layer = Block(aware, torch.Generator().manual_seed(0))
    state = randomise(layer)
    x, _ = tokens(aware)
    for length in (24, 9):
        out = layer(x[:, :length])
        assert torch.equal(out, layer(x[:, :length], torch.full((len(x),), length)))
        assert close(out[0], reference.block(x[0, :length].numpy(), state, aware))


def test_masked_mean_ignores_padding(aware: EncoderConfig) -> None:
    x, lengths = tokens(aware)
    for b, length in enumerate(LENGTHS):
        assert close(masked_mean(x, lengths)[b], x[b, :length].numpy().mean(axis=0))
