"""The FastAPI application around an engine. Created by `service.server`."""

from collections.abc import Awaitable, Callable

from fastapi import FastAPI
from fastapi.routing import APIRoute
from fastapi_offline import FastAPIOffline
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from artifact import __version__
from artifact.errors import LongdocError
from service.engine.engine import Engine
from service.http.application import Application
from service.metrics import Metrics
from service.openapi import document_routes
from service.parser import Parser
from service.settings import Settings
from service.table import TABLE
from service.wire.errors import failure
from service.wire.route import Route, Table


def create_app(
    engine: Engine, parser: Parser, settings: Settings, metrics: Metrics, table: Table = TABLE
) -> Application:
    """Put the routes and what surrounds them together."""
    api = create_api(settings, table)
    return Application(api, table, engine=engine, parser=parser, settings=settings, metrics=metrics)


def create_api(settings: Settings, table: Table = TABLE) -> FastAPI:
    """Routes, their documentation and errors; the pages of `/docs` need no internet."""
    api: FastAPI = FastAPIOffline(
        title="longdoc-serve",
        version=__version__,
        description="Labels and pair scores of long documents, from their raw bytes; forecasts of multivariate series.",
        redirect_slashes=False,
    )
    for page in api.routes:
        if isinstance(page, APIRoute) and page.methods is not None:  # Starlette's own routes answer HEAD
            page.methods.add("HEAD")
    for route in table.routes:
        endpoint = _endpoint(route)
        api.add_api_route(
            route.path, endpoint, methods=[route.method], response_class=Response, include_in_schema=route.is_documented
        )
        if route.answers_head:
            api.add_api_route(route.path, endpoint, methods=["HEAD"], include_in_schema=False)

    def answer(request: Request, error: Exception) -> Response:
        path = request.scope["path"]
        failed = failure(error, path)
        if failed.status == 405:  # the router names the methods of the last route it tried; GET and HEAD are two
            failed.headers["Allow"] = ", ".join(table.methods(path) or ["GET", "HEAD"])
        return table.dialect(path).answer(failed)

    for kind in (LongdocError, HTTPException, Exception):
        api.add_exception_handler(kind, answer)
    document_routes(api, table, has_keys=bool(settings.api_keys))
    return api


def _endpoint(route: Route) -> Callable[[Request], Awaitable[Response]]:
    """What FastAPI calls for a route, under the name and with the description of its handler."""

    async def endpoint(request: Request) -> Response:
        return await route.handler(request.scope["call"])

    endpoint.__name__, endpoint.__doc__ = route.handler.__name__, route.handler.__doc__
    return endpoint
