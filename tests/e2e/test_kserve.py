"""KServe's `/v1/timeseries/forecast`: its shapes, and the same forecasts as the native route."""

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.models import HORIZON, SCALE
from tests.support.naive import write_naive_forecaster
from tests.support.offline import Columns, OfflineForecaster
from tests.support.problems import SECRET
from tests.support.server import Server

JSON = {"content-type": "application/json"}
ROUTE = "/v1/timeseries/forecast"


@pytest.fixture
def series(forecaster: OfflineForecaster) -> Columns:
    return forecaster.series(forecaster.manifest.context_length)


def given(series: object, **more: object) -> dict[str, object]:
    kind = "multivariate_time_series"
    return {"type": kind, "name": "plant", "series": series, "frequency": "15min", **more}


def body(*inputs: object, model: object = "ettm2", **options: object) -> dict[str, object]:
    return {"model": model, "inputs": inputs, "options": {"horizon": 2, **options}}


def ask(client: httpx.Client, content: dict[str, object]) -> dict[str, Any]:
    response = client.post(ROUTE, json=content)
    assert response.status_code == 200, response.text
    answer: dict[str, Any] = response.json()
    return answer


def contents(answer: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the forecast of each input."""
    found = []
    for output in answer["outputs"]:
        assert (output["type"], output["status"], output["error"]) == ("forecast", "completed", None)
        (content,) = output["content"]
        assert content["type"] == "time_series_forecast"
        found.append(content)
    return found


def check_error(response: httpx.Response, status: int, kind: str) -> dict[str, Any]:
    """Check that the response has KServe's error body only."""
    assert response.status_code == status, response.text
    assert set(response.json()) == {"error"}
    error: dict[str, Any] = response.json()["error"]
    assert set(error) == {"code", "message", "param", "type"}
    assert (error["code"], error["type"]) == (str(status), kind)
    assert error["message"]
    assert SECRET not in response.text
    return error


def test_answer_has_kserves_shape(client: httpx.Client, forecaster: OfflineForecaster, series: Columns) -> None:
    before = int(time.time())
    answer = ask(client, body(given(series), horizon=forecaster.manifest.horizon))
    assert before <= answer["created_at"] <= time.time()
    assert (answer["model"], answer["status"], answer["error"]) == (forecaster.manifest.name, "completed", None)
    assert answer["id"] != answer["outputs"][0]["id"]
    (content,) = contents(answer)
    assert forecaster.agree(content.pop("mean_forecast"), forecaster(series))
    assert content == {
        "type": "time_series_forecast", "name": "plant", "frequency": "15min", "start_timestamp": None,
    }  # fmt: skip


def test_quantiles_are_those_of_the_native_route(client: httpx.Client, series: Columns) -> None:
    levels = [0.1, 0.5, 0.9]
    native = client.post("/v1/forecast", json={"series": series, "horizon": 2, "quantiles": levels}).json()
    (content,) = contents(ask(client, body(given(series), quantiles=levels)))
    assert content["mean_forecast"] == native["forecast"]
    assert content["quantiles"] == native["quantiles"]


def test_layout_selects_the_time_axis(client: httpx.Client, series: Columns) -> None:
    steps = [list(step) for step in zip(*series, strict=True)]
    inputs = [given(series, layout="channel_major"), given(steps, layout="time_major")]
    by_channel, by_step = contents(ask(client, body(*inputs, quantiles=[0.5])))
    for found, wanted in (
        (by_step["mean_forecast"], by_channel["mean_forecast"]),
        (by_step["quantiles"]["0.5"], by_channel["quantiles"]["0.5"]),
    ):
        assert [list(column) for column in zip(*found, strict=True)] == wanted


def test_inputs_are_answered_in_order(client: httpx.Client, forecaster: OfflineForecaster) -> None:
    length = forecaster.manifest.context_length
    inputs = [forecaster.series(length + 7 * seed, seed) for seed in range(5)]
    answer = ask(
        client,
        body(
            *(given(series, name=f"number {i}") for i, series in enumerate(inputs)),
            horizon=forecaster.manifest.horizon,
        ),
    )
    assert len({output["id"] for output in answer["outputs"]}) == 5
    for i, (series, content) in enumerate(zip(inputs, contents(answer), strict=True)):
        assert content["name"] == f"number {i}"
        assert forecaster.agree(content["mean_forecast"], forecaster(series))


@pytest.mark.parametrize("frequency", ["15min", "15T", "900s"])
def test_first_step_follows_the_series(client: httpx.Client, series: Columns, frequency: str) -> None:
    start = "1970-01-01T00:00:00+00:00"
    (content,) = contents(ask(client, body(given(series, frequency=frequency, start_timestamp=start))))
    seconds = 900 * len(series[0])
    assert content["frequency"] == frequency
    expected = time.strftime("%Y-%m-%dT%H:%M:%S+00:00", time.gmtime(seconds))
    assert content["start_timestamp"] == expected


def test_unknown_fields_are_ignored(client: httpx.Client, series: Columns) -> None:
    plain = body(given(series))
    more = body({**given(series), "colour": 1}, future=[1])
    assert contents(ask(client, {**more, "metadata": {"a": 1}})) == contents(ask(client, plain))


def test_nulls_are_interpolated(client: httpx.Client, forecaster: OfflineForecaster, series: Columns) -> None:
    series[0][3] = None
    (content,) = contents(ask(client, body(given(series), horizon=forecaster.manifest.horizon)))
    assert forecaster.agree(content["mean_forecast"], forecaster(series))


def test_single_channel_may_be_a_flat_list(tmp_path: Path, start: Callable[..., Server]) -> None:
    write_naive_forecaster(tmp_path, "one", ["x"])
    server = start("--exports", str(tmp_path), "--drain-delay-s", "0")
    values = [1.0, None, 3.0, 4.0]
    inputs = [
        given(values, frequency="1h", type="univariate_time_series"),
        given([values], frequency="1h"),
        given([[value] for value in values], frequency="1h", layout="time_major"),
    ]
    with server.client() as client:
        flat, nested, steps = contents(ask(client, body(*inputs, model="one", horizon=HORIZON, quantiles=[0.9])))
        error = check_error(client.post(ROUTE, json=body(given([], frequency="1h"), model="one")), 422, "invalid_input")
        assert error["param"] == "inputs.0.series.x"
        assert client.get("/v1/timeseries/models").json() == {"models": [{"name": "one"}]}
    for content, repeated in (
        (flat, lambda value: [value] * HORIZON),
        (nested, lambda value: [[value] * HORIZON]),
        (steps, lambda value: [[value]] * HORIZON),
    ):
        assert content["mean_forecast"] == repeated(4.0)
        assert content["quantiles"] == {"0.9": repeated(4.0 + 2 * SCALE)}


def test_models_lists_the_forecasters(client: httpx.Client) -> None:
    expected = [m["name"] for m in client.get("/v1/models").json()["models"] if m["task"] == "forecasting"]
    assert client.get("/v1/timeseries/models").json() == {"models": [{"name": name} for name in expected]}


@pytest.mark.parametrize(
    ("changes", "param"),
    [
        ({"series": None}, "inputs.0.series"),
        ({"series": SECRET}, "inputs.0.series"),
        ({"series": {"x": [1]}}, "inputs.0.series"),
        ({"series": []}, "inputs.0.series"),
        ({"series": [[]]}, "inputs.0.series"),
        ({"series": [1.0, 2.0]}, "inputs.0.series"),
        ({"series": [[1.0], 2.0]}, "inputs.0.series.nested.1"),
        ({"series": [1.0, [2.0]]}, "inputs.0.series.nested.0"),
        ({"series": [[1.0, SECRET]]}, "inputs.0.series.nested.0.1"),
        ({"series": [[1.0, "2.0"]]}, "inputs.0.series.nested.0.1"),
        ({"series": [[1.0, True]]}, "inputs.0.series.nested.0.1"),
        ({"series": [[1.0, float("nan")]]}, "inputs.0.series.nested.0.1"),
        ({"series": [[1.0], [1.0, 2.0]], "layout": "time_major"}, "inputs.0.series"),
        ({"layout": SECRET}, "inputs.0.layout"),
        ({"type": SECRET}, "inputs.0.type"),
        ({"name": 5}, "inputs.0.name"),
        ({"frequency": None}, "inputs.0.frequency"),
        *(({"frequency": frequency}, "inputs.0.frequency") for frequency in ("M", "Q", "Y", "month", "", SECRET)),
        ({"start_timestamp": SECRET}, "inputs.0.start_timestamp"),
        ({"start_timestamp": "9999-12-31T23:59:59"}, "inputs.0.start_timestamp"),
    ],
)
def test_bad_input_is_named_in_the_error(
    client: httpx.Client, series: Columns, changes: dict[str, object], param: str
) -> None:
    content = json.dumps(body({**given(series), **changes})).encode()
    error = check_error(client.post(ROUTE, content=content, headers=JSON), 422, "invalid_input")
    assert error["param"] == param
    assert error["message"].startswith(param)


def test_bad_second_input_is_named_in_the_error(
    client: httpx.Client, forecaster: OfflineForecaster, series: Columns
) -> None:
    first = forecaster.manifest.channels[0]
    for bad, param in (
        (series[1:], "inputs.1.series"),
        ([series[0][1:], *series[1:]], "inputs.1.series"),
        ([[None] * len(column) for column in series], f"inputs.1.series.{first}"),
        ([[1e300] * len(column) for column in series], f"inputs.1.series.{first}.0"),
    ):
        response = client.post(ROUTE, json=body(given(series), given(bad), given(series)))
        assert check_error(response, 422, "invalid_input")["param"] == param


@pytest.mark.parametrize(
    ("options", "param"),
    [
        ({"horizon": 0}, "options.horizon"),
        ({"horizon": 10**9}, "options.horizon"),
        ({"horizon": 1.5}, "options.horizon"),
        ({"horizon": None}, "options.horizon"),
        ({"quantiles": [0]}, "options.quantiles.0"),
        ({"quantiles": [1]}, "options.quantiles.0"),
        ({"quantiles": [1e-9]}, "options.quantiles"),
        ({"quantiles": [0.5, 0.5]}, "options.quantiles"),
        ({"quantiles": SECRET}, "options.quantiles"),
    ],
)
def test_bad_option_is_named_in_the_error(
    client: httpx.Client, series: Columns, options: dict[str, object], param: str
) -> None:
    response = client.post(ROUTE, json=body(given(series), **options))
    assert check_error(response, 422, "invalid_input")["param"] == param


def test_errors_have_kserves_body(client: httpx.Client, series: Columns) -> None:
    good = body(given(series))
    check_error(client.post(ROUTE, json=[good]), 422, "invalid_input")
    check_error(client.post(ROUTE, json={**good, "inputs": []}), 422, "invalid_input")
    check_error(client.post(ROUTE, json={**good, "options": {}}), 422, "invalid_input")
    check_error(client.post(ROUTE, json={**good, "model": ""}), 422, "invalid_input")
    check_error(client.post(ROUTE, json={**good, "model": "aan"}), 422, "invalid_input")
    check_error(client.post(ROUTE, json={**good, "model": SECRET}), 404, "model_not_found")
    check_error(client.post(ROUTE, content=b'{"model": ', headers=JSON), 400, "malformed_input")
    check_error(client.post(ROUTE, content=SECRET.encode()), 415, "unsupported_media_type")
    check_error(client.post(ROUTE, content=b" " * 9_000_000, headers=JSON), 413, "payload_too_large")
    check_error(client.post(ROUTE, json=good, headers={"X-Request-Timeout-Ms": "soon"}), 422, "invalid_input")


def test_too_many_inputs_get_413(client: httpx.Client, series: Columns) -> None:
    error = check_error(client.post(ROUTE, json=body(*[given(series)] * 257)), 413, "payload_too_large")
    assert "256" in error["message"]


def test_too_large_a_forecast_gets_413(client: httpx.Client, forecaster: OfflineForecaster, series: Columns) -> None:
    """A few short series can request hundreds of times as many numbers as they contain."""
    levels = [round(0.03 + 0.04 * i, 2) for i in range(20)]
    content = body(*[given(series)] * 100, horizon=forecaster.manifest.horizon, quantiles=levels)
    error = check_error(client.post(ROUTE, json=content), 413, "payload_too_large")
    assert "fewer quantiles" in error["message"]
