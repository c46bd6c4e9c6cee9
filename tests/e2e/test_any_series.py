"""`/v1/forecast` and the compatible routes with a forecaster of any series, which is the default one."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from artifact.univariate.features import HORIZON, LEVELS, MEDIAN
from benchmarks.models.any_series import speed as benchmark
from benchmarks.models.any_series.series import Series
from tests.support.models import CHANNELS, quantiles_of
from tests.support.naive import write_any_series, write_naive_forecaster
from tests.support.problems import check_problem
from tests.support.server import Server

JSON, NDJSON = {"content-type": "application/json"}, {"content-type": "application/x-ndjson"}
Columns = dict[str, list[float]]
SHORT = [3.0, 5.0, 4.0, 6.0, 5.0, 7.0]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server of a forecaster of any series, the default, and of one that was trained on hourly CHANNELS."""
    exports = tmp_path_factory.mktemp("exports")
    write_any_series(exports, "any")
    write_naive_forecaster(exports, "plant", CHANNELS)
    (exports / "defaults.json").write_text(json.dumps({"forecasting": "any"}))
    flags = ("--exports", str(exports), "--drain-delay-s", "0", "--deadline-s", "3600")
    with Server(tmp_path_factory.mktemp("server") / "log", *flags) as server:
        yield server
        assert server.stop() == 0


@pytest.fixture
def client(served: Server) -> Iterator[httpx.Client]:
    with served.client() as client:
        yield client
    assert "Traceback" not in served.text()


def monthly(years: int = 5) -> list[float]:
    """Sales with a trend and a season of a year."""
    steps = np.arange(12 * years)
    noise = np.random.default_rng(0).standard_normal(len(steps))
    values = (100 + steps) * (1 + 0.3 * np.sin(2 * np.pi * steps / 12)) + noise
    return [float(value) for value in values.round(2)]


def ask(client: httpx.Client, series: object, **options: object) -> dict[str, Any]:
    response = client.post("/v1/forecast", json={"series": series, **options})
    assert response.status_code == 200, response.text
    answer: dict[str, Any] = response.json()
    return answer


def medians(values: list[float], horizon: int, seasons: tuple[int, ...]) -> Any:
    """The forecast of one series."""
    return pytest.approx(quantiles_of(values, seasons)[MEDIAN, :horizon].tolist(), rel=1e-5)


def test_a_list_of_values_is_one_series(client: httpx.Client) -> None:
    answer, nested = (ask(client, series, horizon=3, quantiles=[0.1]) for series in (monthly(), [monthly()]))
    assert [answer["forecast"]] == nested["forecast"]
    assert [answer["quantiles"]["0.1"]] == nested["quantiles"]["0.1"]
    assert [answer["season"]] == nested["season"] == [12]


def test_series_of_any_names_and_lengths_are_forecast_alone(client: httpx.Client) -> None:
    series = {"sales": monthly(), "stock": SHORT, "one": [7.0]}
    answer = ask(client, series, frequency="1mo", quantiles=[0.1, 0.9])
    assert {name: answer[name] for name in ("model", "version", "model_from", "season", "season_from")} == {
        "model": "any",
        "version": 1,
        "model_from": "default",
        "season": 12,
        "season_from": "frequency",
    }
    assert answer["coverage"] == {
        "observations_total": 67,
        "observations_used": 67,
        "imputed": 0,
        "context_length": 512,
    }
    assert list(answer["forecast"]) == list(series)
    for name, values in series.items():
        assert answer["forecast"][name] == medians(values, 12, (12,))
        bands = [answer["quantiles"][level][name] for level in ("0.1", "0.9")]
        assert np.array(bands) == pytest.approx(quantiles_of(values, (12,))[[0, -1], :12], rel=1e-5)
        assert ask(client, {name: values}, frequency="1mo")["forecast"][name] == answer["forecast"][name]
    assert ask(client, list(series.values()), frequency="1mo")["forecast"] == list(answer["forecast"].values())


def test_line_goes_on_and_constant_stays(client: httpx.Client) -> None:
    answer = ask(client, [[float(step) for step in range(1, 31)], [7.5] * 20], horizon=40, quantiles=[0.1, 0.9])
    line, constant = answer["forecast"]
    assert line == pytest.approx(np.arange(31, 71))
    assert constant == answer["quantiles"]["0.1"][1] == answer["quantiles"]["0.9"][1] == [7.5] * 40


