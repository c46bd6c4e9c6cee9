"""KServe's forecasting API."""

from collections.abc import Sequence
from typing import Any

import httpx
import pytest

from service.settings import Settings
from service.wire import requests
from tests.support.models import ServingClient, answer, classifier, forecaster, serving

UNIVARIATE = {"series": [1, 2, 3, 4], "frequency": "H"}
MULTIVARIATE = {"series": [[1, 2, 3, 4], [5, 6, 7, 8]], "frequency": "1h"}


async def post(client: ServingClient, *inputs: dict[str, Any], model: str = "naive", **options: Any) -> httpx.Response:
    body = {"model": model, "inputs": inputs, "options": {"horizon": 2, **options}}
    return await client.post("/v1/timeseries/forecast", json=body)


async def contents(client: ServingClient, *inputs: dict[str, Any], **options: Any) -> list[dict[str, Any]]:
    """Return the content of each output."""
    return [output["content"][0] for output in answer(await post(client, *inputs, **options))["outputs"]]


def check_error(response: httpx.Response, status: int, kind: str, param: str | None) -> str:
    """Check KServe's error body and return its message."""
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/json"
    message: str = response.json()["error"]["message"]
    assert response.json() == {"error": {"code": str(status), "message": message, "param": param, "type": kind}}
    return message


async def test_only_forecasters_are_listed() -> None:
    async with serving(classifier(), forecaster(), forecaster("other")) as client:
        found = answer(await client.get("/v1/timeseries/models"))
    assert found == {"models": [{"name": "naive"}, {"name": "other"}]}


async def test_several_series_are_forecast_in_one_request() -> None:
    named = {**MULTIVARIATE, "name": "house", "start_timestamp": "2024-01-01T00:00:00"}
    async with serving(forecaster(version=5)) as client:
        found = answer(await post(client, named, MULTIVARIATE, quantiles=[0.9]))
    assert (found["model"], found["version"], found["status"], found["error"]) == ("naive", 5, "completed", None)
    first, second = found["outputs"]
    assert first["id"] != second["id"]
    assert {name: first[name] for name in ("type", "status", "error")} == {
        "type": "forecast",
        "status": "completed",
        "error": None,
    }
    expected = {
        "type": "time_series_forecast",
        "name": "house",
        "mean_forecast": [[4, 4], [8, 8]],
        "frequency": "1h",
        "start_timestamp": "2024-01-01T04:00:00",
        "quantiles": {"0.9": [[8, 8], [12, 12]]},
    }
    assert first["content"] == [expected]
    assert second["content"] == [{**expected, "name": "series", "start_timestamp": None}]


async def test_layout_selects_the_axes_of_the_series() -> None:
    by_step = {"series": [[1, 5], [2, 6], [3, 7], [4, 8]], "layout": "time_major", "frequency": "hourly"}
    async with serving(forecaster()) as client:
        (content,) = await contents(client, by_step)
    assert content["mean_forecast"] == [[4, 8], [4, 8]]
    assert "quantiles" not in content


async def test_single_channel_may_be_a_flat_list() -> None:
    async with serving(forecaster(channels=["wind"])) as client:
        flat, nested = await contents(client, UNIVARIATE, {**UNIVARIATE, "series": [[1, 2, 3, 4]]}, quantiles=[0.1])
    assert (flat["mean_forecast"], flat["quantiles"]) == ([4, 4], {"0.1": [2, 2]})
    assert (nested["mean_forecast"], nested["quantiles"]) == ([[4, 4]], {"0.1": [[2, 2]]})


@pytest.mark.parametrize(
    ("words", "step", "first"),
    [
        (("S", "second", "secondly", "1s"), "1s", "2024-01-01T00:00:04"),
        (("T", "minute", "minutely", "1min"), "1min", "2024-01-01T00:04:00"),
        (("H", "hour", "hourly", "1h", "60T"), "1h", "2024-01-01T04:00:00"),
        (("D", "day", "daily", "1d"), "1d", "2024-01-05T00:00:00"),
        (("W", "week", "weekly", "7d"), "7d", "2024-01-29T00:00:00"),
        (("M", "month", "monthly", "1mo"), "1mo", "2024-05-01T00:00:00"),
        (("Q", "quarter", "quarterly", "1q"), "1q", "2025-01-01T00:00:00"),
        (("Y", "year", "yearly", "1y"), "1y", "2028-01-01T00:00:00"),
    ],
)
async def test_frequencies_of_kserve_are_understood(words: Sequence[str], step: str, first: str) -> None:
    given = [{**MULTIVARIATE, "frequency": word, "start_timestamp": "2024-01-01T00:00:00"} for word in words]
    async with serving(forecaster(frequency=step)) as client:
        found = await contents(client, *given)
    assert [(content["frequency"], content["start_timestamp"]) for content in found] == [
        (word, first) for word in words
    ]


@pytest.mark.parametrize(
    ("changes", "options", "param"),
    [
        ({"series": [[1, 2, 3, 4]]}, {}, "inputs.1.series"),
        ({"series": [[1], [2, 3], [4], [5]], "layout": "time_major"}, {}, "inputs.1.series"),
        ({"series": [[1, 2, 3, 4], [None, None, None, 1]]}, {}, "inputs.1.series.heat"),
        ({"frequency": "M"}, {}, "inputs.1.frequency"),
        ({"frequency": "15min"}, {}, "inputs.1.frequency"),
        ({"start_timestamp": "now"}, {}, "inputs.1.start_timestamp"),
        ({}, {"horizon": 4}, "options.horizon"),
        ({}, {"quantiles": [0.01]}, "options.quantiles"),
    ],
)
async def test_error_names_the_wrong_value(changes: dict[str, Any], options: dict[str, Any], param: str) -> None:
    async with serving(forecaster()) as client:
        response = await post(client, MULTIVARIATE, {**MULTIVARIATE, **changes}, **options)
    assert check_error(response, 422, "invalid_input", param).startswith(f"{param}: ")


async def test_size_of_the_answer_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two series of two channels, two steps, a forecast and one quantile: 16 numbers."""
    async with serving(forecaster()) as client:
        monkeypatch.setattr(requests, "MAX_NUMBERS", 16)
        assert (await post(client, MULTIVARIATE, MULTIVARIATE, quantiles=[0.5])).status_code == 200
        monkeypatch.setattr(requests, "MAX_NUMBERS", 15)
        response = await post(client, MULTIVARIATE, MULTIVARIATE, quantiles=[0.5])
    assert "16 numbers; at most 15" in check_error(response, 413, "payload_too_large", None)


async def test_other_errors_have_the_same_shape() -> None:
    async with serving(forecaster(), settings=Settings(max_documents=1)) as client:
        check_error(await post(client, MULTIVARIATE, MULTIVARIATE), 413, "payload_too_large", None)
        check_error(await post(client, MULTIVARIATE, model="none"), 404, "model_not_found", None)
        check_error(await client.get("/v1/timeseries/none"), 404, "not_found", None)
