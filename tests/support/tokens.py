"""Tokens of documents of several lengths, the input of attentions."""

import torch

from model.config.encoder import EncoderConfig

LENGTHS = (1, 2, 4, 7, 13, 23, 24)
"""Some shorter than five sampled rows, some odd, and the full length."""


def tokens(config: EncoderConfig) -> tuple[torch.Tensor, torch.Tensor]:
    """Return a document of each length; its padding is not zero, because attentions must not read it.

    Shape:  (documents, seq_len, dim) in float64, and lengths (documents,)
    """
    generator = torch.Generator().manual_seed(2)
    x = torch.randn(len(LENGTHS), config.seq_len, config.dim, dtype=torch.float64, generator=generator)
    return x, torch.tensor(LENGTHS, dtype=torch.int32)


def mask_of(x: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
    """1 at real tokens, 0 at padding: x (B, N, C), lengths (B,) -> (B, N, 1)."""
    return (torch.arange(x.shape[1]) < lengths[:, None]).unsqueeze(-1).to(x.dtype)
