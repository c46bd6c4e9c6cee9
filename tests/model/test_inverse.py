"""The iterative inverse, and what Skyformer's Lemma 3 promises of the matrices it is given."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from model.attention.kernelized import gaussian_kernel
from model.attention.nystrom import pseudo_inverse
from model.attention.skyformer import regularised_inverse
from model.ops.inverse import iterative_inverse


def kernel_matrix(seed: int, spread: float = 1.0) -> torch.Tensor:
    points = torch.randn(3, 12, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    return gaussian_kernel(spread * points, spread * points)


def test_inverse_is_found() -> None:
    matrix = kernel_matrix(0)
    eigenvalues = torch.linalg.eigvalsh(matrix)
    start = torch.eye(12, dtype=torch.float64).expand_as(matrix) / eigenvalues[:, -1].reshape(3, 1, 1)
    found = iterative_inverse(matrix, start, 40)
    assert torch.allclose(found @ matrix, torch.eye(12, dtype=torch.float64).expand_as(matrix), atol=1e-9)


def test_each_step_cubes_the_error() -> None:
    a = torch.tensor([[0.7]], dtype=torch.float64)
    error = 1 - 0.7
    for steps in (1, 2, 3):
        z = iterative_inverse(a, torch.eye(1, dtype=torch.float64), steps)
        residual = 1 - float(a * z)
        assert 0 <= residual <= error**3
        error = residual


@settings(deadline=None)
@given(seed=st.integers(0, 10_000), spread=st.floats(0.01, 10), gamma=st.sampled_from([1e-3, 1e-2, 0.1, 1.0]))
def test_lemma_3(seed: int, spread: float, gamma: float) -> None:
    """Singular values within (0, 1]: the lemma says below 1, but the largest is 1, with the eigenvector D^(1/2) 1."""
    matrix = kernel_matrix(seed, spread) + gamma * torch.eye(12, dtype=torch.float64)
    scale = torch.rsqrt(matrix.sum(-1))
    values = torch.linalg.svdvals(scale.unsqueeze(-1) * matrix * scale.unsqueeze(-2))
    assert bool((values > 0).all())
    assert torch.allclose(values[:, 0], torch.ones(3, dtype=torch.float64), atol=1e-12)


@pytest.mark.parametrize("gamma", [0.1, 1.0])
def test_regularised_inverse_equals_numpy(gamma: float) -> None:
    matrix = kernel_matrix(1)
    exact = np.linalg.inv(matrix.numpy() + gamma * np.eye(12))
    assert np.allclose(regularised_inverse(matrix, gamma, 40).numpy(), exact, rtol=1e-9, atol=1e-9)


def test_pseudo_inverse_equals_numpy_for_a_singular_matrix() -> None:
    rows = torch.softmax(torch.randn(4, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(3)), dim=-1)
    a = torch.softmax(torch.randn(5, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(4)), dim=-1)
    a[4] = a[3]
    a[:, 4] = a[:, 3]
    a /= a.sum(-1, keepdim=True)
    assert np.allclose(pseudo_inverse(a, 60).numpy(), np.linalg.pinv(a.numpy(), rcond=1e-9), atol=1e-6)
    assert np.isfinite(pseudo_inverse(rows[:, :4], 60).numpy()).all()
