"""Response bodies."""

from typing import Any

import orjson
from starlette.responses import Response

from service.wire.media import JSON


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
