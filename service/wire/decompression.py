"""Decompression of request bodies, in pieces of limited size.

A gzip body may have several members, such as `cat a.gz b.gz` produces. In HTTP, `deflate` means the zlib format
(RFC 9110, 8.4.1.2), not a raw deflate stream.
"""

import asyncio
import zlib

from starlette.types import Message, Receive, Scope

from service.errors import MalformedInput, PayloadTooLarge
from service.wire.headers import header_values

WINDOW_BITS = {"gzip": 31, "x-gzip": 31, "deflate": 15}
"""Supported content codings, with zlib's `wbits` for each."""
ACCEPTED = "gzip, deflate"
"""Supported content codings, for the header `Accept-Encoding` and error messages."""
FORMATS = {"gzip": "gzip", "x-gzip": "gzip", "deflate": "deflate (zlib's format)"}
OVERHEAD_BYTES = 64 * 1024
"""A compressed body may be this much larger than the limit of decompressed bytes. Without this limit, a body of gzip
members without content could have any length."""
IN_BYTES = 16 * 1024
OUT_BYTES = 64 * 1024
"""Compressed and decompressed bytes per turn of the event loop: about one millisecond."""


def coding_of(scope: Scope) -> str:
    """Content codings of a body in the order they were applied, lower case; empty if it is not compressed."""
    values = header_values(scope, b"content-encoding")
    codings = [coding.strip().lower() for value in values for coding in value.split(",")]
    return ", ".join(coding for coding in codings if coding not in ("", "identity"))


class Decompressor:
    """An ASGI `receive` that decompresses the body.

    Args:
        receive: the server's `receive`.
        coding: the coding of the body, one of WINDOW_BITS.
        most: limit of decompressed bytes; None for no limit. At most one more byte is produced, so that the caller
            notices that the limit is exceeded.

    """

    def __init__(self, receive: Receive, coding: str, most: int | None) -> None:
        self._receive = receive
        self._coding = coding
        self._most = most
        self._stream = zlib.decompressobj(WINDOW_BITS[coding])
        self._ahead: asyncio.Future[Message] | None = None
        """The next message, received while the ones before are decompressed, so that a disconnect is noticed."""
        self._is_first = True
        """Whether the current gzip member is the first one."""
        self._waiting = memoryview(b"")
        """Received bytes that are not decompressed yet."""
        self._is_coming = True
        """Whether more of the body will arrive."""
        self._is_full = False
        """Whether the last call reached its output limit; zlib may then have more output without new input."""
        self._has_ended = False
        self._came = self._made = 0
        """Compressed bytes received, decompressed bytes produced."""

    async def __call__(self) -> Message:
        """The next ASGI message; messages after the end of the body are passed on.

        Raises: MalformedInput if the body cannot be decompressed; PayloadTooLarge.
        """
        if self._has_ended:
            return await self._next()
        if self._waiting or self._is_full:
            if self._ahead is None:
                self._ahead = asyncio.ensure_future(self._receive())
            await asyncio.sleep(0)  # let other requests run between two pieces
            if self._ahead.done() and self._ahead.result()["type"] == "http.disconnect":
                return await self._next()
        elif self._is_coming:
            message = await self._next()
            if message["type"] != "http.request":
                return message
            self._waiting, self._is_coming = memoryview(message.get("body", b"")), message.get("more_body", False)
            self._came += len(self._waiting)
            if self._most is not None and self._came > self._most + OVERHEAD_BYTES:
                self._has_ended = True
                raise PayloadTooLarge(f"the compressed body is longer than {self._most} bytes")
        try:
            piece = self._decompress()
        except MalformedInput:
            self._has_ended = True
            raise
        self._has_ended = self._stream.eof and not self._waiting and not self._is_coming
        return {"type": "http.request", "body": piece, "more_body": not self._has_ended}

    async def _next(self) -> Message:
        """The next message of the server. A cancelled call loses none."""
        if self._ahead is None:
            self._ahead = asyncio.ensure_future(self._receive())
        await asyncio.wait([self._ahead])
        message, self._ahead = self._ahead.result(), None
        return message

    def _decompress(self) -> bytes:
        """Decompress the next piece. Raises: MalformedInput, PayloadTooLarge."""
        if not (self._waiting or self._is_full or self._is_coming or self._stream.eof):
            raise self._wrong("not complete")
        if self._stream.eof and self._waiting:
            if self._coding == "deflate":
                raise MalformedInput("the body has data after the end of its deflate stream")
            self._stream, self._is_first = zlib.decompressobj(WINDOW_BITS[self._coding]), False
        size = OUT_BYTES if self._most is None else min(OUT_BYTES, self._most + 1 - self._made)
        if size <= 0:  # 0 means no limit to zlib
            raise PayloadTooLarge(f"the body is longer than {self._most} bytes")
        given = self._waiting[:IN_BYTES]
        try:
            piece = self._stream.decompress(given, size)
        except zlib.error:
            raise self._wrong("not valid") from None
        left = self._stream.unused_data if self._stream.eof else self._stream.unconsumed_tail
        self._waiting = self._waiting[len(given) - len(left) :]
        self._is_full = len(piece) == size and not self._stream.eof
        self._made += len(piece)
        return piece

    def _wrong(self, how: str) -> MalformedInput:
        """An error in the compressed data."""
        what = "the body" if self._is_first else "the data after the first gzip member"
        return MalformedInput(f"{what} is {how} {FORMATS[self._coding]}")
