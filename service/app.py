"""Creates the application for an engine. Used by `service.server`."""

from starlette.routing import Match
from starlette.types import ASGIApp, Receive, Scope, Send

from service.engine.engine import Engine
from service.engine.reload import Reloader
from service.http.application import Application
from service.metrics import Metrics
from service.parser import Parser
from service.routes import page
from service.settings import Settings
from service.sharing import Once
from service.table import TABLE
from service.wire.route import Table


def create_app(
    engine: Engine, reloader: Reloader, parser: Parser, settings: Settings, metrics: Metrics, table: Table = TABLE
) -> Application:
    """Create the application with all routes."""
    return Application(
        _Pages(settings, table),
        table,
        engine=engine,
        reloader=reloader,
        parser=parser,
        settings=settings,
        metrics=metrics,
    )


class _Pages:
    """The files of the web page, and FastAPI's documentation pages.

    FastAPI is imported and its application created in a thread at the first request for a documentation page, once for
    all clients that wait for it; at the start of the service, this would take an eighth of the time.
    """

    def __init__(self, settings: Settings, table: Table) -> None:
        self._settings = settings
        self._table = table
        self._api = Once(self._create)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        match, found = page.FILES.matches(scope)
        if self._settings.page and match is Match.FULL:
            scope.update(found, route=page.FILES)
            await page.FILES.app(scope, receive, send)
            return
        api = await self._api.get()
        await api(scope, receive, send)

    def _create(self) -> ASGIApp:
        from service.openapi import create_api

        return create_api(self._settings, self._table)
