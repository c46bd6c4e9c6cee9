"""Iterative matrix inverse by matrix products, which every runtime supports. Used by `model.nn.attention`."""

import torch
from torch import Tensor


def apply_iterative_inverse(residual: Tensor, x: Tensor, steps: int) -> Tensor:
    """Compute Z_0^-1 Z x, where Z approximates A^-1 after `steps` of Z <- Z (13 I - A Z (15 I - A Z (7 I - A Z))) / 4.

    With R = I - A Z, one step maps R to R^3 (3 I + R) / 4 and Z to Z (I + R + R^2 + R^3 / 4). All R commute, because
    they are polynomials of the first one. The factors are therefore applied to x directly and Z is never formed: two
    products of (m, m) matrices per step instead of four. Converges cubically if |R| < 1. Small singular values converge
    last. Each step multiplies their approximate inverse by at most 13/4, so few steps also bound the norm of the
    inverse.

    Shape:      residual I - A Z_0 (..., m, m); x (..., m, D); returns (..., m, D).
    Reference:  Razavi et al. 2014, Theorem 2, as used by Chen et al. 2021, arXiv:2111.00035, sec. 4.4.
    """
    for step in range(steps):
        if step > 0:
            square = residual @ residual
            residual = square @ (3 * residual + square) / 4
        once = residual @ x
        x = x + once + residual @ (once + residual @ once / 4)
    return x


def identity_like(a: Tensor) -> Tensor:
    """Identity matrix (m, m) for A (..., m, m)."""
    return torch.eye(a.shape[-1], dtype=a.dtype, device=a.device)
