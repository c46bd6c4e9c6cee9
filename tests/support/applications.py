"""The application in front of routes that a test writes."""

from starlette.responses import Response

from service.app import create_app
from service.engine.engine import Engine
from service.http.application import Application
from service.metrics import Metrics
from service.parser import Parser
from service.settings import Settings
from service.wire.call import Call
from service.wire.route import Route, Table


def application(*routes: Route, settings: Settings | None = None, metrics: Metrics | None = None) -> Application:
    """An application without models."""
    chosen, counted = settings or Settings(), metrics or Metrics()
    return create_app(Engine([], chosen, counted), Parser(), chosen, counted, Table(routes))


async def fail(call: Call) -> Response:
    """Fail, as a route with a fault does."""
    del call
    raise RuntimeError("secret cause")


BROKEN = Route(method="GET", path="/broken", handler=fail)
