"""`/v1/forecast`: responses to good requests and to bad ones."""

import asyncio
import json
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from tests.support.models import CONTEXT, HORIZON, MEAN, SCALE
from tests.support.naive import write_naive_forecaster
from tests.support.offline import Columns, OfflineForecaster
from tests.support.problems import SECRET, check_problem
from tests.support.server import Server

JSON = {"content-type": "application/json"}


def ask(client: httpx.Client, series: object, **options: object) -> dict[str, Any]:
    response = client.post("/v1/forecast", json={"series": series, **options})
    assert response.status_code == 200, response.text
    answer: dict[str, Any] = response.json()
    return answer


@pytest.fixture
def series(forecaster: OfflineForecaster) -> Columns:
    """Return a series as long as the model's context."""
    return forecaster.series(forecaster.manifest.context_length)


def test_forecast_equals_the_offline_forecast(
    client: httpx.Client, forecaster: OfflineForecaster, series: Columns
) -> None:
    m = forecaster.manifest
    answer = ask(client, series)
    assert forecaster.agree(answer["forecast"], forecaster(series))
    assert {name: answer[name] for name in answer if name != "forecast"} == {
        "model": m.name,
        "version": m.version,
        "quantiles": {},
        "quantiles_reliable": m.quantiles_reliable,
        "coverage": {
            "observations_total": m.context_length * len(m.channels),
            "observations_used": m.context_length * len(m.channels),
            "imputed": 0,
            "context_length": m.context_length,
        },
        "model_from": "default",
    }


def test_named_channels_may_come_in_any_order(
    client: httpx.Client, forecaster: OfflineForecaster, series: Columns
) -> None:
    expected = ask(client, series, quantiles=[0.5])
    named = dict(zip(forecaster.manifest.channels, series, strict=True))
    for names in (list(named), list(named)[::-1], sorted(named)):
        answer = ask(client, {name: named[name] for name in names}, quantiles=[0.5])
        assert list(answer["forecast"]) == list(answer["quantiles"]["0.5"]) == names
        assert [answer["forecast"][name] for name in named] == expected["forecast"]
        assert [answer["quantiles"]["0.5"][name] for name in named] == expected["quantiles"]["0.5"]
        assert answer["coverage"] == expected["coverage"]


def test_nulls_are_interpolated_and_counted(
    client: httpx.Client, forecaster: OfflineForecaster, series: Columns
) -> None:
    m = forecaster.manifest
    series[0][0] = series[0][5] = series[-1][-1] = None
    answer = ask(client, series)
    total = m.context_length * len(m.channels)
    assert forecaster.agree(answer["forecast"], forecaster(series))
    assert (answer["coverage"]["observations_used"], answer["coverage"]["imputed"]) == (total - 3, 3)
    filled = [list(column) for column in series]
    filled[0][0] = filled[0][1]
    filled[0][5] = (filled[0][4] + filled[0][6]) / 2  # type: ignore[operator]
    filled[-1][-1] = filled[-1][-2]
    assert forecaster.agree(answer["forecast"], ask(client, filled)["forecast"])


def test_short_series_is_padded_and_its_bands_are_marked_unreliable(
    client: httpx.Client, forecaster: OfflineForecaster
) -> None:
    m = forecaster.manifest
    short = forecaster.series(m.min_observations)
    answer = ask(client, short, quantiles=[0.5])
    assert forecaster.agree(answer["forecast"], forecaster(short))
    assert answer["quantiles_reliable"] is False
    used = m.min_observations * len(m.channels)
    assert answer["coverage"]["observations_used"] == used
    assert answer["coverage"]["imputed"] == m.context_length * len(m.channels) - used
    check_problem(
        client.post("/v1/forecast", json={"series": forecaster.series(m.min_observations - 1)}), 422, "invalid_input"
    )


def test_only_the_end_of_a_long_series_is_read(client: httpx.Client, forecaster: OfflineForecaster) -> None:
    m = forecaster.manifest
    long = forecaster.series(3 * m.context_length + 5)
    answer = ask(client, long)
    assert forecaster.agree(
        answer["forecast"], ask(client, [column[-m.context_length :] for column in long])["forecast"]
    )
    assert answer["coverage"]["observations_total"] == len(long[0]) * len(m.channels)
    assert answer["coverage"]["observations_used"] == m.context_length * len(m.channels)


