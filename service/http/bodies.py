"""Bodies of requests, counted while they come."""

from starlette.datastructures import Headers
from starlette.types import Message, Receive

from service.errors import Overloaded, PayloadTooLarge


class HeldBodies:
    """Bytes of the bodies whose requests have not ended, all together.

    Args:
        max_body_bytes: of one.
        max_held_bytes: of all.

    """

    def __init__(self, max_body_bytes: int, max_held_bytes: int) -> None:
        self.max_body_bytes = max_body_bytes
        self.max_held_bytes = max_held_bytes
        self.held = 0


class Body:
    """The body of one request as it comes. The first read raises when Content-Length alone is too much.

    Args:
        bodies: all that are held.
        headers: of the request.
        receive: of the server.
        is_bounded: false for lines: their route bounds each line, and reads no faster than it computes.

    """

    def __init__(self, bodies: HeldBodies, headers: Headers, receive: Receive, *, is_bounded: bool) -> None:
        self._bodies = bodies
        self._receive = receive
        self._is_bounded = is_bounded
        limit = bodies.max_body_bytes
        declared = headers.get("content-length", "").lstrip("0")
        is_number = declared.isascii() and declared.isdigit()
        self._is_over = is_number and (len(declared) > len(str(limit)) or int(declared) > limit)
        self._held = 0

    async def __call__(self) -> Message:
        """The next message. Raises: PayloadTooLarge; Overloaded if all bodies together are too much."""
        if not self._is_bounded:
            return await self._receive()
        bodies = self._bodies
        if not self._is_over:
            message = await self._receive()
            size = len(message.get("body", b""))
            self._held += size
            bodies.held += size
            self._is_over = self._held > bodies.max_body_bytes
        if self._is_over:
            raise PayloadTooLarge(f"the body is longer than {bodies.max_body_bytes} bytes")
        if bodies.held > bodies.max_held_bytes and self._held < bodies.held:
            raise Overloaded(f"{bodies.held} bytes of requests are held already; at most {bodies.max_held_bytes}")
        return message

    def release(self) -> None:
        """Its request has ended."""
        self._bodies.held -= self._held
        self._held = 0
