"""Requests rejected before their body is read."""

from collections.abc import Mapping
from typing import Any

import pytest
from pydantic import SecretStr
from starlette.types import Scope

from artifact.errors import LongdocError
from service.engine.engine import Engine
from service.errors import Overloaded
from service.http.admission import HeadAdmission
from service.http.keys import Keys
from service.metrics import Metrics
from service.settings import Settings
from service.wire.route import Route, Table
from tests.support.applications import fail

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

    def __init__(self, error: LongdocError | None) -> None:
        super().__init__([], Settings(), Metrics())
        self.error = error
        self.asked: list[tuple[str, float, int]] = []

    def rejection(self, task: str, left_s: float, entering: int) -> LongdocError | None:
        self.asked.append((task, left_s, entering))
        return self.error


def scope_of(path: str = "/texts", method: str = "POST", headers: Mapping[str, str] | None = None) -> dict[str, Any]:
    fields = [(name.encode(), value.encode()) for name, value in (headers or {}).items()]
    return {"type": "http", "method": method, "path": path, "headers": fields}


def admission(engine: Engine, *keys: str) -> HeadAdmission:
    return HeadAdmission(engine, TABLE, Keys(map(SecretStr, keys), TABLE.open_paths), DEADLINE_S)


def test_admission_asks_for_the_task_of_the_route() -> None:
    engine = FullEngine(Overloaded("full"))
    refused = admission(engine).rejection(scope_of("/series/a"))
    assert refused is not None
    route, error = refused
    assert (route.path, error) == ("/series/{name}", engine.error)
    assert engine.asked == [("series", DEADLINE_S, 0)]


@pytest.mark.parametrize(
    ("path", "method"), [("/free", "POST"), ("/none", "POST"), ("/texts", "GET"), ("/series/a/b", "POST")]
)
def test_other_requests_are_always_admitted(path: str, method: str) -> None:
    engine = FullEngine(Overloaded("full"))
    assert admission(engine).rejection(scope_of(path, method)) is None
    assert engine.asked == []


def test_lines_are_always_admitted_because_they_wait_for_the_queue() -> None:
    engine = FullEngine(Overloaded("full"))
    asked = admission(engine)
    assert asked.rejection(scope_of("/lines", headers={"content-type": "Application/X-NDJSON; x=y"})) is None
    assert asked.rejection(scope_of("/lines", headers={"content-type": "text/plain"})) is not None
    assert asked.rejection(scope_of("/texts", headers={"content-type": "application/x-ndjson"})) is not None


def test_request_without_a_valid_key_gets_no_429() -> None:
    engine = FullEngine(Overloaded("full"))
    asked = admission(engine, "secret")
    assert asked.rejection(scope_of(headers={"x-api-key": "wrong"})) is None
    assert engine.asked == []
    assert asked.rejection(scope_of(headers={"x-api-key": "secret"})) is not None


@pytest.mark.parametrize(
    ("asked", "left_s"),
    [("500", 0.5), ("29999", 29.999), ("31000", DEADLINE_S), ("x", DEADLINE_S), ("", DEADLINE_S), ("-1", DEADLINE_S)],
)
def test_earlier_deadline_of_the_client_applies(asked: str, left_s: float) -> None:
    engine = FullEngine(None)
    admission(engine).rejection(scope_of(headers={"x-request-timeout-ms": asked}))
    assert engine.asked == [("texts", left_s, 0)]


def test_admitted_requests_are_counted_by_task_until_they_start() -> None:
    engine = FullEngine(None)
    asked = admission(engine)
    scopes: list[Scope] = [scope_of(), scope_of(), scope_of("/series/a")]
    for scope in scopes:
        assert asked.rejection(scope) is None
    asked.begin(scopes[0])
    asked.begin(scopes[0])
    asked.begin(scope_of())
    asked.rejection(scope_of())
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
        asked.rejection(scope_of())
    assert [entering for _, _, entering in engine.asked] == [0, 0]
