"""Series to the window that a model reads; model output to a forecast with bands."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from artifact.errors import InvalidInput
from artifact.series import Column, Tails, parse_frequency
from artifact.tasks.forecaster import MAX_LEVELS, Forecast, ForecastOptions, ForecastPlan
from artifact.tasks.forecasting import Forecasting
from tests.support.models import MEAN, SCALE, compute, forecaster, rows_of

OUTPUT = np.array([[1, 2], [3, 4], [5, 6]], np.float32)
"""Output for two channels and three steps, in deviations from the mean."""
WHOLE: list[Column] = [[10, 12, 14, 16], [10, 10, 10, 10]]


@pytest.fixture
def task() -> Forecasting:
    found = forecaster().task
    assert isinstance(found, Forecasting)
    return found


def plan(task: Forecasting, columns: Sequence[Column], names: list[str] | None = None, **options: Any) -> ForecastPlan:
    tails = Tails.of(columns, task.context_length)
    return task.plan(names, tails, ForecastOptions(2, **options))


def forecast(
    task: Forecasting, columns: Sequence[Column], levels: Sequence[float] = (), names: list[str] | None = None
) -> Forecast:
    (found,) = compute(task.forecast([plan(task, columns, names, levels=levels)]), [[OUTPUT]])
    return found


def test_row_is_the_scaled_window(task: Forecasting) -> None:
    (row,) = rows_of(task.forecast([plan(task, [[0, *column] for column in WHOLE])]))
    assert np.frombuffer(row, np.float32).reshape(4, 2).tolist() == [[0, 0], [1, 0], [2, 0], [3, 0]]


def test_forecast_is_in_the_units_of_the_data(task: Forecasting) -> None:
    answer = forecast(task, WHOLE, [0.1, 0.5, 0.9])
    expected = OUTPUT[:2] * SCALE + MEAN
    assert answer.values.tolist() == expected.tolist()
    errors = {0.1: -1.0, 0.5: 0.0, 0.9: 2.0}
    assert {level: values.tolist() for level, values in answer.quantiles.items()} == {
        level: (expected + error * SCALE).tolist() for level, error in errors.items()
    }


@pytest.mark.parametrize(
    ("columns", "is_calibrated", "is_reliable"),
    [
        (WHOLE, True, True),
        (WHOLE, False, False),
        ([[None, 12, 14, 16], [10, 10, 10, 10]], True, False),  # 1 of 8 values
    ],
)
def test_bands_are_reliable_if_calibrated_and_the_window_is_full(
    task: Forecasting,
    columns: list[Column],
    is_calibrated: bool,
    is_reliable: bool,
) -> None:
    measured = Forecasting(task.manifest.model_copy(update={"quantiles_reliable": is_calibrated}), task.calibration)
    assert forecast(measured, columns).quantiles_reliable == is_reliable


def test_answer_keeps_the_order_of_the_channels(task: Forecasting) -> None:
    answer = forecast(task, WHOLE, [0.5])
    first, second = [12.0, 16.0], [14.0, 18.0]
    by_position = answer.as_json()
    assert (by_position["forecast"], by_position["quantiles"]) == ([first, second], {"0.5": [first, second]})
    by_name = forecast(task, WHOLE, names=["heat", "load"]).as_json()
    assert list(by_name["forecast"].items()) == [("heat", second), ("load", first)]
    assert by_name["coverage"] == {
        "observations_total": 8,
        "observations_used": 8,
        "imputed": 0,
        "context_length": 4,
    }


@pytest.mark.parametrize(("horizon", "chosen"), [(None, 3), (1, 1), (3, 3)])
def test_default_horizon_is_the_longest(task: Forecasting, horizon: int | None, chosen: int) -> None:
    assert task.choose_horizon(horizon) == chosen


@pytest.mark.parametrize(
    ("horizon", "message"), [(4, "must be at most 3, the steps that naive forecasts"), (0, "must be at least 1")]
)
def test_invalid_horizons_are_rejected(task: Forecasting, horizon: int, message: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        task.choose_horizon(horizon)
    assert caught.value.errors == [("horizon", message)]


@pytest.mark.parametrize(("names", "places"), [(None, [0, 1]), (["load", "heat"], [0, 1]), (["heat", "load"], [1, 0])])
def test_channels_are_found_by_name_or_position(task: Forecasting, names: list[str] | None, places: list[int]) -> None:
    assert task.check_channels(names, 2) == places


@pytest.mark.parametrize(
    ("names", "count", "message"),
    [
        (None, 1, "naive has 2 channels (load, heat), a list of values each, not 1 lists"),
        (["load"], 1, "naive needs the channels load, heat; heat is missing"),
        (["load", "heat", "wind"], 3, "naive has 2 channels (load, heat), not 3"),
    ],
)
def test_wrong_channels_are_rejected(task: Forecasting, names: list[str] | None, count: int, message: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        task.check_channels(names, count)
    assert caught.value.errors == [("series", message)]


def test_levels_beyond_the_calibration_are_rejected(task: Forecasting) -> None:
    many = [0.1 + 0.8 * number / MAX_LEVELS for number in range(MAX_LEVELS + 1)]
    task.check_levels(many[:MAX_LEVELS])
    for levels in (many, [0.5, 0.5], [0.05], [0.95]):
        with pytest.raises(InvalidInput) as caught:
            task.check_levels(levels)
        assert [place for place, _ in caught.value.errors] == ["quantiles"]


def test_location_of_an_error_is_renamed(task: Forecasting) -> None:
    plans = [plan(task, [[1, 2, 3, 4]] * 2), plan(task, [[1, 2, 3, 4], [1]])]
    with pytest.raises(InvalidInput, match=r"^2nd.series: all channels must be equally long"):
        rows_of(task.forecast(plans, rename=lambda at, place: f"{at + 1}nd.{place}"))


def test_forecast_is_not_negative_if_asked(task: Forecasting) -> None:
    far = plan(task, WHOLE, levels=[0.5], non_negative=True)
    (found,) = compute(task.forecast([far]), [[OUTPUT - 6]])
    assert found.values.tolist() == found.quantiles[0.5].tolist() == [[0, 2], [4, 6]]


def test_season_is_refused(task: Forecasting) -> None:
    with pytest.raises(InvalidInput, match=r"^season: naive has learned its seasons; leave it out"):
        plan(task, WHOLE, seasons=(12,))


def test_channels_and_step_tell_whether_a_model_fits(task: Forecasting) -> None:
    hour, day = parse_frequency("1h"), parse_frequency("1d")
    fitting = [(None, None), (["heat", "load"], None), (None, hour), (["load", "heat"], hour)]
    assert [task.fits(channels, step) for channels, step in fitting] == [True] * 4
    assert [task.fits(channels, step) for channels, step in ((["load"], None), (None, day))] == [False] * 2
    assert [task.fits(channels, step, exactly=True) for channels, step in fitting] == [False, False, False, True]