def test_shorter_horizon_is_the_start_of_the_longest_forecast(
    client: httpx.Client, forecaster: OfflineForecaster, series: Columns
) -> None:
    longest = ask(client, series)
    for horizon in (1, 2, forecaster.manifest.horizon):
        answer = ask(client, series, horizon=horizon, quantiles=[0.5])
        assert answer["forecast"] == [column[:horizon] for column in longest["forecast"]]
        assert {len(column) for column in answer["quantiles"]["0.5"]} == {horizon}
    assert {len(column) for column in longest["forecast"]} == {forecaster.manifest.horizon}


def test_quantiles_at_stored_levels_equal_the_offline_quantiles(
    client: httpx.Client, forecaster: OfflineForecaster, series: Columns
) -> None:
    chosen = [0, len(forecaster.levels) // 2, len(forecaster.levels) - 1]
    levels = [float(forecaster.levels[index]) for index in chosen]
    answer = ask(client, series, quantiles=levels)
    assert [float(key) for key in answer["quantiles"]] == levels
    for index, level in zip(chosen, levels, strict=True):
        assert forecaster.agree(answer["quantiles"][str(level)], forecaster(series, index))


def test_quantiles_never_cross(client: httpx.Client, series: Columns) -> None:
    levels = [0.05, 0.1, 0.1234567, 0.12345671, 0.3, 0.5, 0.7, 0.9, 0.95]
    answer = ask(client, series, quantiles=levels[::-1])
    assert list(answer["quantiles"]) == [str(level) for level in levels[::-1]]
    bands = np.array([answer["quantiles"][str(level)] for level in levels])
    assert (np.diff(bands, axis=0) >= 0).all()
    assert (bands[-1] > bands[0]).all()


def test_largest_number_of_quantiles_is_accepted(client: httpx.Client, series: Columns) -> None:
    levels = [round(0.03 + 0.04 * i, 2) for i in range(20)]
    assert len(ask(client, series, quantiles=levels)["quantiles"]) == 20


@pytest.mark.parametrize(
    ("first", "more"),
    [
        ("2016-07-01T00:00:00", {"frequency": "15min"}),
        ("2016-07-01T00:00:00Z", {"frequency": "15T"}),
        ("2016-02-01T00:00:00+05:30", {"frequency": "900s"}),
        ("2016-07-01", {}),
    ],
)
def test_timestamps_continue_the_series(
    client: httpx.Client, series: Columns, first: str, more: dict[str, str]
) -> None:
    answer = ask(client, series, horizon=2, start=first, **more)
    expected = [datetime.fromisoformat(first) + (len(series[0]) + i) * timedelta(minutes=15) for i in range(2)]
    assert answer["timestamps"] == [time.isoformat() for time in expected]


def test_constant_and_extreme_series_have_finite_forecasts(client: httpx.Client, forecaster: OfflineForecaster) -> None:
    m = forecaster.manifest
    for near, far in ((0, 0), (1, 1), (999_999, 999_999), (999_999, -999_999)):
        series = [
            [mean + scale * (far if step % 2 else near) for step in range(m.context_length)]
            for mean, scale in zip(m.mean, m.scale, strict=True)
        ]
        answer = ask(client, series, quantiles=[0.1, 0.9])
        assert np.isfinite([answer["forecast"], *answer["quantiles"].values()]).all()
        assert near > 1 or forecaster.agree(answer["forecast"], forecaster(series))


def test_forecast_does_not_depend_on_the_rest_of_its_batch(server: Server, forecaster: OfflineForecaster) -> None:
    inputs = [forecaster.series(forecaster.manifest.context_length, seed) for seed in range(24)]

    async def together() -> list[httpx.Response]:
        async with server.async_client() as client:
            return await asyncio.gather(*(client.post("/v1/forecast", json={"series": series}) for series in inputs))

    answers = asyncio.run(together())
    for series, answer in zip(inputs, answers, strict=True):
        assert forecaster.agree(answer.json()["forecast"], forecaster(series))


Change = Callable[[Columns], Any]


def replaced(channel: int, step: int, value: object) -> Change:
    def change(series: Columns) -> Columns:
        series[channel][step] = value  # type: ignore[call-overload]
        return series

    return change


@pytest.mark.parametrize(
    ("change", "place", "words"),
    [
        (lambda _: None, "series", "array"),
        (lambda _: SECRET, "series", "array"),
        (lambda _: 5, "series", "array"),
        (lambda series: series[0], "series", "a list of values each, not 1 lists"),
        (lambda _: [], "series", "not 0"),
        (lambda _: {}, "series", "is missing"),
        (lambda series: series[1:], "series", "channels"),
        (lambda series: [*series, series[0]], "series", "channels"),
        (lambda _: [[1.0]] * 10_000, "series", "not 10000"),
        (lambda _: {str(i): [1.0] for i in range(10_000)}, "series", "is missing"),
        (lambda series: [[] for _ in series], "series.{0}", "0 of the last"),
        (lambda series: [column[:1] for column in series], "series.{0}", "1 of the last"),
        (lambda series: [*series[:-1], series[-1][1:]], "series", "equally long"),
        (lambda series: [*series[:-1], [None] * len(series[0])], "series.{last}", "0 of the last"),
        (replaced(1, 3, True), "series.1.3", "number"),
        (replaced(1, 3, SECRET), "series.1.3", "number"),
        (replaced(1, 3, "1.5"), "series.1.3", "number"),
        (replaced(1, 3, [1.5]), "series.1.3", "number"),
        (replaced(0, 3, float("nan")), "series.0.3", "finite"),
        (replaced(0, 3, float("inf")), "series.0.3", "finite"),
        (replaced(0, 3, float("-inf")), "series.0.3", "finite"),
        (replaced(0, 3, 10**400), "series.0.3", "finite"),
        (replaced(0, 3, 1e308), "series.{0}.3", "deviations"),
        (replaced(0, 3, -1e12), "series.{0}.3", "deviations"),
    ],
)
def test_bad_series_are_rejected(
    client: httpx.Client, forecaster: OfflineForecaster, series: Columns, change: Change, place: str, words: str
) -> None:
    channels = forecaster.manifest.channels
    body = json.dumps({"series": change(series)}).encode()
    problem = check_problem(client.post("/v1/forecast", content=body, headers=JSON), 422, "invalid_input")
    assert problem["errors"][0]["loc"] == place.format(*channels, last=channels[-1])
    assert words in problem["errors"][0]["msg"]
    assert len(problem["detail"]) < 300 + sum(map(len, channels))


def test_bad_channel_names_are_rejected_without_repeating_them(
    client: httpx.Client, forecaster: OfflineForecaster, series: Columns
) -> None:
    named = dict(zip(forecaster.manifest.channels, series, strict=True))
    first = forecaster.manifest.channels[0]
    missing = {(SECRET if name == first else name): column for name, column in named.items()}
    problem = check_problem(client.post("/v1/forecast", json={"series": missing}), 422, "invalid_input")
    assert f"{first} is missing" in problem["detail"]
    too_many = {**named, SECRET: series[0]}
    problem = check_problem(client.post("/v1/forecast", json={"series": too_many}), 422, "invalid_input")
    assert f"not {len(named) + 1}" in problem["detail"]
    wrong = {**named, SECRET: [SECRET]}
    check_problem(client.post("/v1/forecast", json={"series": wrong}), 422, "invalid_input")


@pytest.mark.parametrize(
    ("options", "place", "words"),
    [
        ({"horizon": 0}, "horizon", "greater than or equal to 1"),
        ({"horizon": -1}, "horizon", "greater than or equal to 1"),
        ({"horizon": 1.0}, "horizon", "integer"),
        ({"horizon": True}, "horizon", "integer"),
        ({"horizon": "1"}, "horizon", "integer"),
        ({"horizon": 10**4000}, "horizon", "at most"),
        ({"quantiles": [0]}, "quantiles.0", "greater than 0"),
        ({"quantiles": [0.5, 1]}, "quantiles.1", "less than 1"),
        ({"quantiles": [1e-9]}, "quantiles", "calibrated"),
        ({"quantiles": [0.5, 1 - 1e-9]}, "quantiles", "calibrated"),
        ({"quantiles": [0.1, 0.1]}, "quantiles", "each once"),
        ({"quantiles": [0.01 * i for i in range(10, 31)]}, "quantiles", "at most 20"),
        ({"quantiles": ["0.1"]}, "quantiles.0", "number"),
        ({"quantiles": [True]}, "quantiles.0", "number"),
        ({"quantiles": [float("nan")]}, "quantiles.0", ""),
        ({"quantiles": 0.1}, "quantiles", "array"),
        ({"quantiles": None}, "quantiles", "array"),
        ({"frequency": "1h", "model": "ettm2"}, "frequency", "15min"),
        ({"frequency": "2h"}, "frequency", "15min"),
        ({"start": SECRET}, "start", "ISO 8601"),
        ({"start": "2016-07-01", "frequency": SECRET}, "frequency", "10min"),
        ({"start": "2016-07-01", "frequency": "1M"}, "frequency", "expects one value every 15min"),
        ({"start": "9999-12-31T23:00:00", "frequency": "15min"}, "start", "9999"),
        ({"start": 5, "frequency": "15min"}, "start", "string"),
        ({"colour": SECRET}, "colour", "no such field"),
        ({"model": "aan"}, "model", "another task"),
    ],
)
def test_bad_options_are_rejected(
    client: httpx.Client, series: Columns, options: dict[str, object], place: str, words: str
) -> None:
    body = json.dumps({"series": series, **options}).encode()
    problem = check_problem(client.post("/v1/forecast", content=body, headers=JSON), 422, "invalid_input")
    assert problem["errors"][0]["loc"] == place
    assert words in problem["errors"][0]["msg"]
    assert len(problem["detail"]) < 300


def test_horizon_beyond_the_models_is_rejected_with_the_limit(
    client: httpx.Client, forecaster: OfflineForecaster, series: Columns
) -> None:
    body = {"series": series, "horizon": forecaster.manifest.horizon + 1}
    problem = check_problem(client.post("/v1/forecast", json=body), 422, "invalid_input")
    assert f"at most {forecaster.manifest.horizon}" in problem["detail"]


def test_nan_and_infinity_in_json_are_rejected(client: httpx.Client, series: Columns) -> None:
    for number in ("1e999", "-1e999"):
        body = json.dumps({"series": series}).replace("[[", f"[[{number}, ").encode()
        check_problem(client.post("/v1/forecast", content=body, headers=JSON), 422, "invalid_input")
    for number in ("1" * 5000, "0x10", "1_000", "+1", ".5", "nan"):
        body = json.dumps({"series": series}).replace("[[", f"[[{number}, ").encode()
        check_problem(client.post("/v1/forecast", content=body, headers=JSON), 400, "malformed_input")


def test_unknown_model_is_404(client: httpx.Client, series: Columns) -> None:
    body = {"series": series, "model": SECRET}
    check_problem(client.post("/v1/forecast", json=body), 404, "model_not_found")


def test_forecaster_is_chosen_by_its_channels(tmp_path: Path, start: Callable[..., Server]) -> None:
    """Expected answers are computed by hand: the last value, and errors of -1 and 2 deviations."""
    write_naive_forecaster(tmp_path, "one", ["x"])
    write_naive_forecaster(tmp_path, "two", ["x", "y"])
    server = start("--exports", str(tmp_path), "--drain-delay-s", "0")
    x, y = [1.0, 2.0, 3.0, 4.0], [8.0, None, None, 5.0]
    assert len(x) == CONTEXT
    with server.client() as client:
        one = ask(client, {"x": x}, quantiles=[0.1, 0.7, 0.9])
        assert (one["model"], one["forecast"]) == ("one", {"x": [4.0] * HORIZON})
        assert {level: values["x"] for level, values in one["quantiles"].items()} == {
            "0.1": [4.0 - SCALE] * HORIZON,
            "0.7": pytest.approx([4.0 + SCALE] * HORIZON),
            "0.9": [4.0 + 2 * SCALE] * HORIZON,
        }
        two = ask(client, {"y": y, "x": x}, horizon=1)
        assert (two["model"], two["forecast"]) == ("two", {"y": [5.0], "x": [4.0]})
        assert two["coverage"]["imputed"] == 2
        for unclear in ([x], {"z": x}, {}):
            problem = check_problem(client.post("/v1/forecast", json={"series": unclear}), 422, "invalid_input")
            assert "one, two" in problem["detail"]
        assert ask(client, [x], model="one")["forecast"] == [[4.0] * HORIZON]
        far = client.post("/v1/forecast", json={"series": {"x": [*x, MEAN + 1.1e6 * SCALE]}})
        check_problem(far, 422, "invalid_input")
        unbounded = client.post("/v1/forecast", json={"series": {"x": x}, "quantiles": [0.05]})
        assert "[0.1, 0.9]" in check_problem(unbounded, 422, "invalid_input")["detail"]
