"""Inverses by matrix products, which every runtime has. Used by `model.nn.attention`."""

import torch
from torch import Tensor


def apply_iterative_inverse(residual: Tensor, x: Tensor, steps: int) -> Tensor:
    """Apply what the iteration Z <- Z (13 I - A Z (15 I - A Z (7 I - A Z))) / 4 makes of its start: Z_0^-1 Z x.

    Of R = I - A Z a step makes R^3 (3 I + R) / 4, and of Z, Z (I + R + R^2 + R^3 / 4). All R commute, being
    polynomials of the first one, so that the factors are applied to x as they come and Z is never formed: two products
    of (m, m) a step instead of four. Converges cubically where |R| < 1. Small singular values are inverted last: each
    step multiplies what is found of them by 13/4 at most, so that few steps also keep the inverse small.

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
    """I (m, m) for A (..., m, m)."""
    return torch.eye(a.shape[-1], dtype=a.dtype, device=a.device)
