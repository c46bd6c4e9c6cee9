"""Routes: all that is known of a path stands in one `Route`; admission, keys, metrics and OpenAPI read it there."""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from starlette.responses import Response
from starlette.routing import compile_path

from service.wire.call import Call
from service.wire.errors import NATIVE, STATUSES, Dialect

TIMEOUT_HEADERS: Sequence[Mapping[str, Any]] = (
    {
        "name": "X-Request-Timeout-Ms",
        "in": "header",
        "schema": {"type": "integer", "minimum": 1, "maximum": 999_999_999},
        "description": "Deadline of the request in milliseconds; never later than that of the server.",
    },
    {
        "name": "X-Request-Id",
        "in": "header",
        "schema": {"type": "string"},
        "description": "Comes back with the answer and stands in the log, if it is 1 to 128 visible ASCII characters.",
    },
)
"""Parameters of routes that compute, for the OpenAPI document."""


Handler = Callable[[Call], Awaitable[Response]]


@dataclass(frozen=True)
class Lines:
    """A body with one JSON value a line."""

    of: Any


@dataclass(frozen=True, kw_only=True)
class Route:
    """One method of one path. Bodies are given by media type, as a type, `Lines`, or a JSON schema."""

    method: Literal["GET", "POST"]
    path: str
    handler: Handler
    dialect: Dialect = NATIVE
    """How errors are written."""
    task: str | None = None
    """Of the model that every request needs: while none can take one, requests are refused before they are read."""
    needs_key: bool = True
    lines_handler: Handler | None = None
    """Of a body of lines (NDJSON), which may be of any length."""
    answers_head: bool = False
    """Whether HEAD is answered as GET is."""
    bodies: Mapping[str, Any] = field(default_factory=dict)
    answers: Mapping[str, Any] = field(default_factory=dict)
    statuses: Sequence[int] = STATUSES
    """Of errors that can happen."""
    parameters: Sequence[Mapping[str, Any]] = ()
    """OpenAPI of headers and of the query string."""
    examples: Mapping[str, Any] = field(default_factory=dict)
    """Bodies by media type that the models of this repository answer with 200."""
    tag: str = ""
    """Group of the OpenAPI document."""
    is_documented: bool = True


@dataclass(frozen=True)
class Found:
    """A route with the variable parts of the path."""

    route: Route
    path_params: Mapping[str, Any]


class Table:
    """All routes of the application, and how they are found."""

    def __init__(self, routes: Iterable[Route]) -> None:
        self.routes = tuple(routes)
        self.open_paths = frozenset(route.path for route in self.routes if not route.needs_key)
        """Paths that need no key: what load balancers and Prometheus ask."""
        self._fixed: dict[tuple[str, str], Found] = {
            (route.method, route.path): Found(route, {}) for route in self.routes if "{" not in route.path
        }
        self._variable = [(compile_path(route.path)[0], route) for route in self.routes if "{" in route.path]
        self._dialects = {prefix: route.dialect for route in self.routes for prefix in route.dialect.prefixes}

    def find(self, method: str, path: str) -> Found | None:
        """The route that answers a request."""
        if (found := self._fixed.get((method, path))) is not None:
            return found
        for pattern, route in self._variable:
            if route.method == method and (match := pattern.match(path)) is not None:
                return Found(route, match.groupdict())
        return None

    def methods(self, path: str) -> list[str]:
        """Methods that a path answers, sorted."""
        found = [match.route for method in ("GET", "POST") if (match := self.find(method, path)) is not None]
        return sorted({route.method for route in found} | {"HEAD" for route in found if route.answers_head})

    def dialect(self, path: str) -> Dialect:
        """How errors of a path are written, whether or not a route answers there."""
        for method in ("POST", "GET"):
            if (found := self._fixed.get((method, path))) is not None:
                return found.route.dialect
        return next((d for prefix, d in self._dialects.items() if path.startswith(prefix)), NATIVE)
