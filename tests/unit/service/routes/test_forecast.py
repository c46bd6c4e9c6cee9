"""`POST /v1/forecast`."""

from typing import Any

import pytest

from tests.support.models import answer, forecaster, serving
from tests.support.problems import check_problem

SERIES = {"heat": [1, 2, 3, 4], "load": [5, 6, 7, 8]}
"""Not in the model's order."""
COVERAGE = {"observations_total": 8, "observations_used": 8, "imputed": 0, "context_length": 4}


async def test_named_channels_are_answered_by_name() -> None:
    async with serving(forecaster()) as client:
        found = answer(await client.post("/v1/forecast", json={"series": SERIES, "quantiles": [0.1, 0.9]}))
    assert found == {
        "model": "naive",
        "version": 1,
        "forecast": {"heat": [4, 4, 4], "load": [8, 8, 8]},
        "quantiles": {"0.1": {"heat": [2, 2, 2], "load": [6, 6, 6]}, "0.9": {"heat": [8, 8, 8], "load": [12, 12, 12]}},
        "quantiles_reliable": True,
        "coverage": COVERAGE,
    }


async def test_positional_channels_are_answered_by_position() -> None:
    async with serving(forecaster()) as client:
        body = {"series": list(SERIES.values()), "horizon": 2, "quantiles": [0.5]}
        found = answer(await client.post("/v1/forecast", json=body))
    assert found["forecast"] == [[4, 4], [8, 8]]
    assert found["quantiles"] == {"0.5": [[4, 4], [8, 8]]}


async def test_missing_values_are_filled_in_and_counted() -> None:
    body = {"series": [[9, 1, 2, 3, None], [9, 5, None, 7, 8]]}
    async with serving(forecaster()) as client:
        found = answer(await client.post("/v1/forecast", json=body))
    assert found["forecast"] == [[3, 3, 3], [8, 8, 8]]
    assert found["quantiles_reliable"] is False
    assert found["coverage"] == {
        "observations_total": 8,
        "observations_used": 6,
        "imputed": 2,
        "context_length": 4,
    }


async def test_start_and_frequency_give_time_stamps() -> None:
    body = {"series": SERIES, "horizon": 2, "start": "2024-02-28T22:00:00", "frequency": "30min"}
    async with serving(forecaster()) as client:
        found = answer(await client.post("/v1/forecast", json=body))
    assert found["timestamps"] == ["2024-02-29T00:00:00", "2024-02-29T00:30:00"]


async def test_channels_choose_the_model() -> None:
    async with serving(forecaster(), forecaster("other", channels=["wind"])) as client:
        found = answer(await client.post("/v1/forecast", json={"series": {"wind": [1, 2, 3, 4]}}))
    assert (found["model"], found["forecast"]) == ("other", {"wind": [4, 4, 4]})


@pytest.mark.parametrize(
    ("changes", "place", "message"),
    [
        ({"series": [[1, 2, 3, 4]]}, "series", "naive has 2 channels (load, heat), a list of values each, not 1 lists"),
        (
            {"series": [[1, 2, 3, 4], [None, None, None, 1]]},
            "series.heat",
            "1 of the last 4 values of heat are there; at least 2 are needed",
        ),
        ({"horizon": 4}, "horizon", "must be at most 3, the steps that naive forecasts"),
        ({"quantiles": [0.05]}, "quantiles", "level 0.05 is outside [0.1, 0.9], what was calibrated"),
        ({"start": "2024-01-01"}, "frequency", "missing"),
        ({"frequency": "1h"}, "start", "missing"),
        ({"start": "2024-01-01", "frequency": "1month"}, "frequency", None),
    ],
)
async def test_wrong_value_is_a_problem_that_names_it(changes: dict[str, Any], place: str, message: str | None) -> None:
    async with serving(forecaster()) as client:
        response = await client.post("/v1/forecast", json={"series": SERIES, **changes})
    problem = check_problem(response, 422, "invalid_input")
    (error,) = problem["errors"]
    assert (problem["instance"], error["loc"]) == ("/v1/forecast", place)
    assert message is None or error["msg"] == message
