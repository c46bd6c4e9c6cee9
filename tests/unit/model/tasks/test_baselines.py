import numpy as np
import pytest

from model.tasks.baselines import EXACT, LinearMap, errors, season_of, seasonal_error, seasonal_naive, solve_linear_map


@pytest.fixture
def windows() -> np.ndarray:
    """Windows (50, 2, 9) of random walks."""
    return np.random.default_rng(0).standard_normal((50, 2, 9)).cumsum(-1).astype(np.float32)


def test_error_of_repeat_last_is_the_mean_over_windows_channels_and_steps(windows: np.ndarray) -> None:
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
    # The last column is zero after centring: both lstsq and the ridge give it no weight.
    inputs = np.hstack([rows[:, :6], np.ones((len(rows), 1))])
    expected, *_ = np.linalg.lstsq(inputs, rows[:, 6:], rcond=None)
    found = solve_linear_map(windows, 6)
    assert found.weight == pytest.approx(expected[:-1], abs=1e-4)
    assert found.bias == pytest.approx(expected[-1], abs=1e-4)


def test_linear_map_extrapolates_a_line() -> None:
    lines = np.array([[[slope * t + level for t in range(12)]] for slope in (1, -2, 0.5) for level in (0, 3)])
    linear = solve_linear_map(lines.astype(np.float32), 8)
    assert errors(lines.astype(np.float32), 8, linear)[0] < 1e-6
    assert errors(lines.astype(np.float32), 8, None)[0] > 1


@pytest.mark.parametrize(
    ("frequency", "season"),
    [
        ("1s", 3600),
        ("30s", 120),
        ("1min", 1440),
        ("10min", 144),
        ("15min", 96),
        ("30min", 48),
        ("1h", 24),
        ("6h", 4),
        ("7h", 1),
        ("1d", 7),
        ("2d", 1),
        ("1b", 5),
        ("7d", 52),
        ("1w", 52),
        ("2w", 26),
        ("1mo", 12),
        ("5mo", 1),
        ("1q", 4),
        ("1y", 1),
        ("irregular", 1),
    ],
)
def test_season_follows_from_the_frequency(frequency: str, season: int) -> None:
    assert season_of(frequency) == season


@pytest.mark.parametrize("season", [1, 4, 9])
def test_seasonal_naive_repeats_the_last_season(season: int) -> None:
    values = np.random.default_rng(0).standard_normal((40, 2)).astype(np.float32)
    origins = np.array([9, 20, 40])
    found = seasonal_naive(values, origins, 6, season)
    for origin, forecast in zip(origins, found, strict=True):
        history = values[:origin].tolist()
        for _ in range(6):
            history.append(history[-season])
        assert forecast.tolist() == history[origin:]


def test_scale_of_mase_is_the_error_of_repeating_the_season_before() -> None:
    values = np.random.default_rng(0).standard_normal((40, 2)).astype(np.float32)
    for season in (1, 7):
        for channel in (0, 1):
            column = values[:, channel].astype(float)
            expected = np.mean([abs(column[i] - column[i - season]) for i in range(season, 40)])
            assert seasonal_error(values, season)[channel] == pytest.approx(expected)


@pytest.mark.parametrize("rounding", [0, 1e-7])
def test_scale_of_mase_of_a_channel_that_repeats_exactly_is_that_of_its_last_value(rounding: float) -> None:
    values = np.array([[i % 3, i * i] for i in range(31)], np.float32)
    values[7, 0] += np.float32(rounding)
    assert seasonal_error(values, 3) == pytest.approx([4 / 3, seasonal_error(values, 3)[1]])


def test_scale_of_mase_of_a_constant_channel_is_not_zero() -> None:
    assert seasonal_error(np.zeros((31, 1), np.float32), 3).tolist() == [EXACT]


@pytest.mark.parametrize("season", [1, 4])
def test_map_of_a_naive_baseline_repeats_the_last_season(season: int) -> None:
    values = np.random.default_rng(0).standard_normal((12, 2)).astype(np.float32)
    found = LinearMap.repeating(season, 12, 10).forecast(values[None])
    assert found == pytest.approx(seasonal_naive(values, np.array([12]), 10, season), abs=1e-6)


def test_mixed_map_gives_the_mixed_forecast(windows: np.ndarray) -> None:
    linear, naive = solve_linear_map(windows, 6), LinearMap.repeating(3, 6, 3)
    context = windows[:, :, :6].transpose(0, 2, 1)
    expected = 0.25 * linear.forecast(context) + 0.75 * naive.forecast(context)
    assert linear.mixed(naive, 0.25).forecast(context) == pytest.approx(expected, abs=1e-5)
