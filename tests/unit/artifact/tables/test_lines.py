"""Rows of JSON Lines."""

import io
from typing import Any

import pytest

from artifact.errors import InputError
from artifact.tables import streams
from artifact.tables.lines import JsonLines
from artifact.tables.streams import text_of
from artifact.tables.table import Absent, BadRow


def rows(content: bytes | str, *columns: str) -> list[tuple[int, Any]]:
    """Line and cells of each row, or why there are none."""
    raw = io.BytesIO(content if isinstance(content, bytes) else content.encode())
    table = JsonLines(text_of(raw, "a"), raw, "a")
    assert table.columns is None
    found = table.rows(columns)
    return [(int(place.removeprefix("a:")), row.reason if isinstance(row, BadRow) else row) for place, row in found]


def test_each_line_is_a_row_and_blank_lines_are_none() -> None:
    content = '{"text": "a\\n1", "n": 1}\r\n\n  \n{"n": null, "text": "\u2028é"}'
    assert rows(content, "text", "n") == [(1, ("a\n1", 1)), (4, ("\u2028é", None))]


def test_byte_order_mark_before_an_object_is_no_text() -> None:
    assert rows('\ufeff{"a": 1}\n\ufeff{"a": 2}\n', "a") == [(1, (1,)), (2, (2,))]


@pytest.mark.parametrize(
    ("row", "column", "value"),
    [
        ('{"doc": {"body": "x"}}', "doc.body", "x"),
        ('{"doc.body": "y", "doc": {"body": "x"}}', "doc.body", "y"),
        ('{"a": {"b": {"c": 1}}}', "a.b.c", 1),
        ('{"a.b": {"c": 1}}', "a.b.c", 1),
        ('{"a": {"b.c": 1}}', "a.b.c", 1),
        ('{"a": {"b": 2}, "a.b": {"c": 1}}', "a.b.c", 1),
        ('{"a": null}', "a.b", None),
        ('{"a": {"b": null}}', "a.b.c", None),
        ('{"a": {"b": [1]}}', "a.b.c", Absent(("a.b",))),
        ('{"a": {"x": 1, "y": {"z": 2}, "e": {}}, "b": 3}', "a.b", Absent(("a.x", "a.y.z", "a.e", "b"))),
        ("{}", "a", Absent(())),
        ('{"a": 1}', "..", Absent(("a",))),
    ],
)
def test_dotted_names_are_values_in_objects(row: str, column: str, value: object) -> None:
    assert rows(row, column) == [(1, (value,))]


def test_bad_line_keeps_its_place_and_the_next_is_read() -> None:
    lines = [
        b'{"a": 0}', b"{", b'["a"]', b'"a"', b"1.5", b"true", b"null", b'{"a": 1', b'{"a": "\xe9"}', b"[" * 100_000,
        b'{"a": 9}',
    ]  # fmt: skip
    found = rows(b"\n".join(lines), "a")
    assert [line for line, _ in found] == list(range(1, 12))
    reasons = [reason.partition(": ")[0] for _, reason in found[1:-1]]
    assert reasons == [
        "not JSON",
        *(f"expected an object, not {kind}" for kind in ("a list", "a string", "a number", "a boolean", "null")),
        "not JSON",
        "byte 8 of line 9 is not UTF-8; --encoding names the encoding, such as cp1252",
        "not JSON",
    ]
    assert (found[0][1], found[-1][1]) == ((0,), (9,))


@pytest.mark.parametrize("content", ['[\n{"a": 1},\n{"a": 2}\n]\n', '{\n"a": 1\n}\n', '\n[{"a": 1},\n'])
def test_json_over_several_lines_is_an_error(content: str) -> None:
    with pytest.raises(InputError, match=r"^a:\d: not JSON: .*; JSON Lines have one object a line$"):
        rows(content, "a")


def test_long_lines_are_bad_and_not_read_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "LONGEST_ROW", 20)
    content = '{"text": "a"}\n{"text": "' + 50 * "x" + '"}\n{"text": "b"}\n'
    assert rows(content, "text") == [(1, ("a",)), (2, "the line is longer than 20 bytes"), (3, ("b",))]
