"""Linformer: keys and values projected to a fixed length. Used through `model.nn.attention`."""

import math

import torch
from torch import Tensor, nn

from model.config.attentions import LinformerOptions
from model.config.encoder import EncoderConfig
from model.nn.attention.base import HeadedAttention, zero_padding


class Linformer(HeadedAttention):
    """Attention of every token to k learned linear combinations of all tokens.

    out = softmax(Q (E K)^T / sqrt(D)) F V    O(N k C)

    E and F are shared by the heads. Shorter sequences use their first columns.

    Shape:      E, F (k, seq_len).
    Reference:  Wang et al. 2020, arXiv:2006.04768, sec. 4.
    Deviates:   E and F are initialised with standard deviation 1 / sqrt(seq_len), which keeps the scale of the tokens.
    """

    def __init__(self, config: EncoderConfig, generator: torch.Generator) -> None:
        super().__init__(config, generator)
        options = config.options_of(LinformerOptions)
        shape, std = (options.projected_length, config.seq_len), 1 / math.sqrt(config.seq_len)
        self.key_projection = nn.Parameter(torch.randn(shape) * std)
        self.value_projection = nn.Parameter(torch.randn(shape) * std)
        self.scale = 1 / math.sqrt(config.head_dim)

    def mix(self, q: Tensor, k: Tensor, v: Tensor, lengths: Tensor, mask: Tensor | None) -> Tensor:
        """Attend within each head: q, k, v (B, H, N, D) -> (B, H, N, D)."""
        del lengths
        length = q.shape[2]
        k = self.key_projection[:, :length] @ zero_padding(k, mask)  # (B, H, k, D)
        v = self.value_projection[:, :length] @ zero_padding(v, mask)  # (B, H, k, D)
        weights = torch.softmax(q @ k.transpose(2, 3) * self.scale, dim=-1)  # (B, H, N, k)
        return self.dropout(weights) @ v  # type: ignore[no-any-return]
