"""HTTP/1.1 on one connection: uvicorn's httptools protocol with limits and fixes. Used by `service.server`.

Limits:

- The headers of a request are limited to MAX_HEAD_BYTES and must arrive within HEAD_S.
  MAX_HEAD_BYTES also limits a chunk-size line, and the trailers; they may exceed it by PIECE_BYTES.
- A connection without a request is closed like an idle keep-alive connection.
- A client that reads nothing of a response for WRITE_S is disconnected.
- At most MAX_WAITING pipelined requests wait for the running one; uvicorn does not limit them. Further input is
  dropped, and the connection is closed when the others are answered.
- When an error is sent before the body has arrived, the rest of the body is read and dropped for up to LINGER_S.
  Closing at once would reset the connection, and the client would not see the error.

Differences from uvicorn:

- A complete response is written at once (`_Cycle`).
- An unsupported Upgrade is ignored (RFC 9110, 7.8). httptools stops parsing after such a head, and uvicorn would parse
  the body as the next request; here the head is parsed again without the Upgrade.
- A transfer coding before `chunked` (`gzip, chunked`) is rejected (RFC 9112, 6.1); uvicorn would pass on the coded
  bytes.
- A response without a length to an HTTP/1.0 client is not chunked (RFC 9112, 6.1).
- When a connection is lost, uvicorn notifies only the last pipelined request; here the running one is notified too.
- After a half-close (FIN), complete requests are still answered; uvicorn would close the connection. A disconnected
  client sends the same FIN. After PROBE_S the client therefore gets an interim response (RFC 9110, 15.2): if it has
  disconnected, it replies with a reset, and its requests are cancelled. HTTP/1.0 has no interim responses: such a
  client is treated as disconnected.
"""

import asyncio
import itertools
import socket
import urllib.parse
from typing import Any

import httptools
from starlette.types import Message, Scope
from typing_extensions import override
from uvicorn._types import ASGI3Application
from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT
from uvicorn.protocols.http.httptools_impl import (
    HEADER_VALUE_RE,
    STATUS_LINE,
    HttpToolsProtocol,
    RequestResponseCycle,
)

MAX_HEAD_BYTES = 64 * 1024
PIECE_BYTES = 16 * 1024
"""Maximum bytes that are parsed at once. The parser does not tell where in a piece a head, a chunk-size line or
trailers begin, so that what follows another part in the same piece is counted only once the head is complete."""
MAX_WAITING = 256
HEAD_S = 10.0
WRITE_S = 30.0
LINGER_S = 5.0
PROBE_S = 0.1
"""Time between two probes of a half-closed connection; most responses are sent before the first one."""
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
MAX_PROBES = 3
"""Maximum interim responses per connection. Behind a proxy, the third detects a disconnect: the client resets the
proxy's connection after the first, the proxy resets this connection after the second, and the third write fails."""


def _closing_response(status: str, text: str) -> bytes:
    """A response that the protocol sends itself before it closes the connection."""
    head = f"HTTP/1.1 {status}\r\nconnection: close\r\ncontent-type: text/plain\r\ncontent-length: {len(text)}\r\n\r\n"
    return (head + text).encode()


UNKNOWN_CODING = _closing_response("501 Not Implemented", "the only supported transfer coding is chunked")
MALFORMED = _closing_response("400 Bad Request", "the request is not HTTP/1.1")
TOO_LONG = _closing_response(
    "431 Request Header Fields Too Large", f"the request line and headers are longer than {MAX_HEAD_BYTES} bytes"
)


