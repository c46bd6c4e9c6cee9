"""The state that the layers of a request share."""

from starlette.types import Scope

from service.http.state import state_of


def test_state_is_created_once_per_request() -> None:
    first: Scope = {"headers": [(b"a", b"1")]}
    second: Scope = {"headers": []}
    state_of(first).admitted_task = "classification"
    assert state_of(first).admitted_task == "classification"
    assert state_of(second).admitted_task is None
    assert (state_of(first).headers, state_of(second).headers) == ({"a": "1"}, {})
