"""Loading and unloading models by request (Triton's model repository extension), if `model_control` is set.

Models are loaded from the exports folder: a request can contain neither files nor a configuration.
"""

import functools
from typing import Annotated, Any

from fastapi import Depends
from pydantic import BaseModel, ConfigDict
from starlette.responses import Response

from artifact.errors import InvalidInput
from service.compat.oip.errors import DIALECT, TAG
from service.errors import ControlRefused
from service.runtime import Runtime
from service.wire.dependencies import Context, ModelPath
from service.wire.media import JSON
from service.wire.openapi import request_body
from service.wire.parsing import parse_json
from service.wire.requests import check_content_encoding, parse_body, read_body
from service.wire.responses import json_response

router = DIALECT.router(TAG)


class ControlRequest(BaseModel):
    """Body of the request, which is optional."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    parameters: dict[str, Any] = {}
    """Triton's `unload_dependents` is ignored, because no model depends on another one."""


class ControlResponse(BaseModel):
    """Versions of the model that are served now."""

    name: str
    versions: list[str]


async def get_controlled_name(context: Context, name: ModelPath) -> str:
    """Name of the model in a valid request. Raises: ControlRefused, InvalidInput, and what reading a body raises."""
    if not context.runtime.settings.model_control:
        raise ControlRefused("loading and unloading by request is disabled; the setting model_control enables it")
    check_content_encoding(context)  # no check of the media type: clients send none or any
    body = await read_body(context)
    asked = await parse_body(context, functools.partial(parse_json, ControlRequest), body or b"{}")
    if any(key == "config" or key.startswith("file:") for key in asked.parameters):
        raise InvalidInput.at(
            "parameters", "`config` and `file:` parameters are not supported; models are loaded from the exports folder"
        )
    return name


ControlledName = Annotated[str, Depends(get_controlled_name)]
BODY = request_body({JSON: ControlRequest}, is_required=False)


@router.post(
    "/v2/repository/models/{name}/load",
    name="oip_load",
    response_model=ControlResponse,
    responses=DIALECT.responses(),
    openapi_extra=BODY,
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
    openapi_extra=BODY,
)
async def post_unload(context: Context, name: ControlledName) -> Response:
    """Unload a model until it is loaded again; responds when its requests in flight have finished."""
    await context.runtime.reloader.unload(name, context.deadline)
    return _served(context.runtime, name)


def _served(runtime: Runtime, name: str) -> Response:
    """Respond with the versions of a model that are served now."""
    versions = sorted(model.manifest.version for model in runtime.models.versions(name))
    return json_response({"name": name, "versions": [str(version) for version in versions]})
