"""Around every request: its id, its key, the limit of its body, its metrics, its timing. Plain ASGI, for speed."""

import asyncio
import hashlib
import hmac
import logging
import random
import re
import time
from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

import orjson
from fastapi import FastAPI
from fastapi.routing import APIRoute
from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect, Request
from starlette.routing import BaseRoute
from starlette.types import Message, Receive, Scope, Send

from artifact.errors import LongdocError
from service.errors import Overloaded, PayloadTooLarge, ShuttingDown, Unauthorized, let_go
from service.log import request_id, trace_id, trace_of
from service.observe.metrics import Metrics
from service.routes.bulk import NDJSON
from service.settings import Settings
from service.wire import errors

log = logging.getLogger(__name__)

REQUEST_ID = re.compile(r"[!-~]{1,128}")
METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
OPEN = frozenset({"/metrics", "/health", "/v2/health/live", "/v2/health/ready"})
"""Paths that need no key: what load balancers and Prometheus ask."""
DOORS = {"/v1/classify": "text-classification", "/v1/forecast": "forecasting"}
"""Task of the routes whose every request has rows to compute; encodings of documents to match may be in the cache."""
DIGITS = re.compile(rb"[0-9]{1,9}")
CLIENT_LEFT = 499
"""Counted, never sent."""
BULK = "/v1/classify"
"""Path of the route that reads NDJSON."""
LINES = NDJSON.encode()


class Refused(NamedTuple):
    """The answer to a request that is turned away from its head alone."""

    status: int
    fields: list[tuple[bytes, bytes]]
    body: bytes


class RequestContext:
    """The application that the server runs: FastAPI, within what every request needs.

    Routes that take a POST are called directly: FastAPI and Starlette would spend more on such a request than all the
    rest together, and add nothing, since these routes read the request themselves.

    Args:
        app: with all routes.
        routes: ours, those that are called directly among them.
        metrics: where answers are counted.
        settings: limits and keys.

    """

    def __init__(self, app: FastAPI, routes: Iterable[BaseRoute], *, metrics: Metrics, settings: Settings) -> None:
        self._app = app
        self._metrics = metrics
        self.max_body_bytes = settings.max_body_bytes
        self.max_held_bytes = settings.max_held_bytes
        self._entering = Counter[str]()
        """Requests let in whose application has not begun, by task: a turn of the event loop can let in a thousand."""
        self._deadline_s = settings.deadline_s
        self.held_bytes = 0
        """Of bodies whose requests have not ended."""
        self._keys = [_digest(key.get_secret_value()) for key in settings.api_keys]
        self._direct = {
            route.path: route for route in routes if isinstance(route, APIRoute) and route.methods == {"POST"}
        }
        self._patterns = [route for route in self._direct.values() if route.param_convertors]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        started = time.perf_counter()
        self._enter(scope)
        headers = Headers(scope=scope)
        token = request_id.set(_request_id(headers.get("x-request-id", "")))
        trace = trace_id.set(scope.get("trace_id") or trace_of(headers.getlist("traceparent")))
        scope["app"] = self._app
        timing: dict[str, float] = {}
        scope["state"] = {"timing": timing}
        code = 500
        has_started = has_ended = False

        async def answer(message: Message) -> None:
            nonlocal code, has_started, has_ended
            if message["type"] == "http.response.start":
                has_started = True
                code = message["status"]
                timing["total"] = time.perf_counter() - started
                message["headers"] += self._headers(timing)
            else:
                has_ended = not message.get("more_body", False)
            await send(message)

        body = _Body(self, scope["path"], headers, receive)
        request = Request(scope, body)
        try:
            self._check_key(scope["path"], headers)
            await self._respond(request, answer)
        except asyncio.CancelledError:  # the drain has taken too long: the last word is ours, not a cut connection
            if not has_started:
                error = ShuttingDown("the server stopped before the answer was ready; ask another one")
                await errors.answer(request, errors.failure(error))(scope, receive, answer)
        except ClientDisconnect as error:  # nobody reads an answer
            code = CLIENT_LEFT
            let_go(error)
        except Exception as error:
            if not isinstance(error, LongdocError):
                log.exception("%s %s failed", scope["method"], _route(scope))
            if not has_started:
                await errors.answer(request, errors.failure(error))(scope, receive, answer)
            elif not has_ended:  # the connection has to be cut, or the client would take a part for the whole
                raise
            let_go(error)
        finally:
            self.held_bytes -= body.held
            method = scope["method"] if scope["method"] in METHODS else "other"
            self._metrics.http_requests.labels(_route(scope), method, code).inc()
            request_id.reset(token)
            trace_id.reset(trace)

    async def _respond(self, request: Request, answer: Send) -> None:
        """Have a route answer, called directly if it is one of ours that takes a POST."""
        scope = request.scope
        route = self._find(scope) if scope["method"] == "POST" else None
        if route is None:
            await self._app(scope, request.receive, answer)
            return
        scope["route"] = route
        response = await route.endpoint(request)
        await response(scope, request.receive, answer)

    def _find(self, scope: Scope) -> APIRoute | None:
        """The route of a POST; the parameters of its path go into the scope."""
        path = scope["path"]
        if (route := self._direct.get(path)) is not None and not route.param_convertors:
            return route
        for route in self._patterns:
            if (found := route.path_regex.match(path)) is not None:
                scope["path_params"] = found.groupdict()
                return route
        return None

    def _check_key(self, path: str, headers: Headers) -> None:
        """Ask for one of the keys, in a time that does not depend on how much of it is right. Raises: Unauthorized."""
        if not self._keys or path in OPEN:
            return
        scheme, _, token = headers.get("authorization", "").partition(" ")
        given = [token.strip() if scheme.lower() == "bearer" else "", headers.get("x-api-key", "")]
        digests = [_digest(key) for key in given]
        if not any([hmac.compare_digest(d, key) for d in digests for key in self._keys]):  # noqa: C419  # always all
            raise Unauthorized("send a valid key as `Authorization: Bearer KEY` or `X-API-Key: KEY`")

    def refusal(self, scope: Scope) -> Refused | None:
        """Answer to a request that cannot be computed in time, from its head alone; None lets it in.

        Called by the protocol before anything is spent on the request: while ten times as many come as can be computed,
        to turn nine away must cost next to nothing.
        """
        task = DOORS.get(scope["path"])
        if task is None:
            return None
        fields: dict[bytes, bytes] = dict(reversed(scope["headers"]))  # of a field that comes twice, the first
        if fields.get(b"content-type", b"").lower().startswith(LINES):
            return None
        asked = fields.get(b"x-request-timeout-ms", b"")
        left_s = min(self._deadline_s, int(asked) / 1000) if DIGITS.fullmatch(asked) else self._deadline_s
        try:
            self._check_key(scope["path"], Headers(scope=scope))
        except Unauthorized:
            return None
        error = self._app.state.engine.refusal_at_door(task, left_s, self._entering[task])
        if error is None:
            self._entering[task] += 1
            scope["entering"] = task
            return None
        token = request_id.set(_request_id(fields.get(b"x-request-id", b"").decode("latin-1")))
        try:
            return self._at_the_door(scope["path"], errors.failure(error))
        finally:
            request_id.reset(token)

    def _enter(self, scope: Scope) -> None:
        """A request that was let in has begun."""
        if (task := scope.pop("entering", None)) is not None:
            self._entering[task] -= 1

    def _at_the_door(self, path: str, failed: errors.Failure) -> Refused:
        """The answer without the framework's objects; the routes with a door are native ones."""
        self._metrics.http_requests.labels(path, "POST", failed.status).inc()
        body = orjson.dumps(errors.problem(path, failed))
        fields = [
            (b"content-length", b"%d" % len(body)),
            (b"content-type", errors.MEDIA_TYPE.encode()),
            *((name.lower().encode(), value.encode()) for name, value in failed.headers.items()),
            *self._headers({}),
        ]
        return Refused(failed.status, fields, body)

    def _headers(self, timing: dict[str, float]) -> list[tuple[bytes, bytes]]:
        """Request id, timing, and the end of the connection when draining."""
        added = [(b"x-request-id", request_id.get().encode()), (b"x-content-type-options", b"nosniff")]
        if timing:
            stages = ", ".join([f"{name};dur={1000 * seconds:.2f}" for name, seconds in timing.items()])
            added.append((b"server-timing", stages.encode()))
        if self._app.state.engine.is_draining:
            added.append((b"connection", b"close"))
        return added


