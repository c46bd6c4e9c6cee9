"""The headers of a request."""

from starlette.types import Scope

from service.wire.headers import first_headers, header_values, repeated_headers

SCOPE: Scope = {"headers": [(b"a", b"1"), (b"b", b"\xe9"), (b"a", b"2")]}


def test_first_value_of_a_repeated_header_counts() -> None:
    assert first_headers(SCOPE) == {"a": "1", "b": "é"}


def test_all_values_are_listed_in_order() -> None:
    assert [header_values(SCOPE, name) for name in (b"a", b"b", b"c")] == [["1", "2"], ["é"], []]


def test_headers_that_say_how_to_read_a_request_are_named_if_they_contradict_each_other() -> None:
    text, html, accept = (b"content-type", b"text/plain"), (b"content-type", b"text/html"), (b"accept", b"*/*")
    assert repeated_headers({"headers": [text, accept, text, (b"accept", b"a/b")]}) == []
    assert repeated_headers({"headers": [text, accept, html]}) == ["content-type"]
