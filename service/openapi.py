"""The OpenAPI document: made of the route table, every type of a body under its name."""

import http
import re
from collections.abc import Mapping
from typing import Any, Literal

from fastapi import FastAPI
from fastapi.encoders import jsonable_encoder
from pydantic import TypeAdapter

from service.wire.media import NDJSON
from service.wire.route import Lines, Route, Table

Mode = Literal["validation", "serialization"]
EXAMPLES = {"name": "imdb-s3", "version": "3"}
"""Of the variable parts of paths."""
PLACE = "#/components/schemas/{model}"
SECURITY = {
    "bearer": {"type": "http", "scheme": "bearer"},
    "header": {"type": "apiKey", "in": "header", "name": "X-API-Key"},
}


def document_routes(app: FastAPI, table: Table, *, has_keys: bool) -> None:
    """Complete the document of an application.

    Args:
        app: with the table's routes, of which it knows paths, names and descriptions.
        table: all routes.
        has_keys: whether to say how keys are sent, and which paths need none.

    """
    routes = [route for route in table.routes if route.is_documented]
    schemas = _Schemas(routes)
    document = app.openapi()
    document["components"] = {"schemas": schemas.definitions}
    for route in routes:
        operation = jsonable_encoder(_operation(route, schemas), exclude_none=True)
        document["paths"][route.path][route.method.lower()].update(operation)
    document["tags"] = [{"name": tag} for tag in dict.fromkeys(route.tag for route in routes if route.tag)]
    if has_keys:
        document["components"]["securitySchemes"] = SECURITY
        document["security"] = [{scheme: []} for scheme in SECURITY]
        for route in routes:
            if not route.needs_key:
                document["paths"][route.path][route.method.lower()]["security"] = []


class _Schemas:
    """JSON schemas of the bodies that routes name."""

    def __init__(self, routes: list[Route]) -> None:
        named: dict[tuple[Any, Mode], TypeAdapter[Any]] = {}
        for route in routes:
            for body in route.bodies.values():
                self._name(named, body, "validation")
            for body in (*route.answers.values(), route.dialect.schema):
                self._name(named, body, "serialization")
        wanted = [(body, mode, adapter) for (body, mode), adapter in named.items()]
        self._schemas, common = TypeAdapter.json_schemas(wanted, ref_template=PLACE)
        self.definitions: dict[str, Any] = jsonable_encoder(common["$defs"], exclude_none=True)

    def _name(self, named: dict[tuple[Any, Mode], TypeAdapter[Any]], body: Any, mode: Mode) -> None:
        if not isinstance(body, Mapping):
            named[body, mode] = TypeAdapter(body.of if isinstance(body, Lines) else body)

    def of(self, body: Any, mode: Mode) -> Mapping[str, Any]:
        """Schema of a body; a type that has a name is a reference to it."""
        if isinstance(body, Mapping):
            return body
        schema = self._schemas[body, mode]
        if isinstance(body, Lines):
            return {"type": "string", "contentMediaType": NDJSON, "contentSchema": schema}
        return schema

    def content(self, bodies: Mapping[str, Any], mode: Mode) -> dict[str, Any]:
        """OpenAPI of bodies by media type."""
        return {media_type: {"schema": self.of(body, mode)} for media_type, body in bodies.items()}


def _operation(route: Route, schemas: _Schemas) -> dict[str, Any]:
    """What a route takes and gives."""
    operation: dict[str, Any] = {"responses": {"200": {"description": "Successful Response"}}}
    if route.answers:
        operation["responses"]["200"]["content"] = schemas.content(route.answers, "serialization")
    for status in route.statuses:
        operation["responses"][str(status)] = error = {"description": http.HTTPStatus(status).phrase}
        if status not in route.dialect.without_body:
            content = schemas.content({route.dialect.media_type: route.dialect.schema}, "serialization")
            error.update(content=content)  # type: ignore[call-overload]  # the values differ in type
    in_path = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}, "example": EXAMPLES.get(name)}
        for name in re.findall(r"{(\w+)}", route.path)
    ]
    if parameters := [*in_path, *route.parameters]:
        operation["parameters"] = parameters
    if route.bodies:
        content = schemas.content(route.bodies, "validation")
        for media_type, example in route.examples.items():
            content[media_type]["example"] = example
        operation["requestBody"] = {"required": True, "content": content}
    if route.tag:
        operation["tags"] = [route.tag]
    return operation
