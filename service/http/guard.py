"""A middleware that rejects requests before they are routed.

It rejects those of an unknown version of HTTP, without one host, with an unknown transfer coding, or from pages of
other origins.
"""

from collections.abc import Collection

from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Receive, Scope, Send

from service.http.host import check_host
from service.http.origins import Origins
from service.wire.context import context_of

VERSIONS = frozenset({"1.0", "1.1", "2", "3"})
"""Versions of HTTP that ASGI servers support; uvicorn's parser passes on any other one, too."""


class GuardMiddleware:
    """Raises HTTPException or CrossOrigin for such requests.

    Args:
        app: the application.
        origins: origins whose pages may send requests; `*` for all.

    """

    def __init__(self, app: ASGIApp, origins: Collection[str]) -> None:
        self._app = app
        self._origins = Origins(origins)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] == "http":
            if scope["http_version"] not in VERSIONS:
                raise HTTPException(505, "send HTTP/1.1")
            check_host(scope)
            headers = context_of(scope).headers
            if headers.get("transfer-encoding", "chunked").strip().lower() != "chunked":  # RFC 9112, 6.1
                raise HTTPException(501, "the only supported transfer coding is chunked", {"connection": "close"})
            if scope["method"] == "POST":
                self._origins.check(headers)
        await self._app(scope, receive, send)
