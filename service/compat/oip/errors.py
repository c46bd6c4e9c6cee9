"""Errors of the Open Inference Protocol: `{"error": "text"}`."""

from pydantic import BaseModel
from starlette.responses import Response

from service.wire.errors import Dialect, Failure
from service.wire.responses import json_response


class InferError(BaseModel):
    """Body of every error."""

    error: str


def _write_error(failed: Failure) -> Response:
    """Write an error in the protocol's format."""
    return json_response({"error": failed.detail}, failed.status)


DIALECT = Dialect(_write_error, InferError, prefix="/v2/")
TAG = "Open Inference Protocol (Triton, KServe v2)"
VERSION = {
    "parameters": [{"name": "version", "in": "path", "required": True, "schema": {"type": "string", "examples": ["9"]}}]
}
"""The variable `version` of a path, which `NamedModel` reads."""
