"""State of one request that the HTTP layers share, stored under one key of the ASGI scope."""

from collections.abc import Callable
from dataclasses import dataclass

from starlette.types import Scope

from service.wire.call import Inference
from service.wire.headers import RequestHeaders

KEY = "longdoc"
ArrivedBody = Callable[[], bytes | None]
"""The body of a request if all of it has arrived; else None."""


@dataclass(slots=True)
class RequestState:
    """State of one request."""

    headers: RequestHeaders
    admitted_task: str | None = None
    """Task whose models admitted the request, until it starts; set by `HeadAdmission`."""
    take_body: ArrivedBody | None = None
    """Returns the body once, instead of `receive`; set by the protocol, not by the servers of Ray."""
    trace_id: str | None = None
    """Trace id of the request's span; set by `Traced`."""
    route: str | None = None
    """Path template of the route; set by `Application`."""
    inference: Inference | None = None
    """Times of the inference; set by `Application`."""


def state_of(scope: Scope) -> RequestState:
    """State of a request; created on first use."""
    state: RequestState | None = scope.get(KEY)
    if state is None:
        state = scope[KEY] = RequestState(RequestHeaders(scope["headers"]))
    return state
