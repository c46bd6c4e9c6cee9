"""Errors of text-embeddings-inference: `{"error": "text", "error_type": "Validation"}`."""

from typing import Literal

from pydantic import BaseModel
from starlette.responses import Response

from service.wire.errors import Dialect, Failure
from service.wire.responses import json_response

ERROR_TYPES = {429: "Overloaded", 503: "Unhealthy", 500: "Backend", 504: "Backend"}
"""`error_type` by status; `Validation` for any other."""


class TEIError(BaseModel):
    """Body of every error, except 401, which has none."""

    error: str
    error_type: Literal["Validation", "Overloaded", "Unhealthy", "Backend"]


def _write_error(failed: Failure) -> Response:
    """Write an error in TEI's format."""
    if failed.status == 401:
        return Response(status_code=401)
    error_type = ERROR_TYPES.get(failed.status, "Validation")
    return json_response({"error": failed.detail, "error_type": error_type}, failed.status)


DIALECT = Dialect(_write_error, TEIError, without_body=frozenset({401}))