class _Body:
    """The body of one request as it comes, counted. The first read raises when Content-Length alone is too much.

    A body of lines is as long as it likes: its route bounds each line, and reads no faster than it computes.
    """

    def __init__(self, context: RequestContext, path: str, headers: Headers, receive: Receive) -> None:
        self._context = context
        self._receive = receive
        self._is_bounded = path != BULK or not headers.get("content-type", "").lower().startswith(NDJSON)
        limit = context.max_body_bytes
        declared = headers.get("content-length", "").lstrip("0")
        is_number = declared.isascii() and declared.isdigit()
        self._is_over = is_number and (len(declared) > len(str(limit)) or int(declared) > limit)
        self.held = 0

    async def __call__(self) -> Message:
        """The next message. Raises: PayloadTooLarge; Overloaded if all bodies together are too much."""
        if not self._is_bounded:
            return await self._receive()
        context = self._context
        if not self._is_over:
            message = await self._receive()
            size = len(message.get("body", b""))
            self.held += size
            context.held_bytes += size
            self._is_over = self.held > context.max_body_bytes
        if self._is_over:
            raise PayloadTooLarge(f"the body is longer than {context.max_body_bytes} bytes")
        if context.held_bytes > context.max_held_bytes and self.held < context.held_bytes:
            raise Overloaded(
                f"{context.held_bytes} bytes of requests are held already; at most {context.max_held_bytes}"
            )
        return message


def _request_id(given: str) -> str:
    """The client's, if it is harmless; else a new one."""
    return given if REQUEST_ID.fullmatch(given) else f"{random.getrandbits(128):032x}"


def _digest(key: str) -> bytes:
    """Of equal length for every key, so that a comparison tells nothing of it."""
    return hashlib.sha256(key.encode()).digest()


def _route(scope: Scope) -> str:
    """Template of the route that answered, which bounds the label."""
    route = scope.get("route")
    return getattr(route, "path", "unmatched")
