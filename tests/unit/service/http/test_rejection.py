"""Requests rejected before their body is read."""

import json
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any

import pytest
from pydantic import SecretStr
from starlette.types import Message, Receive, Scope, Send

from service.engine.engine import Engine
from service.engine.reload import Reloader
from service.engine.served import AnyModel
from service.errors import Overloaded, RetryableError
from service.http.keys import Keys
from service.http.rejection import PEEK_BYTES, RejectionMiddleware
from service.metrics import Metrics
from service.runtime import Runtime
from service.settings import Settings
from service.wire.context import KEY
from tests.support.applications import send_to
from tests.support.contexts import context, receive_of, scope_of
from tests.support.models import ServingClient, backend_of, classifier, forecaster, series_classifier, serving
from tests.support.problems import check_problem

DEADLINE_S = 30.0
TEXTS, SERIES = "/v1/classify", "/v1/forecast"


class FullEngine(Engine):
    """Rejects every request or none, and records the arguments."""

    def __init__(self, error: RetryableError | None) -> None:
        super().__init__([], Settings(), Metrics())
        self.error = error
        self.asked: list[tuple[list[str], float]] = []
        self.sizes: list[int | None] = []

    def may_reject(self, tasks: Sequence[str], left_s: float) -> bool:
        del tasks, left_s
        return self.error is not None

    def rejection(
        self,
        tasks: Sequence[str],
        left_s: float,
        asked: Callable[[], AnyModel | None] = lambda: None,
        size: int | None = None,
    ) -> RetryableError | None:
        del asked
        self.sizes.append(size)
        self.asked.append((list(tasks), left_s))
        return self.error


async def is_admitted(
    engine: Engine,
    path: str = TEXTS,
    method: str = "POST",
    headers: Mapping[str, str] | None = None,
    query: str = "",
    keys: tuple[str, ...] = (),
) -> bool:
    """Return whether a request reaches the application; if not, the engine's error was raised and nothing was read."""
    admitted = list[str]()
    asked, settings, metrics = context(headers=headers, query=query), Settings(deadline_s=DEADLINE_S), Metrics()
    asked.path = path
    asked.runtime = Runtime(settings, metrics, engine, Reloader(engine, settings, metrics))

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        del receive, send
        admitted.append(scope["path"])

    async def never() -> Message:
        raise AssertionError("read")

    async def send(message: Message) -> None:
        raise AssertionError(message)

    middleware = RejectionMiddleware(app, Keys(map(SecretStr, keys)))
    try:
        await middleware({**scope_of(headers, query), "path": path, "method": method, KEY: asked}, never, send)
    except RetryableError:
        return False
    assert admitted == [path]
    return True


@pytest.mark.parametrize(
    ("path", "kind", "tasks"),
    [
        (TEXTS, "text/plain", ["text-classification"]),
        (TEXTS, "application/json", ["text-classification", "series-classification"]),
        (SERIES, "application/json", ["forecasting"]),
    ],
)
async def test_engine_is_asked_for_the_tasks_of_the_path_and_type(path: str, kind: str, tasks: list[str]) -> None:
    engine = FullEngine(Overloaded("full"))
    assert not await is_admitted(engine, path, headers={"content-type": kind})
    assert engine.asked == [(tasks, DEADLINE_S)]


@pytest.mark.parametrize(
    ("path", "method"),
    [("/v1/score", "POST"), ("/none", "POST"), (TEXTS, "GET"), ("/v1/classify/", "POST"), ("/v1/classify/a", "POST")],
)
async def test_other_requests_are_always_admitted(path: str, method: str) -> None:
    engine = FullEngine(Overloaded("full"))
    assert await is_admitted(engine, path, method)
    assert engine.asked == []


async def test_lines_are_always_admitted_because_they_wait_for_the_queue() -> None:
    engine = FullEngine(Overloaded("full"))
    assert await is_admitted(engine, headers={"content-type": "Application/X-NDJSON; x=y"})
    assert not await is_admitted(engine, headers={"content-type": "text/plain"})


