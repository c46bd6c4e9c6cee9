"""The FastAPI application.

Requests pass these middlewares, the first one outermost: traces (`service.http.tracing`), context, CORS, errors, guard,
rejection. Then FastAPI's router calls a path operation of `service.routes` or `service.compat`.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING, Any

from fastapi import APIRouter, Depends, FastAPI
from fastapi.exceptions import RequestValidationError
from fastapi.routing import iter_route_contexts
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import compile_path

from artifact import __version__
from artifact.errors import BadExport, LongdocError
from service.compat import cohere, kserve, kserve_v1, openai
from service.compat.oip import config, infer, metadata, repository, statistics
from service.compat.oip.errors import DIALECT as OIP
from service.compat.tei import embed, info, root, scores
from service.errors import clear_tracebacks
from service.http.context import ContextMiddleware
from service.http.errors import ErrorMiddleware
from service.http.guard import GuardMiddleware
from service.http.keys import Keys
from service.http.rejection import RejectionMiddleware
from service.routes import classify, docs, forecast, matching, models, operations, page
from service.runtime import Runtime
from service.settings import Settings
from service.wire.body import HeldBodies
from service.wire.context import path_of
from service.wire.dependencies import require_key
from service.wire.errors import error_response
from service.wire.openapi import complete

if TYPE_CHECKING:
    from service.http.tracing import Tracing

ROUTERS: Sequence[APIRouter] = (
    *(module.router for module in (classify, matching, forecast, models)),
    *(metadata.health, operations.router, root.router, page.router, docs.router),
    *(module.router for module in (statistics, metadata, infer, config, repository)),
    kserve_v1.router,
    kserve.router,
    openai.router,
    cohere.router,
    *(module.router for module in (info, scores, embed)),
    info.health,
)
"""In the order in which they are matched: `/v2/models/stats` before `/v2/models/{name}`. The first route of a path
decides the format of 405: of `/`, the route of its clients and not the page."""
OPEN: Sequence[APIRouter] = (metadata.health, operations.router, page.router, docs.router, info.health)
"""Routers whose routes need no API key."""
TAGS = (
    "Classify documents and series",
    "Score and rank documents",
    "Forecast time series",
    "Models",
    "Operations",
    "Open Inference Protocol (Triton, KServe v2)",
    "KServe v1",
    "KServe time series",
    "OpenAI embeddings",
    "Rerank (Cohere, Jina)",
    "text-embeddings-inference",
)
"""Groups of routes in the OpenAPI document, in its order."""
DIALECTS = (OIP, kserve.DIALECT)
"""Formats of errors of paths that have their prefix and no route."""
UNREADABLE = "There was an error parsing the body"
"""Detail of FastAPI's error if reading a typed body raises an exception, which is its cause."""
PREFLIGHT_AGE_S = 600
"""How long a browser may cache the response to a preflight request."""


def create_app(settings: Settings | None = None, *, runtime: Runtime | None = None) -> FastAPI:
    """Create the application.

    Args:
        settings: limits, keys, the folder of exports and so on; by default from the variables `LONGDOC_...`.
        runtime: models that are loaded already; by default the lifespan of the application loads them.

    Raises: BadExport if tracing is misconfigured.

    """
    if settings is None:
        settings = Settings() if runtime is None else runtime.settings
    app = FastAPI(
        title=docs.TITLE,
        version=__version__,
        description="Labels and pair scores of long documents, from their raw bytes; forecasts of multivariate series.",
        # Relative to the document, which proxies may serve below a path prefix.
        openapi_tags=[{"name": tag} for tag in TAGS],
        servers=[{"url": ".", "description": "this server"}],
        root_path_in_servers=False,
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        telemetry={"tracing": False, "metrics": False, "logs": False},  # `service.http.tracing` has spans of its own
        generate_unique_id_function=lambda route: route.name,
        lifespan=_lifespan,
    )
    tracing = create_tracing(settings)
    app.state.settings = settings
    app.state.tracing = tracing
    app.state.runtime = runtime
    app.state.keys = keys = Keys(settings.api_keys)
    app.state.document = docs.document_of(app)
    for router in ROUTERS:
        app.include_router(router, dependencies=[] if router in OPEN else [Depends(require_key)])
    # To Starlette, a request for the root path without its slash has an empty path.
    app.router.add_api_route(
        "",
        root.post_task,
        methods=["POST"],
        include_in_schema=False,
        dependencies=[Depends(require_key)],
        route_class_override=root.router.route_class,
    )
    app.add_api_route("", page.get_page, methods=["GET", "HEAD"], include_in_schema=False)
    for kind in (LongdocError, HTTPException, RequestValidationError):
        app.add_exception_handler(kind, _answer_error)
    app.openapi = lambda: _document(app)  # type: ignore[method-assign]  # FastAPI's documentation says so
    app.add_middleware(RejectionMiddleware, keys=keys)
    app.add_middleware(GuardMiddleware, origins=settings.cors_origins)
    app.add_middleware(ErrorMiddleware, dialects=DIALECTS)
    if settings.cors_origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=settings.cors_origins,
            allow_methods=["GET", "HEAD", "POST"],
            allow_headers=["*"],
            expose_headers=["*"],
            max_age=PREFLIGHT_AGE_S,
        )
    bodies = HeldBodies(settings.max_body_bytes, settings.max_held_bytes)
    app.add_middleware(ContextMiddleware, bodies=bodies)
    if tracing is not None:
        tracing.add_to(app)
    return app


