"""Response bodies."""

from typing import Any

import orjson
from starlette.responses import Response

from service.wire.media import JSON


def fragment(content: Any) -> orjson.Fragment:
    """A part of a response, serialized separately: one call for a large response would hold the GIL too long."""
    return orjson.Fragment(orjson.dumps(content))


def json_response(content: Any, status: int = 200, media_type: str = JSON) -> Response:
    """A JSON response."""
    return Response(orjson.dumps(content), status, media_type=media_type)