async def test_request_without_a_valid_key_gets_no_429() -> None:
    engine = FullEngine(Overloaded("full"))
    assert await is_admitted(engine, headers={"x-api-key": "wrong"}, keys=("secret",))
    assert engine.asked == []
    assert not await is_admitted(engine, headers={"x-api-key": "secret"}, keys=("secret",))


@pytest.mark.parametrize(
    ("asked", "left_s"),
    [
        ("500", 0.5),
        ("29999", 29.999),
        *((other, DEADLINE_S) for other in ("31000", "x", "", "-1", "²", "1000000000")),
    ],
)
async def test_earlier_deadline_of_the_client_applies(asked: str, left_s: float) -> None:
    engine = FullEngine(None)
    assert await is_admitted(engine, headers={"x-request-timeout-ms": asked})
    assert engine.asked == [(["text-classification"], left_s)]


@pytest.mark.parametrize(
    ("headers", "query", "size"),
    [
        ({"content-length": "5000"}, "", 5000),
        ({"content-length": "5000"}, "on_overflow=head", None),
        ({"content-length": "5000", "content-encoding": "gzip"}, "", None),
        ({"content-length": "5000", "content-type": "application/json"}, "", None),
        ({"transfer-encoding": "chunked"}, "", None),
    ],
)
async def test_size_of_a_document_is_known_if_it_is_the_whole_body(
    headers: dict[str, str], query: str, size: int | None
) -> None:
    engine = FullEngine(None)
    assert await is_admitted(engine, headers=headers, query=query)
    assert engine.sizes == [size]


@pytest.fixture
async def overloaded() -> AsyncIterator[ServingClient]:
    """Two classifiers, `mood` being the default, and two forecasters; the first of each cannot take requests."""
    models = [classifier(), classifier("other"), forecaster(), forecaster("second")]
    settings = Settings(default_classifier="mood", default_forecaster="naive")
    async with serving(*models, settings=settings) as client:
        for name in ("mood", "naive"):
            client.engine.models[name].batcher.close()
        yield client


@pytest.mark.parametrize(
    ("query", "is_rejected"),
    [
        ("", True), ("top_k=1", True), ("model=mood", True), ("model=m%6Fod", True), ("model=mood%401", True),
        ("model=other", False), ("model=none", False), ("model=naive", False), ("model=", False),
        ("model=mood&model=other", False),
    ],
)  # fmt: skip
async def test_model_in_the_query_decides(overloaded: ServingClient, query: str, *, is_rejected: bool) -> None:
    """Other models of the task do not keep a full one from rejecting, and a full one rejects nothing for the others."""
    headers = {"content-type": "text/plain; charset=utf-8"}
    assert await is_admitted(overloaded.engine, headers=headers, query=query) is not is_rejected


async def test_model_of_a_json_body_of_unknown_length_is_not_known_before_it_is_read(overloaded: ServingClient) -> None:
    """It is rejected only if no model of the task can accept it."""
    headers = {"content-type": "application/json"}
    for path, name in ((TEXTS, "other"), (SERIES, "second")):
        assert await is_admitted(overloaded.engine, path, headers=headers)
        overloaded.engine.models[name].batcher.close()
        assert not await is_admitted(overloaded.engine, path, headers=headers)


async def post(client: ServingClient, headers: Mapping[str, str], body: bytes) -> tuple[int, dict[str, Any]]:
    response = await client.post(TEXTS, content=body, headers=headers)
    return response.status_code, json.loads(response.content)


@pytest.mark.parametrize(
    ("body", "is_rejected"),
    [
        ({"inputs": "+"}, True),
        ({"inputs": "+", "model": None}, True),
        ({"inputs": "+", "model": "mood"}, True),
        ({"inputs": "+" * PEEK_BYTES, "model": "mood"}, True),
        ({"inputs": "+", "model": "other"}, False),
    ],
)
async def test_model_in_the_json_body_decides(overloaded: ServingClient, body: object, *, is_rejected: bool) -> None:
    status, answer = await post(overloaded, {"content-type": "application/json"}, json.dumps(body).encode())
    assert (status, answer.get("code")) == ((503, "shutting_down") if is_rejected else (200, None))


