"""HTTP/1.1 on a connection: uvicorn's fast protocol with the bounds that it lacks. Used by `service.server`.

- A request that cannot be answered in time is refused from its head alone.
- A head is at most MAX_HEAD_BYTES long and comes within HEAD_S; what stands between the parts of a body is as short.
- A connection that has asked nothing yet is closed like an idle one.
- Who does not read the answer for WRITE_S is cut off.
- A body that comes after its answer, an error, is read and dropped for LINGER_S, so that the client sees the answer.
- An Upgrade that is not taken must be ignored (RFC 9110, 7.8). httptools instead stops parsing behind such a head, and
  uvicorn would take the body for another request; so the head is parsed again without it.
- A body coded before it was chunked (`gzip, chunked`) is refused (RFC 9112, 6.1); it would be taken as it is.
- HTTP/1.0 knows no chunks (RFC 9112, 6.1), which uvicorn would send.
- When a connection is lost, uvicorn tells the last request on it; the one that is being answered may be one before.
"""

import asyncio
import itertools
from collections.abc import Callable
from typing import Any

import httptools
from typing_extensions import override
from uvicorn._types import ASGI3Application
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from service.http.admission import Refused

MAX_HEAD_BYTES = 64 * 1024
HEAD_S = 10.0
WRITE_S = 30.0
LINGER_S = 5.0


def _last_answer(status: str, text: str) -> bytes:
    """An answer without an application, after which the connection ends."""
    head = f"HTTP/1.1 {status}\r\nconnection: close\r\ncontent-type: text/plain\r\ncontent-length: {len(text)}\r\n\r\n"
    return (head + text).encode()


NOT_CODED = _last_answer("501 Not Implemented", "of transfer codings, only chunked is read")
MALFORMED = _last_answer("400 Bad Request", "the request is not HTTP/1.1")
TOO_LONG = _last_answer("431 Request Header Fields Too Large", f"the head is longer than {MAX_HEAD_BYTES} bytes")


