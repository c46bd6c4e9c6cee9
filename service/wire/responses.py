"""Values -> bodies."""

from typing import Any

import orjson
from starlette.responses import Response

from service.wire.media import JSON


def json_response(content: Any, status: int = 200, media_type: str = JSON) -> Response:
    """An answer as JSON."""
    return Response(orjson.dumps(content), status, media_type=media_type)
