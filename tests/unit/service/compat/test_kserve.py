"""KServe's forecasts: its shapes around ours."""

from typing import Any

import httpx
import pytest

from service.compat import kserve
from service.settings import Settings
from tests.support.models import ServingClient, answer, classifier, forecaster, serving

UNIVARIATE = {"series": [1, 2, 3, 4], "frequency": "H"}
MULTIVARIATE = {"series": [[1, 2, 3, 4], [5, 6, 7, 8]], "frequency": "10min"}


async def post(client: ServingClient, *inputs: dict[str, Any], model: str = "naive", **options: Any) -> httpx.Response:
    body = {"model": model, "inputs": inputs, "options": {"horizon": 2, **options}}
    return await client.post("/v1/timeseries/forecast", json=body)


async def contents(client: ServingClient, *inputs: dict[str, Any], **options: Any) -> list[dict[str, Any]]:
    """The content of each output."""
    return [output["content"][0] for output in answer(await post(client, *inputs, **options))["outputs"]]


def check_error(response: httpx.Response, status: int, kind: str, param: str | None) -> str:
    """KServe's body of an error; its message."""
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/json"
    message: str = response.json()["error"]["message"]
    assert response.json() == {"error": {"code": str(status), "message": message, "param": param, "type": kind}}
    return message


async def test_only_forecasters_are_listed() -> None:
    async with serving(classifier(), forecaster(), forecaster("other")) as client:
        found = answer(await client.get("/v1/timeseries/models"))
    assert found == {"models": [{"name": "naive"}, {"name": "other"}]}


async def test_series_are_forecast_side_by_side() -> None:
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
        "frequency": "10min",
        "start_timestamp": "2024-01-01T00:40:00",
        "quantiles": {"0.9": [[8, 8], [12, 12]]},
    }
    assert first["content"] == [expected]
    assert second["content"] == [{**expected, "name": "series", "start_timestamp": None}]


async def test_layout_is_that_of_the_series() -> None:
    by_step = {"series": [[1, 5], [2, 6], [3, 7], [4, 8]], "layout": "time_major", "frequency": "daily"}
    async with serving(forecaster()) as client:
        (content,) = await contents(client, by_step)
    assert content["mean_forecast"] == [[4, 8], [4, 8]]
    assert "quantiles" not in content


async def test_only_channel_may_be_a_flat_list() -> None:
    async with serving(forecaster(channels=["wind"])) as client:
        flat, nested = await contents(client, UNIVARIATE, {**UNIVARIATE, "series": [[1, 2, 3, 4]]}, quantiles=[0.1])
    assert (flat["mean_forecast"], flat["quantiles"]) == ([4, 4], {"0.1": [2, 2]})
    assert (nested["mean_forecast"], nested["quantiles"]) == ([[4, 4]], {"0.1": [[2, 2]]})


@pytest.mark.parametrize(("frequency", "end"), [("T", "00:04:00"), ("minutely", "00:04:00"), ("H", "04:00:00")])
async def test_frequencies_have_the_words_of_kserve(frequency: str, end: str) -> None:
    given = {**MULTIVARIATE, "frequency": frequency, "start_timestamp": "2024-01-01T00:00:00"}
    async with serving(forecaster()) as client:
        (content,) = await contents(client, given)
    assert (content["frequency"], content["start_timestamp"]) == (frequency, f"2024-01-01T{end}")


@pytest.mark.parametrize(
    ("changes", "options", "param"),
    [
        ({"series": [[1, 2, 3, 4]]}, {}, "inputs.1.series"),
        ({"series": [[1], [2, 3], [4], [5]], "layout": "time_major"}, {}, "inputs.1.series"),
        ({"series": [[1, 2, 3, 4], [None, None, None, 1]]}, {}, "inputs.1.series.heat"),
        ({"frequency": "M"}, {}, "inputs.1.frequency"),
        ({"start_timestamp": "now"}, {}, "inputs.1.start_timestamp"),
        ({}, {"horizon": 4}, "options.horizon"),
        ({}, {"quantiles": [0.01]}, "options.quantiles"),
    ],
)
async def test_wrong_value_is_named(changes: dict[str, Any], options: dict[str, Any], param: str) -> None:
    async with serving(forecaster()) as client:
        response = await post(client, MULTIVARIATE, {**MULTIVARIATE, **changes}, **options)
    assert check_error(response, 422, "invalid_input", param).startswith(f"{param}: ")


async def test_answer_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two series of two channels, two steps, one quantile beside the forecast: 16 numbers."""
    async with serving(forecaster()) as client:
        monkeypatch.setattr(kserve, "MOST_NUMBERS", 16)
        assert (await post(client, MULTIVARIATE, MULTIVARIATE, quantiles=[0.5])).status_code == 200
        monkeypatch.setattr(kserve, "MOST_NUMBERS", 15)
        response = await post(client, MULTIVARIATE, MULTIVARIATE, quantiles=[0.5])
    assert "16 numbers, at most 15" in check_error(response, 413, "payload_too_large", None)


async def test_other_errors_have_the_same_shape() -> None:
    async with serving(forecaster(), settings=Settings(max_documents=1)) as client:
        check_error(await post(client, MULTIVARIATE, MULTIVARIATE), 413, "payload_too_large", None)
        check_error(await post(client, MULTIVARIATE, model="none"), 404, "model_not_found", None)
        check_error(await client.get("/v1/timeseries/none"), 404, "not_found", None)
