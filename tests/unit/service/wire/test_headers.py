"""The headers of a request."""

from starlette.types import Scope

from service.wire.headers import first_headers, header_values

SCOPE: Scope = {"headers": [(b"a", b"1"), (b"b", b"\xe9"), (b"a", b"2")]}


def test_first_value_of_a_repeated_header_counts() -> None:
    assert first_headers(SCOPE) == {"a": "1", "b": "é"}


def test_all_values_are_listed_in_order() -> None:
    assert [header_values(SCOPE, name) for name in (b"a", b"b", b"c")] == [["1", "2"], ["é"], []]
