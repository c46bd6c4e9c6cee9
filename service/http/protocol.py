"""HTTP/1.1 on one connection: uvicorn's httptools protocol with limits and fixes. Used by `service.server`.

Limits:

- A request that would miss its deadline is rejected as soon as its headers have arrived, before it is handled.
- The headers of a request are limited to MAX_HEAD_BYTES and must arrive within HEAD_S.
  MAX_HEAD_BYTES also limits a chunk-size line, and the trailers.
- A connection without a request is closed like an idle keep-alive connection.
- A client that reads nothing of a response for WRITE_S is disconnected.
- When an error is sent before the body has arrived, the rest of the body is read and dropped for up to LINGER_S.
  Closing at once would reset the connection, and the client would not see the error.

Differences from uvicorn:

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
from collections.abc import Callable
from typing import Any

import httptools
from typing_extensions import override
from uvicorn._types import ASGI3Application
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from service.http.admission import ArrivedBody, RejectionResponse

MAX_HEAD_BYTES = 64 * 1024
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
        self._reject: Callable[[Any, ArrivedBody], RejectionResponse | None] | None = getattr(
            self.app, "rejection", None
        )
        self._received = b""
        """The bytes being parsed, if they start with a request."""
        self._head_bytes = 0
        self._in_head = False
        self._in_body = False
        self._has_head_timeout = False
        self._is_upgrade = False
        self._is_rejected = False
        """Whether the current request was rejected, so that its body is dropped."""
        self._is_ending = False
        """Whether the connection is to be closed after the current body."""
        self._is_broken = False
        """Whether further input is ignored, because some was invalid."""
        self._running: RequestResponseCycle | None = None
        """The request that the application handles; `cycle` is the last one received."""
        self._timer: asyncio.TimerHandle | None = None
        self._write_timer: asyncio.TimerHandle | None = None
        self._probe_timer: asyncio.TimerHandle | None = None

    @override
    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # uvicorn's signature
        """Start the keep-alive timeout, which applies to the first request too."""
        super().connection_made(transport)
        self._close_after(self.timeout_keep_alive)

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the timers and notify the running request."""
        self._stop_timer()
        for timer in (self._write_timer, self._probe_timer):
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
        self._head_bytes += len(data)
        self._received = b"" if self._in_head or self._in_body else data
        try:
            while data and not self._is_broken and not self.transport.is_closing():
                data = self._parse(data)
        except httptools.HttpParserError as error:
            cause = error.__context__
            self._close_with(cause.response if isinstance(cause, _BadHead) else MALFORMED)
            return
        self._limit_head()

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
        self._unset_keepalive_if_required()
        super().on_message_begin()
        self._in_head = True
        self._has_head_timeout = False

    @override
    def on_header(self, name: bytes, value: bytes) -> None:
        """Store a header; trailers, which follow a body, are dropped."""
        if self._in_head:
            super().on_header(name, value)

    @override
    def on_headers_complete(self) -> None:
        """Reject the request, or start the application."""
        self._in_head = False
        self._stop_timer()
        if self._head_bytes > MAX_HEAD_BYTES:  # may include bytes of a body: count exactly
            size = len(self.url) + sum(map(len, itertools.chain(*self.headers)))
            if size > MAX_HEAD_BYTES:
                raise _BadHead(TOO_LONG)
        self._head_bytes = 0
        codings = b",".join([value.lower() for name, value in self.headers if name == b"transfer-encoding"])
        if codings != b"chunked" and codings.endswith(b"chunked"):  # the parser rejects any other ending
            raise _BadHead(UNKNOWN_CODING)
        self._is_upgrade = self.parser.should_upgrade()
        if self._is_upgrade or self.transport.is_closing():
            return
        if (rejection := self._rejection()) is None:
            super().on_headers_complete()
            self._in_body = True
            self.cycle.transport = _LingeringTransport(self)  # type: ignore[assignment]
            return
        self._is_rejected = self._in_body = True
        self._is_ending = not self.parser.should_keep_alive() or (b"connection", b"close") in rejection.fields
        self.transport.write(self._encoded(rejection))
        self._close_after(LINGER_S)

    @override
    def on_body(self, body: bytes) -> None:
        """Pass a part of the body to the application, or drop it if the request was rejected."""
        self._head_bytes = 0
        if not self._is_rejected and not self.transport.is_closing():
            super().on_body(body)

    @override
    def on_message_complete(self) -> None:
        """Handle the end of the body."""
        self._in_body = False
        if self._is_upgrade or self.transport.is_closing():
            return
        if self._is_ending:
            self.transport.close()
        if self._is_rejected:
            self._is_rejected = False
            self._close_after(self.timeout_keep_alive)
            return
        if self.cycle.response_complete:
            self._stop_timer()
        super().on_message_complete()

    @override
    def on_response_complete(self) -> None:
        """Handle the end of the response; the body of its request may still be arriving."""
        super().on_response_complete()
        if self._in_body and self.cycle.response_complete and not self.transport.is_closing():
            self._close_after(LINGER_S)

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

    def _close_after(self, seconds: float) -> None:
        """Start the connection's timer anew; it closes the connection."""
        self._stop_timer()
        self._timer = self.loop.call_later(seconds, self.transport.close)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _encoded(self, rejection: RejectionResponse) -> bytes:
        """The bytes of a rejection, with the server's default headers."""
        fields = [*self.server_state.default_headers, *rejection.fields]
        if self._is_ending and (b"connection", b"close") not in fields:
            fields.append((b"connection", b"close"))
        head = STATUS_LINE[rejection.status] + b"".join([b"%s: %s\r\n" % field for field in fields])
        return head + b"\r\n" + rejection.body

    def _rejection(self) -> RejectionResponse | None:
        """Ask the application whether to reject a POST, unless an earlier request on the connection is running."""
        if (
            self._reject is None
            or self.parser.get_method() != b"POST"
            or not (self.cycle is None or self.cycle.response_complete)
        ):
            return None
        url = httptools.parse_url(self.url)
        self.scope["method"], self.scope["path"] = "POST", url.path.decode("ascii")
        self.scope["query_string"] = url.query or b""
        return self._reject(self.scope, self._arrived_body)

    def _arrived_body(self) -> bytes | None:
        """The body of the request whose head is complete, if the request was received at once and alone; else None."""
        lengths = [int(value) for name, value in self.headers if name == b"content-length"]
        _, _, body = self._received.partition(b"\r\n\r\n")
        return body if [len(body)] == lengths else None

    def _limit_head(self) -> None:
        """Limit the size and the time of an incomplete head, and the size of chunk-size lines and trailers."""
        if self._head_bytes > MAX_HEAD_BYTES:
            self._close_with(TOO_LONG)
        elif self._in_head and not self._has_head_timeout:
            self._has_head_timeout = True
            self._await_head()

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

        - If earlier requests are unanswered, they are answered first, and further input is ignored.
        - Else, if the response to the invalid request has started, the connection is closed at once.
        - Else `response` is sent first.
        """
        cycle, is_in_body = self.cycle, self._in_body and not self.pipeline
        if cycle is None or cycle.response_complete or (is_in_body and not cycle.response_started):
            self.transport.write(response)
            self.transport.close()
        elif is_in_body:
            self.transport.close()
        else:
            self._is_broken = True
            cycle.keep_alive = False


class _BadHead(Exception):
    """Stops the parser; holds the response to send."""

    def __init__(self, response: bytes) -> None:
        super().__init__()
        self.response = response


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
