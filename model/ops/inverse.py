"""Inverses by matrix products, which every runtime has. Used by `model.attention`."""

import torch
from torch import Tensor


def iterative_inverse(a: Tensor, start: Tensor, steps: int) -> Tensor:
    """Approximate the (pseudo-)inverse of A by Z <- Z (13 I - A Z (15 I - A Z (7 I - A Z))) / 4.

    Converges cubically where |I - A Z| < 1. Small singular values are inverted last: each step multiplies what is
    found of them by 13/4 at most, so that few steps also keep the inverse small.

    Shape:      a, start (..., m, m); returns (..., m, m).
    Reference:  Razavi et al. 2014, Theorem 2, as used by Chen et al. 2021, arXiv:2111.00035, sec. 4.4.
    """
    identity = torch.eye(a.shape[-1], dtype=a.dtype, device=a.device)
    z = start
    for _ in range(steps):
        az = a @ z
        z = z @ (13 * identity - az @ (15 * identity - az @ (7 * identity - az))) / 4
    return z
