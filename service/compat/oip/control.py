"""Loading and unloading models by request (Triton's model repository extension), if `model_control` is set.

Models are loaded from the exports folder: a request can contain neither files nor a configuration.
"""

import functools
from typing import Any

from pydantic import BaseModel, ConfigDict
from starlette.responses import Response

from artifact.errors import InvalidInput
from service.compat.oip.errors import DIALECT
from service.errors import ControlRefused
from service.wire.call import Call
from service.wire.media import JSON
from service.wire.requests import check_content_encoding, parse_body, parse_json, read_body
from service.wire.responses import json_response
from service.wire.route import TIMEOUT_HEADERS, Route


class ControlRequest(BaseModel):
    """Body of the request, which is optional."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    parameters: dict[str, Any] = {}
    """Triton's `unload_dependents` is ignored, because no model depends on another one."""


class ControlResponse(BaseModel):
    """Versions of the model that are served now."""

    name: str
    versions: list[str]


async def post_load(call: Call) -> Response:
    """Load the versions of a model that the version policy selects; responds when they are loaded."""
    name = await _name(call)
    await call.reloader.load(name, call.deadline)
    return _served(call, name)


async def post_unload(call: Call) -> Response:
    """Unload a model until it is loaded again; responds when its requests in flight have finished."""
    name = await _name(call)
    await call.reloader.unload(name, call.deadline)
    return _served(call, name)


async def _name(call: Call) -> str:
    """Name of the model in a valid request. Raises: ControlRefused, InvalidInput, and what reading a body raises."""
    if not call.settings.model_control:
        raise ControlRefused("loading and unloading by request is disabled; the setting model_control enables it")
    check_content_encoding(call)  # no check of the media type: clients send none or any
    body = await read_body(call)
    asked = await parse_body(call, functools.partial(parse_json, ControlRequest), body or b"{}")
    if any(key == "config" or key.startswith("file:") for key in asked.parameters):
        raise InvalidInput.at(
            "parameters", "`config` and `file:` parameters are not supported; models are loaded from the exports folder"
        )
    return call.path_params["name"]


def _served(call: Call, name: str) -> Response:
    """Respond with the versions of a model that are served now."""
    versions = sorted(model.manifest.version for model in call.models.versions(name))
    return json_response({"name": name, "versions": [str(version) for version in versions]})


ROUTES = tuple(
    Route(
        method="POST",
        path=f"/v2/repository/models/{{name}}/{action}",
        handler=handler,
        dialect=DIALECT,
        bodies={JSON: ControlRequest},
        needs_body=False,
        answers={JSON: ControlResponse},
        parameters=TIMEOUT_HEADERS,
    )
    for action, handler in (("load", post_load), ("unload", post_unload))
)
