"""What every attention layer has: a mask of real tokens, heads, a place in the stack. Used by its siblings."""

from abc import abstractmethod

import torch
from torch import Tensor, nn

from model.config.encoder import EncoderConfig


class Attention(nn.Module):
    """A layer that mixes tokens; what recipes may set of it alone is in model.config.attentions.

    Shape:      x (B, N, C), N <= seq_len; lengths (B,), real tokens of each, at least 1, by default all; returns
                (B, N, C), length-aware of no meaning where there is no token. As published, lengths are not looked at.
    """

    positions: Tensor

    def __init__(self, config: EncoderConfig, generator: torch.Generator) -> None:
        """Build the layer; what is drawn for it once, and then is part of the model, comes from the generator."""
        del generator
        super().__init__()
        self.is_length_aware = config.is_length_aware
        self.register_buffer("positions", torch.arange(config.seq_len), persistent=False)

    def share(self, below: "Attention") -> None:
        """Take over what the layers of one encoder have in common; called with the layer one block below."""

    def real_tokens(self, x: Tensor, lengths: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """Lengths (B,) that count, and the mask (B, N) of real tokens; as published all are real, and there is none."""
        if lengths is None or not self.is_length_aware:
            lengths = torch.full((x.shape[0],), x.shape[1], device=x.device)
        if not self.is_length_aware:
            return lengths, None
        return lengths, self.positions[: x.shape[1]] < lengths.unsqueeze(1)

    @abstractmethod
    def forward(self, x: Tensor, lengths: Tensor | None = None) -> Tensor:
        """Attend (B, N, C) -> (B, N, C)."""


class HeadedAttention(Attention):
    """Queries, keys and values of each head linear in the input, mixed by `mix`, joined by one matrix.

    out = W_o [mix(Q_1, K_1, V_1), ..., mix(Q_H, K_H, V_H)],  Q, K, V = W x

    Reference:  Vaswani et al. 2017, arXiv:1706.03762; all papers here put their attention in this place.
    """

    def __init__(self, config: EncoderConfig, generator: torch.Generator) -> None:
        super().__init__(config, generator)
        self.num_heads = config.num_heads
        self.qkv = nn.Linear(config.dim, 3 * config.dim)
        self.out = nn.Linear(config.dim, config.dim)
        self.dropout = nn.Dropout(config.dropout.attention)

    def forward(self, x: Tensor, lengths: Tensor | None = None) -> Tensor:
        """Attend (B, N, C) -> (B, N, C)."""
        lengths, mask = self.real_tokens(x, lengths)
        heads = self.qkv(x).unflatten(-1, (3, self.num_heads, -1))  # (B, N, 3, H, D)
        q, k, v = heads.permute(2, 0, 3, 1, 4).unbind(0)  # (B, H, N, D)
        mixed = self.mix(q, k, v, lengths, mask)
        return self.out(mixed.transpose(1, 2).flatten(2))  # type: ignore[no-any-return]  # nn.Module.__call__

    @abstractmethod
    def mix(self, q: Tensor, k: Tensor, v: Tensor, lengths: Tensor, mask: Tensor | None) -> Tensor:
        """Mix tokens head by head.

        Shape:  q, k, v (B, H, N, D); lengths (B,); mask (B, N) or None; returns (B, H, N, D).
        """


def zero_padding(x: Tensor, mask: Tensor | None) -> Tensor:
    """Zero where there is no token: x (B, H, N, D), mask (B, N) or None."""
    return x if mask is None else x * mask[:, None, :, None]


def hide_padding(scores: Tensor, mask: Tensor | None) -> Tensor:
    """Minus infinity where the last axis is no token: scores (B, H, M, N), mask (B, N) or None."""
    return scores if mask is None else scores.masked_fill(~mask[:, None, None, :], float("-inf"))


def take_tokens(x: Tensor, tokens: Tensor) -> Tensor:
    """Tokens of each sequence: x (B, H, N, D), tokens (B, m) -> (B, H, m, D)."""
    index = tokens[:, None, :, None].expand(-1, x.shape[1], -1, x.shape[3])
    return x.gather(2, index)