@pytest.mark.parametrize(
    ("options", "season", "source", "horizon"),
    [
        ({"season": 4}, 4, "request", 4),
        ({"season": [7, 30], "frequency": "1mo"}, [7, 30], "request", 7),
        ({"season": 1}, 1, "request", 24),
        ({"season": 52, "horizon": 3}, 52, "request", 3),
        ({"frequency": "1h"}, [24, 168], "frequency", 24),
        ({"frequency": "1y"}, 1, "frequency", 24),
        ({"frequency": "15min"}, 96, "frequency", 96),
        ({}, {"x": 12}, "data", 12),
    ],
)
def test_season_and_horizon_follow_from_request_frequency_or_data(
    client: httpx.Client, options: dict[str, object], season: object, source: str, horizon: int
) -> None:
    answer = ask(client, {"x": monthly()}, **options)
    assert (answer["season"], answer["season_from"], len(answer["forecast"]["x"])) == (season, source, horizon)


def test_seasons_in_the_data_are_those_of_each_series(client: httpx.Client) -> None:
    noise = np.random.default_rng(1).standard_normal(80)
    week = [float(value) for value in 10 * (np.arange(80) % 7 > 4) + noise]
    answer = ask(client, [monthly(), week, noise.tolist()])
    assert (answer["season"], answer["season_from"]) == ([12, 7, 1], "data")
    for values, forecast, season in zip([monthly(), week, noise.tolist()], answer["forecast"], (12, 7, 1), strict=True):
        assert forecast == medians(values, 24, (season,))


@pytest.mark.parametrize(
    ("names", "frequency", "model", "source"),
    [
        (CHANNELS, "1h", "plant", "series"),
        (CHANNELS[::-1], "60min", "plant", "series"),
        (CHANNELS, None, "any", "default"),
        (CHANNELS, "1d", "any", "default"),
        (CHANNELS[:1], "1h", "any", "default"),
        (None, "1h", "any", "default"),
    ],
)
def test_trained_forecaster_answers_unasked_only_for_its_channels_and_step(
    client: httpx.Client, names: tuple[str, ...] | None, frequency: str | None, model: str, source: str
) -> None:
    series = [SHORT, SHORT] if names is None else dict.fromkeys(names, SHORT)
    answer = ask(client, series, **({} if frequency is None else {"frequency": frequency}))
    assert (answer["model"], answer["model_from"]) == (model, source)


def test_named_model_answers(client: httpx.Client) -> None:
    for name in ("any", "plant", "any@1"):
        answer = ask(client, dict.fromkeys(CHANNELS, SHORT), model=name)
        assert (answer["model"], answer["model_from"]) == (name.partition("@")[0], "request")


def test_only_the_end_of_ten_thousand_values_is_read(client: httpx.Client) -> None:
    values = np.random.default_rng(2).standard_normal(10_000).cumsum().round(3).tolist()
    answer = ask(client, {"x": values}, season=1)
    assert answer["forecast"]["x"] == medians(values, 24, (1,))
    assert answer["coverage"]["observations_total"] == 10_000
    assert answer["coverage"]["observations_used"] == 512


def test_missing_values_are_counted(client: httpx.Client) -> None:
    answer = ask(client, {"x": [None, 1.0, None, 3.0, 4.0, None]}, season=1, horizon=2)
    assert answer["coverage"] == {
        "observations_total": 3,
        "observations_used": 3,
        "imputed": 3,
        "context_length": 512,
    }
    assert np.isfinite(answer["forecast"]["x"]).all()


def test_forecasts_are_not_negative_if_asked(client: httpx.Client) -> None:
    values = [float(value) for value in np.random.default_rng(3).poisson(0.7, 60)]
    free, bound = (
        ask(client, {"x": values}, season=1, quantiles=[0.1], non_negative=flag)["quantiles"]["0.1"]["x"]
        for flag in (False, True)
    )
    assert min(free) < 0
    assert bound == np.maximum(free, 0).tolist()


def test_start_belongs_to_the_last_value_of_series_of_different_lengths(client: httpx.Client) -> None:
    options: dict[str, object] = {"start": "2024-01-31", "frequency": "1mo", "horizon": 2}
    assert ask(client, [SHORT], **options)["timestamps"] == ["2024-07-31T00:00:00", "2024-08-31T00:00:00"]
    assert ask(client, [SHORT, SHORT[1:]], **options)["timestamps"] == ["2024-02-29T00:00:00", "2024-03-31T00:00:00"]


def test_a_thousand_series_fit_in_a_request(client: httpx.Client) -> None:
    values = np.random.default_rng(4).standard_normal((1000, 20)).round(3)
    answer = ask(client, values.tolist(), season=1, horizon=3)
    assert len(answer["forecast"]) == 1000
    for index in (0, 255, 256, 999):
        assert answer["forecast"][index] == medians(values[index].tolist(), 3, (1,))


