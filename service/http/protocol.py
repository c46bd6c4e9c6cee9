"""Limits of a connection, in front of uvicorn's HTTP protocol. Used by `service.server`.

`GuardedProtocol` passes the bytes of one request after the other on to uvicorn's protocol. Once bytes of the next
request have arrived, nothing more is read until the running one is answered. Also:

- The head (request line and headers) is passed on when it is complete. It must arrive within HEAD_S, and is limited to
  MAX_HEAD_BYTES; so are trailers, which are dropped. A connection without a request is closed like an idle one.
- When a response ends before the body of its request, the rest of the body is read and dropped for up to LINGER_S.
  Closing at once would reset the connection, and the client would not see the response.
- A client that reads nothing of a response for WRITE_S is disconnected.
- Upgrade is dropped: it is to be ignored (RFC 9110, 7.8), but uvicorn would lose the body or read it as a request.
- CONNECT is refused, and so is what another parser may read as other requests: two lengths, lines that end with LF
  alone, and lines that continue the one before.
"""

import asyncio
import re
import sys
from collections.abc import Awaitable, Callable, Generator
from typing import Any

import uvicorn
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.auto import AutoHTTPProtocol
from uvicorn.server import ServerState

MAX_HEAD_BYTES = 64 * 1024
HEAD_S = 10.0
WRITE_S = 30.0
LINGER_S = 5.0

MALFORMED = "400 Bad Request", "the request is not HTTP/1.1"
TOO_LONG = "431 Request Header Fields Too Large", f"the headers or trailers are longer than {MAX_HEAD_BYTES} bytes"
HEAD = re.compile(rb"(?!CONNECT )(?:[!-~][^\r\n]*\r\n)++\r\n")
BLANK_LINE = b"\r\n\r\n"
FRAMING = re.compile(rb"\n(transfer-encoding|content-length):[ \t]*([^\r]*)")
UPGRADE = re.compile(rb"\r\nupgrade:[^\r]*", re.IGNORECASE)
FIRST_CHUNK = re.compile(rb"([0-9A-Fa-f]{1,15})(?:;[^\r\n]{0,1024})?\r\n")
NEXT_CHUNK = re.compile(rb"\r\n" + FIRST_CHUNK.pattern)


