"""Parts of the OpenAPI document that FastAPI does not derive: bodies that path operations read themselves.

FastAPI documents a body only if it reads it, before all dependencies. The path operations read bodies later, and
describe them with `request_body` in `openapi_extra`.
"""

import copy
import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import BaseModel, TypeAdapter

from service.settings import Settings
from service.wire.media import JSON, NDJSON
from service.wire.schemas import LIMIT

Mode = Literal["validation", "serialization"]
BINARY_SCHEMA = {"type": "string", "format": "binary"}
DEFINITIONS = "$defs"
PARAMETERS: Sequence[Mapping[str, Any]] = (
    {
        "name": "X-Request-Timeout-Ms",
        "in": "header",
        "schema": {"type": "integer", "minimum": 1, "maximum": 999_999_999},
        "description": "Deadline of the request in milliseconds; the server's deadline applies if it is earlier.",
    },
    {
        "name": "X-Request-Id",
        "in": "header",
        "schema": {"type": "string"},
        "description": "Returned with the response and written to the log if it is 1 to 128 visible ASCII characters.",
    },
)
"""Headers of requests with a body. Declared as arguments, FastAPI would validate each of them for each request."""
BEARER = "bearer"
KEY_SCHEMES: Mapping[str, Any] = {
    BEARER: {"type": "http", "scheme": "bearer"},
    "header": {"type": "apiKey", "in": "header", "name": "X-API-Key"},
}
"""How a client can send its API key; operations that need one have BEARER."""
FASTAPI_ERRORS = ("HTTPValidationError", "ValidationError")


@dataclass(frozen=True)
class Lines:
    """An NDJSON body: one JSON value per line."""

    of: Any
    """Type of the value."""


def schema_of(body: Any, mode: Mode = "validation") -> dict[str, Any]:
    """Schema of a type, of Lines, or of a JSON schema; named types are in its `$defs`, for `complete`."""
    if isinstance(body, Mapping):
        return dict(body)
    if isinstance(body, Lines):
        return {"type": "string", "contentMediaType": NDJSON, "contentSchema": schema_of(body.of, mode)}
    return copy.deepcopy(_schema_of_type(body, mode))


@functools.cache
def _schema_of_type(body: Any, mode: Mode) -> dict[str, Any]:
    """Schema of a type. Many responses have the same one."""
    inputs = [("body", mode, TypeAdapter(body))]
    schemas, common = TypeAdapter.json_schemas(inputs, ref_template="#/components/schemas/{model}")
    return {**schemas["body", mode], **common}


def contents(bodies: Mapping[str, Any], mode: Mode = "validation") -> dict[str, dict[str, Any]]:
    """OpenAPI's `content` of bodies by media type; arguments as in `schema_of`."""
    return {media_type: {"schema": schema_of(body, mode)} for media_type, body in bodies.items()}


def request_body(
    bodies: Mapping[str, Any],
    examples: Mapping[str, Any] | None = None,
    parameters: Sequence[Mapping[str, Any]] = (),
    *,
    is_required: bool = True,
) -> dict[str, Any]:
    """The argument `openapi_extra` of a path operation that reads its body itself.

    Args:
        bodies: type of the body by media type, as in `schema_of`.
        examples: an example by media type; the models in `exports/` answer them with 200.
        parameters: further parameters than PARAMETERS, in the format of OpenAPI.
        is_required: whether there must be a body.

    """
    content = contents(bodies)
    for media_type, example in (examples or {}).items():
        content[media_type]["example"] = example
    body = {"required": is_required, "content": content}
    return {"requestBody": body, "parameters": [*parameters, *PARAMETERS]}


def query_parameters(options: type[BaseModel]) -> list[dict[str, Any]]:
    """Parameters of the query string: options, which a JSON body may have, too.

    Without defaults: Swagger UI and generated clients would send them with every request.
    """
    properties = options.model_json_schema()["properties"]
    for schema in properties.values():
        schema.pop("default", None)
    return [{"name": name, "in": "query", "schema": properties[name]} for name in sorted(properties)]


def json_body(schema: Any, example: Any) -> dict[str, Any]:
    """The same for a body of JSON."""
    return request_body({JSON: schema}, {JSON: example})


def complete(document: dict[str, Any], settings: Settings) -> None:
    """Move all `$defs` of a document to its components, and write the limits of the settings into schemas.

    Also remove FastAPI's 422 of every operation with parameters: routes declare errors themselves, in their format. And
    name all KEY_SCHEMES if there are keys, else none.
    """
    schemes = KEY_SCHEMES if settings.api_keys else {}
    for operation in (operation for item in document["paths"].values() for operation in item.values()):
        if "HTTPValidationError" in str(operation["responses"].get("422")):
            del operation["responses"]["422"]
        if {BEARER: []} in (needed := operation.pop("security", [])):
            needed.remove({BEARER: []})
            needed += [{name: []} for name in schemes]
        if needed:
            operation["security"] = needed
    found: dict[str, Any] = {}
    _complete(document, found, settings)
    components = document.setdefault("components", {})
    others = {name: scheme for name, scheme in components.pop("securitySchemes", {}).items() if name != BEARER}
    if schemes or others:
        components["securitySchemes"] = {**schemes, **others}
    schemas = {**found, **components.get("schemas", {})}
    components["schemas"] = {name: schemas[name] for name in sorted(schemas) if name not in FASTAPI_ERRORS}


def _complete(part: Any, found: dict[str, Any], settings: Settings) -> None:
    """Complete a part of a document."""
    if isinstance(part, dict):
        for name, schema in part.pop(DEFINITIONS, {}).items():
            _complete(schema, found, settings)
            found[name] = schema
        if (limit := part.pop(LIMIT, None)) is not None:
            part["maxItems"] = getattr(settings, limit)
        for value in part.values():
            _complete(value, found, settings)
    elif isinstance(part, list):
        for value in part:
            _complete(value, found, settings)
