"""Requests rejected before their body is read."""

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest
from pydantic import SecretStr
from starlette.types import Scope

from service.engine.engine import Engine
from service.engine.served import ServedModel
from service.errors import Overloaded, RetryableError, ShuttingDown
from service.http.admission import HeadAdmission
from service.http.keys import Keys
from service.http.state import state_of
from service.metrics import Metrics
from service.settings import Settings
from service.table import TABLE as ALL_ROUTES
from service.wire.route import Route, Table
from tests.support.applications import fail
from tests.support.models import classifier, forecaster

LINES = Route(method="POST", path="/lines", handler=fail, task="texts", ndjson_handler=fail)
TABLE = Table(
    [
        Route(method="POST", path="/texts", handler=fail, task="texts"),
        Route(method="POST", path="/series/{name}", handler=fail, task="series"),
        Route(method="POST", path="/free", handler=fail),
        LINES,
    ]
)
DEADLINE_S = 30.0


class FullEngine(Engine):
    """Rejects every request or none, and records the arguments."""

    def __init__(self, error: RetryableError | None) -> None:
        super().__init__([], Settings(), Metrics())
        self.error = error
        self.asked: list[tuple[str, float, int]] = []
        self.sizes: list[int | None] = []

    def rejection(
        self,
        task: str,
        left_s: float,
        entering: int,
        asked: Callable[[], ServedModel | None] = lambda: None,
        size: int | None = None,
    ) -> RetryableError | None:
        del asked
        self.sizes.append(size)
        self.asked.append((task, left_s, entering))
        return self.error


def scope_of(path: str = "/texts", method: str = "POST", headers: Mapping[str, str] | None = None) -> dict[str, Any]:
    fields = [(name.encode(), value.encode()) for name, value in (headers or {}).items()]
    return {"type": "http", "method": method, "path": path, "headers": fields, "query_string": b""}


def admission(engine: Engine, *keys: str) -> HeadAdmission:
    return HeadAdmission(engine, TABLE, Keys(map(SecretStr, keys), TABLE.open_paths), DEADLINE_S)


def not_arrived() -> None:
    """The body of a request of which only the headers have arrived."""


def test_admission_asks_for_the_task_of_the_route() -> None:
    engine = FullEngine(Overloaded("full"))
    refused = admission(engine).rejection(scope_of("/series/a"), not_arrived)
    assert refused is not None
    route, error = refused
    assert (route.path, error) == ("/series/{name}", engine.error)
    assert engine.asked == [("series", DEADLINE_S, 0)]


@pytest.mark.parametrize(
    ("path", "method"), [("/free", "POST"), ("/none", "POST"), ("/texts", "GET"), ("/series/a/b", "POST")]
)
def test_other_requests_are_always_admitted(path: str, method: str) -> None:
    engine = FullEngine(Overloaded("full"))
    assert admission(engine).rejection(scope_of(path, method), not_arrived) is None
    assert engine.asked == []


def test_lines_are_always_admitted_because_they_wait_for_the_queue() -> None:
    engine = FullEngine(Overloaded("full"))
    asked = admission(engine)
    assert (
        asked.rejection(scope_of("/lines", headers={"content-type": "Application/X-NDJSON; x=y"}), not_arrived) is None
    )
    assert asked.rejection(scope_of("/lines", headers={"content-type": "text/plain"}), not_arrived) is not None
    assert (
        asked.rejection(scope_of("/texts", headers={"content-type": "application/x-ndjson"}), not_arrived) is not None
    )


def test_request_without_a_valid_key_gets_no_429() -> None:
    engine = FullEngine(Overloaded("full"))
    asked = admission(engine, "secret")
    assert asked.rejection(scope_of(headers={"x-api-key": "wrong"}), not_arrived) is None
    assert engine.asked == []
    assert asked.rejection(scope_of(headers={"x-api-key": "secret"}), not_arrived) is not None


@pytest.mark.parametrize(
    ("asked", "left_s"),
    [("500", 0.5), ("29999", 29.999), ("31000", DEADLINE_S), ("x", DEADLINE_S), ("", DEADLINE_S), ("-1", DEADLINE_S)],
)
def test_earlier_deadline_of_the_client_applies(asked: str, left_s: float) -> None:
    engine = FullEngine(None)
    admission(engine).rejection(scope_of(headers={"x-request-timeout-ms": asked}), not_arrived)
    assert engine.asked == [("texts", left_s, 0)]


