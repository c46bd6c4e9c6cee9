"""Rows of CSV and TSV."""

import csv
import io
import re
from collections.abc import Iterator, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from artifact.errors import InputError
from artifact.tables import streams
from artifact.tables.delimited import Delimited
from artifact.tables.streams import text_of
from artifact.tables.table import BadRow

NOT_UTF8 = " is not UTF-8; --encoding names the encoding, such as cp1252"
QUOTES = 'a quote in a quoted cell must be written twice ("")'
OPEN = "a quote opens a cell and is never closed"


def opened(content: bytes | str, *, is_tsv: bool = False) -> Delimited:
    raw = io.BytesIO(content if isinstance(content, bytes) else content.encode())
    return Delimited(text_of(raw, "a"), raw, "a", is_tsv=is_tsv)


def rows(content: bytes | str, *columns: str, is_tsv: bool = False) -> list[tuple[int, Sequence[str] | str]]:
    """Line and cells of each row, or why there are none."""
    table = opened(content, is_tsv=is_tsv)
    found = table.rows(columns or table.columns)
    return [(int(place.removeprefix("a:")), row.reason if isinstance(row, BadRow) else row) for place, row in found]


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("t,l\none,x\ntwo,y", [(2, ("one", "x")), (3, ("two", "y"))]),
        ('t,l\r\n"one, ""1""\r\n\r\n1",x\r\n', [(2, ('one, "1"\r\n\r\n1', "x"))]),
        ('t,l\none "1", x \n', [(2, ('one "1"', " x "))]),
        ("t,l\nna\0ïve \u2028\x85,x\n", [(2, ("na\0ïve \u2028\x85", "x"))]),
        ("\n \nt,l\n\n , \n,\none,x\n\n\n", [(7, ("one", "x"))]),
        ("t, l \none,x\n", [(2, ("one", "x"))]),
        ("t;l\none, 1;x\n", [(2, ("one, 1", "x"))]),
        ("t|l\none;x|y\n", [(2, ("one;x", "y"))]),
        ("sep=;\r\nt;l\r\none;x\r\n", [(3, ("one", "x"))]),
        ("sep=,\nt,l\none;1,x\n", [(3, ("one;1", "x"))]),
        ('"t;1",l\none;1,x\n', [(2, ("one;1", "x"))]),
        ("t\none\n\ntwo\n", [(2, ("one",)), (4, ("two",))]),
        ("t\none;two\n", [(2, ("one;two",))]),
        ('"t\nt",l\none,x\n', [(3, ("one", "x"))]),
    ],
)
def test_csv_is_read(content: str, expected: list[tuple[int, tuple[str, ...]]]) -> None:
    assert rows(content) == expected


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ('t\tl\n"one\tx\ntwo" 2"\t"y"\n', [(2, ('"one', "x")), (3, ('two" 2"', '"y"'))]),
        ("t\tl\r\none, 1\tx\r\n\r\ntwo\r2\ty\r\n", [(2, ("one, 1", "x")), (4, ("two\r2", "y"))]),
        ("t\tl\n\t\n \none\t\n", [(4, ("one", ""))]),
        ('t\n"one\ntwo"\n', [(2, ('"one',)), (3, ('two"',))]),
        ("t\\tl\n", []),
    ],
)
def test_tsv_has_no_quotes(content: str, expected: list[tuple[int, tuple[str, ...]]]) -> None:
    assert rows(content, is_tsv=True) == expected


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ('"one "1"",x\nlast,y\n', [(2, QUOTES), (3, ("last", "y"))]),
        (r'"one \"1\" 1",x' + "\nlast,y\n", [(2, QUOTES + r', not as \"'), (3, ("last", "y"))]),
        (r'"one \"",x' + '\n"two",y\nlast,y\n', [(2, QUOTES + r', not as \" (lines 2 to 3)'), (4, ("last", "y"))]),
        (
            '"first "line",x\n"a\n\nb "quoted" word",x\nlast,y\n',
            [(2, QUOTES), (3, f"{QUOTES} (lines 3 to 5)"), (6, ("last", "y"))],
        ),
        ('one,x\n"two,y\nthree,z\n', [(2, ("one", "x")), (3, OPEN), (4, ("three", "z"))]),
        ('"one\n""two"",y\nlast,z\n', [(2, OPEN), (3, QUOTES), (4, ("last", "z"))]),
        ("one\ntwo,y,z\nlast,y\n", [
            (2, "expected 2 columns, not 1"), (3, "expected 2 columns, not 3; cells with commas need quotes"),
            (4, ("last", "y")),
        ]),
        ('"one\n\n1"\nlast,y\n', [(2, "expected 2 columns, not 1"), (5, ("last", "y"))]),
        ("o\rne,x\nlast,y\n", [(2, "a carriage return in a cell without quotes"), (3, ("last", "y"))]),
        (b'caf\x82\xe9,x\n"two\nt\xc3\xa9hree\xe9",y\nlast,y\n', [
            (2, "byte 4 of line 2" + NOT_UTF8), (3, "byte 8 of line 4" + NOT_UTF8), (5, ("last", "y")),
        ]),
    ],
)  # fmt: skip
def test_bad_row_keeps_its_place_and_the_next_is_read(
    content: bytes | str, expected: list[tuple[int, Sequence[str] | str]]
) -> None:
    assert rows(b"t,l\n" + (content if isinstance(content, bytes) else content.encode())) == expected