@pytest.mark.parametrize(
    ("changes", "place", "words"),
    [
        ({"series": []}, "series", "at least 1"),
        ({"series": {}}, "series", "at least 1"),
        ({"series": {"x": []}}, "series.x", "at least 1 of the last 512 values is needed; 0 are missing"),
        ({"series": [[None, None]]}, "series.0", "2 are missing"),
        ({"horizon": 961}, "horizon", "must be from 1 to 960, not 961"),
        ({"season": 0}, "season", "must be from 1 to 100,000 steps, not 0"),
        ({"season": []}, "season", "a number or 2, not 0"),
        ({"season": [24, 7]}, "season", "the shorter season comes first, not 24 and 7"),
        ({"season": [7, 30, 365]}, "season", "a number or 2, not 3"),
        ({"season": 1.5}, "season.0", "integer"),
        ({"season": "12"}, "season.0", "integer"),
        ({"quantiles": [0.95]}, "quantiles", "levels must be from 0.1 to 0.9, not 0.95"),
        ({"quantiles": [0.5, 0.5]}, "quantiles", "each once"),
        ({"start": "2024-01-01"}, "frequency", "required with start"),
        ({"frequency": "hour"}, "frequency", "10min"),
        ({"non_negative": 1}, "non_negative", "boolean"),
        (
            {"series": dict.fromkeys(CHANNELS, SHORT), "frequency": "1h", "season": 24},
            "season",
            "has learned its seasons",
        ),
    ],
)
def test_problem_names_the_wrong_value(
    client: httpx.Client, changes: dict[str, object], place: str, words: str
) -> None:
    response = client.post("/v1/forecast", json={"series": {"x": SHORT}, **changes})
    (error,) = check_problem(response, 422, "invalid_input")["errors"]
    assert error["loc"] == place
    assert words in error["msg"]


def test_lines_are_answered_in_order_and_bad_ones_in_their_place(client: httpx.Client) -> None:
    requests: list[dict[str, Any]] = [
        {"id": number, "series": {"x": monthly()[: 20 + number]}, "season": 12, "horizon": 2} for number in range(40)
    ]
    requests[3] = {"id": 3, "series": {"x": []}}
    requests[5] = {"id": 5, "series": dict.fromkeys(CHANNELS, SHORT), "frequency": "1h", "quantiles": [0.5]}
    requests[7] = {"id": 7, "series": [SHORT] * 30, "horizon": 960}
    body = b"".join(json.dumps(request).encode() + b"\n" for request in requests) + b"no JSON\n"
    response = client.post("/v1/forecast", content=body, headers=NDJSON)
    assert (response.status_code, response.headers["content-type"]) == (200, "application/x-ndjson")
    answers = [json.loads(line) for line in response.text.splitlines()]
    assert [answer["index"] for answer in answers] == list(range(41))
    assert [answer["id"] for answer in answers[:40]] == list(range(40))
    *_, last = answers
    assert (answers[3]["error"]["status"], answers[7]["error"]["status"], last["error"]["status"]) == (422, 413, 400)
    assert answers[3]["error"]["errors"][0]["loc"] == "series.x"
    assert (answers[5]["model"], answers[5]["model_from"]) == ("plant", "series")
    for number in (0, 20, 39):
        assert (answers[number]["model"], answers[number]["season_from"]) == ("any", "request")
        assert answers[number]["forecast"]["x"] == medians(requests[number]["series"]["x"], 2, (12,))


def test_lines_take_no_options_in_the_query(client: httpx.Client) -> None:
    response = client.post("/v1/forecast?horizon=2", content=b'{"series": [[1]]}\n', headers=NDJSON)
    check_problem(response, 422, "invalid_input")


def infer(client: httpx.Client, *inputs: dict[str, Any]) -> httpx.Response:
    return client.post("/v2/models/any/infer", json={"inputs": inputs})


