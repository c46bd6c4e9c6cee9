"""`POST /v1/forecast`."""

from typing import Any

import pytest

from tests.support.models import answer, forecaster, serving
from tests.support.problems import check_problem

SERIES = {"heat": [1, 2, 3, 4], "load": [5, 6, 7, 8]}
"""Channels in another order than those of the model."""
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
        "model_from": "default",
    }


async def test_positional_channels_are_answered_by_position() -> None:
    async with serving(forecaster()) as client:
        body = {"series": list(SERIES.values()), "horizon": 2, "quantiles": [0.5]}
        found = answer(await client.post("/v1/forecast", json=body))
    assert found["forecast"] == [[4, 4], [8, 8]]
    assert found["quantiles"] == {"0.5": [[4, 4], [8, 8]]}


async def test_missing_values_are_interpolated_and_counted() -> None:
    body = {"series": [[9, 1, 2, 3, None], [9, 5, None, 7, 8]]}
    async with serving(forecaster()) as client:
        found = answer(await client.post("/v1/forecast", json=body))
    assert found["forecast"] == [[3, 3, 3], [8, 8, 8]]
    assert found["quantiles_reliable"] is False
    assert found["coverage"] == {"observations_total": 8, "observations_used": 6, "imputed": 2, "context_length": 4}


async def test_start_and_frequency_give_time_stamps() -> None:
    body = {"series": SERIES, "horizon": 2, "start": "2024-02-28T22:00:00", "frequency": "30min"}
    async with serving(forecaster(frequency="30min")) as client:
        found = answer(await client.post("/v1/forecast", json=body))
    assert found["timestamps"] == ["2024-02-29T00:00:00", "2024-02-29T00:30:00"]


@pytest.mark.parametrize(
    ("frequency", "expected"),
    [
        ("1mo", ["2024-05-31T00:00:00", "2024-06-30T00:00:00"]),
        ("1q", ["2025-01-31T00:00:00", "2025-04-30T00:00:00"]),
        ("1y", ["2028-01-31T00:00:00", "2029-01-31T00:00:00"]),
        ("1b", ["2024-02-06T00:00:00", "2024-02-07T00:00:00"]),
        ("2h", ["2024-01-31T08:00:00", "2024-01-31T10:00:00"]),
    ],
)
async def test_start_without_frequency_uses_the_step_of_the_model(frequency: str, expected: list[str]) -> None:
    body = {"series": SERIES, "horizon": 2, "start": "2024-01-31"}
    async with serving(forecaster(frequency=frequency)) as client:
        found = answer(await client.post("/v1/forecast", json=body))
    assert found["timestamps"] == expected


async def test_start_alone_is_refused_where_the_model_knows_no_step() -> None:
    async with serving(forecaster(frequency="irregular")) as client:
        response = await client.post("/v1/forecast", json={"series": SERIES, "start": "2024-02-28"})
        found = answer(
            await client.post("/v1/forecast", json={"series": SERIES, "start": "2024-02-28", "frequency": "D"})
        )
    (error,) = check_problem(response, 422, "invalid_input")["errors"]
    assert error["loc"] == "frequency"
    assert found["timestamps"][0] == "2024-03-03T00:00:00"


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
        ({"quantiles": [0.05]}, "quantiles", "level 0.05 is outside [0.1, 0.9], the calibrated range"),
        ({"frequency": "15min"}, "frequency", "naive expects one value every 1h"),
        ({"start": "2024-01-01", "frequency": "1month"}, "frequency", None),
    ],
)
async def test_problem_names_the_wrong_value(changes: dict[str, Any], place: str, message: str | None) -> None:
    async with serving(forecaster()) as client:
        response = await client.post("/v1/forecast", json={"series": SERIES, **changes})
    problem = check_problem(response, 422, "invalid_input")
    (error,) = problem["errors"]
    assert (problem["instance"], error["loc"]) == ("/v1/forecast", place)
    assert message is None or error["msg"] == message