class BoundedProtocol(HttpToolsProtocol):
    """A connection; see the module."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._refuse: Callable[[Any], Refused | None] | None = getattr(self.app, "refusal", None)
        self._head_bytes = 0
        self._in_head = False
        self._in_body = False
        self._is_late = False
        self._is_upgrade = False
        self._is_refused = self._is_ending = self._is_broken = False
        self._running: RequestResponseCycle | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._write_timer: asyncio.TimerHandle | None = None

    @override
    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        """Begin; the first request has as long to come as any after it."""
        super().connection_made(transport)
        self._arm(self.timeout_keep_alive)

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        """End."""
        self._disarm()
        if self._write_timer is not None:
            self._write_timer.cancel()
        if self._running is not None and self._running is not self.cycle and not self._running.response_complete:
            self._running.disconnected = True
            self._running.message_event.set()
        super().connection_lost(exc)

    @override
    def _start_asgi_task(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        self._running = cycle
        is_old = cycle.scope["http_version"] == "1.0"
        super()._start_asgi_task(cycle, _Unchunked(cycle, app) if is_old else app)

    @override
    def data_received(self, data: bytes) -> None:
        """Parse what has come."""
        self._head_bytes += len(data)
        try:
            while data and not self._is_broken and not self.transport.is_closing():
                data = self._parse(data)
        except httptools.HttpParserError as error:
            cause = error.__context__
            self._close_with(cause.answer if isinstance(cause, _BadHead) else MALFORMED)
            return
        self._bound_head()

    def _parse(self, data: bytes) -> bytes:
        """Parse; what is left to parse, because an Upgrade was to be ignored. Raises: HttpParserError."""
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
        """Begin a request."""
        self._unset_keepalive_if_required()
        super().on_message_begin()
        self._in_head = True
        self._is_late = False

    @override
    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a field of the head; one behind a body is dropped."""
        if self._in_head:
            super().on_header(name, value)

    @override
    def on_headers_complete(self) -> None:
        """Start the application."""
        self._in_head = False
        self._disarm()
        if self._head_bytes > MAX_HEAD_BYTES:
            size = len(self.url) + sum(map(len, itertools.chain(*self.headers)))
            if size > MAX_HEAD_BYTES:
                raise _BadHead(TOO_LONG)
        self._head_bytes = 0
        codings = b",".join([value.lower() for name, value in self.headers if name == b"transfer-encoding"])
        if codings != b"chunked" and codings.endswith(b"chunked"):  # the parser refuses what ends otherwise
            raise _BadHead(NOT_CODED)
        self._is_upgrade = self.parser.should_upgrade()
        if self._is_upgrade or self.transport.is_closing():
            return
        if (refusal := self._refusal()) is None:
            super().on_headers_complete()
            self._in_body = True
            self.cycle.transport = _Lingering(self)  # type: ignore[assignment]
            return
        self._is_refused = self._in_body = True
        self._is_ending = not self.parser.should_keep_alive() or (b"connection", b"close") in refusal.fields
        self.transport.write(self._encoded(refusal))
        self._arm(LINGER_S)

    @override
    def on_body(self, body: bytes) -> None:
        """Take a part of the body."""
        self._head_bytes = 0
        if not self._is_refused and not self.transport.is_closing():
            super().on_body(body)

    @override
    def on_message_complete(self) -> None:
        """End of the body."""
        self._in_body = False
        if self._is_upgrade or self.transport.is_closing():
            return
        if self._is_ending:
            self.transport.close()
        if self._is_refused:
            self._is_refused = False
            self._arm(self.timeout_keep_alive)
            return
        if self.cycle.response_complete:
            self._disarm()
        super().on_message_complete()

    @override
    def on_response_complete(self) -> None:
        """End of the answer; its request may still be coming."""
        super().on_response_complete()
        if self._in_body and self.cycle.response_complete and not self.transport.is_closing():
            self._arm(LINGER_S)

    @override
    def pause_writing(self) -> None:
        """The client does not read."""
        super().pause_writing()
        self._watch_writing(None)

    @override
    def resume_writing(self) -> None:
        """It does again."""
        super().resume_writing()
        if self._write_timer is not None:
            self._write_timer.cancel()

    @override
    def shutdown(self) -> None:
        """Asked by the server to end, as soon as what is under way allows it."""
        if self._in_body and (self.cycle is None or self.cycle.response_complete):
            self._is_ending = True
        else:
            super().shutdown()

    def end(self) -> None:
        """End after an answer, and after its request if that is still coming."""
        if self._in_body and self.cycle.response_complete:
            self._is_ending = True
        else:
            self.transport.close()

    def _watch_writing(self, before: int | None) -> None:
        """Cut the connection if nothing was read since the last look."""
        left = self.transport.get_write_buffer_size()
        if left == before:
            self.transport.abort()
        else:
            self._write_timer = self.loop.call_later(WRITE_S, self._watch_writing, left)

    def _arm(self, seconds: float) -> None:
        self._disarm()
        self._timer = self.loop.call_later(seconds, self.transport.close)

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _encoded(self, refusal: Refused) -> bytes:
        """A refusal as it goes over the wire, with the fields that every answer has."""
        fields = [*self.server_state.default_headers, *refusal.fields]
        if self._is_ending and (b"connection", b"close") not in fields:
            fields.append((b"connection", b"close"))
        head = STATUS_LINE[refusal.status] + b"".join([b"%s: %s\r\n" % field for field in fields])
        return head + b"\r\n" + refusal.body

    def _refusal(self) -> Refused | None:
        """What the application answers to the head alone, if nothing else is under way on the connection."""
        if (
            self._refuse is None
            or self.parser.get_method() != b"POST"
            or not (self.cycle is None or self.cycle.response_complete)
        ):
            return None
        self.scope["method"], self.scope["path"] = "POST", httptools.parse_url(self.url).path.decode("ascii")
        return self._refuse(self.scope)

    def _bound_head(self) -> None:
        """Bound a head that has begun and not ended, and what is neither head nor body."""
        if self._head_bytes > MAX_HEAD_BYTES:
            self._close_with(TOO_LONG)
        elif self._in_head and not self._is_late:
            self._is_late = True
            self._await_head()

    def _await_head(self) -> None:
        """Give the head its time, which begins when no answer is under way."""
        self._disarm()
        is_busy = self.cycle is not None and not self.cycle.response_complete
        self._timer = self.loop.call_later(HEAD_S, self._await_head if is_busy else self.transport.close)

    def _without_upgrade(self) -> bytes:
        """The head as it would be without its Upgrade, for a new parser."""
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

    def _close_with(self, answer: bytes) -> None:
        """End the connection with an answer; one that is under way comes first."""
        cycle, is_own = self.cycle, self._in_body and not self.pipeline
        if cycle is None or cycle.response_complete or (is_own and not cycle.response_started):
            self.transport.write(answer)
            self.transport.close()
        elif is_own:
            self.transport.close()
        else:
            self._is_broken = True
            cycle.keep_alive = False


class _BadHead(Exception):
    """Stops the parser; with the answer to the head."""

    def __init__(self, answer: bytes) -> None:
        super().__init__()
        self.answer = answer


class _Unchunked:
    """An application whose answers of no known length end with the connection: HTTP/1.0 knows no chunks."""

    def __init__(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        self._cycle = cycle
        self._app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer."""
        has_length = True

        async def send_unchunked(message: Any) -> None:
            nonlocal has_length
            if message["type"] == "http.response.start":
                has_length = any(name.lower() == b"content-length" for name, _ in message["headers"])
                if not has_length:
                    self._cycle.chunked_encoding = False
            elif not has_length:
                self._cycle.expected_content_length += len(message.get("body", b""))
            await send(message)

        await self._app(scope, receive, send_unchunked)


class _Lingering:
    """The transport as an answer sees it: it does not end before its request has come."""

    def __init__(self, protocol: BoundedProtocol) -> None:
        self.write = protocol.transport.write
        self.is_closing = protocol.transport.is_closing
        self.close = protocol.end
