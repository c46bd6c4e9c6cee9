"""The route table."""

import pytest

from service.wire.errors import NATIVE, Dialect
from service.wire.route import Route, Table
from tests.support.applications import fail

OTHER = Dialect(NATIVE.write, NATIVE.schema, prefixes=("/other/",))
FIRST = Route(method="POST", path="/first", handler=fail)
READ = Route(method="GET", path="/first", handler=fail, answers_head=True, needs_key=False)
ITEM = Route(method="GET", path="/items/{name}", handler=fail)
PART = Route(method="POST", path="/items/{name}/parts/{part}", handler=fail)
MINE = Route(method="GET", path="/items/mine", handler=fail)
FOREIGN = Route(method="POST", path="/other/one", handler=fail, dialect=OTHER)
TABLE = Table([FIRST, READ, ITEM, PART, MINE, FOREIGN])


@pytest.mark.parametrize(
    ("method", "path", "route", "path_params"),
    [
        ("POST", "/first", FIRST, {}),
        ("GET", "/first", READ, {}),
        ("GET", "/items/a", ITEM, {"name": "a"}),
        ("GET", "/items/mine", MINE, {}),
        ("POST", "/items/a b/parts/2", PART, {"name": "a b", "part": "2"}),
    ],
)
def test_route_is_found_with_the_variables_of_its_path(
    method: str, path: str, route: Route, path_params: dict[str, str]
) -> None:
    found = TABLE.find(method, path)
    assert found is not None
    assert (found.route, found.path_params) == (route, path_params)


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("HEAD", "/first"),
        ("POST", "/items/a"),
        ("GET", "/items/"),
        ("GET", "/items/a/b"),
        ("GET", "/items/a/parts/b"),
        ("POST", "/first/"),
        ("POST", "/First"),
    ],
)
def test_nothing_else_is_found(method: str, path: str) -> None:
    assert TABLE.find(method, path) is None


@pytest.mark.parametrize(
    ("path", "methods"),
    [("/first", ["GET", "HEAD", "POST"]), ("/items/a", ["GET"]), ("/items/a/parts/b", ["POST"]), ("/none", [])],
)
def test_methods_of_a_path_are_told(path: str, methods: list[str]) -> None:
    assert TABLE.methods(path) == methods


def test_open_paths_are_those_without_a_key() -> None:
    assert TABLE.open_paths == {"/first"}


@pytest.mark.parametrize(
    ("path", "dialect"),
    [("/other/one", OTHER), ("/other/none", OTHER), ("/other", NATIVE), ("/first", NATIVE), ("/items/a", NATIVE)],
)
def test_dialect_is_that_of_the_route_or_of_the_prefix(path: str, dialect: Dialect) -> None:
    assert TABLE.dialect(path) is dialect
