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
DO = Route(method="POST", path="/items/{name}:do", handler=fail)
MINE = Route(method="GET", path="/items/mine", handler=fail)
FOREIGN = Route(method="POST", path="/other/one", handler=fail, dialect=OTHER)
OPEN = Route(method="GET", path="/open", handler=fail, needs_key=False)
STRANGE = Dialect(NATIVE.write, NATIVE.schema)
VERB = Route(method="POST", path="/strange/{name}:do", handler=fail, dialect=STRANGE)
TABLE = Table([FIRST, READ, ITEM, PART, DO, MINE, FOREIGN, VERB, OPEN])


@pytest.mark.parametrize(
    ("method", "path", "route", "path_params"),
    [
        ("POST", "/first", FIRST, {}),
        ("GET", "/first", READ, {}),
        ("HEAD", "/first", READ, {}),
        ("GET", "/items/a", ITEM, {"name": "a"}),
        ("GET", "/items/mine", MINE, {}),
        ("POST", "/items/a b/parts/2", PART, {"name": "a b", "part": "2"}),
        ("POST", "/items/a:do", DO, {"name": "a"}),
        ("POST", "/items/a:b:do", DO, {"name": "a:b"}),
        ("GET", "/items/a:b", ITEM, {"name": "a:b"}),
    ],
)
def test_route_is_found_with_its_path_parameters(
    method: str, path: str, route: Route, path_params: dict[str, str]
) -> None:
    found = TABLE.find(method, path)
    assert found is not None
    assert (found.route, found.path_params) == (route, path_params)


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("HEAD", "/items/a"),
        ("DELETE", "/first"),
        ("POST", "/items/a"),
        ("GET", "/items/"),
        ("GET", "/items/a/b"),
        ("GET", "/items/a/parts/b"),
        ("GET", "/items/a:do"),
        ("POST", "/items/a:b"),
        ("POST", "/first/"),
        ("POST", "/First"),
    ],
)
def test_no_route_is_found_for_other_methods_and_paths(method: str, path: str) -> None:
    assert TABLE.find(method, path) is None


@pytest.mark.parametrize(
    ("path", "methods"),
    [
        ("/first", ["GET", "HEAD", "POST"]),
        ("/items/a", ["GET"]),
        ("/items/a/parts/b", ["POST"]),
        ("/items/a:do", ["POST"]),
        ("/none", []),
    ],
)
def test_methods_of_a_path_are_listed(path: str, methods: list[str]) -> None:
    assert TABLE.methods(path) == methods


def test_path_is_open_if_none_of_its_routes_needs_a_key() -> None:
    assert TABLE.open_paths == {"/open"}


@pytest.mark.parametrize(
    ("path", "dialect"),
    [
        ("/other/one", OTHER),
        ("/other/none", OTHER),
        ("/other", NATIVE),
        ("/first", NATIVE),
        ("/items/a", NATIVE),
        ("/strange/a:do", STRANGE),
        ("/strange/a", NATIVE),
    ],
)
def test_dialect_is_found_by_route_or_prefix(path: str, dialect: Dialect) -> None:
    assert TABLE.dialect(path) is dialect
