"""A middleware that rejects requests before they are routed, by their headers alone."""

import re
from collections.abc import Collection, Mapping

from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Receive, Scope, Send

from service.errors import CrossOrigin
from service.wire.context import context_of
from service.wire.headers import header_values

VERSIONS = frozenset({"1.0", "1.1", "2", "3"})
"""Versions of HTTP that ASGI servers support; uvicorn's parser passes on any other one, too."""
HOST = re.compile(r"[A-Za-z0-9._~!$&'()*+,;=%:\[\]-]*")
"""Characters of a host and its port (RFC 3986, 3.2)."""
OWN_SITES = frozenset({"same-origin", "none"})
"""Values of `Sec-Fetch-Site` for a page of this server, and for an address that the user typed."""


class GuardMiddleware:
    """Rejects requests of an unknown version of HTTP or transfer coding, without one host, or from other origins.

    Args:
        app: the application.
        origins: origins whose pages may send requests, as browsers write them; `*` for all.

    """

    def __init__(self, app: ASGIApp, origins: Collection[str]) -> None:
        self._app = app
        self._origins = frozenset(origins)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request. Raises: HTTPException with status 505, 400 or 501; CrossOrigin."""
        if scope["type"] == "http":
            if scope["http_version"] not in VERSIONS:
                raise HTTPException(505, "send HTTP/1.1")
            check_host(scope)
            headers = context_of(scope).headers
            if headers.get("transfer-encoding", "chunked").strip().lower() != "chunked":  # RFC 9112, 6.1
                raise HTTPException(501, "the only supported transfer coding is chunked", {"connection": "close"})
            if scope["method"] == "POST":
                check_origin(headers, self._origins)
        await self._app(scope, receive, send)


def check_host(scope: Scope) -> None:
    """Check the header Host (RFC 9112, 3.2). Raises: HTTPException with status 400 if it is missing or wrong."""
    hosts = header_values(scope, b"host")
    is_missing = not hosts and scope["http_version"] == "1.1"  # HTTP/1.0 needs none
    if is_missing or len(hosts) > 1 or not all(map(HOST.fullmatch, hosts)):
        raise HTTPException(400, "a request has one header Host: a host, with or without a port")


def check_origin(headers: Mapping[str, str], allowed: Collection[str]) -> None:
    """Check which page sent a request. Raises: CrossOrigin if it is of another origin that is not `allowed`.

    Any page can send a POST to any address that its user can reach; CORS only prevents it from reading the response.
    Browsers name the page's origin in `Sec-Fetch-Site` or `Origin`; other clients send neither header. If the page was
    loaded by plain HTTP from another machine, browsers send `Origin` alone. It is then compared with `Host`, and with
    `X-Forwarded-Host`, which proxies that change `Host` send: a page can send this header to another origin only if a
    preflight request allows it.
    """
    site = headers.get("sec-fetch-site")
    if site in OWN_SITES or "*" in allowed:
        return
    origin = headers.get("origin")
    if site is None and (origin is None or _is_own(origin, headers)):
        return
    if origin not in allowed:
        raise CrossOrigin("pages of other origins may not send requests; the setting cors_origins allows them")


def _is_own(origin: str, headers: Mapping[str, str]) -> bool:
    """Whether an origin has the host that the client asked for."""
    host = origin.partition("://")[2]
    first, _, _ = headers.get("x-forwarded-host", "").partition(",")  # each further proxy appends its own
    return bool(host) and host in (headers.get("host"), first.strip())
