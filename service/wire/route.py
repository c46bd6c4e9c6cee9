"""Routes: a `Route` describes one path; the application, admission, keys, metrics and OpenAPI read it."""

import re
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
        "description": "Deadline of the request in milliseconds; the server's deadline applies if it is earlier.",
    },
    {
        "name": "X-Request-Id",
        "in": "header",
        "schema": {"type": "string"},
        "description": "Returned with the response and written to the log if it is 1 to 128 visible ASCII characters.",
    },
)
"""OpenAPI parameters of routes that run a model."""
METHODS = ("GET", "HEAD", "POST")
"""Methods that routes can answer."""

Handler = Callable[[Call], Awaitable[Response]]
VARIABLE = re.compile(r"{(\w+)}")
"""A variable in a path."""


@dataclass(frozen=True)
class Lines:
    """An NDJSON body: one JSON value per line."""

    of: Any
    """Type of the value."""


@dataclass(frozen=True, kw_only=True)
class Route:
    """One method of one path.

    `bodies` and `answers` map media types to a type, `Lines`, or a JSON schema. OpenAPI is generated from them.
    """

    method: Literal["GET", "POST"]
    path: str
    handler: Handler
    dialect: Dialect = NATIVE
    """Format of errors."""
    task: str | None = None
    """Task whose model every request needs: while the model is full, requests are rejected before they are handled. The
    model is named by `model` in the JSON body or, for other bodies, in the query string."""
    needs_key: bool = True
    ndjson_handler: Handler | None = None
    """Handler of NDJSON bodies, which may have any length."""
    answers_head: bool = False
    """Whether HEAD is allowed, too."""
    bodies: Mapping[str, Any] = field(default_factory=dict)
    needs_body: bool = True
    """Whether the body is required."""
    answers: Mapping[str, Any] = field(default_factory=dict)
    statuses: Sequence[int] = STATUSES
    """Statuses of the errors that can occur."""
    parameters: Sequence[Mapping[str, Any]] = ()
    """OpenAPI parameters: headers and query string."""
    examples: Mapping[str, Any] = field(default_factory=dict)
    """Example bodies by media type; the models in `exports/` answer them with 200."""
    tag: str = ""
    """Group in the OpenAPI document."""

    @property
    def methods(self) -> Sequence[str]:
        """Methods that the route answers."""
        return (self.method, "HEAD") if self.answers_head else (self.method,)


@dataclass(frozen=True)
class RouteMatch:
    """A matching route, with the values of the variables in its path."""

    route: Route
    path_params: Mapping[str, str]


class Table:
    """All routes of the application, by path.

    If several paths with variables match, the one with the most fixed characters is chosen, whatever its methods:
    `/models/{name}:predict`, not `/models/{name}`.
    """

    def __init__(self, routes: Iterable[Route]) -> None:
        self.routes = tuple(routes)
        closed = {route.path for route in self.routes if route.needs_key}
        self.open_paths = frozenset(route.path for route in self.routes) - closed
        """Paths that need no key with any method: health checks and metrics."""
        self._fixed: dict[tuple[str, str], RouteMatch] = {
            (method, route.path): RouteMatch(route, {})
            for route in self.routes
            if "{" not in route.path
            for method in route.methods
        }
        variable = dict[str, dict[str, Route]]()
        for route in self.routes:
            if "{" in route.path:
                variable.setdefault(route.path, {}).update(dict.fromkeys(route.methods, route))
        paths = sorted(variable, key=lambda path: len(VARIABLE.sub("", path)), reverse=True)
        self._variable = [(compile_path(path)[0], variable[path]) for path in paths]
        self._dialects = {prefix: route.dialect for route in self.routes for prefix in route.dialect.prefixes}

    def find(self, method: str, path: str) -> RouteMatch | None:
        """The route for a method and a path; None if there is none."""
        if (found := self._fixed.get((method, path))) is not None:
            return found
        for pattern, routes in self._variable:
            if (match := pattern.match(path)) is not None:
                return RouteMatch(routes[method], match.groupdict()) if method in routes else None
        return None

    def methods(self, path: str) -> list[str]:
        """Methods that a path answers, sorted."""
        return [method for method in METHODS if self.find(method, path) is not None]

    def template(self, path: str) -> str | None:
        """The path of the routes that match a path with any method; None if there are none."""
        matches = (self.find(method, path) for method in METHODS)
        return next((match.route.path for match in matches if match is not None), None)

    def dialect(self, path: str) -> Dialect:
        """Error format of a path, even if no route matches."""
        for method in ("POST", "GET"):
            if (found := self.find(method, path)) is not None:
                return found.route.dialect
        return next((d for prefix, d in self._dialects.items() if path.startswith(prefix)), NATIVE)
