"""The pseudo-inverse."""

import numpy as np
import torch

from model.nn.attention.nystrom import apply_pseudo_inverse


def test_pseudo_inverse_equals_numpy_for_a_singular_matrix() -> None:
    a = torch.softmax(torch.randn(5, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(4)), dim=-1)
    a[4] = a[3]
    a[:, 4] = a[:, 3]
    a /= a.sum(-1, keepdim=True)
    identity = torch.eye(5, dtype=torch.float64)
    assert np.allclose(apply_pseudo_inverse(a, identity, 16).numpy(), np.linalg.pinv(a.numpy(), rcond=1e-9), atol=1e-6)
