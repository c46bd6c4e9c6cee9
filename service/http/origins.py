"""Rejects requests that web pages of other origins send. Used by `service.http.guard`."""

from collections.abc import Collection, Mapping

from service.errors import CrossOrigin

OWN = frozenset({"same-origin", "none"})
"""Values of `Sec-Fetch-Site` for a page of this server, and for an address that the user typed."""


class Origins:
    """Origins whose pages may send requests.

    Any page can send a POST to any address that its user can reach; CORS only prevents it from reading the response.
    Browsers name the page's origin in `Sec-Fetch-Site` or `Origin`; other clients send neither header. If the page was
    loaded by plain HTTP from another machine, browsers send `Origin` alone. It is then compared with `Host`, and with
    `X-Forwarded-Host`, which proxies that change `Host` send: a page can send this header to another origin only if a
    preflight request allows it.

    Args:
        allowed: origins as browsers write them; `*` for all.

    """

    def __init__(self, allowed: Collection[str]) -> None:
        self._allowed = frozenset(allowed)

    def check(self, headers: Mapping[str, str]) -> None:
        """Check the origin of a request. Raises: CrossOrigin if a page of another origin sent it."""
        site = headers.get("sec-fetch-site")
        if site in OWN or "*" in self._allowed:
            return
        origin = headers.get("origin")
        if site is None and (origin is None or _is_own(origin, headers)):
            return
        if origin not in self._allowed:
            raise CrossOrigin("pages of other origins may not send requests; the setting cors_origins allows them")


def _is_own(origin: str, headers: Mapping[str, str]) -> bool:
    """Whether an origin has the host that the client asked for."""
    host = origin.partition("://")[2]
    first, _, _ = headers.get("x-forwarded-host", "").partition(",")  # each further proxy appends its own
    return bool(host) and host in (headers.get("host"), first.strip())
