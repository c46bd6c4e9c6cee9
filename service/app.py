"""The FastAPI application: routes and handlers around an engine. Created by `service.server`."""

from fastapi import FastAPI
from fastapi_offline import FastAPIOffline

from service import __version__
from service.engine import Engine
from service.metrics import Metrics
from service.routes import classify, errors, forecast, health, kserve, matching, models
from service.routes.middleware import RequestContext
from service.settings import Settings


def create_app(engine: Engine, settings: Settings, metrics: Metrics) -> FastAPI:
    """Put routes, error handlers and middleware together; the pages of `/docs` need no internet."""
    app: FastAPI = FastAPIOffline(
        title="longdoc-serve",
        version=__version__,
        description="Labels and pair scores of long documents, from their raw bytes; forecasts of multivariate series.",
        redirect_slashes=False,
    )
    app.state.engine = engine
    app.state.settings = settings
    app.state.metrics = metrics
    for module in (classify, matching, forecast, kserve, models, health):
        app.include_router(module.router)
    errors.install(app)
    app.add_middleware(RequestContext, metrics=metrics, max_body_bytes=settings.max_body_bytes)
    return app
