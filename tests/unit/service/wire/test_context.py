"""What is known of a request beside its scope."""

import pytest
from fastapi.routing import APIRoute
from starlette.types import Scope

from service.wire.context import KEY, context_of, path_of, route_of
from tests.support.contexts import context, scope_of


def test_request_without_the_middlewares_is_an_error_that_says_so() -> None:
    with pytest.raises(RuntimeError, match="mount"):
        context_of(scope_of())


def test_route_is_the_one_reached_or_the_one_that_was_rejected_before() -> None:
    asked = context()
    scope: Scope = {**scope_of(), KEY: asked}
    assert route_of(scope) is None
    scope["route"] = APIRoute("/models/{name:path}", scope_of, response_model=None)
    assert route_of(scope) == "/models/{name}"
    asked.route = "/v1/classify"
    assert route_of(scope) == "/v1/classify"


@pytest.mark.parametrize(
    ("path", "root_path", "below"),
    [("/a/b", "", "/a/b"), ("/text/a", "/text", "/a"), ("/text", "/text", "/"), ("/text/", "/text", "/")],
)
def test_path_is_the_one_below_the_root_path(path: str, root_path: str, below: str) -> None:
    scope: Scope = {"path": path, "root_path": root_path}
    assert path_of(scope) == below
    if not root_path:
        assert path_of({"path": path}) == below
