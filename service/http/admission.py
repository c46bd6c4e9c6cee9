"""Rejects requests that would miss their deadline before the application handles them."""

from collections import Counter
from typing import NamedTuple
from urllib.parse import parse_qs

import orjson
from starlette.types import Scope

from service.batching.admission import limited
from service.engine.engine import Engine
from service.engine.served import ServedModel
from service.errors import RetryableError, Unauthorized
from service.http.keys import Keys
from service.http.state import ArrivedBody, RequestState, state_of
from service.wire.call import TIMEOUT_HEADER
from service.wire.headers import RequestHeaders
from service.wire.media import JSON, NDJSON
from service.wire.route import Route, Table

MAX_DIGITS = 9


class RejectionResponse(NamedTuple):
    """The response to a request that was rejected before it was handled."""

    status: int
    fields: list[tuple[bytes, bytes]]
    """Headers of the response."""
    body: bytes


class HeadAdmission:
    """Asks the model of a request whether it can take one more, as soon as the headers have arrived.

    Args:
        engine: the models.
        table: the routes.
        keys: API keys; a request without a valid one is left to the application, which answers 401.
        deadline_s: deadline of a request that sets no earlier one.

    """

    def __init__(self, engine: Engine, table: Table, keys: Keys, deadline_s: float) -> None:
        self._engine = engine
        self._table = table
        self._keys = keys
        self._deadline_s = deadline_s
        self._pending = Counter[str]()
        """Admitted requests that have not started yet, by task: one turn of the event loop can admit a thousand."""

    def rejection(self, scope: Scope, body: ArrivedBody) -> tuple[Route, RetryableError] | None:
        """The route of a request that would be too late, and the error to answer; None admits the request.

        Args:
            scope: the request.
            body: returns its body if all of it has arrived with the headers. Called only if the decision depends on it.

        """
        found = self._table.find(scope["method"], scope["path"])
        if found is None or found.route.task is None:
            return None
        route, task = found.route, found.route.task
        state = state_of(scope)
        headers = state.headers
        content_type = headers.get("content-type", "").lower()
        if route.ndjson_handler is not None and content_type.startswith(NDJSON):
            return None
        asked_ms = _number(headers.get(TIMEOUT_HEADER))
        left_s = self._deadline_s if asked_ms is None else limited(self._deadline_s, asked_ms / 1000)
        try:
            self._keys.check(route.path, headers)
        except Unauthorized:
            return None

        is_json = content_type.startswith(JSON)
        error = self._engine.rejection(
            task,
            left_s,
            self._pending[task],
            lambda: self._asked_in_json(task, body()) if is_json else self._asked_in_query(task, scope["query_string"]),
            None if is_json else _document_bytes(headers, scope["query_string"]),
        )
        if error is not None:
            return route, error
        self._pending[task] += 1
        state.admitted_task = task
        return None

    def begin(self, state: RequestState) -> None:
        """Stop counting a request as pending; called when the application starts it."""
        if state.admitted_task is not None:
            self._pending[state.admitted_task] -= 1
            state.admitted_task = None

    def _asked_in_json(self, task: str, body: bytes | None) -> ServedModel | None:
        """The model that a JSON body asks for; None if that cannot be told."""
        try:
            content = orjson.loads(body or b"")
        except orjson.JSONDecodeError:
            return None
        if not isinstance(content, dict):
            return None
        name = content.get("model")
        return self._engine.models.asked(task, name) if name is None or isinstance(name, str) else None

    def _asked_in_query(self, task: str, query: bytes) -> ServedModel | None:
        """The model that a query string asks for; None if that cannot be told."""
        names = parse_qs(query.decode("latin-1"), keep_blank_values=True).get("model", []) if query else []
        return self._engine.models.asked(task, names[0] if names else None) if len(names) <= 1 else None


def _document_bytes(headers: RequestHeaders, query: bytes) -> int | None:
    """Bytes of the document that is the body; None if it is compressed, or if options may leave out a part of it."""
    return None if query or "content-encoding" in headers else _number(headers.get("content-length"))


def _number(text: str | None) -> int | None:
    """A number of at most MAX_DIGITS digits; None for any other text."""
    if text is None or len(text) > MAX_DIGITS or not (text.isascii() and text.isdigit()):
        return None
    return int(text)
