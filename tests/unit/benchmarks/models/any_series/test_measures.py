"""Measures against slow references, and the parts of a collection."""

import random
import statistics

import numpy as np
import pytest

from benchmarks.models.any_series.forecasters import naive, seasonal_naive
from benchmarks.models.any_series.measures import DRAWS, MEASURES, ahead, errors, paired, summary
from benchmarks.models.any_series.series import LongSet, Series, channel_of
from tests.unit.benchmarks.models.any_series.conftest import quarterly

SERIES = [
    quarterly("rising", [*range(1, 13), 13.0, 15.0], 2),
    quarterly("zero", [0.0, 1.0, 2.0, 1.0, 3.0, 0.0, 0.0, 0.0], 3),
    quarterly("negative", [-4.0, 2.0, 3.0, 1.0, 5.0, 2.0, -3.0, -2.0], 2, "monthly"),
]


def slow_errors(series: Series, quantiles: list[list[float]], steps: int) -> list[float]:
    """The five measures, from their definitions."""
    smape, mae, mse, interval, inside = [], [], [], [], 0
    for value, row in list(zip(series.future.tolist(), quantiles, strict=True))[:steps]:
        low, point, high = row[0], row[4], row[8]
        smape.append(0 if value == point == 0 else 200 * abs(value - point) / (abs(value) + abs(point)))
        mae.append(abs(value - point) / series.unit)
        mse.append((value - point) ** 2 / series.unit**2)
        score = high - low
        if value < low:
            score += 10 * (low - value)
        if value > high:
            score += 10 * (value - high)
        interval.append(score / series.unit)
        inside += low <= value <= high
    return [*map(statistics.mean, (smape, mae, mse, interval)), 100 * inside / len(mae)]


@pytest.mark.parametrize("steps", [1, 2, 3])
def test_errors_agree_with_their_definitions(steps: int) -> None:
    forecasts = [naive(one.past, 1, len(one.future)) - 0.3 * index for index, one in enumerate(SERIES)]
    found = errors(SERIES, forecasts, steps)
    slow = [slow_errors(one, rows.tolist(), steps) for one, rows in zip(SERIES, forecasts, strict=True)]
    for measure, values in zip(MEASURES, zip(*slow, strict=True), strict=True):
        np.testing.assert_allclose(found[measure], values, err_msg=measure)


def test_forecast_that_is_equal_up_to_rounding_is_not_ahead() -> None:
    one = {"mae": np.array([1.0, 2.0, 0.0, 3.0])}
    other = {"mae": np.array([1.0 + 1e-15, 2.1, 0.0, 2.0])}
    assert (ahead(one, other), ahead(other, one)) == (25, 25)


def test_interval_of_paired_differences_is_that_of_drawn_groups() -> None:
    generator = random.Random(0)
    first = [generator.gauss(0.1, 1) for _ in range(60)]
    other = [generator.gauss(0, 1) for _ in range(60)]
    groups = [index % 20 for index in range(60)]
    mean, low, high = paired(np.array(first), np.array(other), groups)
    of_group = [[first[i] - other[i] for i in range(60) if groups[i] == group] for group in range(20)]
    drawn = []
    for _ in range(20 * DRAWS):
        chosen = [value for group in generator.choices(of_group, k=20) for value in group]
        drawn.append(statistics.mean(chosen))
    cuts = statistics.quantiles(drawn, n=40)
    assert mean == pytest.approx(statistics.mean(a - b for a, b in zip(first, other, strict=True)))
    assert (low, high) == pytest.approx((cuts[0], cuts[-1]), abs=0.03)
    assert high - low > 0.3


def test_same_difference_of_all_series_has_an_interval_without_width() -> None:
    assert paired(np.arange(5.0) + 2, np.arange(5.0), range(5)) == (2, 2, 2)


def test_summary_of_a_competition_has_frequencies_all_series_and_seeds() -> None:
    last = [naive(one.past, 1, len(one.future)) for one in SERIES]
    seasonal = [seasonal_naive(one.past, 4, len(one.future)) for one in SERIES]
    moved = [rows + 1 for rows in last]
    found = summary(SERIES, {"last": [last, moved], "seasonal": [seasonal]}, seasonal, ["seasonal", "absent"])
    assert [(row["part"], row["forecaster"], row["series"]) for row in found["rows"]] == [
        (part, name, count)
        for part, count in (("quarterly", 2), ("monthly", 1), ("all", 3))
        for name in ("last", "seasonal")
    ]
    of_last = found["rows"][4]
    for measure in MEASURES:
        values = [errors(SERIES, seed)[measure] for seed in (last, moved)]
        assert of_last[measure] == [value.mean() for value in values]
    assert len(of_last["ahead"]) == 2
    assert found["rows"][5]["ahead"] == [0]
    (difference,) = found["differences"]
    assert [difference[key] for key in ("part", "forecaster", "less")] == ["all", "last", "seasonal"]
    assert difference["mae"][0] == pytest.approx(np.mean(of_last["mae"]) - found["rows"][5]["mae"][0])


def test_summary_of_a_long_set_has_short_and_long_forecasts(ett: LongSet) -> None:
    series = ett.series()
    last = [naive(one.past, 1, 96) for one in series]
    seasonal = [seasonal_naive(one.past, 24, 96) for one in series]
    found = summary(series, {"last": [last], "seasonal": [seasonal]}, seasonal, ["seasonal"])
    assert [(row["part"], row["forecaster"]) for row in found["rows"]] == [
        (f"{steps} steps", name) for steps in (24, 96) for name in ("last", "seasonal")
    ]
    assert found["rows"][0]["mse"] == [errors(series, [rows[:24] for rows in last], 24)["mse"].mean()]
    short, _ = found["differences"]
    first, other = (errors(series, forecasts, 24)["mse"] for forecasts in (last, seasonal))
    starts = [channel_of(one)[0] for one in series]
    assert short == {
        **{"part": "24 steps", "forecaster": "last", "less": "seasonal", "mse": paired(first, other, starts)},
        **{measure: short[measure] for measure in ("smape", "mae")},
    }
