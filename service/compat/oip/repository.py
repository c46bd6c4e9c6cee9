"""The index of Triton's model repository extension: versions in the exports folder, and which of them are served."""

import functools
from typing import Literal

from pydantic import BaseModel, ConfigDict
from starlette.responses import Response

from service.compat.oip.errors import DIALECT, TAG
from service.compat.oip.metadata import ResponseModel
from service.engine.reload import VersionState
from service.runtime import Runtime
from service.wire.dependencies import Context
from service.wire.media import JSON
from service.wire.openapi import request_body
from service.wire.parsing import parse_json
from service.wire.requests import check_content_encoding, parse_body, read_body
from service.wire.responses import json_response

router = DIALECT.router(TAG)


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


@router.post(
    "/v2/repository/index",
    name="oip_index",
    response_model=list[ModelIndex],
    responses=DIALECT.responses(400, 401, 413, 415, 422, 429, 503, 504),
    openapi_extra=request_body({JSON: IndexRequest}, {JSON: {"ready": True}}, is_required=False),
)
async def post_index(context: Context) -> Response:
    """List all versions in the exports folder or served, with their states."""
    check_content_encoding(context)  # no check of the media type: clients send none or any
    body = await read_body(context)
    parse = functools.partial(parse_json, IndexRequest)
    asked = await parse_body(context, parse, body) if body else IndexRequest()
    entries = [_entry(context.runtime, found) for found in await context.runtime.reloader.index(context.deadline)]
    return json_response([entry.model_dump() for entry in entries if entry.state == "READY" or not asked.ready])


def _entry(runtime: Runtime, found: VersionState) -> ModelIndex:
    """Entry of a version; while the server drains, no version is ready."""
    state, reason = found.state, found.reason
    if state == "READY" and runtime.engine.is_draining:
        state, reason = "UNAVAILABLE", "the server is about to stop"
    return ModelIndex(name=found.name, version=str(found.version or ""), state=state, reason=reason)
