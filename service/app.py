"""Creates the application for an engine. Used by `service.server`."""

from collections.abc import Callable

from fastapi import FastAPI
from fastapi.routing import APIRoute
from fastapi_offline import FastAPIOffline
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from artifact import __version__
from artifact.errors import LongdocError
from service.engine.engine import Engine
from service.engine.reload import Reloader
from service.http.application import Application
from service.metrics import Metrics
from service.openapi import document_routes
from service.parser import Parser
from service.routes import page
from service.settings import Settings
from service.table import TABLE
from service.wire.call import path_of
from service.wire.errors import failure
from service.wire.route import Route, Table


def create_app(
    engine: Engine, reloader: Reloader, parser: Parser, settings: Settings, metrics: Metrics, table: Table = TABLE
) -> Application:
    """Create the application with all routes."""
    api = create_api(settings, table)
    return Application(api, table, engine=engine, reloader=reloader, parser=parser, settings=settings, metrics=metrics)


def create_api(settings: Settings, table: Table = TABLE) -> FastAPI:
    """Create the FastAPI application: documentation of the routes, files of the page, and error handlers.

    `/docs` works offline.
    """
    api: FastAPI = FastAPIOffline(
        title="longdoc-serve",
        version=__version__,
        description="Labels and pair scores of long documents, from their raw bytes; forecasts of multivariate series.",
        redirect_slashes=False,
    )
    for document in api.routes:
        if isinstance(document, APIRoute) and document.methods is not None:  # Starlette's own routes allow HEAD already
            document.methods.add("HEAD")
    if settings.page:
        api.add_route(f"{page.ASSETS}{{name}}", page.assets(), include_in_schema=False)  # type: ignore[arg-type]  # an app
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
        if failed.status == 405:  # the router names only the methods of the last route it tried
            failed.headers["Allow"] = ", ".join(table.methods(path) or ["GET", "HEAD"])
        return table.dialect(path).answer(failed)

    for kind in (LongdocError, HTTPException, Exception):
        api.add_exception_handler(kind, write_error)
    document_routes(api, table, has_keys=bool(settings.api_keys))
    return api


def _endpoint(route: Route) -> Callable[[], None]:
    """An endpoint with the name and docstring of a route's handler, for FastAPI's documentation.

    `Application` calls the handler itself. FastAPI calls the endpoint only if the route table selects another path that
    does not allow the method: for `GET /v1/models/aan:predict`, the table selects `/v1/models/{name}:predict`, which
    allows only POST, but FastAPI selects `/v1/models/{name}`.
    """

    def endpoint() -> None:
        raise HTTPException(405)

    endpoint.__name__, endpoint.__doc__ = route.handler.__name__, route.handler.__doc__
    return endpoint