class BoundedProtocol(HttpToolsProtocol):
    """One connection; the module's docstring lists what it adds to uvicorn's protocol."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._head_bytes = 0
        self._in_head = False
        self._in_body = False
        self._has_head_timeout = False
        self._is_upgrade = False
        self._is_ending = False
        """Whether the connection is to be closed after the current body."""
        self._is_broken = False
        """Whether further input is ignored, because some was invalid."""
        self._running: RequestResponseCycle | None = None
        """The request that the application handles; `cycle` is the last one received."""
        self._raw_root_path = self.root_path.encode("ascii")
        self._is_idle = False
        """Whether the connection has no request."""
        self._idle_since = 0.0
        self._idle_timer: asyncio.TimerHandle | None = None
        """Runs even while the connection is not idle, so that requests need not stop and start it."""
        self._timer: asyncio.TimerHandle | None = None
        self._write_timer: asyncio.TimerHandle | None = None
        self._probe_timer: asyncio.TimerHandle | None = None

    @override
    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # uvicorn's signature
        """Start the keep-alive timeout, which applies to the first request too."""
        super().connection_made(transport)
        self._lingering = _LingeringTransport(self)
        self._begin_idle()
        self._idle_timer = self.loop.call_later(self.timeout_keep_alive, self._check_idle)

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the timers and notify the running request."""
        self._stop_timer()
        for timer in (self._idle_timer, self._write_timer, self._probe_timer):
            if timer is not None:
                timer.cancel()
        if self._running is not None and self._running is not self.cycle and not self._running.response_complete:
            self._running.disconnected = True
            self._running.message_event.set()
        super().connection_lost(exc)

    @override
    def _start_asgi_task(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        self._running = cycle
        is_http_1_0 = cycle.scope["http_version"] == "1.0"
        super()._start_asgi_task(cycle, _Unchunked(cycle, app) if is_http_1_0 else app)

    @override
    def eof_received(self) -> bool:  # type: ignore[override]  # uvicorn always closes
        """Handle a half-close; returns whether the connection stays open to answer complete requests."""
        unanswered = self._unanswered()
        if not unanswered:
            return False
        unanswered[-1].keep_alive = False
        self._probe_timer = self.loop.call_later(PROBE_S, self._probe, 0)
        return True

    @override
    def data_received(self, data: bytes) -> None:
        """Parse received bytes."""
        try:
            for start in range(0, len(data), PIECE_BYTES):
                piece = data[start : start + PIECE_BYTES]
                self._head_bytes += len(piece)
                while piece and not self._is_broken and not self.transport.is_closing():
                    piece = self._parse(piece)
                if self._head_bytes > MAX_HEAD_BYTES:
                    self._close_with(TOO_LONG)
                    return
        except httptools.HttpParserError as error:
            cause = error.__context__
            self._close_with(cause.response if isinstance(cause, _BadHead) else MALFORMED)
            return
        if self._in_head and not self._has_head_timeout:
            self._has_head_timeout = True
            self._await_head()

    def _parse(self, data: bytes) -> bytes:
        """Parse bytes. If they hold an Upgrade, return the bytes to parse again without it. Raises: HttpParserError."""
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as stop:
            if self.parser.get_method() == b"CONNECT":
                self._close_with(MALFORMED)
                return b""
            return self._without_upgrade() + data[stop.args[0] :]
        return b""

    @override
    def on_message_begin(self) -> None:
        """Start a request."""
        self.url = b""
        self.headers = []
        self._is_idle = False
        self._in_head = True
        self._has_head_timeout = False

    @override
    def on_header(self, name: bytes, value: bytes) -> None:
        """Store a header; trailers, which follow a body, are dropped."""
        if self._in_head:
            self.headers.append((name.lower(), value))

    @override
    def on_headers_complete(self) -> None:
        """Reject the request, or start the application."""
        self._in_head = False
        self._stop_timer()
        if self._head_bytes > MAX_HEAD_BYTES - PIECE_BYTES:  # perhaps a part of it is not counted: count exactly
            size = len(self.url) + sum(map(len, itertools.chain(*self.headers)))
            if size > MAX_HEAD_BYTES:
                raise _BadHead(TOO_LONG)
        self._head_bytes = 0
        if len(self.pipeline) == MAX_WAITING:
            raise _BadHead(MALFORMED)  # which is not sent: the requests before it are answered
        codings = ",".join(self._values(b"transfer-encoding"))
        if codings != "chunked" and codings.endswith("chunked"):  # the parser rejects any other ending
            raise _BadHead(UNKNOWN_CODING)
        self._is_upgrade = self.parser.should_upgrade()
        if not self._is_upgrade and not self.transport.is_closing():
            self._begin()

    def _values(self, name: bytes) -> list[str]:
        """Values of a header, in lower case."""
        return [value.decode("latin-1").lower() for other, value in self.headers if other == name]

    def _new_scope(self) -> Scope:
        """The ASGI scope of the request whose head is complete."""
        url = httptools.parse_url(self.url)
        path = url.path.decode("ascii")
        return {
            "type": "http",
            "asgi": {"version": self.asgi_version, "spec_version": "2.3"},
            "http_version": self.parser.get_http_version(),
            "method": self.parser.get_method().decode("ascii"),
            "scheme": self.scheme,
            "server": self.server,
            "client": self.client,
            "root_path": self.root_path,
            "path": self.root_path + (urllib.parse.unquote(path) if "%" in path else path),
            "raw_path": self._raw_root_path + url.path,
            "query_string": url.query or b"",
            "headers": self.headers,
            "state": self.app_state.copy(),
        }

    def _begin(self) -> None:
        """Start the application, after the earlier requests on the connection."""
        before, scope = self.cycle, self._new_scope()
        self.cycle = cycle = _Cycle(
            scope=scope,  # type: ignore[arg-type]
            transport=self._lingering,  # type: ignore[arg-type]
            flow=self.flow,
            logger=self.logger,
            access_logger=self.access_logger,
            access_log=False,
            default_headers=self.server_state.default_headers,
            message_event=asyncio.Event(),
            expect_100_continue="100-continue" in self._values(b"expect"),
            keep_alive=scope["http_version"] != "1.0" and self.parser.should_keep_alive(),
            on_response=self.on_response_complete,
        )
        self._in_body, self._is_idle = True, False
        if before is None or before.response_complete:
            self._start_asgi_task(cycle, self.app)
        else:
            self.flow.pause_reading()
            self.pipeline.appendleft((cycle, self.app))

    @override
    def on_body(self, body: bytes) -> None:
        """Pass a part of the body to the application, or drop it if the request was answered."""
        self._head_bytes = 0
        cycle = self.cycle
        if self.transport.is_closing() or cycle.response_complete:
            return
        cycle.body += body
        if len(cycle.body) > HIGH_WATER_LIMIT:
            self.flow.pause_reading()
        cycle.message_event.set()

    @override
    def on_message_complete(self) -> None:
        """Handle the end of the body."""
        self._head_bytes = 0
        self._in_body = False
        if self._is_upgrade or self.transport.is_closing():
            return
        if self._is_ending:
            self.transport.close()
        if self.cycle.response_complete:
            self._stop_timer()
        else:
            self.cycle.more_body = False
            self.cycle.message_event.set()

    @override
    def on_response_complete(self) -> None:
        """Handle the end of the response; the body of its request may still be arriving."""
        self.server_state.total_requests += 1
        if self.transport.is_closing():
            return
        if self._in_body and self.cycle.response_complete:
            self._close_after(LINGER_S)
        if self.pipeline:
            self._start_asgi_task(*self.pipeline.pop())
        elif not self._in_head:
            self._begin_idle()
        if not self.pipeline:
            self.flow.resume_reading()

    @override
    def pause_writing(self) -> None:
        """Start the write timeout: the client does not read."""
        super().pause_writing()
        self._watch_writing(None)

    @override
    def resume_writing(self) -> None:
        """Stop the write timeout."""
        super().resume_writing()
        if self._write_timer is not None:
            self._write_timer.cancel()

    @override
    def shutdown(self) -> None:
        """Close the connection after the response in progress and the body of its request."""
        if self._in_body and (self.cycle is None or self.cycle.response_complete):
            self._is_ending = True
        else:
            super().shutdown()

    def end(self) -> None:
        """Close the connection after a response, or after the body of its request if that is still arriving."""
        if self._in_body and self.cycle.response_complete:
            self._is_ending = True
        else:
            self.transport.close()

    def _watch_writing(self, before: int | None) -> None:
        """Abort the connection if the client read nothing since the last check, when `before` bytes were buffered."""
        left = self.transport.get_write_buffer_size()
        if left == before:
            self.transport.abort()
        else:
            self._write_timer = self.loop.call_later(WRITE_S, self._watch_writing, left)

    def _unanswered(self) -> list[RequestResponseCycle]:
        """Completely received requests without a complete response, in order."""
        cycles = [cycle for cycle, _ in reversed(self.pipeline)]
        if self._running is not None and not self._running.response_complete:
            cycles.insert(0, self._running)
        return cycles[:-1] if self._in_body else cycles

    def _probe(self, sent: int) -> None:
        """Abort a half-closed connection if its client has disconnected.

        Once a response has started, no interim response is needed: writing its next part detects the reset.

        Args:
            sent: number of interim responses sent so far.

        """
        assert self._running is not None
        if self.transport.get_extra_info("socket").getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            self.transport.abort()
            return
        if sent < MAX_PROBES and not self._running.response_started:
            if self._running.scope["http_version"] == "1.0":
                self.transport.close()
                return
            self.transport.write(CONTINUE)
            sent += 1
        self._probe_timer = self.loop.call_later(PROBE_S, self._probe, sent)

    def _begin_idle(self) -> None:
        """Note that the connection has no request."""
        self._is_idle = True
        self._idle_since = self.loop.time()

    def _check_idle(self) -> None:
        """Close the connection if it was idle for the keep-alive timeout; else check again."""
        idle_s = self.loop.time() - self._idle_since if self._is_idle else 0.0
        left = self.timeout_keep_alive - idle_s
        if left > 0:
            self._idle_timer = self.loop.call_later(left, self._check_idle)
        else:
            self.transport.close()

    def _close_after(self, seconds: float) -> None:
        """Start the connection's timer anew; it closes the connection."""
        self._stop_timer()
        self._timer = self.loop.call_later(seconds, self.transport.close)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _await_head(self) -> None:
        """Start the timeout of the head: after HEAD_S, the connection is closed.

        If a response is in progress now, the timeout is started again after HEAD_S instead.
        """
        self._stop_timer()
        is_busy = self.cycle is not None and not self.cycle.response_complete
        self._timer = self.loop.call_later(HEAD_S, self._await_head if is_busy else self.transport.close)

    def _without_upgrade(self) -> bytes:
        """Replace the parser; returns the head without its Upgrade, to parse again."""
        tokens = {
            token.strip().lower()
            for name, value in self.headers
            if name == b"connection"
            for token in value.split(b",")
        }
        fields = [
            (name, value) for name, value in self.headers if name not in (b"connection", b"upgrade", b"http2-settings")
        ]
        if b"close" in tokens:
            fields.append((b"connection", b"close"))
        line = b"%s %s HTTP/%s\r\n" % (self.parser.get_method(), self.url, self.parser.get_http_version().encode())
        head: bytes = line + b"".join(b"%s: %s\r\n" % field for field in fields) + b"\r\n"
        self.parser = httptools.HttpRequestParser(self)
        self.parser.set_dangerous_leniencies(lenient_data_after_close=True)
        return head

    def _close_with(self, response: bytes) -> None:
        """Close the connection because of invalid bytes.

        - If earlier requests are unanswered, they are answered first; the invalid one and further input are dropped.
        - Else, if the response to the invalid request has started, the connection is closed at once.
        - Else `response` is sent first.
        """
        if self.transport.is_closing():
            return
        if self._in_body and self.pipeline:  # the invalid request waits for earlier ones
            assert self._running is not None
            self.pipeline.popleft()
            self.cycle = self.pipeline[0][0] if self.pipeline else self._running
            self._in_body = False
        cycle = self.cycle
        if not self._in_body and cycle is not None and not cycle.response_complete:
            self._is_broken = True
            cycle.keep_alive = False
            self.flow.resume_reading()  # closing with unread input would reset the connection
            return
        has_started = cycle is not None and cycle.response_started
        if not (self._in_body and has_started):
            self.transport.write(response)
        if cycle is not None:  # the application may still respond, and a closing transport sends what is written to it
            cycle.disconnected = True
            cycle.message_event.set()
        self.transport.close()


class _BadHead(Exception):
    """Stops the parser; holds the response to send."""

    def __init__(self, response: bytes) -> None:
        super().__init__()
        self.response = response


class _Cycle(RequestResponseCycle):
    """A request and its response: uvicorn's, but a response that is complete is written at once."""

    _start: Message | None = None
    """Start of a response of known length, until its body follows (ASGI: it may be sent with the body)."""

    @override
    async def send(self, message: Message) -> None:  # type: ignore[override]  # Starlette's type of ASGI messages
        """Send an ASGI message."""
        if message["type"] == "http.response.start" and not self.response_started:
            if any(name == b"content-length" for name, _ in message["headers"]):
                self._start = message
                return
        elif self._start is not None:
            start, self._start = self._start, None
            body = message.get("body", b"")
            is_complete = not message.get("more_body") and (b"content-length", b"%d" % len(body)) in start["headers"]
            if is_complete and self.scope["method"] != "HEAD":
                if self.flow.write_paused and not self.disconnected:
                    await self.flow.drain()
                if not self.disconnected:
                    self._write(start, body)
                return
            await super().send(start)  # type: ignore[arg-type]
        await super().send(message)  # type: ignore[arg-type]

    def _write(self, start: Message, body: bytes) -> None:
        """Write a complete response."""
        fields = [*self.default_headers, *start["headers"]]
        if (b"connection", b"close") in fields:
            self.keep_alive = False
        elif not self.keep_alive:
            fields.append((b"connection", b"close"))
        self.transport.write(_encode(start["status"], fields, body))
        self.response_started = self.response_complete = True
        self.waiting_for_100_continue = False
        self.message_event.set()
        if not self.keep_alive:
            self.transport.close()
        self.on_response()


def _encode(status: int, fields: list[tuple[bytes, bytes]], body: bytes) -> bytes:
    """The bytes of a response. Raises: RuntimeError if a header could end its line."""
    if HEADER_VALUE_RE.search(b"".join([value for _, value in fields])):
        raise RuntimeError("Invalid HTTP header value.")
    return b"%s%s\r\n%s" % (STATUS_LINE[status], b"".join([b"%s: %s\r\n" % field for field in fields]), body)


class _Unchunked:
    """Wraps an application for HTTP/1.0 clients: a response without a length ends when the connection is closed."""

    def __init__(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        self._cycle = cycle
        self._app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Handle one request."""
        has_length = True

        async def send_unchunked(message: Any) -> None:
            nonlocal has_length
            if message["type"] == "http.response.start":
                has_length = any(name.lower() == b"content-length" for name, _ in message["headers"])
                if not has_length:
                    self._cycle.chunked_encoding = False
            elif not has_length:
                # uvicorn checks the length of every response that is not chunked.
                self._cycle.expected_content_length += len(message.get("body", b""))
            await send(message)

        await self._app(scope, receive, send_unchunked)


class _LingeringTransport:
    """The transport that a response writes to; closing it waits until the request's body has arrived."""

    def __init__(self, protocol: BoundedProtocol) -> None:
        self.write = protocol.transport.write
        self.is_closing = protocol.transport.is_closing
        self.close = protocol.end
