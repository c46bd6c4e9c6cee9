"""The headers of a request."""

from service.wire.headers import RequestHeaders

HEADERS = RequestHeaders([(b"a", b"1"), (b"b", b"\xe9"), (b"a", b"2")])


def test_first_value_of_a_repeated_header_counts() -> None:
    assert HEADERS == {"a": "1", "b": "é"}


def test_all_values_are_listed_in_order() -> None:
    assert [HEADERS.getlist(name) for name in ("a", "b", "c")] == [["1", "2"], ["é"], []]
