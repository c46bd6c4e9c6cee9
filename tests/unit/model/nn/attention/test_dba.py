"""The latent sequence of DBA, and its attention to another document."""

import torch

from model.config.encoder import EncoderConfig
from model.nn.attention.dba import DynamicBilinearCrossAttention
from model.nn.encoder import Blocks
from tests.support import attention_reference
from tests.support.configs import with_attention
from tests.support.numerics import close, randomise
from tests.support.tokens import LENGTHS, tokens


def test_layers_share_the_latent_sequence(config: EncoderConfig) -> None:
    blocks = Blocks(with_attention(config, "dba"))
    assert blocks.get_parameter("0.attention.latent") is blocks.get_parameter("1.attention.latent")
    names = [name for name, _ in blocks.named_parameters()]
    assert sum("latent" in name for name in names) == 1


def test_cross_attention_equals_reference(config: EncoderConfig) -> None:
    small = with_attention(config, "dba", options={"compressed_length": 5, "inner_dim": 4})
    layer = DynamicBilinearCrossAttention(small)
    state = randomise(layer)
    x, lengths = tokens(small)
    other = torch.randn(len(LENGTHS), 19, small.dim, dtype=torch.float64)
    other_lengths = torch.tensor([19, 1, 3, 8, 12, 19, 5])
    mask = torch.arange(24) < lengths.unsqueeze(1)
    other_mask = torch.arange(19) < other_lengths.unsqueeze(1)
    out = layer(x, other, mask, other_mask)
    for b, (length, m) in enumerate(zip(LENGTHS, other_lengths.tolist(), strict=True)):
        theirs = attention_reference.dba_cross(x[b, :length].numpy(), other[b, :m].numpy(), state, small)
        assert close(out[b, :length], theirs)
    assert close(layer(x, other)[0], attention_reference.dba_cross(x[0].numpy(), other[0].numpy(), state, small))