async def test_json_body_is_not_read_if_the_query_may_name_another_model(overloaded: ServingClient) -> None:
    response = await overloaded.post(f"{TEXTS}?model=other", json={"inputs": "+"})
    assert (response.status_code, response.json()["model"]) == (200, "other")


@pytest.mark.parametrize("body", [b'{"model":', b'["mood"]', b'{"model": 7}', b'{"model": "none"}'])
async def test_json_body_without_a_known_model_is_left_to_the_route(overloaded: ServingClient, body: bytes) -> None:
    status, _ = await post(overloaded, {"content-type": "application/json"}, body)
    assert status in (400, 422)


@pytest.mark.parametrize(
    ("full", "body", "is_rejected"),
    [
        ("mood", {"inputs": "+"}, True),
        ("mood", {"series": [[1], [1]]}, False),
        ("gestures", {"inputs": "+"}, False),
        ("gestures", {"series": [[1], [1]]}, True),
        ("gestures", {"series": [[1], [1]], "model": "gestures"}, True),
        ("gestures", {"inputs": "+", "model": "mood"}, False),
    ],
)
async def test_kind_of_input_in_the_json_body_decides(full: str, body: object, *, is_rejected: bool) -> None:
    """A full model of one task rejects nothing for the other task of the same path."""
    async with serving(classifier(), series_classifier()) as client:
        client.engine.models[full].batcher.close()
        status, _ = await post(client, {"content-type": "application/json"}, json.dumps(body).encode())
        counted = client.count("longdoc_requests_rejected_total", model=full, reason="shutting_down")
    assert (status, counted) == ((503, 1) if is_rejected else (200, 0))


async def test_document_is_rejected_by_classifiers_of_texts_alone() -> None:
    async with serving(classifier(), series_classifier()) as client:
        client.engine.models["mood"].batcher.close()
        assert not await is_admitted(client.engine, headers={"content-type": "text/plain"})
        assert await is_admitted(client.engine, headers={"content-type": "application/json"})
        client.engine.models["gestures"].batcher.close()
        assert not await is_admitted(client.engine, headers={"content-type": "application/json"})


async def test_json_body_is_not_validated_for_a_rejection(overloaded: ServingClient) -> None:
    body = b'{"model": "mood", "not": "validated"}'
    headers = {"content-type": "application/json", "content-length": str(len(body)), "host": "x"}
    start, *_ = await send_to(overloaded.app, TEXTS, receive_of(body), headers)
    assert start["status"] == 503


async def test_json_body_that_does_not_arrive_is_not_waited_for_longer_than_the_deadline(
    overloaded: ServingClient,
) -> None:
    headers = {"content-type": "application/json", "content-length": "9", "host": "x", "x-request-timeout-ms": "1"}
    start, *_ = await send_to(overloaded.app, TEXTS, receive_of(leaves=False), headers)
    assert start["status"] == 504


async def test_rejection_is_a_response_like_any_other() -> None:
    model = classifier()
    async with serving(model) as client:
        client.engine.models["mood"].batcher.close()
        refused = await client.post(TEXTS, json={"inputs": "+"}, headers={"x-request-id": "abc"})
        counted = client.count("longdoc_http_requests_total", route=TEXTS, method="POST", code="503")
        rejected = client.count("longdoc_requests_rejected_total", model="mood", reason="shutting_down")
    check_problem(refused, 503, "shutting_down")
    assert (refused.headers["x-request-id"], refused.headers["retry-after"], counted, rejected) == ("abc", "1", 1, 1)
    assert {"server-timing", "x-content-type-options"} <= refused.headers.keys()
    assert backend_of(model).batches == []
