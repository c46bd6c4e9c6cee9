import numpy as np
import pytest
from numpy.typing import ArrayLike

from artifact.arrays import Doubles
from artifact.univariate.features import CONTEXT, FUTURE, HORIZON, LEVELS, MEDIAN, PATCH, WIDTH, Prepared, prepare

WALK = 50 + np.random.default_rng(0).standard_normal(600).cumsum()
WAVE = 10 * np.sin(np.arange(600) * 2 * np.pi / 12)


def prepared(values: ArrayLike, *seasons: int) -> Prepared:
    return prepare(np.asarray(values, np.float64)[None], seasons or (1,))


def restored(values: ArrayLike, *seasons: int, spread: float = 1.0) -> Doubles:
    """Forecast (levels, horizon) if the model's quantiles are from -spread to spread at every step."""
    quantiles = np.repeat(np.linspace(-spread, spread, len(LEVELS))[:, None], HORIZON, axis=1)
    found: Doubles = prepared(values, *seasons).restore(quantiles[None], 0.0)[0]
    return found


@pytest.mark.parametrize("value", [0.0, 5.0, -3.5, 0.1, 1e12, 1e-300, 1e308])
@pytest.mark.parametrize("n", [1, 2, 30])
def test_constant_is_forecast_exactly_with_a_band_of_no_width(value: float, n: int) -> None:
    assert (restored(np.full(n, value), 4) == value).all()


@pytest.mark.parametrize("seasons", [(1,), (12,), (7, 28)])
@pytest.mark.parametrize(("start", "slope"), [(0, 1), (1e12, 1), (5, -0.1), (-3, 1e-9), (1e300, 1e298)])
def test_line_goes_on(start: float, slope: float, seasons: tuple[int, ...]) -> None:
    found, expected = restored(start + slope * np.arange(60), *seasons), start + slope * np.arange(60, 156)
    assert found == pytest.approx(np.tile(expected, (len(LEVELS), 1)), rel=1e-9, abs=1e-9 * abs(slope))


def test_digits_of_large_values_are_kept() -> None:
    assert (restored(1e12 + np.arange(40), 12)[MEDIAN] - 1e12).tolist() == list(range(40, 40 + HORIZON))
    noisy = np.round(np.random.default_rng(0).standard_normal(40), 3)
    assert (restored(1e12 + noisy, 12)[MEDIAN, :12] - 1e12) == pytest.approx(restored(noisy, 12)[MEDIAN, :12], abs=1e-3)


@pytest.mark.parametrize("level", [0, 3, 1000])
@pytest.mark.parametrize("season", [4, 7, 12])
def test_perfect_season_repeats(season: int, level: float) -> None:
    pattern = level + np.random.default_rng(season).standard_normal(season)
    found = restored(pattern[np.arange(5 * season + 2) % season], season)
    expected = pattern[np.arange(5 * season + 2, 5 * season + 2 + HORIZON) % season]
    assert found == pytest.approx(np.tile(expected, (len(LEVELS), 1)), abs=1e-9 * max(1, level))


def test_perfect_season_on_a_line_goes_on() -> None:
    found = restored(100 + 2 * np.arange(120) + WAVE[:120], 12)
    assert found == pytest.approx(np.tile(100 + 2 * np.arange(120, 216) + WAVE[120:216], (len(LEVELS), 1)), abs=1e-9)


def test_perfect_season_with_missing_values_repeats() -> None:
    hidden = np.where(np.arange(120) % 17 == 5, np.nan, np.repeat([1.0, 4.0], 6)[np.arange(120) % 12])
    assert restored(hidden, 12)[MEDIAN] == pytest.approx(np.tile(np.repeat([1.0, 4.0], 6), 8), abs=1e-6)


@pytest.mark.parametrize("place", [3, 40, 118, 119])
@pytest.mark.parametrize("size", [1e6, -1e6, 1e15])
def test_an_outlier_does_not_move_the_rest(place: int, size: float) -> None:
    series = WALK[:120] + WAVE[:120]
    struck = series.copy()
    struck[place] = size
    hidden = struck.copy()
    hidden[place] = np.nan
    assert restored(struck, 12) == pytest.approx(restored(hidden, 12), rel=1e-6)
    assert restored(struck, 12) == pytest.approx(restored(series, 12), rel=0.1)


def test_an_outlier_among_equal_values_leaves_a_constant() -> None:
    assert (restored(np.r_[np.ones(60), 1e6, np.ones(3)], 12) == 1).all()


@pytest.mark.parametrize("values", [[3.0, 4.0], [3.0, 4.0, 5.0], [1.0, np.nan, 2.0], [1.0, *[np.nan] * 9, 2.0]])
def test_few_values_get_a_band(values: list[float]) -> None:
    found = restored(np.array(values), 12)
    assert np.isfinite(found).all()
    assert (found[-1] > found[0]).all()


def test_forecast_has_the_units_of_the_series() -> None:
    series = WALK[:200] + WAVE[:200]
    for factor in (1e-200, 3.7, 1e200):
        assert restored(factor * series, 12) == pytest.approx(factor * restored(series, 12), rel=1e-9)
        # The statistics that tell whether values are whole may differ.
        assert prepared(factor * series, 12).tokens[:, 1:] == pytest.approx(
            prepared(series, 12).tokens[:, 1:], abs=1e-5
        )


