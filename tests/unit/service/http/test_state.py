"""The state that the layers of a request share."""

from starlette.types import Scope

from service.http.state import state_of


def test_state_is_created_once_per_request() -> None:
    first: Scope = {}
    second: Scope = {}
    state_of(first).admitted_task = "classification"
    assert state_of(first).admitted_task == "classification"
    assert state_of(second).admitted_task is None
