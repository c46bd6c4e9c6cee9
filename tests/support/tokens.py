"""Tokens of documents of several lengths, as attentions read them."""

import torch

from model.config.encoder import EncoderConfig

LENGTHS = (1, 2, 4, 7, 13, 23, 24)
"""Some below five sampled rows, some odd, and the full one."""


def tokens(config: EncoderConfig) -> tuple[torch.Tensor, torch.Tensor]:
    """A document of each of LENGTHS; its padding is not zero, for it must not be looked at.

    Shape:  (documents, seq_len, dim) in float64, and lengths (documents,)
    """
    generator = torch.Generator().manual_seed(2)
    x = torch.randn(len(LENGTHS), config.seq_len, config.dim, dtype=torch.float64, generator=generator)
    return x, torch.tensor(LENGTHS, dtype=torch.int32)
