"""The ASGI application: checks every request, calls its route, and adds headers and timing to every response."""

import asyncio
import functools
import logging
import random
import re
import time
from collections.abc import Callable

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from artifact.errors import LongdocError
from service.engine.engine import Engine
from service.engine.reload import Reloader
from service.errors import RetryableError, ShuttingDown, clear_tracebacks
from service.http.admission import HeadAdmission, RejectionResponse
from service.http.cors import Cors
from service.http.host import check_host
from service.http.keys import Keys
from service.http.origins import Origins
from service.http.state import ArrivedBody, state_of
from service.log import request_id, trace_id, trace_of
from service.metrics import Metrics
from service.parser import Parser
from service.routes.page import ASSETS, DOCS_ASSETS
from service.settings import Settings
from service.sharing import CHUNK_BYTES
from service.wire.body import Body, HeldBodies
from service.wire.call import Call, path_of
from service.wire.errors import failure
from service.wire.headers import RequestHeaders
from service.wire.media import NDJSON
from service.wire.responses import JsonResponse
from service.wire.route import Handler, Route, RouteMatch, Table

log = logging.getLogger(__name__)

REQUEST_ID = re.compile(r"[!-~]{1,128}")
COUNTED_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
"""Values of the label `method` in metrics; any other method counts as `other`."""
PAGES = frozenset({"/docs", "/redoc", "/openapi.json"})
"""Documentation pages of FastAPI. They need no key, because a browser cannot send one when it opens a page."""
OPEN_FOLDERS = (DOCS_ASSETS, ASSETS)
"""Path prefixes of the scripts and styles that these pages and the page at `/` load."""
ID_PLACEHOLDER = b"{request id}"
TEMPLATES = 256
"""Maximum templates of rejections in memory; their messages differ in the time to wait and the deadline."""
DISCONNECTED = 499
"""Status in metrics when the client disconnected; never sent."""


