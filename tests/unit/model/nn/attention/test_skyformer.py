"""Lemma 3 of Skyformer, and the inverse that relies on it."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from model.config.attentions import SkyformerOptions
from model.nn.attention.kernelized import gaussian_kernel
from model.nn.attention.skyformer import balance, solve_regularised


def kernel_matrix(seed: int, spread: float = 1.0) -> torch.Tensor:
    points = torch.randn(3, 12, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    return gaussian_kernel(spread * points, spread * points)


@given(seed=st.integers(0, 10_000), spread=st.floats(0.01, 10), gamma=st.sampled_from([1e-3, 1e-2, 0.1, 1.0]))
def test_lemma_3(seed: int, spread: float, gamma: float) -> None:
    """Singular values are in (0, 1]: the lemma says below 1, but the largest is 1, with the eigenvector D^(1/2) 1."""
    matrix = kernel_matrix(seed, spread)
    balanced, scale = balance(matrix, gamma)
    assert torch.allclose(balanced / scale / scale.transpose(1, 2), matrix + gamma * torch.eye(12).double())
    values = torch.linalg.svdvals(balanced)
    assert bool((values > 0).all())
    assert torch.allclose(values[:, 0], torch.ones(3, dtype=torch.float64), atol=1e-12)


@pytest.mark.parametrize("gamma", [0.1, 1.0])
def test_solve_regularised_equals_numpy(gamma: float) -> None:
    matrix = kernel_matrix(1)
    exact = np.linalg.inv(matrix.numpy() + gamma * np.eye(12))
    found = solve_regularised(matrix, torch.eye(12, dtype=torch.float64), gamma, 16)
    assert np.allclose(found.numpy(), exact, rtol=1e-9, atol=1e-9)


def test_solve_regularised_at_its_defaults_has_the_error_of_six_steps() -> None:
    """For an eigenvalue e the relative error is r_6, with r_0 = 1 - e and r_(i + 1) = r_i^3 (3 + r_i) / 4."""
    options, matrix = SkyformerOptions(), kernel_matrix(1)
    full = matrix.numpy() + options.gamma * np.eye(12)
    scale = 1 / np.sqrt(full.sum(-1))
    values, vectors = np.linalg.eigh(scale[:, :, None] * full * scale[:, None])
    left = 1 - values
    for _ in range(options.num_steps):
        left = left**3 * (3 + left) / 4
    expected = (scale[:, :, None] * vectors * ((1 - left) / values)[:, None]) @ (scale[:, :, None] * vectors).mT
    found = solve_regularised(matrix, torch.eye(12, dtype=torch.float64), options.gamma, options.num_steps)
    assert np.allclose(found.numpy(), expected, rtol=1e-9, atol=1e-9)
    assert left.max() < 0.01
