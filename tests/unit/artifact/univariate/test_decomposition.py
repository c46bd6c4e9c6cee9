import statistics

import numpy as np
import pytest

from artifact.arrays import Doubles
from artifact.univariate.decomposition import ROBUST, centred_average, decompose, find_outliers, seasonal_indices

NOISE = np.random.default_rng(0).standard_normal((3, 240))


def slow_average(values: list[float], season: int) -> list[float]:
    """Moving average of one series, its ends extended with the mean slope of up to one season."""
    half, found = season // 2, dict[int, float]()
    for t in range(half, len(values) - half):
        window = values[t - half : t + half + 1]
        if season % 2 == 0:
            window = [window[0] / 2, *window[1:-1], window[-1] / 2]
        found[t] = sum(window) / season
    first, last = min(found), max(found)
    steps = min(season, last - first)
    before, after = (found[first + steps] - found[first]) / steps, (found[last] - found[last - steps]) / steps
    return [
        found[first] - before * (first - t) if t < first else found[last] + after * (t - last) if t > last else found[t]
        for t in range(len(values))
    ]


def slow_indices(ratio: list[float], season: int) -> tuple[list[float], float]:
    """Additive indices of one series without missing values, and the share that was kept."""
    phases = [ratio[phase::season] for phase in range(season)]
    middles = [statistics.median(phase) for phase in phases]
    sizes = sorted(abs(x - middle) for phase, middle in zip(phases, middles, strict=True) for x in phase)
    limit = ROBUST * sizes[len(sizes) // 2]
    clipped = [
        [min(limit, max(-limit, x - middle)) for x in phase] for phase, middle in zip(phases, middles, strict=True)
    ]
    indices = [middle + statistics.fmean(rest) for middle, rest in zip(middles, clipped, strict=True)]
    noise = sum((x - statistics.fmean(rest)) ** 2 for rest in clipped for x in rest) / (len(ratio) - season)
    mean = statistics.fmean(indices)
    kept = max(0.0, 1 - noise * season / len(ratio) / statistics.pvariance(indices))
    return [(index - mean) * kept for index in indices], kept


@pytest.mark.parametrize(("season", "n"), [(2, 4), (3, 6), (3, 17), (4, 8), (12, 24), (12, 31), (12, 120), (7, 50)])
def test_average_equals_a_slow_reference(season: int, n: int) -> None:
    found = centred_average(NOISE[:, :n], season)
    for row, values in enumerate(NOISE[:, :n].tolist()):
        assert found[row] == pytest.approx(slow_average(values, season), abs=1e-12)


@pytest.mark.parametrize(("season", "n"), [(3, 6), (4, 8), (12, 31), (12, 240), (7, 50)])
def test_indices_equal_a_slow_reference(season: int, n: int) -> None:
    series = NOISE[:, :n] + 2 * np.sin(np.arange(n) * 2 * np.pi / season)
    indices, kept = seasonal_indices(series, season, is_factor=False)
    for row, values in enumerate(series.tolist()):
        expected, share = slow_indices(values, season)
        assert kept[row] == pytest.approx(share, abs=1e-12)
        assert indices[row] == pytest.approx(expected, abs=1e-12)


def test_indices_of_noise_nearly_vanish_and_those_of_a_pattern_stay() -> None:
    pattern = np.tile([3.0, -1.0, 0.0, -2.0], 60)
    _, kept = seasonal_indices(np.stack([NOISE[0], pattern]), 4, is_factor=False)
    assert kept[0] < 0.5
    assert kept[1] == 1


def test_missing_values_do_not_count() -> None:
    pattern = np.tile([3.0, -1.0, 0.0, -2.0], 10)
    hidden = np.where(np.arange(40) % 3 == 1, np.nan, pattern)
    indices, kept = seasonal_indices(hidden[None], 4, is_factor=False)
    assert (indices[0], kept[0]) == (pytest.approx([3, -1, 0, -2]), 1)


def test_an_outlier_in_five_cycles_does_not_move_the_indices() -> None:
    pattern = np.tile([3.0, -1.0, 0.0, -2.0], 5)
    pattern[6] = 1e6
    indices, _ = seasonal_indices(pattern[None], 4, is_factor=False)
    assert indices[0] == pytest.approx([3, -1, 0, -2])


def _decomposed(series: Doubles, *seasons: int) -> tuple[Doubles, Doubles, bool]:
    found = decompose(series[None], np.ones((1, len(series)), np.bool_), seasons, 12)
    return found.factor[0], found.term[0], bool(found.is_multiplicative[0])


def test_pattern_that_grows_with_the_level_is_a_factor() -> None:
    pattern, steps = np.array([1.2, 0.8, 1.1, 0.9]), np.arange(80)
    factor, term, is_multiplicative = _decomposed((50.0 + steps) * pattern[steps % 4], 4)
    assert is_multiplicative
    assert factor[:4] == pytest.approx(pattern, abs=0.01)
    assert not term.any()


@pytest.mark.parametrize("level", [0.0, 1000.0])
def test_pattern_that_does_not_grow_is_added(level: float) -> None:
    pattern, steps = np.array([12.0, -8.0, 5.0, -9.0]), np.arange(80)
    factor, term, is_multiplicative = _decomposed(level + 10 * steps + pattern[steps % 4], 4)
    assert not is_multiplicative
    assert (factor == 1).all()
    assert term == pytest.approx(pattern[np.arange(92) % 4], abs=1e-9)


def test_two_seasons_are_found_one_after_the_other() -> None:
    steps = np.arange(24 * 20)
    day, week = np.sin(np.arange(24) * np.pi / 12), np.repeat([1.0, 2, 0, -1, -2, 0, 0], 24)
    _, term, _ = _decomposed(day[steps % 24] + week[steps % 168], 24, 168)
    expected = day[np.arange(492) % 24] + week[np.arange(492) % 168]
    assert np.corrcoef(term, expected)[0, 1] > 0.999


@pytest.mark.parametrize("season", [1, 51, 400])
def test_season_longer_than_half_the_series_has_no_component(season: int) -> None:
    factor, term, _ = _decomposed(10 + np.abs(NOISE[0, :100]), season)
    assert (factor == 1).all()
    assert not term.any()


def test_single_value_far_from_its_neighbours_is_an_outlier() -> None:
    series = NOISE.copy()
    series[1, 100] = 1e6
    assert np.argwhere(find_outliers(series)).tolist() == [[1, 100]]


@pytest.mark.parametrize(
    "series",
    [
        np.repeat([1.0, 5.0], 20),
        np.r_[np.ones(30), 4.0],
        np.exp(0.3 * np.arange(40)),
        np.tile(np.r_[np.zeros(11), 100.0], 6) + NOISE[0, :72],
        np.tile(np.r_[np.zeros(9), 3.0], 8),
        np.array([0.0, 0, 1e6, 0, 0, 0, 0]),
    ],
    ids=["shift", "shift at the end", "growth", "peaks", "rare sales", "too short to tell"],
)
def test_what_may_happen_again_is_no_outlier(series: Doubles) -> None:
    assert not find_outliers(series[None]).any()
