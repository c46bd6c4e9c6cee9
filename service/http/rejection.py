"""A middleware that rejects requests that would miss their deadline.

Most are rejected before their bodies are read. A short JSON body is read if it, and not the query string, decides which
model is asked for.
"""

import asyncio
from collections.abc import Mapping, Sequence
from urllib.parse import parse_qs

import orjson
from starlette.types import ASGIApp, Receive, Scope, Send

from artifact.tasks import TASKS
from service.batching.admission import limited
from service.engine.engine import Engine
from service.engine.served import AnyModel
from service.errors import DeadlineExceeded, RetryableError, Unauthorized
from service.http.keys import Keys
from service.wire.context import RequestContext, context_of
from service.wire.media import JSON, NDJSON

TASKS_OF = {
    f"/v1/{operation}": [name for name, other in TASKS.items() if operation in other.operations]
    for task in TASKS.values()
    if not task.has_head
    for operation in task.operations
}
"""Path -> tasks, of one of which every request needs a model; the first one if the body is a document. Requests to a
task with a head may be answered from the cache of encodings, even while the queue is full."""
MAX_DIGITS = 9
PEEK_BYTES = 64 * 1024
"""Maximum size of a JSON body that is read to know its model, if only some models of the tasks would reject it."""


class RejectionMiddleware:
    """Raises Overloaded, or another RetryableError, if no model that a request may ask for can answer it in time.

    A request without a valid key is left to the route, which answers 401.

    Args:
        app: the application.
        keys: API keys.

    """

    def __init__(self, app: ASGIApp, keys: Keys) -> None:
        self._app = app
        self._keys = keys

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] == "http" and scope["method"] == "POST":
            context = context_of(scope)
            tasks = TASKS_OF.get(context.path)
            if tasks is not None and (error := await self._rejection(tasks, context)) is not None:
                context.route = context.path
                raise error
        await self._app(scope, receive, send)

    async def _rejection(self, tasks: Sequence[str], context: RequestContext) -> RetryableError | None:
        """Why a request is rejected; None admits it. Raises: what reading a body raises."""
        headers, query = context.headers, context.query
        content_type = headers.get("content-type", "").lower()
        if content_type.startswith(NDJSON):  # its lines wait for their turn
            return None
        try:
            self._keys.check(headers)
        except Unauthorized:
            return None
        engine, deadline_s = context.runtime.engine, context.runtime.settings.deadline_s
        asked_ms = _number(headers.get("x-request-timeout-ms"))
        left_s = deadline_s if asked_ms is None else limited(deadline_s, asked_ms / 1000)
        if not content_type.startswith(JSON):
            task, size = tasks[0], _size(headers, query)
            return engine.rejection([task], left_s, lambda: _asked_in_query(engine, task, query), size)
        error = engine.rejection(tasks, left_s)
        length = _number(headers.get("content-length"))
        if (
            error is None
            and not query
            and length is not None
            and length <= PEEK_BYTES
            and engine.may_reject(tasks, left_s)
        ):
            body = await _peek(context, left_s)  # which names the model
            error = engine.rejection(tasks, left_s, lambda: _asked_in_json(engine, tasks, body))
        return error


async def _peek(context: RequestContext, left_s: float) -> bytes | None:
    """The body if it is here; None if only a part of it is. Raises: DeadlineExceeded; what reading a body raises."""
    try:
        async with asyncio.timeout(left_s):
            return await context.body.peek()
    except TimeoutError:
        raise DeadlineExceeded("the deadline passed before the body had arrived") from None


def _asked_in_json(engine: Engine, tasks: Sequence[str], body: bytes | None) -> AnyModel | None:
    """The model that a JSON body asks for; None if that cannot be told."""
    try:
        content = orjson.loads(body or b"")
    except orjson.JSONDecodeError:
        return None
    if not isinstance(content, dict):
        return None
    name = content.get("model")
    if isinstance(name, str):
        return engine.models.asked(tasks[0], name)
    given = tasks if len(tasks) == 1 else [task for task in tasks if TASKS[task].field in content]
    return engine.models.asked(given[0], None) if given and name is None else None


def _asked_in_query(engine: Engine, task: str, query: bytes) -> AnyModel | None:
    """The model that a query string asks for; None if that cannot be told."""
    names = parse_qs(query.decode("latin-1"), keep_blank_values=True).get("model", []) if query else []
    return engine.models.asked(task, names[0] if names else None) if len(names) <= 1 else None


def _size(headers: Mapping[str, str], query: bytes) -> int | None:
    """Bytes of the document that is the body; None if it is compressed, or if options may leave out a part of it."""
    return None if query or "content-encoding" in headers else _number(headers.get("content-length"))


def _number(text: str | None) -> int | None:
    """A number of at most MAX_DIGITS digits; None for any other text."""
    if text is None or len(text) > MAX_DIGITS or not (text.isascii() and text.isdigit()):
        return None
    return int(text)
