"""Sends requests to the application in this process, so that calls have the limits, metrics and errors of HTTP."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass

from starlette.types import ASGIApp, Message, Scope


@dataclass(frozen=True)
class Answer:
    """The response to a request."""

    status: int
    headers: Mapping[str, str]
    body: bytes


async def ask(app: ASGIApp, method: str, path: str, headers: Mapping[str, str], body: bytes = b"") -> Answer:
    """Send a request to the application and return its response.

    If this coroutine is cancelled, the application sees that the client has disconnected. The coroutine then ends when
    the application has ended.

    Args:
        app: the application.
        method: HTTP method.
        path: path, not percent-encoded.
        headers: lower-case name -> value.
        body: the body; it is released when the application has read it.

    Raises: exceptions of the application, which answers most of them.

    """
    scope: Scope = {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.4"},
        "http_version": "2",
        "method": method,
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "root_path": "",
        "headers": [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()],
        "client": None,
        "server": None,
        "state": {},
    }
    unread, sent = [body], list[Message]()
    del body
    has_disconnected = asyncio.Event()

    async def receive() -> Message:
        if unread:
            return {"type": "http.request", "body": unread.pop(), "more_body": False}
        await has_disconnected.wait()
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:  # ASGI awaits it
        sent.append(message)

    answering = asyncio.ensure_future(app(scope, receive, send))
    try:
        await asyncio.shield(answering)
    except asyncio.CancelledError:
        has_disconnected.set()
        await answering
        raise
    start, *parts = sent
    found = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in start["headers"]}
    return Answer(start["status"], found, b"".join(part.get("body", b"") for part in parts))
