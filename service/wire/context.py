"""What is known of one request beside its scope: its body, and its times. Created by `service.http.context`."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from starlette.types import Scope

from artifact.manifest import ExportManifest
from service.engine.served import Timing
from service.runtime import Runtime
from service.wire.body import Body

KEY = "longdoc"
"""Key of the ASGI scope."""


class Inference(NamedTuple):
    """Model and times of a request that a model has answered, for traces."""

    manifest: ExportManifest
    timing: Timing
    finished: float
    """When the response was ready, in seconds of `perf_counter`."""


@dataclass(slots=True, eq=False)
class RequestContext:
    """One request."""

    runtime: Runtime
    """The models and limits of the server."""
    path: str
    """Path below the ASGI root path, such as the route prefix of an application on Ray Serve."""
    query: bytes
    """The query string."""
    headers: Mapping[str, str]
    """Lower-case name -> value; of a repeated header, the first value."""
    body: Body
    started: float
    """When the headers had arrived, in seconds of `perf_counter`."""
    deadline: float = math.inf
    """On the clock of the event loop; a ClientLimit if it is the client's. Set by `get_context`."""
    server_timing: dict[str, float] = field(default_factory=dict)
    """Seconds by stage, for the header `Server-Timing`."""
    computed: float = 0.0
    """When the model's outputs were ready, in seconds of `perf_counter`."""
    status: int = 500
    """Status of the response, for metrics."""
    has_started: bool = False
    """Whether the response has started."""
    has_ended: bool = False
    inference: Inference | None = None
    """Set when a model has answered."""
    route: str | None = None
    """Path of a route that was not reached, because the request was rejected before."""


def context_of(scope: Scope) -> RequestContext:
    """The context of a request. Raises: RuntimeError if the application was not created by `create_app`."""
    context: RequestContext | None = scope.get(KEY)
    if context is None:
        raise RuntimeError("routes of longdoc-serve were added to another application; use `service.app.mount` instead")
    return context


def route_of(scope: Scope) -> str | None:
    """Path template of the route, such as `/models/{name}`, or None: few values, as labels of metrics need."""
    path: str | None = context_of(scope).route or getattr(scope.get("route"), "path_format", None)
    return path


def path_of(scope: Scope) -> str:
    """Path of a request below the ASGI root path."""
    path: str = scope["path"]
    root: str = scope.get("root_path", "")
    return path[len(root) :] or "/" if path == root or path.startswith(f"{root}/") else path
