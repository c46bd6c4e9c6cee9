"""DBA: dynamic bilinear low-rank self- and cross-attention. Used through `model.nn.attention`."""

import math

import torch
from torch import Tensor, nn

from model.config.attentions import DynamicBilinearOptions
from model.config.encoder import EncoderConfig
from model.nn.attention.base import Attention, hide_padding, zero_padding


class DynamicBilinearAttention(Attention):
    """Attention among d_p weighted sums of tokens, projected back to all tokens. The weights depend on the sequence.

    out = W_o W'_r softmax((W_r Q R) (W_c K R)^T / sqrt(d_in)) W'_c^T V    O(N d_p C)
    W_r = softmax(Z Q^T), W_c = softmax(Z K^T) over tokens; Q, K, V, W'_r, W'_c linear in x

    Shape:      Z (H, d_p, D); R (D, d_in), shared by the heads; W'_r, W'_c (B, H, N, d_p).
    Reference:  Qin et al. 2022, arXiv:2211.16368, eqs. (8), (10) to (12), sec. 3.3.
    Deviates:   W'_c^T V, a sum over tokens, is divided by the square root of the length; otherwise outputs would grow
                with the length. Z, which "propagates through different attention layers", is one parameter that
                all layers of an encoder share; test_layers_share_the_latent_sequence.
    """

    def __init__(self, config: EncoderConfig, generator: torch.Generator) -> None:
        super().__init__(config, generator)
        options = config.options_of(DynamicBilinearOptions)
        self.num_heads = config.num_heads
        self.qkv = nn.Linear(config.dim, 3 * config.dim)
        self.expand = nn.Linear(config.dim, 2 * config.num_heads * options.compressed_length)
        self.latent = nn.Parameter(torch.randn(config.num_heads, options.compressed_length, config.head_dim))
        self.inner = nn.Linear(config.head_dim, options.inner_dim, bias=False)
        self.out = nn.Linear(config.dim, config.dim)
        self.scale = 1 / math.sqrt(options.inner_dim)
        self.dropout = nn.Dropout(config.dropout.attention)

    def share(self, below: Attention) -> None:
        """Share Z with the layer below."""
        assert isinstance(below, DynamicBilinearAttention)
        self.latent = below.latent

    def forward(self, x: Tensor, lengths: Tensor | None = None) -> Tensor:
        """Attend (B, N, C) -> (B, N, C)."""
        lengths, mask = self.real_tokens(x, lengths)
        q, k, v = _heads(self.qkv(x), 3, self.num_heads)  # (B, H, N, D)
        rows, columns = _heads(self.expand(x), 2, self.num_heads)  # (B, H, N, d_p)
        q, k = compress(self.latent, q, mask), compress(self.latent, k, mask)  # (B, H, d_p, D)
        v = columns.transpose(2, 3) @ zero_padding(v, mask)  # (B, H, d_p, D)
        v = v * torch.rsqrt(lengths.to(v.dtype)).reshape(-1, 1, 1, 1)
        mixed = rows @ _attend(self.inner(q), self.inner(k), v, self.scale, self.dropout)  # (B, H, N, D)
        return self.out(mixed.transpose(1, 2).flatten(2))  # type: ignore[no-any-return]  # nn.Module.__call__


class DynamicBilinearCrossAttention(nn.Module):
    """Cross-attention to a compressed sequence x_2. The compressed x_2 also determines how x_1 is compressed.

    S = softmax(Z Q_2^T) x_2;  out = W_o W'_r softmax((W_r Q R) (K R)^T / sqrt(d_in)) V,  W_r = softmax(Z_1 Q^T)
    Q_2 linear in x_2; Z_1, K, V linear in S; Q, W'_r linear in x_1    O((N + M) d_p C)

    Shape:      x_1 (B, N, C), x_2 (B, M, C); masks (B, N), (B, M) of real tokens, or None; returns (B, N, C).
    Reference:  Qin et al. 2022, arXiv:2211.16368, sec. 3.4, eq. (14).
    Note:       An option of the joint view of matchers (`model.nn.joint`), which no served model uses.
    """

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        options = config.options_of(DynamicBilinearOptions)
        self.num_heads = config.num_heads
        self.latent = nn.Parameter(torch.randn(options.compressed_length, config.dim))
        self.other = nn.Linear(config.dim, config.dim)
        self.guide = nn.Linear(config.dim, 3 * config.dim)
        self.query = nn.Linear(config.dim, config.dim)
        self.expand = nn.Linear(config.dim, config.num_heads * options.compressed_length)
        self.inner = nn.Linear(config.head_dim, options.inner_dim, bias=False)
        self.out = nn.Linear(config.dim, config.dim)
        self.scale = 1 / math.sqrt(options.inner_dim)
        self.dropout = nn.Dropout(config.dropout.attention)

    def forward(self, x: Tensor, other: Tensor, mask: Tensor | None = None, other_mask: Tensor | None = None) -> Tensor:
        """Attend from x (B, N, C) to other (B, M, C) -> (B, N, C)."""
        scores = self.latent @ self.other(other).transpose(1, 2)  # (B, d_p, M)
        if other_mask is not None:
            scores = scores.masked_fill(~other_mask.unsqueeze(1), float("-inf"))
        summary = torch.softmax(scores, dim=-1) @ other  # (B, d_p, C)
        latent, k, v = _heads(self.guide(summary), 3, self.num_heads)  # (B, H, d_p, D)
        (q,) = _heads(self.query(x), 1, self.num_heads)  # (B, H, N, D)
        (rows,) = _heads(self.expand(x), 1, self.num_heads)  # (B, H, N, d_p)
        q = compress(latent, q, mask)  # (B, H, d_p, D)
        mixed = rows @ _attend(self.inner(q), self.inner(k), v, self.scale, self.dropout)
        return self.out(mixed.transpose(1, 2).flatten(2))  # type: ignore[no-any-return]


def compress(latent: Tensor, x: Tensor, mask: Tensor | None) -> Tensor:
    """Weighted sums of tokens: softmax(Z x^T) x.

    Shape:      latent (..., d_p, D), x (B, H, N, D), mask (B, N) or None; returns (B, H, d_p, D).
    Reference:  Qin et al. 2022, arXiv:2211.16368, eqs. (7), (11), (12).
    """
    return torch.softmax(hide_padding(latent @ x.transpose(2, 3), mask), dim=-1) @ x


def _attend(q: Tensor, k: Tensor, v: Tensor, scale: float, dropout: nn.Module) -> Tensor:
    """Softmax attention among compressed tokens: q, k (B, H, d_p, d_in), v (B, H, d_p, D) -> (B, H, d_p, D)."""
    return dropout(torch.softmax(q @ k.transpose(2, 3) * scale, dim=-1)) @ v  # type: ignore[no-any-return]


def _heads(x: Tensor, parts: int, num_heads: int) -> tuple[Tensor, ...]:
    """Split (B, N, parts * H * D) into `parts` tensors (B, H, N, D)."""
    return x.unflatten(-1, (parts, num_heads, -1)).permute(2, 0, 3, 1, 4).unbind(0)  # type: ignore[no-any-return]
