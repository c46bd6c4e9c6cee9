"""Around every request: its id, the limit of its body, its metrics, its timing. Plain ASGI, for speed."""

import asyncio
import logging
import re
import time
import uuid

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.errors import PayloadTooLarge, ShuttingDown
from service.log import request_id
from service.metrics import Metrics
from service.routes.errors import server_fault, service_error

log = logging.getLogger(__name__)

REQUEST_ID = re.compile(r"[!-~]{1,128}")
METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})


class RequestContext:
    """Gives a request its id, bounds its body, and adds the headers that every answer has.

    Args:
        app: the application within.
        metrics: where answers are counted.
        max_body_bytes: longest body.

    """

    def __init__(self, app: ASGIApp, *, metrics: Metrics, max_body_bytes: int) -> None:
        self._app = app
        self._metrics = metrics
        self._max_body_bytes = max_body_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request; other scopes pass."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started = time.perf_counter()
        headers = Headers(scope=scope)
        given = headers.get("x-request-id", "")
        token = request_id.set(given if REQUEST_ID.fullmatch(given) else uuid.uuid4().hex)
        state = scope.setdefault("state", {})
        state["timing"] = {}
        code = 500
        has_started = False

        async def answer(message: Message) -> None:
            nonlocal code, has_started
            if message["type"] == "http.response.start":
                has_started = True
                code = message["status"]
                self._add_headers(MutableHeaders(scope=message), scope, started)
            await send(message)

        try:
            await self._app(scope, self._bounded(headers, receive), answer)
        except asyncio.CancelledError:  # the drain has taken too long: the last word is ours, not a cut connection
            if not has_started:
                error = ShuttingDown("the server stopped before the answer was ready; ask another one")
                await service_error(Request(scope), error)(scope, receive, answer)
        except Exception:  # a fault of ours: Starlette would answer outside of this middleware, without the id
            log.exception("%s %s failed", scope["method"], _route(scope))
            if not has_started:
                await server_fault(Request(scope))(scope, receive, answer)
        finally:
            method = scope["method"] if scope["method"] in METHODS else "other"
            self._metrics.http_requests.labels(_route(scope), method, code).inc()
            request_id.reset(token)

    def _bounded(self, headers: Headers, receive: Receive) -> Receive:
        """Count the body as it comes. The first read raises when Content-Length alone is too much."""
        limit = self._max_body_bytes
        declared = headers.get("content-length", "").lstrip("0")
        is_number = declared.isascii() and declared.isdigit()
        is_over = is_number and (len(declared) > len(str(limit)) or int(declared) > limit)
        received = limit + 1 if is_over else 0

        async def bounded() -> Message:
            nonlocal received
            if received <= limit:
                message = await receive()
                received += len(message.get("body", b""))
            if received > limit:
                raise PayloadTooLarge(f"the body is longer than {limit} bytes")
            return message

        return bounded

    def _add_headers(self, headers: MutableHeaders, scope: Scope, started: float) -> None:
        """Request id, timing, and the end of the connection when draining."""
        headers["X-Request-Id"] = request_id.get()
        headers["X-Content-Type-Options"] = "nosniff"
        timing = {**scope["state"]["timing"], "total": time.perf_counter() - started}
        headers["Server-Timing"] = ", ".join(f"{name};dur={1000 * s:.2f}" for name, s in timing.items())
        if scope["app"].state.engine.is_draining:
            headers["Connection"] = "close"


def _route(scope: Scope) -> str:
    """Template of the route that answered, which bounds the label."""
    route = scope.get("route")
    return getattr(route, "path", "unmatched")
