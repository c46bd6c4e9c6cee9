"""The body of a request, counted while it comes and as long as it is held."""

from starlette.datastructures import Headers
from starlette.types import Message, Receive

from service.errors import Overloaded, PayloadTooLarge


class HeldBodies:
    """Bytes held for requests that have not ended, all together.

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
        is_whole: whether the body is read as a whole, and every byte that has come counts. A body of lines may be of
            any length; its route says what it holds.

    """

    def __init__(self, bodies: HeldBodies, headers: Headers, receive: Receive, *, is_whole: bool) -> None:
        self.bodies = bodies
        self._receive = receive
        self._is_whole = is_whole
        limit = bodies.max_body_bytes
        declared = headers.get("content-length", "").lstrip("0")
        is_number = declared.isascii() and declared.isdigit()
        self._is_over = is_number and (len(declared) > len(str(limit)) or int(declared) > limit)
        self._held = 0

    async def __call__(self) -> Message:
        """The next message. Raises: PayloadTooLarge; Overloaded if all bodies together are too much."""
        if not self._is_whole:
            return await self._receive()
        if not self._is_over:
            message = await self._receive()
            self.hold(self._held + len(message.get("body", b"")))
            self._is_over = self._held > self.bodies.max_body_bytes
        if self._is_over:
            raise PayloadTooLarge(f"the body is longer than {self.bodies.max_body_bytes} bytes")
        self.check()
        return message

    def hold(self, size: int) -> None:
        """Say how many bytes are held for the request from now on."""
        self.bodies.held += size - self._held
        self._held = size

    @property
    def is_too_much(self) -> bool:
        """Whether all requests hold more than is allowed, and others than this one have a part in it."""
        return self._held < self.bodies.held > self.bodies.max_held_bytes

    def check(self) -> None:
        """Refuse to hold more. Raises: Overloaded."""
        if self.is_too_much:
            held, most = self.bodies.held, self.bodies.max_held_bytes
            raise Overloaded(f"{held} bytes of requests are held already; at most {most}")

    def release(self) -> None:
        """Its request has ended."""
        self.hold(0)
