"""Generates the OpenAPI document from the route table, and serves it with FastAPI's documentation pages.

Only `service.app` imports this module, when the first page is requested.
"""

import base64
import hashlib
import http
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import fastapi_offline
import orjson
from fastapi import FastAPI
from fastapi.encoders import jsonable_encoder
from fastapi.openapi.docs import get_redoc_html, get_swagger_ui_html
from pydantic import TypeAdapter
from starlette import routing
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from artifact import __version__
from service.routes.page import DOCS_ASSETS, page_headers
from service.settings import Settings
from service.sharing import Content
from service.wire.call import path_of
from service.wire.errors import failure
from service.wire.files import Files
from service.wire.media import JSON, NDJSON
from service.wire.responses import SharedResponse
from service.wire.route import VARIABLE, Lines, Route, Table

Mode = Literal["validation", "serialization"]
TITLE = "longdoc-serve"
EXAMPLES = {"name": "imdb-s3", "version": "7"}
"""Example values of variables in paths."""
STATIC = Path(fastapi_offline.__file__).parent / "static"
"""Scripts and styles of the documentation pages."""
REF_TEMPLATE = "#/components/schemas/{model}"
SECURITY = {
    "bearer": {"type": "http", "scheme": "bearer"},
    "header": {"type": "apiKey", "in": "header", "name": "X-API-Key"},
}


def create_api(settings: Settings, table: Table) -> FastAPI:
    """Create the FastAPI application: the documentation pages, with all routes."""
    api = FastAPI(
        title=TITLE,
        version=__version__,
        description="Labels and pair scores of long documents, from their raw bytes; forecasts of multivariate series.",
        # Relative to the document, which proxies may serve below a path prefix.
        servers=[{"url": ".", "description": "this server"}],
        root_path_in_servers=False,
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
    )
    api.router.routes.append(routing.Route(f"{DOCS_ASSETS}{{name}}", Files(STATIC)))
    pages = _pages()
    for path in ("/openapi.json", *pages):
        api.add_api_route(path, _sender(pages, path), methods=["GET", "HEAD"], include_in_schema=False)
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
    pages["/openapi.json"] = SharedResponse(Content(orjson.dumps(api.openapi())), JSON)
    return api


def _pages() -> dict[str, Response]:
    """Swagger UI and ReDoc by path, as FastAPI writes them, with files of this server.

    All addresses in them are relative, so that they work behind a proxy that removes a path prefix.
    """
    files = DOCS_ASSETS.lstrip("/")
    swagger = get_swagger_ui_html(
        openapi_url="openapi.json",
        title=TITLE,
        swagger_js_url=f"{files}swagger-ui-bundle.js",
        swagger_css_url=f"{files}swagger-ui.css",
        swagger_favicon_url=f"{files}favicon.png",
    )
    redoc = get_redoc_html(
        openapi_url="openapi.json",
        title=TITLE,
        redoc_js_url=f"{files}redoc.standalone.js",
        redoc_favicon_url=f"{files}favicon.png",
        with_google_fonts=False,
    )
    scripts = re.findall(rb"<script>(.*?)</script>", bytes(swagger.body), re.DOTALL)
    hashes = [base64.b64encode(hashlib.sha256(script).digest()).decode() for script in scripts]
    swagger.headers.update(page_headers({"script-src": " ".join(["'self'", *(f"'sha256-{one}'" for one in hashes)])}))
    # ReDoc writes its styles into the page, and searches in a worker that it writes, too.
    redoc.headers.update(page_headers({"style-src": "'self' 'unsafe-inline'", "worker-src": "blob:"}))
    return {"/docs": swagger, "/redoc": redoc}


def _sender(pages: Mapping[str, Response], path: str) -> Callable[[], Awaitable[Response]]:
    """An endpoint that returns the same page to each client."""

    async def send() -> Response:
        return pages[path]

    return send


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
