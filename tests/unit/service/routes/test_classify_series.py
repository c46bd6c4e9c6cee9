"""`POST /v1/classify` with series, as JSON and NDJSON."""

import json
from typing import Any

import httpx
import pytest

from service.routes import classify
from service.settings import Settings
from service.wire import body, requests
from service.wire import recordings as wire_recordings
from service.wire.parsing import SMALL_BODY
from tests.support import recordings as reference
from tests.support.models import RATE, ServingClient, backend_of, classifier, forecaster, series_classifier, serving
from tests.support.problems import check_problem

X: list[float | None] = [10, None, 12, 13]
Y: list[float | None] = [10, 12, 14, 9]
NAMED = {"y": Y, "x": X}
LONG = {"x": [10.0 + step % 5 for step in range(30)], "y": [12.0 - step % 4 for step in range(30)]}
NDJSON = {"content-type": "application/x-ndjson"}


def approx(value: float) -> Any:
    return pytest.approx(value, abs=1e-6)


def wave_of(result: dict[str, Any]) -> float:
    """Return the score of `wave`."""
    (found,) = (score["score"] for score in result["scores"] if score["label"] == "wave")
    return float(found)


async def post(client: ServingClient, series: object, **options: object) -> httpx.Response:
    return await client.post("/v1/classify", json={"series": series, **options})


async def results(client: ServingClient, series: object, **options: object) -> list[dict[str, Any]]:
    response = await post(client, series, **options)
    assert response.status_code == 200, response.text
    found: list[dict[str, Any]] = response.json()["results"]
    return found


async def test_recording_gets_its_scores() -> None:
    async with serving(series_classifier(version=3), classifier()) as client:
        response = await post(client, NAMED)
    wave = reference.score(X, Y)
    scores = [{"label": "wave", "score": approx(wave)}, {"label": "rest", "score": approx(1 - wave)}]
    coverage = {
        "observations_total": 7,
        "observations_used": 7,
        "imputed": 1,
        "strategy": "whole",
        "windows": 1,
        "resampled": False,
    }
    result = {**scores[0], "scores": scores, "coverage": coverage}
    assert response.json() == {"model": "gestures", "version": 3, "results": [result]}


async def test_channels_may_come_by_name_or_position_and_several_recordings_by_name() -> None:
    async with serving(series_classifier()) as client:
        (named,), (positional,) = await results(client, NAMED), await results(client, [X, Y])
        several = await results(client, [NAMED, LONG, {"x": [11], "y": [8]}])
        (alone,) = await results(client, [NAMED])
    assert named == positional == several[0] == alone
    expected = [reference.score(X, Y), reference.score([*LONG["x"]], [*LONG["y"]]), reference.score([11], [8])]
    assert [wave_of(result) for result in several] == [approx(one) for one in expected]
    assert [result["coverage"]["windows"] for result in several] == [1, 5, 1]


async def test_values_of_the_only_channel_may_come_alone() -> None:
    async with serving(series_classifier(channels=["x"])) as client:
        flat, nested, named = [(await results(client, series))[0] for series in (X, [X], {"x": X})]
        (line,) = await lines(client, {"series": X})
    assert flat == nested == named
    assert wave_of(flat) == wave_of(line) == approx(reference.score(X, X))


async def test_rate_is_resampled_and_told() -> None:
    async with serving(series_classifier()) as client:
        (faster,) = await results(client, LONG, rate=2 * RATE)
        (same,) = await results(client, LONG, rate=RATE)
        (plain,) = await results(client, LONG)
    expected = reference.score([*LONG["x"]], [*LONG["y"]], steps=15)
    assert wave_of(faster) == approx(expected)
    assert [found["coverage"]["resampled"] for found in (faster, same, plain)] == [True, False, False]
    assert same == plain