def test_open_inference_protocol(client: httpx.Client) -> None:
    metadata = client.get("/v2/models/any").json()
    assert [tensor["name"] for tensor in metadata["inputs"]] == ["series", "season"]
    assert {tensor["name"]: tensor["shape"] for tensor in metadata["outputs"]} == {
        "forecast": [-1, HORIZON],
        "quantiles": [-1, len(LEVELS), HORIZON],
    }
    assert metadata["parameters"] == {"levels": [str(level) for level in LEVELS]}
    config = client.get("/v2/models/any/config").json()
    assert [tensor.get("optional", False) for tensor in config["input"]] == [False, True]
    values = np.array([monthly(), monthly()[::-1]])
    series: dict[str, Any] = {"name": "series", "datatype": "FP32", "shape": [2, 60], "data": values.ravel().tolist()}
    season: dict[str, Any] = {"name": "season", "datatype": "FP32", "shape": [1], "data": [12]}
    given, inferred = (infer(client, series, *more).json() for more in ([season], []))
    assert given["outputs"] == inferred["outputs"]
    assert given["parameters"] == {"observations_total": 120, "observations_used": 120, "imputed": 0}
    found = {output["name"]: np.reshape(output["data"], output["shape"]) for output in given["outputs"]}
    for row, one in enumerate(values.astype(np.float32)):
        assert found["quantiles"][row] == pytest.approx(quantiles_of(one.tolist(), (12,)), rel=1e-4)
    assert (found["forecast"] == found["quantiles"][:, MEDIAN]).all()
    assert infer(client, season).status_code == 422
    assert infer(client, series, {**season, "data": [1.5]}).status_code == 422


def test_kserve_forecasts_with_the_default_model(client: httpx.Client) -> None:
    inputs = [
        {"series": monthly(), "frequency": "M", "start_timestamp": "2020-01-01T00:00:00"},
        {"series": [SHORT, SHORT], "frequency": "daily"},
    ]
    body = {"inputs": inputs, "options": {"horizon": 3, "quantiles": [0.9]}}
    response = client.post("/v1/timeseries/forecast", json=body)
    assert response.status_code == 200, response.text
    assert response.json()["model"] == "any"
    (flat,), (nested,) = (output["content"] for output in response.json()["outputs"])
    assert flat["mean_forecast"] == medians(monthly(), 3, (12,))
    assert flat["start_timestamp"] == "2025-01-01T00:00:00"
    assert nested["mean_forecast"] == [medians(SHORT, 3, (7,))] * 2
    assert {model["name"] for model in client.get("/v1/timeseries/models").json()["models"]} == {"any", "plant"}
    bad = {**body, "inputs": [inputs[0], {"series": [], "frequency": "M"}]}
    error = client.post("/v1/timeseries/forecast", json=bad).json()["error"]
    assert error["param"] == "inputs.1.series.0"


def test_kserve_v1_predicts(client: httpx.Client) -> None:
    response = client.post("/v1/models/any:predict", json={"instances": [{"series": {"x": monthly()}}]})
    assert response.status_code == 200, response.text
    (prediction,) = response.json()["predictions"]
    assert prediction["forecast"]["x"] == medians(monthly(), 12, (12,))
    assert prediction["season"] == {"x": 12}


def test_description_and_metrics_name_the_model(client: httpx.Client, served: Server) -> None:
    found = client.get("/v1/models").json()
    assert found["defaults"]["forecasting"] == {"model": "any", "reason": "defaults.json"}
    (described,) = [model for model in found["models"] if model["name"] == "any"]
    assert (described["task"], described["kind"], described["context_length"]) == ("forecasting", "any-series", 512)
    ask(client, {"x": SHORT})
    assert served.metric("longdoc_documents_total", model="any") > 0
    assert served.metric("longdoc_request_duration_seconds_count", model="any", task="forecasting") > 0


def test_without_a_default_of_any_series_channels_alone_select(
    tmp_path_factory: pytest.TempPathFactory, start: Callable[..., Server]
) -> None:
    exports = tmp_path_factory.mktemp("exports")
    write_naive_forecaster(exports, "plant", CHANNELS)
    write_naive_forecaster(exports, "other", ["x"])
    with start("--exports", str(exports), "--drain-delay-s", "0").client() as client:
        answer = ask(client, dict.fromkeys(CHANNELS, SHORT))
        assert (answer["model"], answer["model_from"]) == ("plant", "series")


def test_benchmark_measures_a_forecaster_and_its_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_any_series(tmp_path, "any")
    monkeypatch.setattr(benchmark, "ROUNDS", 2)
    monkeypatch.setattr(benchmark, "WARM_UP", 0)
    series = [
        Series("M3", kind, kind, 1, np.arange(20.0), np.arange(float(steps)), 1.0)
        for kind, steps in (("monthly", 18), ("other", 8))
    ]
    found = benchmark.speed(tmp_path / "any", series)
    assert (found["series"], found["requests"]) == (2, 2)
    assert {name: np.shape(rounds) for name, rounds in found["seconds"].items()} == dict.fromkeys(
        benchmark.MEASURED, (2, 2)
    )
