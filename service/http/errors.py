"""A middleware that answers what no handler of the application has answered."""

import asyncio
import logging
from collections.abc import Collection

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Receive, Scope, Send

from artifact.errors import LongdocError
from service.errors import ShuttingDown, clear_tracebacks
from service.wire.context import context_of, route_of
from service.wire.errors import Dialect, error_response

log = logging.getLogger(__name__)

DISCONNECTED = 499
"""Status in metrics when the client disconnected; never sent."""


class ErrorMiddleware:
    """Answers errors of other middlewares, unknown exceptions, and requests that the server cancels when it stops.

    Starlette's own middleware for unknown exceptions is outside of all others: its response has none of their headers.

    Args:
        app: the application.
        dialects: formats of errors of paths without a route.

    """

    def __init__(self, app: ASGIApp, dialects: Collection[Dialect]) -> None:
        self._app = app
        self._dialects = dialects

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request. Raises: the exception that stopped a response in its middle."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        context, app = context_of(scope), scope["app"]
        answered: Exception
        try:
            await self._app(scope, receive, send)
        except asyncio.CancelledError:  # the drain timed out: send an error instead of cutting the connection
            answered = ShuttingDown(
                "the server stopped before the response was ready; send the request to another server"
            )
        except ClientDisconnect as error:
            context.status = DISCONNECTED
            clear_tracebacks(error)
            return
        except Exception as error:
            if not isinstance(error, LongdocError | HTTPException):
                if Exception in app.exception_handlers:  # Starlette's own middleware calls it
                    raise
                log.exception("%s %s failed", scope["method"], route_of(scope) or "unmatched")
            if context.has_started and not context.has_ended:
                raise  # the server closes the connection, so that the client notices the incomplete response
            answered = error
        else:
            return
        if not context.has_started:
            await error_response(scope, answered, self._dialects)(scope, receive, send)
        clear_tracebacks(answered)
