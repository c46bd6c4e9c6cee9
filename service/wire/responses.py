"""Responses."""

import re
from collections.abc import Mapping
from typing import Any

import orjson
from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import Receive, Scope, Send
from typing_extensions import override

from service.sharing import Content
from service.wire.media import JSON

GZIP = re.compile(r"(?:^|,)\s*(gzip|\*)\s*((?:;[^,]*)?)(?=,|$)")
"""In `Accept-Encoding`, gzip or any coding, with its parameters."""
NO_QUALITY = re.compile(r";\s*q\s*=\s*0(?:\.0*)?\s*(?:;|$)")
"""Parameter of a content coding that a client does not accept."""


def fragment(content: Any) -> orjson.Fragment:
    """A part of a response, serialized separately: one call for a large response would hold the GIL too long."""
    return orjson.Fragment(orjson.dumps(content))


class JsonResponse(Response):
    """A complete response. Writing its headers takes a fraction of the time that Starlette's response takes."""

    def __init__(self, body: bytes, status: int, media_type: str) -> None:
        self.body = body
        self.status_code = status
        self.media_type = media_type
        self.background = None
        self.raw_headers = [(b"content-length", b"%d" % len(body)), (b"content-type", media_type.encode())]


def json_response(content: Any, status: int = 200, media_type: str = JSON) -> Response:
    """A JSON response."""
    return JsonResponse(orjson.dumps(content), status, media_type)


class SharedResponse(Response):
    """A response with 200 whose body is shared by all clients, and compressed for those that accept it.

    The next chunk is sent when the client has read most of those before. A client that does not read therefore holds
    none of the body's memory for itself, except that of a body of one chunk.

    Args:
        content: the body.
        media_type: media type, with its parameters.
        headers: further headers. If they have an ETag, a client that has this version gets 304.

    """

    def __init__(self, content: Content, media_type: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(headers={**(headers or {}), "content-type": media_type, "vary": "Accept-Encoding"})
        del self.headers["content-length"]  # depends on the client
        self._content = content

    @override
    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the response."""
        asked = Headers(scope=scope)
        fields = list(self.raw_headers)
        tag = self.headers.get("etag")
        if tag is not None and tag in [known.strip() for known in asked.get("if-none-match", "").split(",")]:
            await send({"type": "http.response.start", "status": 304, "headers": fields})
            await send({"type": "http.response.body"})
            return
        chunks = self._content.plain
        if accepts_gzip(", ".join(asked.getlist("accept-encoding"))):
            chunks = self._content.compressed
            fields.append((b"content-encoding", b"gzip"))
        fields.append((b"content-length", b"%d" % sum(map(len, chunks))))
        await send({"type": "http.response.start", "status": self.status_code, "headers": fields})
        if scope["method"] == "HEAD":
            chunks = [b""]
        for number, chunk in enumerate(chunks, 1):
            await send({"type": "http.response.body", "body": chunk, "more_body": number < len(chunks)})


def accepts_gzip(header: str) -> bool:
    """Whether a client with this `Accept-Encoding` accepts gzip (RFC 9110, 12.5.3)."""
    accepted = {coding: NO_QUALITY.search(parameters) is None for coding, parameters in GZIP.findall(header.lower())}
    return accepted.get("gzip", accepted.get("*", False))
