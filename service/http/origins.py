"""Rejects requests that web pages of other origins send. Used by `service.http.application`."""

from collections.abc import Collection

from service.errors import CrossOrigin
from service.wire.headers import RequestHeaders

OWN = frozenset({"same-origin", "none"})
"""Values of `Sec-Fetch-Site` for a page of this server, and for an address that the user typed."""


class Origins:
    """Origins whose pages may send requests.

    Any page can send a POST to any address that its user can reach; CORS only prevents it from reading the response.
    Browsers name the page's origin in `Sec-Fetch-Site` or `Origin`; other clients send neither header.

    Args:
        allowed: origins as browsers write them; `*` for all.

    """

    def __init__(self, allowed: Collection[str]) -> None:
        self._allowed = frozenset(allowed)

    def check(self, headers: RequestHeaders) -> None:
        """Check the origin of a request. Raises: CrossOrigin if a page of another origin sent it."""
        site = headers.get("sec-fetch-site")
        if site in OWN or "*" in self._allowed:
            return
        origin = headers.get("origin")
        if site is None and (origin is None or origin.partition("://")[2] == headers.get("host")):
            return
        if origin not in self._allowed:
            raise CrossOrigin("pages of other origins may not send requests; the setting cors_origins allows them")