class GuardedProtocol(asyncio.Protocol):
    """One connection: the protocol of its transport, and the transport of uvicorn's protocol."""

    parser: Any = AutoHTTPProtocol

    def __init__(self, config: uvicorn.Config, server_state: ServerState, **kwargs: Any) -> None:
        self._inner = self.parser(config=config, server_state=server_state, **kwargs)
        self._inner.app = self._watched(self._inner.app)
        self.shutdown = self._inner.shutdown
        self._connections: set[Any] = server_state.connections
        self._idle_s = config.timeout_keep_alive
        self._received = b""
        self._reader = self._read()
        self._in_body = self._is_closing = self._has_response = False
        self._is_answered = True
        self._timer: asyncio.TimerHandle | None = None
        self._write_timer: asyncio.TimerHandle | None = None
        self.has_request = False
        """Whether a request has arrived since the connection was made."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start the timeout for the first request."""
        self._transport, self._loop = transport, asyncio.get_running_loop()
        self.get_extra_info = transport.get_extra_info
        self.pause_reading, self.resume_reading = transport.pause_reading, transport.resume_reading
        self.write: Callable[[bytes], None] = transport.write
        self._inner.connection_made(self)
        self._connections.remove(self._inner)
        self._connections.add(self)
        self._close_after(self._idle_s)

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the timers, and cancel the running request."""
        self._close_after(None)
        self.resume_writing()
        self._connections.discard(self)
        self._inner.connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Pass received bytes on."""
        self._received += data
        next(self._reader)

    def pause_writing(self) -> None:
        """Start the write timeout: the client does not read."""
        self._inner.pause_writing()
        self._watch_writing(None)

    def resume_writing(self) -> None:
        """Stop the write timeout."""
        self._inner.resume_writing()
        if self._write_timer is not None:
            self._write_timer.cancel()

    def is_closing(self) -> bool:
        """Whether `close` was called, or the connection is lost."""
        return self._is_closing or self._transport.is_closing()

    def close(self) -> None:
        """Close the connection, but first receive the rest of the body."""
        if self.is_closing():
            return
        self._is_closing = True
        self.write = lambda _: None  # the application may still respond
        if self._in_body:
            self._transport.write_eof()
            self._transport.resume_reading()
            self._close_after(LINGER_S)
        else:
            self._transport.close()

    def _watched(self, app: ASGIApp) -> ASGIApp:
        """The application, so that this object knows when a response begins and ends."""

        def watched(scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
            def watched_send(message: Message) -> Awaitable[None]:
                self._has_response = True
                is_last = message["type"] == "http.response.body" and not message.get("more_body")
                return self._send_last(message, send) if is_last else send(message)

            return app(scope, receive, watched_send)

        return watched

    async def _send_last(self, message: Message, send: Send) -> None:
        await send(message)
        self._is_answered = True
        if self._in_body and not self.is_closing():
            self._close_after(LINGER_S)
        elif self._received and not self.is_closing():
            next(self._reader)

    def _close_after(self, seconds: float | None) -> None:
        """Start the timer anew, which closes the connection; None stops it."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None if seconds is None else self._loop.call_later(seconds, self._transport.close)

    def _watch_writing(self, before: int | None) -> None:
        """Abort the connection if the client read nothing since the last check, when `before` bytes were buffered."""
        left = self._transport.get_write_buffer_size()
        if left == before:
            self._transport.abort()
        else:
            self._write_timer = self._loop.call_later(WRITE_S, self._watch_writing, left)

    # The generators below take bytes from `_received`; they yield to wait for more of them, or for the response.

    def _read(self) -> Generator[None]:
        """Pass requests on until one is refused; drop what follows."""
        try:
            while True:
                yield from self._read_request()
        except _RefusedError as error:
            if not (self._in_body and self._has_response):
                status, text = error.args
                head = f"HTTP/1.1 {status}\r\nconnection: close\r\ncontent-type: text/plain\r\n"
                self.write(f"{head}content-length: {len(text)}\r\n\r\n{text}".encode())
            self._in_body = True
            self.close()
        yield from self._pass(sys.maxsize)

    def _read_request(self) -> Generator[None]:
        """Pass one request on, and wait until it is answered."""
        size = yield from self._find_head()
        head = self._received[:size]
        length = _body_length(head)
        if UPGRADE.search(head):
            head = UPGRADE.sub(b"", head)
            self._received = head + self._received[size:]
        self.has_request = self._in_body = True
        self._is_answered = self._has_response = False
        yield from self._pass(len(head) + (length or 0))
        if length is None:
            yield from self._pass_chunks()
        self._in_body = False
        if self._is_closing:
            self._transport.close()
        elif self._is_answered:
            self._close_after(self._idle_s)
        while self._is_closing or not self._is_answered:
            if self._received and not self.is_closing():
                self.pause_reading()
            yield
        self.resume_reading()

    def _find_head(self) -> Generator[None, None, int]:
        """Wait for a head; return its length."""
        while self._received[:1] in (b"", b"\r", b"\n"):
            self._received = self._received.lstrip(b"\r\n")  # empty lines are allowed before a request
            if not self._received:
                yield
        if not self._received[:1].isalpha():  # a client that speaks TLS would wait for an answer
            raise _RefusedError(*MALFORMED)
        if BLANK_LINE not in self._received:
            self._close_after(HEAD_S)
        size = yield from self._find_blank_line()
        self._close_after(None)
        return size

    def _pass_chunks(self) -> Generator[None]:
        """Pass a chunked body on, without its trailers."""
        at, line = 0, FIRST_CHUNK
        while (found := line.match(self._received, at)) is None or (size := int(found[1], 16)):
            if found is not None:
                at, line = found.end() + size, NEXT_CHUNK
            elif at:
                yield from self._pass(at)
                at = 0
            elif len(self._received) > MAX_HEAD_BYTES or b"\n" in self._received[2:]:
                raise _RefusedError(*MALFORMED)
            else:
                yield
        last = found[0] + b"\r\n"
        yield from self._pass(at)
        size = yield from self._find_blank_line()
        self._received = last + self._received[size:]
        yield from self._pass(len(last))

    def _find_blank_line(self) -> Generator[None, None, int]:
        """Wait for a blank line; return the number of bytes up to its end."""
        while (place := self._received.find(BLANK_LINE)) < 0 and len(self._received) <= MAX_HEAD_BYTES:
            yield
        size = place + len(BLANK_LINE)
        if place < 0 or size > MAX_HEAD_BYTES:
            raise _RefusedError(*TOO_LONG)
        return size

    def _pass(self, size: int) -> Generator[None]:
        """Pass that many bytes on; drop them if the connection is to be closed."""
        while size:
            part, self._received = self._received[:size], self._received[size:]
            size -= len(part)
            if part and not self._is_closing:
                self._inner.data_received(part)
            part = b""  # to free the memory before the next part arrives
            if size:
                yield


def _body_length(head: bytes) -> int | None:
    """The length of the body of a request; None if it is chunked. Raises: _RefusedError."""
    fields = FRAMING.findall(head.lower()) or [(b"content-length", b"0")]
    name, value = fields[0][0], fields[0][1].rstrip(b" \t")
    is_valid = name == b"transfer-encoding" or (value.isdigit() and len(value) < 19)
    if len(fields) > 1 or not is_valid or not HEAD.fullmatch(head):
        raise _RefusedError(*MALFORMED)
    if name == b"content-length":
        return int(value)
    return None if value == b"chunked" else sys.maxsize  # another coding is refused behind, and the connection closed


class _RefusedError(Exception):
    """Ends the reading of requests. Arguments: status and text of the response."""
