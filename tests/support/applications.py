"""An application that serves the routes of a test."""

from starlette.responses import Response

from service.app import create_app
from service.engine.engine import Engine
from service.engine.reload import Reloader
from service.http.application import Application
from service.metrics import Metrics
from service.parser import Parser
from service.settings import Settings
from service.wire.call import Call
from service.wire.route import Route, Table


def application(*routes: Route, settings: Settings | None = None, metrics: Metrics | None = None) -> Application:
    """Return an application without models."""
    chosen, counted = settings or Settings(), metrics or Metrics()
    engine = Engine([], chosen, counted)
    return create_app(
        engine, Reloader(engine, chosen, counted), Parser(chosen, counted), chosen, counted, Table(routes)
    )


async def fail(call: Call) -> Response:
    """Raise an error, as a faulty route does."""
    del call
    raise RuntimeError("secret cause")


BROKEN = Route(method="GET", path="/broken", handler=fail)
