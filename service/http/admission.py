"""Rejects requests that would miss their deadline, from their headers alone, before the body is read."""

import re
from collections import Counter
from typing import NamedTuple

from starlette.datastructures import Headers
from starlette.types import Scope

from artifact.errors import LongdocError
from service.engine.engine import Engine
from service.errors import Unauthorized
from service.http.keys import Keys
from service.http.state import state_of
from service.wire.media import NDJSON
from service.wire.route import Route, Table

DIGITS = re.compile(rb"[0-9]{1,9}")
NDJSON_BYTES = NDJSON.encode()


class RejectionResponse(NamedTuple):
    """The response to a request that was rejected from its headers."""

    status: int
    fields: list[tuple[bytes, bytes]]
    """Headers of the response."""
    body: bytes


class HeadAdmission:
    """Asks the models of a route's task whether one of them can take one more request.

    Args:
        engine: the models.
        table: the routes.
        keys: API keys; a request without a valid one is left to the application, which answers 401.
        deadline_s: of a request that sets no earlier one.

    """

    def __init__(self, engine: Engine, table: Table, keys: Keys, deadline_s: float) -> None:
        self._engine = engine
        self._table = table
        self._keys = keys
        self._deadline_s = deadline_s
        self._pending = Counter[str]()
        """Admitted requests that have not started yet, by task: one turn of the event loop can admit a thousand."""

    def rejection(self, scope: Scope) -> tuple[Route, LongdocError] | None:
        """The route of a request that would be too late, and the error to answer; None admits the request."""
        found = self._table.find(scope["method"], scope["path"])
        if found is None or found.route.task is None:
            return None
        route, task = found.route, found.route.task
        fields: dict[bytes, bytes] = dict(reversed(scope["headers"]))  # the first value of a repeated header
        if route.ndjson_handler is not None and fields.get(b"content-type", b"").lower().startswith(NDJSON_BYTES):
            return None
        asked = fields.get(b"x-request-timeout-ms", b"")
        left_s = min(self._deadline_s, int(asked) / 1000) if DIGITS.fullmatch(asked) else self._deadline_s
        try:
            self._keys.check(route.path, Headers(scope=scope))
        except Unauthorized:
            return None
        error = self._engine.rejection(task, left_s, self._pending[task])
        if error is not None:
            return route, error
        self._pending[task] += 1
        state_of(scope).admitted_task = task
        return None

    def begin(self, scope: Scope) -> None:
        """Stop counting a request as pending; called when the application starts it."""
        state = state_of(scope)
        if state.admitted_task is not None:
            self._pending[state.admitted_task] -= 1
            state.admitted_task = None
