import numpy as np
import pytest

from artifact.arrays import Doubles
from artifact.univariate.smoothing import ALPHAS, decaying_sums, theta


def slow_theta(values: list[float], horizon: int) -> tuple[list[float], float]:
    """Theta forecast and smoothing constant, step by step."""
    n = len(values)
    centre, mean = (n - 1) / 2, sum(values) / n
    moment = sum((t - centre) ** 2 for t in range(n))
    slope = sum((t - centre) * value for t, value in enumerate(values)) / moment if n > 1 else 0.0
    line = [mean + slope * (t - centre) for t in range(n + horizon)]
    curved = [2 * value - line[t] for t, value in enumerate(values)]
    best = (np.inf, 0.0, 0.0)
    for alpha in ALPHAS:
        level, error = curved[0], 0.0
        for value in curved[1:]:
            error += (value - level) ** 2
            level += alpha * (value - level)
        best = min(best, (error, float(alpha), level), key=lambda found: found[0])
    return [(best[2] + line[n + step]) / 2 for step in range(horizon)], best[1]


@pytest.mark.parametrize("decay", [0.0, 0.3, 0.97, 1.0, -0.5])
@pytest.mark.parametrize("n", [1, 2, 7, 64, 100])
def test_decaying_sums_equal_the_recursion(n: int, decay: float) -> None:
    values = np.random.default_rng(n).standard_normal((3, n))
    expected = values.copy()
    for step in range(1, n):
        expected[:, step] += decay * expected[:, step - 1]
    assert decaying_sums(values, decay) == pytest.approx(expected, rel=1e-12, abs=1e-12)


@pytest.mark.parametrize("n", [1, 2, 5, 40, 200])
def test_theta_equals_a_slow_reference(n: int) -> None:
    series: Doubles = np.random.default_rng(n).standard_normal((4, n))
    series[2:] = series[2:].cumsum(axis=1)
    found = theta(series, 30)
    for row, values in enumerate(series.tolist()):
        forecast, alpha = slow_theta(values, 30)
        assert found.forecast[row] == pytest.approx(forecast, rel=1e-9, abs=1e-9)
        if n > 1:
            assert found.alpha[row] == alpha


def test_theta_continues_a_line_at_half_its_slope_and_gives_the_whole_line() -> None:
    found = theta(np.arange(20.0)[None], 4)
    assert found.line[0] == pytest.approx(np.arange(24.0))
    assert np.diff(found.forecast[0]) == pytest.approx(0.5)
