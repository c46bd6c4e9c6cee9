import numpy as np
import pytest

from model.tasks.baselines import errors, solve_linear_map


@pytest.fixture
def windows() -> np.ndarray:
    """Windows (50, 2, 9) of random walks."""
    return np.random.default_rng(0).standard_normal((50, 2, 9)).cumsum(-1).astype(np.float32)


def test_repeat_last_is_the_mean_over_everything(windows: np.ndarray) -> None:
    total, count = [0.0, 0.0], 0
    for row in windows.reshape(-1, 9).astype(float):
        for value in row[6:]:
            total[0] += (value - row[5]) ** 2
            total[1] += abs(value - row[5])
            count += 1
    assert errors(windows, 6, None) == pytest.approx([total[0] / count, total[1] / count], rel=1e-12)


def test_linear_map_equals_least_squares(windows: np.ndarray) -> None:
    rows = windows.reshape(-1, 9).astype(float)
    rows -= rows[:, 5:6]
    # The last column is zero after centring: lstsq and the ridge both give it no weight.
    inputs = np.hstack([rows[:, :6], np.ones((len(rows), 1))])
    expected, *_ = np.linalg.lstsq(inputs, rows[:, 6:], rcond=None)
    found = solve_linear_map(windows, 6)
    assert found.weight == pytest.approx(expected[:-1], abs=1e-4)
    assert found.bias == pytest.approx(expected[-1], abs=1e-4)


def test_linear_map_continues_a_line() -> None:
    lines = np.array([[[slope * t + level for t in range(12)]] for slope in (1, -2, 0.5) for level in (0, 3)])
    linear = solve_linear_map(lines.astype(np.float32), 8)
    assert errors(lines.astype(np.float32), 8, linear)[0] < 1e-6
    assert errors(lines.astype(np.float32), 8, None)[0] > 1
