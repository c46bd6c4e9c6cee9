"""CORS: response headers for web pages of other origins. Used by `service.http.application`."""

from collections.abc import Collection

from starlette.responses import PlainTextResponse, Response

from service.wire.headers import RequestHeaders
from service.wire.route import METHODS

PREFLIGHT_AGE_S = 600
"""How long a browser may cache the response to a preflight request."""


class Cors:
    """Adds CORS headers to responses, and answers preflight requests.

    Credentials are never allowed: API keys are sent in headers, which a page has to set itself.

    Args:
        origins: whose pages may read responses, as browsers write them; `*` for all. Without any, CORS is off.

    """

    def __init__(self, origins: Collection[str]) -> None:
        self._origins = frozenset(origins)
        self._allows_all = "*" in self._origins

    def preflight(self, method: str, headers: RequestHeaders) -> Response | None:
        """Response to a preflight request, without the headers of `fields`; None for any other request.

        Browsers send a preflight request before a page may send JSON or an API key.
        """
        if method != "OPTIONS" or not self._origins:
            return None
        origin, asked = headers.get("origin"), headers.get("access-control-request-method")
        if origin is None or asked is None:
            return None
        checks = {"origin": self._allows(origin), "method": asked in METHODS}
        if wrong := [name for name, is_allowed in checks.items() if not is_allowed]:
            return PlainTextResponse(f"Disallowed CORS {', '.join(wrong)}", 400)
        allowed = {
            "access-control-allow-methods": ", ".join(METHODS),
            "access-control-max-age": str(PREFLIGHT_AGE_S),
        }
        if (asked_headers := headers.get("access-control-request-headers")) is not None:
            allowed["access-control-allow-headers"] = asked_headers
        return PlainTextResponse("OK", headers=allowed)

    def fields(self, headers: RequestHeaders) -> list[tuple[bytes, bytes]]:
        """CORS headers of every response to a request with these headers."""
        if not self._origins:
            return []
        fields = [] if self._allows_all else [(b"vary", b"Origin")]
        origin = headers.get("origin")
        if origin is not None and self._allows(origin):
            allowed = "*" if self._allows_all else origin
            fields.append((b"access-control-allow-origin", allowed.encode("latin-1")))
            fields.append((b"access-control-expose-headers", b"*"))
        return fields

    def _allows(self, origin: str) -> bool:
        return self._allows_all or origin in self._origins