@pytest.mark.parametrize(
    ("content", "is_tsv", "message"),
    [
        ("t,l\rone,x\r", False, "a:1: the lines end in carriage returns; save the file with line feeds"),
        ("t\tl\rone\tx\r", True, "a:1: the lines end in carriage returns; save the file with line feeds"),
        (b"t\xe9,l\n", False, "a:1: byte 2 of line 1" + NOT_UTF8),
        ('"t,l\none,x\n', False, "a:1: a quote opens a cell and is never closed"),
    ],
)
def test_unreadable_header_is_an_error(content: bytes | str, is_tsv: bool, message: str) -> None:
    with pytest.raises(InputError, match=f"^{re.escape(message)}$"):
        opened(content, is_tsv=is_tsv)


@pytest.mark.parametrize(
    ("content", "is_tsv", "hint"),
    [
        ("text\tlabel\n", False, "; the columns seem to be separated by tabs: end its name in .tsv"),
        ("text,label\n", True, "; the columns seem to be separated by commas: end its name in .csv"),
        ("text;label\n", True, "; the columns seem to be separated by semicolons: save it with commas"),
        ('"text"\t"label"\n', True, "; TSV has no quotes: save the table as CSV"),
        ("text,label\n", False, ""),
        ("text\tlabel\n", True, ""),
        ("", False, ""),
    ],
)
def test_hint_tells_the_separator(content: str, is_tsv: bool, hint: str) -> None:
    assert opened(content, is_tsv=is_tsv).hint == hint


@pytest.fixture
def _short_rows(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(streams, "LONGEST_ROW", 20)
    usual = csv.field_size_limit(20)
    yield
    csv.field_size_limit(usual)


@pytest.mark.usefixtures("_short_rows")
@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("t\nb\n" + "x" * 50 + "\n", "a:3: the line is longer than 20 bytes"),
        ('t\nb\n"' + "x\n" * 15, "a:3: a cell is longer than 20 characters"),
    ],
)
def test_memory_of_a_row_is_bounded(content: str, message: str) -> None:
    found = opened(content).rows(["t"])
    assert next(found) == ("a:2", ("b",))
    with pytest.raises(InputError, match=f"^{message}$"):
        next(found)


CELLS = st.text(st.characters(exclude_categories=["Cs"]), max_size=12) | st.sampled_from(['"', ",", "\r\n", '""', "\n"])


@given(st.lists(st.tuples(CELLS, CELLS), max_size=8), st.sampled_from([",", ";", "|"]))
def test_what_the_csv_module_writes_is_read(table: list[tuple[str, str]], separator: str) -> None:
    text = io.StringIO(newline="")
    writer = csv.writer(text, delimiter=separator, quoting=csv.QUOTE_ALL)
    writer.writerows([["first", "second"], *table])
    expected = [row for row in table if any(cell.strip() for cell in row)]
    assert [row for _, row in rows(text.getvalue())] == expected


@given(st.binary(max_size=60), st.booleans())
def test_any_bytes_are_read_to_the_end_or_refused(content: bytes, is_tsv: bool) -> None:
    """Each line belongs to a row, a blank line or an error; lines never repeat or go back."""
    try:
        found = rows(b"a,b\n" + content, is_tsv=is_tsv)
    except InputError:
        return
    lines = [line for line, _ in found]
    assert lines == sorted(set(lines))