class Application:
    """The ASGI application that the server runs.

    It calls the routes of the table directly. FastAPI's routing and validation would take more time than all other
    steps together and are not needed, because the routes read and validate requests themselves. FastAPI generates the
    OpenAPI document and serves its documentation pages.

    Args:
        pages: the documentation pages, and the files that pages load.
        table: the routes.
        engine: the models.
        reloader: loads and unloads models.
        parser: parses large bodies.
        settings: limits, keys and allowed origins.
        metrics: counts responses.

    """

    def __init__(
        self,
        pages: ASGIApp,
        table: Table,
        *,
        engine: Engine,
        reloader: Reloader,
        parser: Parser,
        settings: Settings,
        metrics: Metrics,
    ) -> None:
        self.table = table
        self._pages = pages
        self._engine = engine
        self._reloader = reloader
        self._parser = parser
        self._settings = settings
        self._metrics = metrics
        self._keys = Keys(settings.api_keys, table.open_paths | PAGES, OPEN_FOLDERS)
        self._origins = Origins(settings.cors_origins)
        self._cors = Cors(settings.cors_origins)
        self._admission = HeadAdmission(engine, table, self._keys, settings.deadline_s)
        self._templates: dict[tuple[str, str, str, int], RejectionResponse] = {}
        """Path of a route, code, message and Retry-After of an error -> rejection with ID_PLACEHOLDER as request id."""
        self.bodies = HeldBodies(settings.max_body_bytes, settings.max_held_bytes)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        started = time.perf_counter()
        state = state_of(scope)
        self._admission.begin(state)
        headers = state.headers
        identifier = _request_id(headers.get("x-request-id", ""))
        id_token = request_id.set(identifier)
        trace_token = trace_id.set(state.trace_id or trace_of(headers.getlist("traceparent")))
        preflight = self._cors.preflight(scope["method"], headers)
        routed_method = scope["method"] if preflight is None else headers["access-control-request-method"]
        match = self.table.find(routed_method, path_of(scope))
        ndjson_handler = _ndjson_handler(match, headers)
        take, state.take_body = state.take_body, None  # it refers to the scope: a cycle
        body = Body(self.bodies, headers, receive, is_buffered=ndjson_handler is None, take=take)
        call = Call(
            scope,
            headers,
            body,
            path_params={} if match is None else match.path_params,
            engine=self._engine,
            reloader=self._reloader,
            parser=self._parser,
            settings=self._settings,
            metrics=self._metrics,
            started=started,
        )
        sender = _ResponseSender(call, send, functools.partial(self._response_headers, identifier.encode(), headers))
        try:
            check_host(scope["http_version"], headers)
            if preflight is None:
                await self._respond(match, ndjson_handler, call, sender)
            else:
                await preflight(scope, receive, sender)
        except asyncio.CancelledError:  # the drain timed out: send an error instead of cutting the connection
            await self._fail(
                ShuttingDown("the server stopped before the response was ready; send the request to another server"),
                call,
                sender,
            )
        except ClientDisconnect as error:
            sender.status = DISCONNECTED
            clear_tracebacks(error)
        except Exception as error:
            if not isinstance(error, LongdocError | HTTPException):
                log.exception("%s %s failed", scope["method"], self._template(match, scope) or "unmatched")
            if sender.has_started and not sender.has_ended:
                raise  # the server closes the connection, so that the client notices the incomplete response
            await self._fail(error, call, sender)
            clear_tracebacks(error)
        finally:
            body.release()
            state.inference = call.inference
            state.route = self._template(match, scope)
            counted_method = scope["method"] if scope["method"] in COUNTED_METHODS else "other"
            self._metrics.count_response(state.route or "unmatched", counted_method, sender.status)
            request_id.reset(id_token)
            trace_id.reset(trace_token)

    async def _respond(
        self, match: RouteMatch | None, ndjson_handler: Handler | None, call: Call, sender: "_ResponseSender"
    ) -> None:
        """Check origin and key, then call the route or a page. Raises: HTTPException if there is none."""
        scope, receive, headers = call.scope, call.body, call.headers
        if scope["method"] == "POST":
            self._origins.check(headers)
        if match is None or match.route.needs_key:
            self._keys.check(path_of(scope), headers)
        if match is None:
            if not _is_page(path_of(scope)):
                methods = self.table.methods(path_of(scope))
                raise HTTPException(405, headers={"Allow": ", ".join(methods)}) if methods else HTTPException(404)
            await self._pages(scope, receive, sender)
            return
        response = await (ndjson_handler or match.route.handler)(call)
        call.body.hold_response(len(getattr(response, "body", b"")))
        await sender.respond(response)

    def _template(self, match: RouteMatch | None, scope: Scope) -> str | None:
        """Path template of the route or page, such as `/models/{name}`, or None: few values, as metric labels need."""
        if match is not None:
            return match.route.path
        if (route := scope.get("route")) is not None:  # a page
            return getattr(route, "path", None)
        return self.table.template(path_of(scope))

    async def _fail(self, error: Exception, call: Call, sender: "_ResponseSender") -> None:
        """Send an error, unless a response has started."""
        if not sender.has_started:
            await sender.respond(self.table.dialect(call.path).answer(failure(error, call.path)))

    def rejection(self, scope: Scope, body: ArrivedBody) -> RejectionResponse | None:
        """Response that rejects a request that would miss its deadline; None if the request is admitted.

        The protocol calls it as soon as the headers have arrived. At ten times the capacity of the models, nine of ten
        requests are rejected here, so a rejection has to be cheap.

        Args:
            scope: the scope of the request.
            body: returns its body if all of it has arrived.

        """
        if (rejection := self._admission.rejection(scope, body)) is None:
            return None
        route, error = rejection
        headers = state_of(scope).headers
        identifier = _request_id(headers.get("x-request-id", "")).encode()
        key = (route.path, error.code, str(error), error.retry_after_s)
        template = self._templates.get(key) or self._write_template(route, error)
        if len(self._templates) == TEMPLATES:
            self._templates.clear()
        self._templates[key] = template
        text = template.body.replace(ID_PLACEHOLDER, identifier)
        length = (b"content-length", b"%d" % len(text))
        fields = [*template.fields, length, *self._response_headers(identifier, headers, {})]
        self._metrics.count_response(route.path, route.method, template.status)
        return RejectionResponse(template.status, fields, text)

    def _write_template(self, route: Route, error: RetryableError) -> RejectionResponse:
        """A rejection for `_templates`, without Content-Length and the headers that every response gets."""
        token = request_id.set(ID_PLACEHOLDER.decode())
        try:
            failed = failure(error, route.path)
            response = route.dialect.answer(failed)
        finally:
            request_id.reset(token)
        fields = [(name, value) for name, value in response.raw_headers if name != b"content-length"]
        return RejectionResponse(failed.status, fields, bytes(response.body))

    def _response_headers(
        self, identifier: bytes, request_headers: RequestHeaders, timing: dict[str, float]
    ) -> list[tuple[bytes, bytes]]:
        """Headers that every response gets.

        Args:
            identifier: request id.
            request_headers: headers of the request.
            timing: seconds by stage; may be empty.

        """
        added = [
            (b"x-request-id", identifier),
            (b"x-content-type-options", b"nosniff"),
            *self._cors.fields(request_headers),
        ]
        if timing:
            stages = ", ".join([f"{name};dur={1000 * seconds:.2f}" for name, seconds in timing.items()])
            added.append((b"server-timing", stages.encode()))
        if self._engine.is_draining:
            added.append((b"connection", b"close"))
        return added