async def test_options_apply() -> None:
    async with serving(series_classifier(), series_classifier("other")) as client:
        response = await post(client, LONG, model="other@1", top_k=1, on_overflow="head", detail=True)
    found = response.json()
    (result,) = found["results"]
    head = reference.score([*LONG["x"][:8]], [*LONG["y"][:8]])
    assert (found["model"], len(result["scores"]), result["scores"][0]["score"]) == (
        "other",
        1,
        approx(max(head, 1 - head)),
    )
    assert (result["coverage"]["strategy"], result["coverage"]["observations_used"]) == ("head", 16)
    assert len(result["stretches"]) == 16
    assert [list(part["contributions"]) for part in result["stretches"]] == [[result["label"]]] * 16


@pytest.mark.parametrize(
    ("body", "place", "detail"),
    [
        ({}, "inputs", "give either inputs (documents) or series"),
        ({"inputs": "+", "series": NAMED}, "inputs", "give either inputs (documents) or series"),
        ({"series": {"x": X}}, "series", "series: the model needs the channels x, y; y is missing"),
        ({"series": {**NAMED, "z": X}}, "series", "series: the model has the channels x, y; z is not one of them"),
        ({"series": [X]}, "series", "series: the model has 2 channels (x, y), a list of values each, not 1"),
        ({"series": X}, "series", "series: the model has 2 channels (x, y), a list of values each, not 1"),
        ({"series": []}, "series", "series: the model has 2 channels (x, y), a list of values each, not 0"),
        ({"series": [NAMED, {"x": X}]}, "series.1", "series.1: the model needs the channels x, y; y is missing"),
        ({"series": [NAMED, [X, Y]]}, "series.1", "Input should be an object"),
        ({"series": [X, [1]]}, "series.y", "series.y: its length is 1, that of x 4; both must be equal"),
        ({"series": [[], []]}, "series", "series: at least 1 value of each channel is needed"),
        ({"series": [{"x": [None], "y": [1]}]}, "series.0.x", "series.0.x: it has no known value"),
        ({"series": LONG, "on_overflow": "error"}, "series", "series: the recording has 30 steps; the model reads 8"),
        ({"series": NAMED, "rate": 0}, "rate", "rate: Input should be greater than 0"),
        ({"series": NAMED, "rate": 1e-9}, "rate", "rate: the recording would have more than 1,000,000 steps"),
        ({"inputs": "+", "rate": 10}, "rate", "rate: documents have none; leave it out"),
        ({"series": NAMED, "model": "mood"}, "model", "mood is for text-classification; models for series-class"),
        ({"inputs": "+", "model": "gestures"}, "model", "gestures is for series-classification; models for text-cl"),
        ({"series": NAMED, "model": "naive"}, "model", "naive is for forecasting; models for series-classification"),
    ],
)
async def test_problem_names_the_wrong_value(body: dict[str, Any], place: str, detail: str) -> None:
    async with serving(classifier(), series_classifier(), forecaster()) as client:
        problem = check_problem(await client.post("/v1/classify", json=body), 422, "invalid_input")
    assert [error["loc"] for error in problem["errors"]] == [place]
    assert detail in problem["detail"]


async def test_rate_needs_a_model_that_knows_its_own() -> None:
    async with serving(series_classifier(rate=None)) as client:
        problem = check_problem(await post(client, NAMED, rate=10), 422, "invalid_input")
    assert problem["detail"] == "rate: the rate of the training recordings is not known; leave it out"


async def test_kind_of_input_chooses_the_default_model() -> None:
    async with serving(classifier(), series_classifier()) as client:
        texts = await client.post("/v1/classify", json={"inputs": "+"})
        series = await post(client, NAMED)
    assert [response.json()["model"] for response in (texts, series)] == ["mood", "gestures"]
    settings = Settings(default_series_classifier="second")
    async with serving(classifier(), series_classifier(), series_classifier("second"), settings=settings) as client:
        assert (await post(client, NAMED)).json()["model"] == "second"
    async with serving(series_classifier(), series_classifier("second")) as client:
        problem = check_problem(await post(client, NAMED), 422, "invalid_input")
    assert problem["detail"] == "name a model; models for series-classification: gestures, second"


