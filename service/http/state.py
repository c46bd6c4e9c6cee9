"""State of one request that the HTTP layers share, stored under one key of the ASGI scope."""

from dataclasses import dataclass

from starlette.types import Scope

from service.wire.call import Inference

KEY = "longdoc"


@dataclass(slots=True)
class RequestState:
    """State of one request."""

    admitted_task: str | None = None
    """Task whose models admitted the request, until it starts; set by `HeadAdmission`."""
    trace_id: str | None = None
    """Trace id of the request's span; set by `Traced`."""
    route: str | None = None
    """Path template of the route; set by `Application`."""
    inference: Inference | None = None
    """Times of the inference; set by `Application`."""


def state_of(scope: Scope) -> RequestState:
    """State of a request; created on first use."""
    state = scope.get(KEY)
    if state is None:
        state = scope[KEY] = RequestState()
    return state
