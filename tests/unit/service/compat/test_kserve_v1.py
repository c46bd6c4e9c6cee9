"""KServe's V1 protocol: instances, predictions and errors of every task."""

import asyncio
import json
from base64 import b64encode
from typing import Any

import httpx
import pytest
from pydantic import SecretStr

from service.settings import Settings
from service.wire import requests
from service.wire.parsing import SMALL_BODY
from tests.support.models import (
    ServingClient,
    answer,
    backend_of,
    classifier,
    forecaster,
    matcher,
    series_classifier,
    serving,
)
from tests.support.waiting import PATIENCE_S

LONG = "+++" + 22 * "." + "---"
NAMED = {"heat": [5, 6, 7, 8], "load": [1, 2, None, 4]}


def b64(document: bytes) -> dict[str, str]:
    return {"b64": b64encode(document).decode()}


async def post(client: ServingClient, name: str, *instances: Any, **more: Any) -> httpx.Response:
    """Post as KServe's client does, without a media type."""
    return await client.post(f"/v1/models/{name}:predict", content=json.dumps({"instances": instances, **more}))


async def predictions(client: ServingClient, name: str, *instances: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = answer(await post(client, name, *instances))["predictions"]
    return found


async def test_documents_get_the_scores_of_the_native_route() -> None:
    async with serving(classifier(version=4)) as client:
        found = answer(await post(client, "mood", "++-", {"text": LONG}, signature_name="any"))
        native = answer(await client.post("/v1/classify", json={"inputs": ["++-", LONG]}))
    assert found == {"model": "mood", "version": 4, "predictions": native["results"]}
    assert (found["predictions"][0]["label"], found["predictions"][0]["score"]) == ("positive", 0.6)
    assert found["predictions"][1]["coverage"]["windows"] == 2


async def test_several_labels_are_those_of_the_native_route() -> None:
    async with serving(classifier(thresholds=(0.7, 0.6))) as client:
        found = await predictions(client, "mood", "+-", "--", ".")
        native = answer(await client.post("/v1/classify", json={"inputs": ["+-", "--", "."]}))
    assert found == native["results"]
    assert [result["labels"] for result in found] == [["positive"], ["negative"], []]


async def test_document_may_contain_any_bytes() -> None:
    document = b"++-\xff\x00"
    async with serving(classifier(), matcher()) as client:
        plain, named = await predictions(client, "mood", b64(document), {"text": b64(document)})
        (pair,) = await predictions(client, "twins", {"a": b64(b"++\xff"), "b": "+-"})
    assert plain == named
    assert (plain["score"], plain["coverage"]["bytes_total"]) == (0.6, 5)
    assert (pair["score"], pair["coverage"]["a"]["bytes_total"]) == (0.75, 3)


async def test_pairs_get_the_scores_of_the_native_route() -> None:
    async with serving(matcher()) as client:
        found = await predictions(client, "twins", {"a": "++", "b": "+-"}, {"b": "++", "a": "--"})
        native = answer(await client.post("/v1/score", json={"pairs": [["++", "+-"], ["--", "++"]]}))
    assert found == native["results"]
    assert [pair["score"] for pair in found] == [0.75, 0.5]


async def test_forecasts_have_the_layout_of_their_series() -> None:
    by_position = [[1, 2, 3, 4], [5, 6, 7, 9]]
    async with serving(forecaster()) as client:
        named, positional = await predictions(client, "naive", {"series": NAMED}, {"series": by_position})
        native = answer(await client.post("/v1/forecast", json={"series": NAMED}))
    assert named == {key: value for key, value in native.items() if key not in ("model", "version", "model_from")}
    assert named["forecast"] == {"heat": [8, 8, 8], "load": [4, 4, 4]}
    assert named["coverage"]["imputed"] == 1
    assert positional["forecast"] == [[4, 4, 4], [9, 9, 9]]


async def test_recordings_get_the_scores_of_the_native_route() -> None:
    x, y = [10, None, 12, 13], [10, 12, 14, 9]
    async with serving(series_classifier(version=2)) as client:
        found = answer(await post(client, "gestures", {"series": {"y": y, "x": x}}, {"series": [y[:2], x[2:]]}))
        native = answer(
            await client.post("/v1/classify", json={"series": [{"y": y, "x": x}, {"x": y[:2], "y": x[2:]}]})
        )
    assert found == {"model": "gestures", "version": 2, "predictions": native["results"]}
    assert found["predictions"][0]["coverage"]["imputed"] == 1


async def test_large_body_is_parsed_in_another_process() -> None:
    instances: dict[str, Any] = {
        "mood": b64(b"+"),
        "twins": {"a": "++", "b": b64(b"+-")},
        "naive": {"series": NAMED},
        "gestures": {"series": [[1, 2], [3, None]]},
    }
    async with serving(classifier(), matcher(), forecaster(), series_classifier()) as client:
        for name, instance in instances.items():
            body = json.dumps({"instances": [instance]}) + " " * SMALL_BODY
            response = await client.post(f"/v1/models/{name}:predict", content=body)
            assert answer(response)["predictions"] == await predictions(client, name, instance)
        assert client.parser.pids


@pytest.mark.parametrize(
    ("name", "instances", "error"),
    [
        ("mood", [], "instances: at least 1 is needed"),
        ("mood", ["+", ""], "instances.1: the document is empty; at least 1 byte is needed"),
        ("mood", [1], 'instances.0: Input should be a string, {"text": a string} or {"b64": a string}'),
        ("mood", [{"a": "+", "b": "+"}], 'instances.0: Input should be a string, {"text": a string} or {"b64": a str'),
        ("mood", [{"text": {"text": "+"}}], 'instances.0.text.text: Input should be a string or {"b64": a string}'),
        ("mood", [{"text": "+", "more": 1}], "instances.0.text.more: Extra inputs are not permitted"),
        ("mood", [{"text": "+", "b64": "Kw=="}], "instances.0.b64.text: Extra inputs are not permitted"),
        ("mood", ["+", {"b64": "?"}], "instances.1.b64: not base64"),
        ("mood", [{"text": {"b64": "Kw"}}], "instances.0.text.b64: not base64"),
        ("twins", ["++"], "instances.0: Input should be an object"),
        ("twins", [{"a": "++"}], "instances.0.b: Field required"),
        ("twins", [{"a": "++", "b": ""}], "instances.0.b: the document is empty; at least 1 byte is needed"),
        ("twins", [{"a": "++", "b": {"b64": "?"}}], "instances.0.b.b64: not base64"),
        ("naive", [{"series": NAMED}, {"series": [[1, 2]]}], "instances.1.series: naive has 2 channels"),
        ("naive", [{"series": {"load": [1, 2]}}], "instances.0.series: naive needs the channels load, heat; heat is"),
        ("naive", [{"series": NAMED}, {"series": [[1, 2], [1]]}], "instances.1.series: all channels must be equally"),
        ("naive", [{"series": [[1, 2], [None, 1]]}], "instances.0.series.heat: 1 of the last 4 values of heat"),
        ("naive", [{"series": NAMED, "horizon": 2}], "instances.0.horizon: Extra inputs are not permitted"),
        ("gestures", [{"series": {"x": [1]}}], "instances.0.series: the model needs the channels x, y; y is missing"),
        (
            "gestures",
            [{"series": [[1], [1]]}, {"series": [[1], [None]]}],
            "instances.1.series.y: it has no known",
        ),
        ("gestures", [[[1], [1]]], "instances.0: Input should be an object"),
    ],
)
async def test_error_names_the_wrong_value(name: str, instances: list[Any], error: str) -> None:
    async with serving(classifier(), matcher(), forecaster(), series_classifier()) as client:
        response = await post(client, name, *instances)
    assert (response.status_code, response.headers["content-type"]) == (422, "application/json")
    assert list(response.json()) == ["error"]
    assert response.json()["error"].startswith(error)


async def test_sizes_of_request_and_response_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = Settings(max_documents=2, max_document_bytes=4)
    async with serving(classifier(), matcher(), forecaster(), series_classifier(), settings=settings) as client:
        instances: dict[str, Any] = {
            "mood": "+",
            "twins": {"a": "++", "b": "++"},
            "naive": {"series": NAMED},
            "gestures": {"series": [[1], [1]]},
        }
        many = [await post(client, name, *[instance] * 3) for name, instance in instances.items()]
        long = await post(client, "mood", "+", "+++++")
        pair = await post(client, "twins", {"a": "++", "b": b64(b"+++++")})
        monkeypatch.setattr(requests, "MAX_NUMBERS", 11)
        large = await post(client, "naive", {"series": NAMED}, {"series": NAMED})
    for response in many:
        assert (response.status_code, response.json()) == (413, {"error": "instances: 3; at most 2 in one request"})
    for response, error in (
        (long, "instances.1: the document has 5 bytes; at most 4"),
        (pair, "instances.0.b: the document has 5 bytes; at most 4"),
        (large, "the response would have 12 numbers; at most 11 are allowed: send fewer instances"),
    ):
        assert (response.status_code, response.json()) == (413, {"error": error})


async def test_other_errors_have_the_same_shape() -> None:
    model = classifier()
    async with serving(model) as client:
        unknown = await post(client, "none", "+")
        malformed = await client.post("/v1/models/mood:predict", content=b"{")
        compressed = await client.post("/v1/models/mood:predict", headers={"content-encoding": "br"})
        late = await client.post("/v1/models/mood:predict", headers={"x-request-timeout-ms": "soon"})
        method = await client.get("/v1/models/mood:predict")
        backend_of(model).error = RuntimeError("broken")
        broken = await post(client, "mood", "+")
    assert method.headers["allow"] == "POST"
    for response, status, error in (
        (unknown, 404, "no model of that name is served; there are: mood"),
        (malformed, 400, "the body is not valid JSON in UTF-8"),
        (compressed, 415, "send the body without Content-Encoding, or with one of gzip, deflate"),
        (late, 422, "X-Request-Timeout-Ms must be a positive number of milliseconds"),
        (method, 405, "the methods of this path: POST"),
        (broken, 500, "the backend failed on this input"),
    ):
        assert (response.status_code, response.json()) == (status, {"error": error})


async def test_key_is_required() -> None:
    async with serving(classifier(), settings=Settings(api_keys=(SecretStr("secret"),))) as client:
        response = await post(client, "mood", "+")
    assert (response.status_code, list(response.json())) == (401, ["error"])


@pytest.mark.usefixtures("one_slot")
async def test_full_queue_rejects_with_retry_after() -> None:
    model = classifier()
    backend_of(model).gate.clear()
    async with serving(model, settings=Settings(max_queue_rows=1)) as client:
        running = [asyncio.create_task(post(client, "mood", "+")) for _ in range(2)]  # one is computed, one waits
        async with asyncio.timeout(PATIENCE_S):
            while not client.engine.models["mood"].batcher.waiting_rows:  # noqa: ASYNC110  # there is no event
                await asyncio.sleep(0)
        refused = await post(client, "mood", "+")
        backend_of(model).gate.set()
        answers = await asyncio.gather(*running)
    assert (refused.status_code, refused.json()) == (429, {"error": "1 rows wait already"})
    assert int(refused.headers["retry-after"]) >= 1
    assert [response.status_code for response in answers] == [200, 200]


async def test_request_is_recorded_in_the_metrics() -> None:
    async with serving(classifier()) as client:
        response = await post(client, "mood", "+")
        labels = {"route": "/v1/models/{name}:predict", "method": "POST", "code": "200"}
        assert client.count("longdoc_http_requests_total", **labels) == 1
        assert client.count("longdoc_documents_total", model="mood") == 1
    assert {"queue", "compute", "total"} == {
        part.split(";")[0] for part in response.headers["server-timing"].split(", ")
    }
