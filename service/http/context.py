"""The outermost middleware of the application: it knows each request from its first byte to the end of its response."""

import asyncio
import logging
import random
import re
import time

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.log import request_id, trace_id, trace_of
from service.runtime import Runtime
from service.sharing import CHUNK_BYTES
from service.wire.body import Body, HeldBodies
from service.wire.context import KEY, RequestContext, path_of, route_of
from service.wire.headers import first_headers, header_values

log = logging.getLogger(__name__)

REQUEST_ID = re.compile(r"[!-~]{1,128}")
COUNTED_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
"""Values of the label `method` in metrics; any other method counts as `other`."""
NOT_LOADED = (
    "the models are not loaded: they are by the lifespan of the application; in a test write `with TestClient(app)`, "
    "and in another application `service.app.mount` instead of `app.mount`"
)


class ContextMiddleware:
    """Gives each request its id and limits its body; adds headers to every response, and counts it.

    Args:
        app: the application.
        bodies: counts the bytes of all bodies.

    """

    def __init__(self, app: ASGIApp, bodies: HeldBodies) -> None:
        self._app = app
        self._bodies = bodies

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request. Raises: RuntimeError if the models are not loaded."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started = time.perf_counter()
        runtime: Runtime | None = scope["app"].state.runtime
        if runtime is None:
            raise RuntimeError(NOT_LOADED)
        headers = first_headers(scope)
        given = headers.get("x-request-id", "")
        identifier = given if REQUEST_ID.fullmatch(given) else f"{random.getrandbits(128):032x}"
        id_token = request_id.set(identifier)
        trace_token = trace_id.set(trace_id.get() or trace_of(header_values(scope, b"traceparent")))
        body = Body(self._bodies, scope, headers, receive)
        context = scope[KEY] = RequestContext(runtime, path_of(scope), scope["query_string"], headers, body, started)
        try:
            await self._app(scope, body, _Sender(send, context, identifier))
        finally:
            body.release()
            method = scope["method"] if scope["method"] in COUNTED_METHODS else "other"
            runtime.metrics.count_response(route_of(scope) or "unmatched", method, context.status)
            request_id.reset(id_token)
            trace_id.reset(trace_token)


class _Sender:
    """Sends the messages of a response, and adds the headers that every response gets."""

    def __init__(self, send: Send, context: RequestContext, identifier: str) -> None:
        self._send = send
        self._context = context
        self._identifier = identifier

    async def __call__(self, message: Message) -> None:
        """Send a message."""
        if message["type"] == "http.response.start":
            self._context.has_started = True
            self._context.status = message["status"]
            await self._send({**message, "headers": [*message["headers"], *self._headers()]})
            return
        has_more = message.get("more_body", False)
        self._context.has_ended = not has_more
        body = message.get("body", b"")
        if len(body) <= CHUNK_BYTES:
            await self._send(message)
            return
        self._context.body.hold_response(len(body))
        for first in range(0, len(body), CHUNK_BYTES):  # `send` waits if the client reads slowly
            last = first + CHUNK_BYTES
            chunk = {"type": "http.response.body", "body": body[first:last], "more_body": has_more or last < len(body)}
            await self._send(chunk)
            await asyncio.sleep(0)  # let other requests run

    def _headers(self) -> list[tuple[bytes, bytes]]:
        """Headers that every response gets."""
        timing = self._context.server_timing
        timing["total"] = time.perf_counter() - self._context.started
        stages = ", ".join([f"{name};dur={1000 * seconds:.2f}" for name, seconds in timing.items()])
        added = [
            (b"x-request-id", self._identifier.encode()),
            (b"x-content-type-options", b"nosniff"),
            (b"server-timing", stages.encode()),
        ]
        if self._context.runtime.engine.is_draining:
            added.append((b"connection", b"close"))
        return added