class _ResponseSender:
    """Sends the messages of a response, and adds the headers that every response gets."""

    def __init__(
        self, call: Call, send: Send, headers_for: Callable[[dict[str, float]], list[tuple[bytes, bytes]]]
    ) -> None:
        self._call = call
        self._send = send
        self._headers_for = headers_for
        self.status = 500
        self.has_started = self.has_ended = False

    async def respond(self, response: Response) -> None:
        """Send the response of a route."""
        if type(response) is JsonResponse and len(response.body) <= CHUNK_BYTES:
            await self._send(self._start(response.status_code, response.raw_headers))
            self.has_ended = True
            await self._send({"type": "http.response.body", "body": response.body})
        else:
            await response(self._call.scope, self._call.body, self)

    def _start(self, status: int, headers: list[tuple[bytes, bytes]]) -> Message:
        """The start of the response, with the headers that every response gets."""
        self.has_started = True
        self.status = status
        timing = self._call.server_timing
        timing["total"] = time.perf_counter() - self._call.started
        return {"type": "http.response.start", "status": status, "headers": [*headers, *self._headers_for(timing)]}

    async def __call__(self, message: Message) -> None:
        """Send a message."""
        if message["type"] == "http.response.start":
            message = self._start(message["status"], message["headers"])
        else:
            has_more = message.get("more_body", False)
            self.has_ended = not has_more
            body = message.get("body", b"")
            if len(body) > CHUNK_BYTES:
                await self._send_chunks(body, has_more=has_more)
                return
        await self._send(message)

    async def _send_chunks(self, body: bytes, *, has_more: bool) -> None:
        """Send a body in chunks; `send` waits if the client reads slowly."""
        for first in range(0, len(body), CHUNK_BYTES):
            last = first + CHUNK_BYTES
            chunk = {"type": "http.response.body", "body": body[first:last], "more_body": has_more or last < len(body)}
            await self._send(chunk)
            await asyncio.sleep(0)  # let other requests run


def _ndjson_handler(match: RouteMatch | None, headers: RequestHeaders) -> Handler | None:
    """Handler for NDJSON, if the route has one and the body is NDJSON."""
    if match is None or match.route.ndjson_handler is None:
        return None
    return match.route.ndjson_handler if headers.get("content-type", "").lower().startswith(NDJSON) else None


def _request_id(given: str) -> str:
    """The client's request id if it is valid, else a new one."""
    return given if given and REQUEST_ID.fullmatch(given) else f"{random.getrandbits(128):032x}"


def _is_page(path: str) -> bool:
    """Whether a path is one of FastAPI's documentation pages, or a file that a page loads."""
    return path in PAGES or path.startswith(OPEN_FOLDERS)
