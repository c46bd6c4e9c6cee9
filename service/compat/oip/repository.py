"""Triton's model repository extension: the index of versions, and loading and unloading if `model_control` is set.

Models are loaded from the exports folder: a request can contain neither files nor a configuration.
"""

import functools
from typing import Annotated, Any, Literal, TypeVar

from fastapi import Depends
from pydantic import BaseModel, ConfigDict
from starlette.responses import Response

from artifact.errors import InvalidInput
from service.compat.oip.errors import DIALECT, TAG
from service.compat.oip.metadata import ResponseModel
from service.errors import ControlRefused
from service.runtime import Runtime
from service.wire.dependencies import Context, ModelPath
from service.wire.media import JSON
from service.wire.openapi import request_body
from service.wire.parsing import parse_json
from service.wire.requests import check_content_encoding, parse_body, read_body
from service.wire.responses import json_response

router = DIALECT.router(TAG)


class OptionalBody(BaseModel):
    """Body of a request, which may be empty; unknown fields are ignored."""

    model_config = ConfigDict(extra="ignore", frozen=True)


class IndexRequest(OptionalBody):
    """Body of a request for the index."""

    ready: bool = False
    """Whether to return only models that are ready."""


class ControlRequest(OptionalBody):
    """Body of a request to load or unload a model."""

    parameters: dict[str, Any] = {}
    """Triton's `unload_dependents` is ignored, because no model depends on another one."""


class ModelIndex(ResponseModel):
    """One version of a model."""

    name: str
    version: str
    """Empty if the model's folder cannot be listed."""
    state: Literal["READY", "UNAVAILABLE"]
    reason: str
    """Why the version is not ready; else empty."""


class ControlResponse(ResponseModel):
    """Versions of the model that are served now."""

    name: str
    versions: list[str]


B = TypeVar("B", bound=OptionalBody)


async def _read(context: Context, kind: type[B]) -> B:
    """Read and validate a body. Raises: what reading and parsing a body raises."""
    check_content_encoding(context)  # no check of the media type: clients send none or any
    return await parse_body(context, functools.partial(parse_json, kind), await read_body(context) or b"{}")


@router.post(
    "/v2/repository/index",
    name="oip_index",
    response_model=list[ModelIndex],
    responses=DIALECT.responses(400, 401, 413, 415, 422, 429, 503, 504),
    openapi_extra=request_body({JSON: IndexRequest}, {JSON: {"ready": True}}, is_required=False),
)
async def post_index(context: Context) -> Response:
    """List all versions in the exports folder or served, with their states."""
    asked = await _read(context, IndexRequest)
    entries = []
    for name, version, why in await context.runtime.reloader.index(context.deadline):
        reason = why or ("the server is about to stop" if context.runtime.engine.is_draining else "")
        state: Literal["READY", "UNAVAILABLE"] = "UNAVAILABLE" if reason else "READY"
        entries.append(ModelIndex(name=name, version=str(version or ""), state=state, reason=reason))
    return json_response([entry.model_dump() for entry in entries if entry.state == "READY" or not asked.ready])


async def get_controlled_name(context: Context, name: ModelPath) -> str:
    """Name of the model in a valid request. Raises: ControlRefused, InvalidInput, and what reading a body raises."""
    if not context.runtime.settings.model_control:
        raise ControlRefused("loading and unloading by request is disabled; the setting model_control enables it")
    asked = await _read(context, ControlRequest)
    if any(key == "config" or key.startswith("file:") for key in asked.parameters):
        raise InvalidInput.at(
            "parameters", "`config` and `file:` parameters are not supported; models are loaded from the exports folder"
        )
    return name


ControlledName = Annotated[str, Depends(get_controlled_name)]
CONTROL_BODY = request_body({JSON: ControlRequest}, is_required=False)


@router.post(
    "/v2/repository/models/{name}/load",
    name="oip_load",
    response_model=ControlResponse,
    responses=DIALECT.responses(),
    openapi_extra=CONTROL_BODY,
)
async def post_load(context: Context, name: ControlledName) -> Response:
    """Load the versions of a model that the version policy selects; responds when they are loaded."""
    await context.runtime.reloader.load(name, context.deadline)
    return _served(context.runtime, name)


@router.post(
    "/v2/repository/models/{name}/unload",
    name="oip_unload",
    response_model=ControlResponse,
    responses=DIALECT.responses(),
    openapi_extra=CONTROL_BODY,
)
async def post_unload(context: Context, name: ControlledName) -> Response:
    """Unload a model until it is loaded again; responds when its requests in flight have finished."""
    await context.runtime.reloader.unload(name, context.deadline)
    return _served(context.runtime, name)


def _served(runtime: Runtime, name: str) -> Response:
    """Respond with the versions of a model that are served now."""
    versions = sorted(model.manifest.version for model in runtime.models.versions(name))
    return json_response({"name": name, "versions": [str(version) for version in versions]})
