"""Errors of the Open Inference Protocol: `{"error": "text"}`."""

from typing import Any

from fastapi import Response
from pydantic import BaseModel

from service.wire.errors import DOCUMENTED, Failure
from service.wire.requests import JSON
from service.wire.responses import json_response
from service.wire.schemas import self_contained


class Error(BaseModel):
    """Body of every error."""

    error: str


def error_body(failed: Failure) -> Response:
    """The protocol's body for a failure."""
    return json_response({"error": failed.detail}, failed.status)


ERRORS: dict[int | str, dict[str, Any]] = {
    status: {**native, "content": {JSON: {"schema": self_contained(Error)}}} for status, native in DOCUMENTED.items()
}
