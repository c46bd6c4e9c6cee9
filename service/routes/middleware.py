"""Around every request: its id, its key, the limit of its body, its metrics, its timing. Plain ASGI, for speed."""

import asyncio
import hashlib
import hmac
import logging
import os
import re
import time
from collections.abc import Iterable

from fastapi import FastAPI
from fastapi.routing import APIRoute
from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect, Request
from starlette.routing import BaseRoute
from starlette.types import Message, Receive, Scope, Send

from service.errors import PayloadTooLarge, ServiceError, ShuttingDown, Unauthorized
from service.log import request_id
from service.metrics import Metrics
from service.routes import errors
from service.routes.bulk import NDJSON
from service.settings import Settings

log = logging.getLogger(__name__)

REQUEST_ID = re.compile(r"[!-~]{1,128}")
METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
OPEN = ("/metrics", "/health", "/ping", "/v2/health/")
"""Paths that need no key: what load balancers and Prometheus ask."""


class RequestContext:
    """The application that the server runs: FastAPI, within what every request needs.

    Routes that take a POST and no parameter in their path are called directly: FastAPI and Starlette would spend more
    on such a request than everything else together, and add nothing, since these routes read the request themselves.

    Args:
        app: with all routes.
        routes: ours, those that are called directly among them.
        metrics: where answers are counted.
        settings: limits and keys.

    """

    def __init__(self, app: FastAPI, routes: Iterable[BaseRoute], *, metrics: Metrics, settings: Settings) -> None:
        self._app = app
        self._metrics = metrics
        self._max_body_bytes = settings.max_body_bytes
        self._keys = [_digest(key.get_secret_value()) for key in settings.api_keys]
        self._direct = {
            route.path: route
            for route in routes
            if isinstance(route, APIRoute) and route.methods == {"POST"} and not route.param_convertors
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        started = time.perf_counter()
        headers = Headers(scope=scope)
        given = headers.get("x-request-id", "")
        token = request_id.set(given if REQUEST_ID.fullmatch(given) else os.urandom(16).hex())
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

        bounded = self._bounded(headers, receive)
        request = Request(scope, bounded)
        try:
            self._check_key(scope["path"], headers)
            route = self._direct.get(scope["path"])
            if route is not None and scope["method"] == "POST":
                scope["route"] = route
                response = await route.endpoint(request)
                await response(scope, receive, answer)
            else:
                await self._app(scope, bounded, answer)
        except asyncio.CancelledError:  # the drain has taken too long: the last word is ours, not a cut connection
            if not has_started:
                error = ShuttingDown("the server stopped before the answer was ready; ask another one")
                await errors.answer(request, errors.failure(error))(scope, receive, answer)
        except Exception as error:
            if not isinstance(error, (ServiceError, ClientDisconnect)):
                log.exception("%s %s failed", scope["method"], _route(scope))
            if not has_started:
                await errors.answer(request, errors.failure(error))(scope, receive, answer)
            elif not has_ended:  # the connection has to be cut, or the client would take a part for the whole
                raise
        finally:
            method = scope["method"] if scope["method"] in METHODS else "other"
            self._metrics.http_requests.labels(_route(scope), method, code).inc()
            request_id.reset(token)

    def _check_key(self, path: str, headers: Headers) -> None:
        """Ask for one of the keys, in a time that does not depend on how much of it is right. Raises: Unauthorized."""
        if not self._keys or path.startswith(OPEN):
            return
        scheme, _, token = headers.get("authorization", "").partition(" ")
        given = token.strip() if scheme.lower() == "bearer" else headers.get("x-api-key", "")
        digest = _digest(given)
        if not any([hmac.compare_digest(digest, key) for key in self._keys]):  # noqa: C419  # all of them, always
            raise Unauthorized("send a valid key as `Authorization: Bearer KEY` or `X-API-Key: KEY`")

    def _bounded(self, headers: Headers, receive: Receive) -> Receive:
        """Count the body as it comes. The first read raises when Content-Length alone is too much.

        A body of lines is as long as it likes: its route bounds each line, and reads no faster than it computes.
        """
        if headers.get("content-type", "").startswith(NDJSON):
            return receive
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

    def _headers(self, timing: dict[str, float]) -> list[tuple[bytes, bytes]]:
        """Request id, timing, and the end of the connection when draining."""
        stages = ", ".join([f"{name};dur={1000 * seconds:.2f}" for name, seconds in timing.items()])
        added = [
            (b"x-request-id", request_id.get().encode()),
            (b"x-content-type-options", b"nosniff"),
            (b"server-timing", stages.encode()),
        ]
        if self._app.state.engine.is_draining:
            added.append((b"connection", b"close"))
        return added


def _digest(key: str) -> bytes:
    """Of equal length for every key, so that a comparison tells nothing of it."""
    return hashlib.sha256(key.encode()).digest()


def _route(scope: Scope) -> str:
    """Template of the route that answered, which bounds the label."""
    route = scope.get("route")
    return getattr(route, "path", "unmatched")