def test_admitted_requests_are_counted_by_task_until_they_start() -> None:
    engine = FullEngine(None)
    asked = admission(engine)
    scopes: list[Scope] = [scope_of(), scope_of(), scope_of("/series/a")]
    for scope in scopes:
        assert asked.rejection(scope, not_arrived) is None
    asked.begin(state_of(scopes[0]))
    asked.begin(state_of(scopes[0]))
    asked.begin(state_of(scope_of()))
    asked.rejection(scope_of(), not_arrived)
    assert engine.asked == [
        ("texts", DEADLINE_S, 0),
        ("texts", DEADLINE_S, 1),
        ("series", DEADLINE_S, 0),
        ("texts", DEADLINE_S, 1),
    ]


def test_rejected_request_is_not_counted() -> None:
    engine = FullEngine(Overloaded("full"))
    asked = admission(engine)
    for _ in range(2):
        asked.rejection(scope_of(), not_arrived)
    assert [entering for _, _, entering in engine.asked] == [0, 0]


class Overload:
    """Two classifiers, `mood` being the default, and two forecasters; the first of each cannot take requests."""

    def __init__(self) -> None:
        models = [classifier(), classifier("other"), forecaster(), forecaster("second")]
        settings = Settings(default_classifier="mood", default_forecaster="naive")
        self.engine = Engine(models, settings, Metrics())
        for name in ("mood", "naive"):
            self.engine.models[name].batcher.close()
        self.admission = HeadAdmission(self.engine, ALL_ROUTES, Keys((), ALL_ROUTES.open_paths), DEADLINE_S)

    def rejects(self, path: str, content_type: str, query: str = "", body: bytes | None = None) -> bool:
        scope = {**scope_of(path, headers={"content-type": content_type}), "query_string": query.encode()}
        rejected = self.admission.rejection(scope, lambda: body)
        assert rejected is None or isinstance(rejected[1], ShuttingDown)
        return rejected is not None


@pytest.fixture
def overload() -> Iterator[Overload]:
    overload = Overload()
    yield overload
    overload.engine.close()


@pytest.mark.parametrize(
    ("query", "is_rejected"),
    [
        ("", True),
        ("top_k=1", True),
        ("model=mood", True),
        ("model=m%6Fod", True),
        ("model=mood%401", True),
        ("model=other", False),
        ("model=none", False),
        ("model=naive", False),
        ("model=", False),
        ("model=mood&model=other", False),
    ],
)
def test_model_in_the_query_decides(overload: Overload, query: str, is_rejected: bool) -> None:
    """Other models of the task do not keep a full one from rejecting, and a full one rejects nothing for the others."""
    assert overload.rejects("/v1/classify", "text/plain; charset=utf-8", query) == is_rejected


@pytest.mark.parametrize(
    ("body", "is_rejected"),
    [
        (json.dumps({"inputs": "+"}).encode(), True),
        (json.dumps({"inputs": ['"model": "other"', "é"]}).encode(), True),
        (json.dumps({"inputs": "+", "model": None}).encode(), True),
        (json.dumps({"inputs": "+", "model": "mood"}).encode(), True),
        (json.dumps({"inputs": "+", "model": "other"}).encode(), False),
        (b'{"inputs": "+", "mod\\u0065l": "other"}', False),
        (json.dumps({"inputs": "+", "model": 1}).encode(), False),
        (json.dumps(["model"]).encode(), False),
        (b"null", False),
        (b'{"inputs": "+"', False),
        (b"", False),
        (None, False),
    ],
)
def test_model_in_the_json_body_decides(overload: Overload, body: bytes | None, is_rejected: bool) -> None:
    """A body that names no model clearly is left to the route."""
    assert overload.rejects("/v1/classify", "application/json", body=body) == is_rejected


def test_series_may_select_the_model(overload: Overload) -> None:
    series, named = b'{"series": [[1]]}', b'{"series": [[1]], "model": "naive"}'
    assert not overload.rejects("/v1/forecast", "application/json", body=series)
    assert overload.rejects("/v1/forecast", "application/json", body=named)
    overload.engine.models["second"].batcher.close()
    assert overload.rejects("/v1/forecast", "application/json", body=series)
    assert overload.rejects("/v1/forecast", "application/json")


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
def test_size_of_a_document_is_known_if_it_is_the_whole_body(
    headers: dict[str, str], query: str, size: int | None
) -> None:
    engine = FullEngine(None)
    admission(engine).rejection({**scope_of(headers=headers), "query_string": query.encode()}, not_arrived)
    assert engine.sizes == [size]
