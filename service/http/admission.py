"""Requests that are refused from their head alone, before anything is spent on them."""

import re
from collections import Counter
from typing import NamedTuple

from starlette.datastructures import Headers
from starlette.types import Scope

from artifact.errors import LongdocError
from service.engine.engine import Engine
from service.errors import Unauthorized
from service.http.keys import Keys
from service.wire.media import NDJSON
from service.wire.route import Route, Table

DIGITS = re.compile(rb"[0-9]{1,9}")
LINES = NDJSON.encode()


class Refused(NamedTuple):
    """The answer to a request that was refused from its head."""

    status: int
    fields: list[tuple[bytes, bytes]]
    body: bytes


class Admission:
    """Asks the models of a route's task whether they can take one more request."""

    def __init__(self, engine: Engine, table: Table, keys: Keys, deadline_s: float) -> None:
        self._engine = engine
        self._table = table
        self._keys = keys
        self._deadline_s = deadline_s
        self._entering = Counter[str]()
        """Requests admitted that have not begun, by task: a turn of the event loop may admit a thousand."""

    def refusal(self, scope: Scope) -> tuple[Route, LongdocError] | None:
        """Why a request cannot be computed in time, with its route; None admits it."""
        found = self._table.find(scope["method"], scope["path"])
        if found is None or found.route.task is None:
            return None
        route, task = found.route, found.route.task
        fields: dict[bytes, bytes] = dict(reversed(scope["headers"]))  # of a field that comes twice, the first
        if route.lines_handler is not None and fields.get(b"content-type", b"").lower().startswith(LINES):
            return None
        asked = fields.get(b"x-request-timeout-ms", b"")
        left_s = min(self._deadline_s, int(asked) / 1000) if DIGITS.fullmatch(asked) else self._deadline_s
        try:
            self._keys.check(route.path, Headers(scope=scope))
        except Unauthorized:
            return None
        error = self._engine.refusal(task, left_s, self._entering[task])
        if error is not None:
            return route, error
        self._entering[task] += 1
        scope["entering"] = task
        return None

    def begin(self, scope: Scope) -> None:
        """An admitted request has begun."""
        if (task := scope.pop("entering", None)) is not None:
            self._entering[task] -= 1
