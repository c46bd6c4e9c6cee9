"""The index of Triton's model repository extension: versions in the exports folder, and which of them are served."""

import functools
from typing import Literal

from pydantic import BaseModel, ConfigDict
from starlette.responses import Response

from service.compat.oip.errors import DIALECT
from service.compat.oip.metadata import ResponseModel
from service.engine.reload import VersionState
from service.wire.call import Call
from service.wire.media import JSON
from service.wire.requests import check_content_encoding, parse_body, parse_json, read_body
from service.wire.responses import json_response
from service.wire.route import TIMEOUT_HEADERS, Route


class IndexRequest(BaseModel):
    """Body of the request, which is optional."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    ready: bool = False
    """Whether to return only models that are ready."""


class ModelIndex(ResponseModel):
    """One version of a model."""

    name: str
    version: str
    """Empty if the model's folder cannot be listed."""
    state: Literal["READY", "UNAVAILABLE"]
    reason: str
    """Why the version is not ready; else empty."""


async def post_index(call: Call) -> Response:
    """List all versions in the exports folder or served, with their states."""
    check_content_encoding(call)  # no check of the media type: clients send none or any
    body = await read_body(call)
    parse = functools.partial(parse_json, IndexRequest)
    asked = await parse_body(call, parse, body) if body else IndexRequest()
    entries = [_entry(call, found) for found in await call.reloader.index(call.deadline)]
    return json_response([entry.model_dump() for entry in entries if entry.state == "READY" or not asked.ready])


def _entry(call: Call, found: VersionState) -> ModelIndex:
    """Entry of a version; while the server drains, no version is ready."""
    state, reason = found.state, found.reason
    if state == "READY" and call.engine.is_draining:
        state, reason = "UNAVAILABLE", "the server is about to stop"
    return ModelIndex(name=found.name, version=str(found.version or ""), state=state, reason=reason)


ROUTES = (
    Route(
        method="POST",
        path="/v2/repository/index",
        handler=post_index,
        dialect=DIALECT,
        bodies={JSON: IndexRequest},
        needs_body=False,
        parameters=TIMEOUT_HEADERS,
        answers={JSON: list[ModelIndex]},
        statuses=(400, 401, 413, 415, 422, 429, 503, 504),
        examples={JSON: {"ready": True}},
    ),
)
