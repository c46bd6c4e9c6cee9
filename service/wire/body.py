"""The body of a request: decompressed, limited, and counted while it is in memory."""

import time
from collections.abc import Mapping

from starlette.requests import ClientDisconnect
from starlette.types import Message, Receive, Scope

from service.errors import Overloaded, PayloadTooLarge
from service.wire.decompression import WINDOW_BITS, Decompressor, coding_of

SMALL_BYTES = 64 * 1024
"""Smaller responses are not counted, and smaller bodies not rejected for what others hold: a connection needs as much
memory anyway. Otherwise a few stalled uploads could have all requests rejected."""
MAX_DIGITS = 20
"""Digits of the largest length in 64 bits; an error does not repeat a longer number."""


class HeldBodies:
    """Number of bytes held in memory for all requests in progress.

    Args:
        max_body_bytes: limit of one request's body.
        max_held_bytes: limit of all requests together.

    """

    def __init__(self, max_body_bytes: int, max_held_bytes: int) -> None:
        self.max_body_bytes = max_body_bytes
        self.max_held_bytes = max_held_bytes
        self.held = 0


class Body:
    """The body of one request, as an ASGI `receive`. If Content-Length exceeds the limit, the first read raises.

    Compressed bodies are decompressed; limits and counts apply to the decompressed bytes. A body with an unsupported
    coding is passed on unchanged; routes reject it with `check_content_encoding`.

    Args:
        bodies: counts the bytes of all requests.
        scope: the request.
        headers: its headers.
        receive: the server's `receive`.

    """

    def __init__(self, bodies: HeldBodies, scope: Scope, headers: Mapping[str, str], receive: Receive) -> None:
        self.bodies = bodies
        self.raw = receive
        """The server's `receive`: neither decompressed nor counted."""
        self.coding = coding_of(scope) if "content-encoding" in headers else ""
        """Content coding; empty if the body is not compressed."""
        self._receive = receive if self.coding not in WINDOW_BITS else None
        """The decompressed body; None until it is read."""
        self._seen: Message | None = None
        """A message that was peeked at, and is still to be read."""
        self._is_limited = True
        limit = bodies.max_body_bytes
        declared = headers.get("content-length", "").lstrip("0")
        is_number = declared.isascii() and declared.isdigit()
        self._is_over = is_number and (len(declared) > len(str(limit)) or int(declared) > limit)
        self._declared = declared if self._is_over and len(declared) <= MAX_DIGITS else None
        self._held = 0
        self.read_at: float | None = None
        """When the last part had been read, in seconds of `perf_counter`; None before."""

    def unlimit(self) -> None:
        """Let the body have any length, and do not count it: the caller reads it in parts, and calls `hold` itself."""
        self._is_limited = self._is_over = False

    async def __call__(self) -> Message:
        """The next ASGI message.

        Raises: PayloadTooLarge; Overloaded if all requests together hold too many bytes; MalformedInput if the body
        cannot be decompressed.
        """
        if self._seen is not None:
            message, self._seen = self._seen, None
            return message
        if self._is_over:
            raise self._too_large()
        if self._receive is None:
            most = self.bodies.max_body_bytes if self._is_limited else None
            self._receive = Decompressor(self.raw, self.coding, most)
        message = await self._receive()
        if self._is_limited:
            self._count(len(message.get("body", b"")))
        return message

    async def peek(self) -> bytes | None:
        """The body, which can still be read, if all of it is in the next message; else None. Raises: as `__call__`."""
        self._seen = message = await self()
        is_whole = message["type"] == "http.request" and not message.get("more_body", False)
        return message.get("body", b"") if is_whole else None

    async def read(self) -> bytes:
        """Read the body. Raises: ClientDisconnect; as `__call__`."""
        parts: list[bytes] = []
        has_more = True
        while has_more:
            message = await self()
            if message["type"] == "http.disconnect":
                raise ClientDisconnect
            parts.append(message.get("body", b""))
            has_more = message.get("more_body", False)
        self.read_at = time.perf_counter()
        return b"".join(parts)

    def _too_large(self) -> PayloadTooLarge:
        most = self.bodies.max_body_bytes
        if self._declared is not None:
            return PayloadTooLarge(f"the body has {self._declared} bytes; at most {most}")
        return PayloadTooLarge(f"the body is longer than {most} bytes")

    def _count(self, size: int) -> None:
        """Count bytes of the body. Raises: PayloadTooLarge, Overloaded."""
        self.hold(self._held + size)
        self._is_over = self._held > self.bodies.max_body_bytes
        if self._is_over:
            raise self._too_large()
        if self._held > SMALL_BYTES and self.bodies.held > self.bodies.max_held_bytes:
            self.check()

    def hold(self, size: int) -> None:
        """Set the number of bytes that are held for the request."""
        self.bodies.held += size - self._held
        self._held = size

    def hold_response(self, size: int) -> None:
        """Count the bytes of a response instead of those of the body."""
        if size > SMALL_BYTES:
            self.hold(size)

    def reserve(self, size: int) -> None:
        """Count a future response in advance. Raises: Overloaded if all requests together hold too many bytes."""
        if size > SMALL_BYTES:
            self.hold(self._held + size)
            self.check()

    @property
    def is_memory_full(self) -> bool:
        """Whether all requests together hold too many bytes; false if no other request holds any."""
        return self._held < self.bodies.held > self.bodies.max_held_bytes

    def check(self) -> None:
        """Raise Overloaded if all requests together hold too many bytes."""
        if self.is_memory_full:
            held, most = self.bodies.held, self.bodies.max_held_bytes
            raise Overloaded(f"requests in progress hold {held} bytes; at most {most} are allowed")

    def release(self) -> None:
        """Stop counting; called when the request has ended.

        The server's `receive` is forgotten, too. uvicorn's belongs to an object that has the scope, and the scope has
        this body: such a cycle would stay in memory until the garbage collector runs.
        """
        self.hold(0)
        self.raw = self._receive = _ended


async def _ended() -> Message:
    """As the server's `receive` after the response."""
    return {"type": "http.disconnect"}
