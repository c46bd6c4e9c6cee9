"""Linformer: keys and values projected to a fixed number of rows. Used through `model.nn.attention`."""

import math

import torch
from torch import Tensor, nn

from model.config.attentions import LinformerOptions
from model.config.encoder import EncoderConfig
from model.nn.attention.base import HeadedAttention, zero_padding


class Linformer(HeadedAttention):
    """Every token attends to k learned mixtures of all tokens.

    out = softmax(Q (E K)^T / sqrt(D)) F V    O(N k C)

    E and F are shared by the heads. A shorter sequence uses their first columns.

    Shape:      E, F (k, seq_len).
    Reference:  Wang et al. 2020, arXiv:2006.04768, sec. 4.
    Deviates:   E and F start at a standard deviation of 1 / sqrt(seq_len), so that projected rows have that of tokens.
    """

    def __init__(self, config: EncoderConfig, generator: torch.Generator) -> None:
        super().__init__(config, generator)
        options = config.options_of(LinformerOptions)
        shape, std = (options.projected_length, config.seq_len), 1 / math.sqrt(config.seq_len)
        self.key_projection = nn.Parameter(torch.randn(shape) * std)
        self.value_projection = nn.Parameter(torch.randn(shape) * std)
        self.scale = 1 / math.sqrt(config.head_dim)

    def mix(self, q: Tensor, k: Tensor, v: Tensor, lengths: Tensor, mask: Tensor | None) -> Tensor:
        """Mix (B, H, N, D) three times -> (B, H, N, D)."""
        del lengths
        length = q.shape[2]
        k = self.key_projection[:, :length] @ zero_padding(k, mask)  # (B, H, k, D)
        v = self.value_projection[:, :length] @ zero_padding(v, mask)  # (B, H, k, D)
        weights = torch.softmax(q @ k.transpose(2, 3) * self.scale, dim=-1)  # (B, H, N, k)
        return self.dropout(weights) @ v  # type: ignore[no-any-return]
