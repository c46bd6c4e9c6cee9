"""Kernelized attention: a Gaussian kernel instead of the softmax. Used through `model.nn.attention`."""

import torch
from torch import Tensor

from model.nn.attention.base import HeadedAttention, zero_padding


class KernelizedAttention(HeadedAttention):
    """Full attention with a Gaussian kernel of queries and keys as weights. The weights are not normalised.

    out = kappa(Q / D^(1/4), K / D^(1/4)) V,  kappa(q, k) = exp(-|q - k|^2 / 2)    O(N^2 C)

    Reference:  Chen et al. 2021, arXiv:2111.00035 (Skyformer), sec. 4.1, eq. (3).
    """

    def mix(self, q: Tensor, k: Tensor, v: Tensor, lengths: Tensor, mask: Tensor | None) -> Tensor:
        """Attend within each head: q, k, v (B, H, N, D) -> (B, H, N, D)."""
        del lengths
        return self.dropout(gaussian_kernel(q, k)) @ zero_padding(v, mask)  # type: ignore[no-any-return]


def gaussian_kernel(a: Tensor, b: Tensor) -> Tensor:
    """Gaussian kernel with bandwidth D^(1/4) between all pairs of rows: exp(-|a_i - b_j|^2 / (2 sqrt(D))).

    Shape:      a (..., N, D), b (..., M, D); returns (..., N, M), within (0, 1].
    Reference:  Chen et al. 2021, arXiv:2111.00035, sec. 3.1, eq. (1), and eq. (3).
    """
    scale = a.shape[-1] ** -0.25
    a, b = scale * a, scale * b
    halves = a.square().sum(-1, keepdim=True) / 2 + b.square().sum(-1).unsqueeze(-2) / 2  # (..., N, M)
    return torch.exp((a @ b.transpose(-2, -1) - halves).clamp(max=0.0))
