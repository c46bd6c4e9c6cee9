"""The FastAPI application: routes and handlers around an engine. Created by `service.server`."""

from itertools import chain

from fastapi import FastAPI
from fastapi_offline import FastAPIOffline

from service import __version__
from service.compat import kserve, tei
from service.compat.oip import errors as oip_errors
from service.compat.oip import health
from service.compat.oip import routes as oip
from service.engine.engine import Engine
from service.http.context import OPEN, RequestContext
from service.observe.metrics import Metrics
from service.routes import classify, forecast, matching, models, operations
from service.settings import Settings
from service.wire import errors


def create_app(engine: Engine, settings: Settings, metrics: Metrics) -> RequestContext:
    """Put routes, error handlers and what surrounds them together; the pages of `/docs` need no internet."""
    app: FastAPI = FastAPIOffline(
        title="longdoc-serve",
        version=__version__,
        description="Labels and pair scores of long documents, from their raw bytes; forecasts of multivariate series.",
        redirect_slashes=False,
    )
    app.state.engine = engine
    app.state.settings = settings
    app.state.metrics = metrics
    app.state.dialects = {
        "/v1/timeseries/": kserve.error_body,
        **dict.fromkeys(("/v2", "/v2/"), oip_errors.error_body),
        **dict.fromkeys(("/predict", "/rerank", "/info", "/health"), tei.error_body),
    }
    routers = [module.router for module in (oip, classify, matching, forecast, kserve, tei, models, health, operations)]
    app.state.routes = list(chain(*(router.routes for router in routers)))
    for router in routers:
        app.include_router(router)
    errors.install(app)
    if settings.api_keys:
        _document_keys(app)
    return RequestContext(app, app.state.routes, metrics=metrics, settings=settings)


def _document_keys(app: FastAPI) -> None:
    """Say in the OpenAPI document what keys are sent as, and which paths need none."""
    document = app.openapi()
    document.setdefault("components", {})["securitySchemes"] = {
        "bearer": {"type": "http", "scheme": "bearer"},
        "header": {"type": "apiKey", "in": "header", "name": "X-API-Key"},
    }
    document["security"] = [{"bearer": []}, {"header": []}]
    for path in OPEN & document["paths"].keys():
        for operation in document["paths"][path].values():
            operation["security"] = []
