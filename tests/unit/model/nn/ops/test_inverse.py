"""The iterative inverse compared with the published iteration."""

import pytest
import torch

from model.nn.ops.inverse import apply_iterative_inverse


def published(a: torch.Tensor, z: torch.Tensor, steps: int) -> torch.Tensor:
    """Compute the iteration as the paper writes it."""
    identity = torch.eye(a.shape[-1], dtype=a.dtype)
    for _ in range(steps):
        z = z @ (13 * identity - a @ z @ (15 * identity - a @ z @ (7 * identity - a @ z))) / 4
    return z


@pytest.mark.parametrize("steps", [1, 2, 6])
def test_iteration_equals_the_published_one(steps: int) -> None:
    a = torch.softmax(torch.randn(3, 12, 12, dtype=torch.float64, generator=torch.Generator().manual_seed(0)), dim=-1)
    start = a.transpose(1, 2) / (a.sum(1).amax(-1) * a.sum(2).amax(-1))[:, None, None]
    x = torch.randn(3, 12, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    found = start @ apply_iterative_inverse(torch.eye(12, dtype=torch.float64) - a @ start, x, steps)
    expected = published(a, start, steps) @ x
    assert float((found - expected).abs().max()) <= 1e-11 * float(expected.abs().max())


def test_each_step_cubes_the_error() -> None:
    a = 0.7
    error = 1 - a
    for steps in (1, 2, 3):
        z = apply_iterative_inverse(torch.tensor([[1 - a]], dtype=torch.float64), torch.ones(1, 1).double(), steps)
        residual = 1 - a * float(z)
        assert 0 <= residual <= error**3
        error = residual
