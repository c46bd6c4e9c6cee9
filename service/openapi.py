"""Generates the OpenAPI document from the route table, and serves it with FastAPI's documentation pages.

Only `service.app` imports this module, when the first page is requested.
"""

import http
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

from fastapi import FastAPI
from fastapi.encoders import jsonable_encoder
from fastapi.routing import APIRoute
from fastapi_offline import FastAPIOffline
from pydantic import TypeAdapter
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from artifact import __version__
from service.settings import Settings
from service.wire.call import path_of
from service.wire.errors import failure
from service.wire.media import NDJSON
from service.wire.route import VARIABLE, Lines, Route, Table

Mode = Literal["validation", "serialization"]
EXAMPLES = {"name": "imdb-s3", "version": "7"}
"""Example values of variables in paths."""
REF_TEMPLATE = "#/components/schemas/{model}"
SECURITY = {
    "bearer": {"type": "http", "scheme": "bearer"},
    "header": {"type": "apiKey", "in": "header", "name": "X-API-Key"},
}


def create_api(settings: Settings, table: Table) -> FastAPI:
    """Create the FastAPI application: the documentation pages, with all routes. `/docs` works offline."""
    api: FastAPI = FastAPIOffline(
        title="longdoc-serve",
        version=__version__,
        description="Labels and pair scores of long documents, from their raw bytes; forecasts of multivariate series.",
        redirect_slashes=False,
    )
    for page in api.routes:
        if isinstance(page, APIRoute) and page.methods is not None:  # Starlette's own routes allow HEAD already
            page.methods.add("HEAD")
    for route in table.routes:
        api.add_api_route(
            route.path,
            _endpoint(route),
            methods=[route.method],
            response_class=Response,
        )

    def write_error(request: Request, error: Exception) -> Response:
        path = path_of(request.scope)
        failed = failure(error, path)
        if failed.status == 405:
            failed.headers["Allow"] = "GET, HEAD"
        return table.dialect(path).answer(failed)

    for kind in (HTTPException, Exception):
        api.add_exception_handler(kind, write_error)
    _document_routes(api, table, has_keys=bool(settings.api_keys))
    return api


def _endpoint(route: Route) -> Callable[[], None]:
    """An endpoint with the name and docstring of a route's handler.

    It only documents the route: `Application` calls the handler itself, and FastAPI gets requests for pages only.
    """

    def endpoint() -> None:
        raise RuntimeError(f"{route.path}: the application handles this route, not FastAPI")

    endpoint.__name__, endpoint.__doc__ = route.handler.__name__, route.handler.__doc__
    return endpoint


def _document_routes(app: FastAPI, table: Table, *, has_keys: bool) -> None:
    """Complete the OpenAPI document of an application.

    Args:
        app: has the table's routes, with their paths, names and descriptions.
        table: all routes.
        has_keys: whether requests need an API key; the document then describes the headers.

    """
    routes, schemas = table.routes, _Schemas(table.routes)
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
    """JSON schemas of all bodies in the routes."""

    def __init__(self, routes: Sequence[Route]) -> None:
        adapters: dict[tuple[Any, Mode], TypeAdapter[Any]] = {}
        for route in routes:
            for body in route.bodies.values():
                self._add(adapters, body, "validation")
            for body in (*route.answers.values(), route.dialect.schema):
                self._add(adapters, body, "serialization")
        inputs = [(body, mode, adapter) for (body, mode), adapter in adapters.items()]
        self._schemas, common = TypeAdapter.json_schemas(inputs, ref_template=REF_TEMPLATE)
        self.definitions: dict[str, Any] = jsonable_encoder(common["$defs"], exclude_none=True)

    def _add(self, adapters: dict[tuple[Any, Mode], TypeAdapter[Any]], body: Any, mode: Mode) -> None:
        """Add the adapter of a type; a body that is a JSON schema needs none."""
        if not isinstance(body, Mapping):
            adapters[body, mode] = TypeAdapter(body.of if isinstance(body, Lines) else body)

    def of(self, body: Any, mode: Mode) -> Mapping[str, Any]:
        """Schema of a body; a reference for a named type."""
        if isinstance(body, Mapping):
            return body
        schema = self._schemas[body, mode]
        if isinstance(body, Lines):
            return {"type": "string", "contentMediaType": NDJSON, "contentSchema": schema}
        return schema

    def content(self, bodies: Mapping[str, Any], mode: Mode) -> dict[str, Any]:
        """OpenAPI `content` of bodies by media type."""
        return {media_type: {"schema": self.of(body, mode)} for media_type, body in bodies.items()}


def _operation(route: Route, schemas: _Schemas) -> dict[str, Any]:
    """OpenAPI operation of a route."""
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
        for name in VARIABLE.findall(route.path)
    ]
    if parameters := [*in_path, *route.parameters]:
        operation["parameters"] = parameters
    if route.bodies:
        content = schemas.content(route.bodies, "validation")
        for media_type, example in route.examples.items():
            content[media_type]["example"] = example
        operation["requestBody"] = {"required": route.needs_body, "content": content}
    if route.tag:
        operation["tags"] = [route.tag]
    return operation