def mount(app: Starlette, path: str, settings: Settings | None = None, *, runtime: Runtime | None = None) -> FastAPI:
    """Serve all routes below a path of another application; return the mounted application.

    Its models are loaded when the other application starts, and closed when it stops. Its limits, errors, keys and
    documentation pages stay its own.

    Args:
        app: the other application.
        path: path prefix, such as `/ml`.
        settings: as for `create_app`.
        runtime: as for `create_app`.

    Raises: as `create_app`.

    """
    mounted, lifespan = create_app(settings, runtime=runtime), app.router.lifespan_context

    @contextlib.asynccontextmanager
    async def both(outer: Starlette) -> AsyncIterator[Any]:
        async with lifespan(outer) as state, mounted.router.lifespan_context(mounted):
            yield state

    app.router.lifespan_context = both
    app.mount(path, mounted)
    return mounted


@contextlib.asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    """Load the models, unless they are loaded already; serve; answer the requests in flight, and close."""
    given: Runtime | None = app.state.runtime
    if given is None:
        app.state.runtime = await asyncio.to_thread(Runtime.load, app.state.settings)
    runtime: Runtime = app.state.runtime
    try:
        async with runtime.running():
            yield
    finally:
        app.state.runtime = given  # so that the next lifespan, as in the next test, loads the models again
        if app.state.tracing is not None and not runtime.must_stop_now.is_set():
            app.state.tracing.close()


def create_tracing(settings: Settings) -> "Tracing | None":
    """Tracing, if `otlp_endpoint` is set. Raises: BadExport if OpenTelemetry is not installed or is misconfigured."""
    if settings.otlp_endpoint is None:
        return None
    try:
        from service.http.tracing import Tracing

        return Tracing(str(settings.otlp_endpoint))
    except ModuleNotFoundError as error:
        message = f"otlp_endpoint is set and {error.name} is not installed; run pip install '.[otel]'"
        raise BadExport(message, "backend") from None
    except ValueError as error:  # an environment variable OTEL_... is invalid
        raise BadExport(f"otlp_endpoint is set; a variable of OpenTelemetry is invalid: {error}", "backend") from None


async def _answer_error(request: Request, error: Exception) -> Response:
    """Answer an error in the format of the route's protocol.

    Raises: ClientDisconnect, LongdocError if reading a typed body raised them; `ErrorMiddleware` answers them.
    """
    is_wrapped = isinstance(error, HTTPException) and error.detail == UNREADABLE
    if is_wrapped and isinstance(error.__cause__, ClientDisconnect | LongdocError):
        raise error.__cause__
    if isinstance(error, HTTPException) and error.status_code == 405:
        error.headers = {**(error.headers or {}), "Allow": ", ".join(_methods(request))}
    response = error_response(request.scope, error, DIALECTS)
    clear_tracebacks(error)
    return response


def _methods(request: Request) -> list[str]:
    """Methods that a path answers, sorted. Starlette names those of the first route only."""
    path, methods = path_of(request.scope), set[str]()
    for route in iter_route_contexts(request.app.routes):
        if route.path is not None and compile_path(route.path)[0].match(path):
            methods |= route.methods or set()
    return sorted(methods)


def _document(app: FastAPI) -> dict[str, Any]:
    """The OpenAPI document."""
    if app.openapi_schema is None:
        complete(FastAPI.openapi(app), app.state.settings)
    assert app.openapi_schema is not None
    return app.openapi_schema
