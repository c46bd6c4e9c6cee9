"""Base classes and helpers of all attention layers: padding masks, heads. Used by the sibling modules."""

from abc import abstractmethod

import torch
from torch import Tensor, nn

from model.config.encoder import EncoderConfig


class Attention(nn.Module):
    """Base class of the attention layers. Options of each layer are in model.config.attentions.

    Shape:      x (B, N, C), N <= seq_len; lengths (B,), number of real tokens of each sequence, at least 1, default N;
                returns (B, N, C). In mode `paper`, lengths are ignored and padding is treated like real tokens. In the
                other modes, it is masked; in length-aware mode, the output at padding positions is undefined.
    """

    positions: Tensor

    def __init__(self, config: EncoderConfig, generator: torch.Generator) -> None:
        """Create the layer. Sampled indices and random features are drawn from `generator` and become buffers."""
        del generator
        super().__init__()
        self.masks_padding = config.masks_padding
        self.register_buffer("positions", torch.arange(config.seq_len), persistent=False)

    def share(self, below: "Attention") -> None:
        """Share parameters with `below`, the attention layer one block below."""

    def real_tokens(self, x: Tensor, lengths: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """Lengths (B,) and mask (B, N) of the real tokens. In mode `paper`, all N are real and the mask is None."""
        if lengths is None or not self.masks_padding:
            lengths = torch.full((x.shape[0],), x.shape[1], device=x.device)
        if not self.masks_padding:
            return lengths, None
        return lengths, self.positions[: x.shape[1]] < lengths.unsqueeze(1)

    @abstractmethod
    def forward(self, x: Tensor, lengths: Tensor | None = None) -> Tensor:
        """Attend (B, N, C) -> (B, N, C)."""


class HeadedAttention(Attention):
    """Multi-head attention with linear queries, keys and values; subclasses implement `mix`.

    out = W_o [mix(Q_1, K_1, V_1), ..., mix(Q_H, K_H, V_H)],  Q, K, V = W x

    Reference:  Vaswani et al. 2017, arXiv:1706.03762; every paper here replaces its `mix`.
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
        """Attend within each head.

        Shape:  q, k, v (B, H, N, D); lengths (B,); mask (B, N) or None; returns (B, H, N, D).
        """


def zero_padding(x: Tensor, mask: Tensor | None) -> Tensor:
    """Set padding positions to zero: x (B, H, N, D), mask (B, N) or None."""
    return x if mask is None else x * mask[:, None, :, None]


def hide_padding(scores: Tensor, mask: Tensor | None) -> Tensor:
    """Set the scores of padding keys to minus infinity: scores (B, H, M, N), mask (B, N) or None."""
    return scores if mask is None else scores.masked_fill(~mask[:, None, None, :], float("-inf"))


def take_tokens(x: Tensor, indices: Tensor) -> Tensor:
    """Gather tokens by index: x (B, H, N, D), indices (B, m) -> (B, H, m, D)."""
    index = indices[:, None, :, None].expand(-1, x.shape[1], -1, x.shape[3])
    return x.gather(2, index)