@pytest.mark.parametrize("seasons", [(1,), (12,), (7, 28)])
@pytest.mark.parametrize("n", [1, 8, 9, 100, CONTEXT])
def test_series_do_not_depend_on_those_prepared_with_them(n: int, seasons: tuple[int, ...]) -> None:
    series = np.stack([WALK[:n], 100 + WAVE[:n], np.full(n, 2.0), np.abs(WALK[-n:] - WALK[-1])])
    if n > 9:
        series[0, 5:7] = np.nan
    together = prepare(series, seasons)
    for row, values in enumerate(series):
        alone = prepared(values, *seasons)
        assert (alone.tokens == together.tokens[row]).all()
        assert (alone.theta == together.theta[row]).all()


def test_targets_are_what_restore_undoes() -> None:
    batch = prepare(np.stack([WALK[:200] + WAVE[:200], 200 + WALK[:200] * (2 + WAVE[:200] / 20)]), (12,))
    future = np.stack([WALK[200:296], 7 * WALK[200:296]])
    quantiles = np.repeat(batch.targets(future)[:, None], len(LEVELS), axis=1)
    assert batch.restore(quantiles, 0.0)[:, MEDIAN] == pytest.approx(future)


def test_exact_lines_have_no_targets() -> None:
    assert np.isnan(prepared(np.arange(20.0)).targets(np.ones((1, HORIZON)))).all()


def test_share_moves_the_medians_to_theta() -> None:
    batch = prepared(WALK[:100])
    quantiles = np.random.default_rng(0).standard_normal((1, len(LEVELS), HORIZON))
    theta = batch.restore(np.repeat(batch.theta[:, None], len(LEVELS), axis=1), 0.0)[:, MEDIAN]
    model, mixed, moved = (batch.restore(quantiles, share) for share in (0.0, 0.25, 1.0))
    assert moved[:, MEDIAN] == pytest.approx(theta)
    assert mixed[:, MEDIAN] == pytest.approx(0.75 * model[:, MEDIAN] + 0.25 * theta)
    assert mixed - mixed[:, MEDIAN, None] == pytest.approx(model - model[:, MEDIAN, None])


def test_quantiles_are_ordered() -> None:
    shuffled = np.random.default_rng(0).standard_normal((1, len(LEVELS), HORIZON))
    assert (np.diff(prepared(WALK[:100]).restore(shuffled, 0.3), axis=1) >= 0).all()


def test_tokens_are_statistics_then_future_then_past_newest_first() -> None:
    batch = prepared(np.where(np.arange(21) == 4, np.nan, WALK[:21]), 7)
    tokens = batch.tokens[0]
    assert tokens.shape == (1 + FUTURE + 3, WIDTH)
    value, known, component, earlier = tokens[1 + FUTURE :].reshape(3, 4, PATCH).transpose(1, 0, 2).reshape(4, -1)
    assert known.tolist() == [1.0] * 16 + [0.0] + [1.0] * 4 + [0.0] * 3
    scaled = (WALK[:21] - WALK[20]) / (batch.scale[0] * 2.0 ** batch.exponent[0])
    deseasonalised = scaled - (np.sinh(component[:21]) - 0)[::-1] + np.sinh(component[0])
    if batch.factor.std() == 0:
        assert np.sinh(value[:16]) == pytest.approx(deseasonalised[::-1][:16], abs=1e-4)
    assert earlier[:9] == pytest.approx(value[7:16])
    future = tokens[1 : 1 + FUTURE].reshape(FUTURE, 4, PATCH).transpose(1, 0, 2).reshape(4, -1)
    assert future[1, :14] == pytest.approx(np.tile(value[:7][::-1], 2))
    assert np.sinh(future[3]) == pytest.approx(batch.theta[0], rel=1e-4, abs=1e-4)


def test_theta_moves_the_medians_but_not_those_of_sparse_counts() -> None:
    quantiles = np.tile(np.linspace(-1, 1, len(LEVELS))[None, :, None], (1, 1, HORIZON))
    for values, is_sparse in ((np.tile([0.0, 3.0, 1.0, 0.0], 12), True), (np.tile([20.0, 3.0, 1.0, 9.5], 12), False)):
        found = prepare(values[None], (1,))
        assert found.is_sparse.tolist() == [is_sparse]
        expected = (0.0 if is_sparse else 0.25) * found.theta
        assert found.mixed(quantiles, 0.25)[:, MEDIAN] == pytest.approx(expected)
        assert np.diff(found.mixed(quantiles, 0.25), axis=1) == pytest.approx(np.diff(quantiles, axis=1))


def test_missing_values_do_not_hide_that_counts_are_sparse() -> None:
    values = np.array([0.0, np.nan, 2.0, 0.0, 1.0, 0.0, 0.0, 4.0, np.nan, 1.0])
    assert prepare(values[None], (1,)).is_sparse.all()
    assert not prepare(values[None] + 0.5, (1,)).is_sparse.any()