async def test_without_a_model_of_the_task_the_answer_says_so() -> None:
    async with serving(classifier()) as client:
        unnamed = check_problem(await post(client, NAMED), 422, "invalid_input")
        check_problem(await post(client, NAMED, model="gestures"), 404, "model_not_found")
    assert unnamed["detail"] == "no model for series-classification is served"


async def test_large_body_is_parsed_in_another_process() -> None:
    body = json.dumps({"series": [NAMED, LONG], "top_k": 1})
    async with serving(series_classifier()) as client:
        found = await client.post(
            "/v1/classify", content=body + " " * SMALL_BODY, headers={"content-type": "application/json"}
        )
        assert client.parser.pids
        assert found.json()["results"] == await results(client, [NAMED, LONG], top_k=1)
        wrong = body.replace("null", '"1"') + " " * SMALL_BODY
        refused = await client.post("/v1/classify", content=wrong, headers={"content-type": "application/json"})
    assert check_problem(refused, 422, "invalid_input")["errors"][0]["loc"] == "series.0.x.1"


async def test_recordings_and_contributions_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving(model := series_classifier(), settings=Settings(max_documents=2)) as client:
        many = await post(client, [NAMED] * 3)
        monkeypatch.setattr(requests, "MAX_NUMBERS", 2 * 2 * 16 - 1)
        detailed = await post(client, [NAMED] * 2, detail=True)
        assert backend_of(model).batches == []
        assert (await post(client, [NAMED] * 2, detail=True, top_k=1)).status_code == 200
        monkeypatch.setattr(wire_recordings, "MAX_VALUES", 2 * 3000 - 1)
        slow = await post(client, LONG, rate=RATE / 100)
        assert (await post(client, LONG, rate=RATE / 99)).status_code == 200
    for response, detail in (
        (many, "series: 3; at most 2 in one request"),
        (detailed, "the response would have 64 numbers; at most 63 are allowed: send fewer, or set top_k"),
        (slow, "there would be 6000 values at the rate of the model; at most 5999 are allowed"),
    ):
        assert check_problem(response, 413, "payload_too_large")["detail"] == detail


async def test_values_are_counted_as_held_at_the_rate_of_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    """The 60 values of a request become 6000, which need 16 bytes each."""
    reserved = list[int]()
    monkeypatch.setattr(body.Body, "reserve", lambda _, size: reserved.append(size))
    async with serving(series_classifier()) as client:
        await results(client, LONG, rate=RATE / 100)
    assert reserved == [6000 * 16]


