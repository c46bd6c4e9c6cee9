"""The application that the server runs: around every request its id, key, limits, metrics and timing; plain ASGI."""

import asyncio
import logging
import random
import re
import time
from collections.abc import Callable

from fastapi import FastAPI
from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect, Request
from starlette.types import Message, Receive, Scope, Send

from artifact.errors import LongdocError
from service.engine.engine import Engine
from service.errors import ShuttingDown, let_go
from service.http.admission import Admission, Refused
from service.http.keys import Keys
from service.log import request_id, trace_id, trace_of
from service.metrics import Metrics
from service.parser import Parser
from service.settings import Settings
from service.wire.body import Body, HeldBodies
from service.wire.call import Call
from service.wire.errors import failure
from service.wire.media import NDJSON
from service.wire.route import Found, Handler, Table

log = logging.getLogger(__name__)

REQUEST_ID = re.compile(r"[!-~]{1,128}")
METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
PAGES = frozenset({"/docs", "/docs/oauth2-redirect", "/redoc", "/openapi.json"})
"""FastAPI's, about the routes; a browser that opens them has no key to send yet."""
PAGE_FILES = ("/static-offline-docs/",)
CLIENT_LEFT = 499
"""Counted, never sent."""


class Application:
    """FastAPI, within what every request needs.

    Routes that take a POST are called directly: FastAPI and Starlette would spend more on such a request than all the
    rest together, and add nothing, since these routes read the request themselves.

    Args:
        api: with all routes.
        table: the routes, those that are called directly among them.
        engine: the models.
        parser: of large bodies.
        settings: limits and keys.
        metrics: where answers are counted.

    """

    def __init__(
        self, api: FastAPI, table: Table, *, engine: Engine, parser: Parser, settings: Settings, metrics: Metrics
    ) -> None:
        self.api = api
        self.table = table
        self._engine = engine
        self._parser = parser
        self._settings = settings
        self._metrics = metrics
        self._keys = Keys(settings.api_keys, table.open_paths | PAGES, PAGE_FILES)
        self._admission = Admission(engine, table, self._keys, settings.deadline_s)
        self.bodies = HeldBodies(settings.max_body_bytes, settings.max_held_bytes)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        started = time.perf_counter()
        self._admission.begin(scope)
        headers = Headers(scope=scope)
        token = request_id.set(_request_id(headers.get("x-request-id", "")))
        trace = trace_id.set(scope.get("trace_id") or trace_of(headers.getlist("traceparent")))
        found = self.table.find(scope["method"], scope["path"])
        if found is not None:
            scope["route"], scope["path_params"] = found.route, found.path_params
        lines_handler = _lines_handler(found, headers)
        body = Body(self.bodies, headers, receive, is_whole=lines_handler is None)
        call = Call(
            Request(scope, body),
            body,
            engine=self._engine,
            parser=self._parser,
            settings=self._settings,
            metrics=self._metrics,
            started=started,
        )
        answer = _Answer(call, send, self._headers)
        try:
            self._keys.check(scope["path"], headers)
            await self._respond(found, lines_handler, call, answer)
        except asyncio.CancelledError:  # the drain has taken too long: the last word is ours, not a cut connection
            await self._fail(
                ShuttingDown("the server stopped before the answer was ready; ask another one"), call, answer
            )
        except ClientDisconnect as error:  # nobody reads an answer
            answer.code = CLIENT_LEFT
            let_go(error)
        except Exception as error:
            if not isinstance(error, LongdocError):
                log.exception("%s %s failed", scope["method"], _path_of_route(scope))
            if answer.has_started and not answer.has_ended:  # else the client would take a part for the whole
                raise
            await self._fail(error, call, answer)
            let_go(error)
        finally:
            body.release()
            scope["work"] = call.work
            method = scope["method"] if scope["method"] in METHODS else "other"
            self._metrics.http_requests.labels(_path_of_route(scope), method, answer.code).inc()
            request_id.reset(token)
            trace_id.reset(trace)

    async def _respond(self, found: Found | None, lines_handler: Handler | None, call: Call, answer: "_Answer") -> None:
        """Have a route answer, called directly if it takes a POST."""
        scope, receive = call.request.scope, call.request.receive
        if found is None or found.route.method != "POST":
            scope["call"] = call
            try:
                await self.api(scope, receive, answer)
            finally:
                del scope["call"]  # the call knows the scope: the circle would keep the body in memory
            return
        response = await (lines_handler or found.route.handler)(call)
        await response(scope, receive, answer)

    async def _fail(self, error: Exception, call: Call, answer: "_Answer") -> None:
        """Answer with an error, unless an answer has begun."""
        if not answer.has_started:
            response = self.table.dialect(call.path).answer(failure(error, call.path))
            await response(call.request.scope, call.request.receive, answer)

    def refusal(self, scope: Scope) -> Refused | None:
        """Answer to a request that cannot be computed in time, from its head alone; None admits it.

        Called by the protocol before anything is spent on the request: while ten times as many come as can be computed,
        to turn nine away must cost next to nothing.
        """
        if (refused := self._admission.refusal(scope)) is None:
            return None
        route, error = refused
        given = next((value for name, value in scope["headers"] if name == b"x-request-id"), b"")
        token = request_id.set(_request_id(given.decode("latin-1")))
        try:
            failed = failure(error, route.path)
            response = route.dialect.answer(failed)
            self._metrics.http_requests.labels(route.path, route.method, failed.status).inc()
            return Refused(failed.status, [*response.raw_headers, *self._headers({})], bytes(response.body))
        finally:
            request_id.reset(token)

    def _headers(self, timing: dict[str, float]) -> list[tuple[bytes, bytes]]:
        """Request id, timing, and the end of the connection when draining."""
        added = [(b"x-request-id", request_id.get().encode()), (b"x-content-type-options", b"nosniff")]
        if timing:
            stages = ", ".join([f"{name};dur={1000 * seconds:.2f}" for name, seconds in timing.items()])
            added.append((b"server-timing", stages.encode()))
        if self._engine.is_draining:
            added.append((b"connection", b"close"))
        return added


class _Answer:
    """Sends an answer on, with the headers that every answer has."""

    def __init__(
        self, call: Call, send: Send, headers: Callable[[dict[str, float]], list[tuple[bytes, bytes]]]
    ) -> None:
        self._call = call
        self._send = send
        self._headers = headers
        self.code = 500
        self.has_started = self.has_ended = False

    async def __call__(self, message: Message) -> None:
        """Send a message."""
        if message["type"] == "http.response.start":
            self.has_started = True
            self.code = message["status"]
            timing = self._call.server_timing
            timing["total"] = time.perf_counter() - self._call.started
            message["headers"] += self._headers(timing)
        else:
            self.has_ended = not message.get("more_body", False)
        await self._send(message)


def _lines_handler(found: Found | None, headers: Headers) -> Handler | None:
    """What answers a body of lines, if the body holds lines."""
    has_lines = headers.get("content-type", "").lower().startswith(NDJSON)
    return found.route.lines_handler if found is not None and has_lines else None


def _request_id(given: str) -> str:
    """The client's, if it is harmless; else a new one."""
    return given if REQUEST_ID.fullmatch(given) else f"{random.getrandbits(128):032x}"


def _path_of_route(scope: Scope) -> str:
    """Path of the route, of the table's or a page of FastAPI, variables unfilled, which bounds the label."""
    route = scope.get("route")
    return getattr(route, "path", "unmatched")