async def test_line_is_resampled_to_fewer_values_than_a_request(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(classify, "MAX_LINE_VALUES", 119)
    async with serving(series_classifier()) as client:
        many = {"x": 100 * [1.0], "y": 100 * [2.0]}
        found = await lines(client, {"series": LONG, "rate": RATE / 2}, {"series": LONG}, {"series": many})
    assert found[0]["error"]["status"] == 413
    assert found[0]["error"]["detail"] == (
        "input 0: there would be 120 values at the rate of the model; at most 119 are allowed"
    )
    assert [line.get("model") for line in found[1:]] == ["gestures"] * 2


async def test_recordings_are_counted_in_the_metrics() -> None:
    async with serving(series_classifier()) as client:
        await results(client, [NAMED, LONG], on_overflow="tail")
        counts = [client.count(f"longdoc_documents{name}_total", model="gestures") for name in ("", "_truncated")]
        assert client.count("longdoc_request_duration_seconds_count", model="gestures", task="series-classification")
    assert counts == [2, 1]


async def lines(client: ServingClient, *contents: object, query: str = "") -> list[dict[str, Any]]:
    body = "\n".join(map(json.dumps, contents))
    response = await client.post(f"/v1/classify{query}", content=body, headers=NDJSON)
    assert response.status_code == 200, response.text
    return [json.loads(line) for line in response.text.splitlines()]


async def test_lines_of_both_kinds_get_the_default_model_of_their_kind() -> None:
    async with serving(classifier(), series_classifier()) as client:
        contents = (
            {"id": "a", "series": NAMED, "rate": RATE},
            {"id": "b", "text": "++-"},
            {"series": [X, Y]},
            {"id": 4, "series": LONG, "rate": 2 * RATE},
        )
        found = await lines(client, *contents, query="?top_k=1")
        single = [(await results(client, LONG, rate=2 * RATE, top_k=1))[0], (await results(client, NAMED, top_k=1))[0]]
        assert client.count("longdoc_requests_in_flight", model="gestures") == 0
    assert [(line["index"], line.get("id"), line["model"]) for line in found] == [
        (0, "a", "gestures"),
        (1, "b", "mood"),
        (2, None, "gestures"),
        (3, 4, "gestures"),
    ]
    assert {name: found[3][name] for name in single[0]} == single[0]
    assert {name: found[2][name] for name in single[1]} == single[1]


@pytest.mark.parametrize(
    ("line", "place", "detail"),
    [
        ({"series": {"x": X}}, "series", "the model needs the channels x, y; y is missing"),
        ({"series": NAMED, "text": "+"}, "text", "give one of text, base64 and series"),
        ({"rate": 10}, "text", "give one of text, base64 and series"),
        ({"text": "+", "rate": 10}, "rate", "documents have none; leave it out"),
        ({"series": [NAMED]}, "series.0", "Input should be a valid number"),
        ({"series": NAMED, "rate": 1e-9}, "rate", "the recording would have more than 1,000,000 steps"),
        ({"series": NAMED, "rate": -1}, "rate", "Input should be greater than 0"),
    ],
)
async def test_wrong_line_gets_an_error_in_its_position(line: dict[str, Any], place: str, detail: str) -> None:
    async with serving(classifier(), series_classifier()) as client:
        before, wrong, after = await lines(client, {"series": NAMED}, {"id": 1, **line}, {"text": "+"})
    assert (before["model"], after["model"], wrong["id"]) == ("gestures", "mood", 1)
    assert wrong["error"]["status"] == 422
    assert [error["loc"] for error in wrong["error"]["errors"]] == [place]
    assert detail in wrong["error"]["detail"]


async def test_named_model_answers_lines_of_its_kind_only() -> None:
    async with serving(classifier(), series_classifier()) as client:
        for name, good, bad in (
            ("gestures", {"series": NAMED}, {"text": "+"}),
            ("mood", {"text": "+"}, {"series": NAMED}),
        ):
            answered, refused = await lines(client, good, bad, query=f"?model={name}")
            assert answered["model"] == name
            assert refused["error"]["status"] == 422
            assert f": {name} is for " in refused["error"]["detail"]


async def test_line_of_a_kind_without_a_model_gets_an_error() -> None:
    async with serving(classifier()) as client:
        refused, answered = await lines(client, {"series": NAMED}, {"text": "+"})
    assert refused["error"]["detail"].endswith(": no model for series-classification is served")
    assert answered["model"] == "mood"
    async with serving(series_classifier()) as client:
        answered, refused = await lines(client, {"series": NAMED}, {"text": "+"})
    assert refused["error"]["detail"].endswith(": no model for text-classification is served")
    assert answered["model"] == "gestures"


async def test_upload_for_no_classifier_is_refused_as_a_whole() -> None:
    async with serving(classifier(), series_classifier(), forecaster()) as client:
        for query, status, code in (
            ("?model=naive", 422, "invalid_input"),
            ("?model=none", 404, "model_not_found"),
            ("?rate=10", 422, "invalid_input"),
        ):
            response = await client.post(f"/v1/classify{query}", content='{"text": "+"}', headers=NDJSON)
            check_problem(response, status, code)
    async with serving(forecaster()) as client:
        response = await client.post("/v1/classify", content='{"text": "+"}', headers=NDJSON)
        problem = check_problem(response, 422, "invalid_input")
    assert problem["detail"] == "no model for text-classification is served"


async def test_details_in_lines_equal_those_of_single_requests() -> None:
    async with serving(classifier(), series_classifier()) as client:
        (single,) = await results(client, LONG, detail=True)
        series, text = await lines(client, {"series": LONG}, {"text": "++-"}, query="?detail=true")
    assert series["stretches"] == single["stretches"]
    assert text["windows"]
