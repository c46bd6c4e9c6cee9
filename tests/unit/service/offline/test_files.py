"""Files of documents, pairs and series."""

import re
from pathlib import Path

import pytest

from service.offline.files import InputError, columns, read, rows


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "file"


def test_lines_of_json_have_their_places(path: Path) -> None:
    path.write_bytes(b'{"a":"\\u00e9","b":"2","more":1}\n\n{"b":"","a":"x"}\r\n')
    assert list(rows(path, None, ("a", "b"))) == [
        (f"{path}:1", ("é".encode(), b"2")),
        (f"{path}:3", (b"x", b"")),
    ]


@pytest.mark.parametrize("line", [b"{", b"1", b"[]", b"{}", b'{"text":1}', b"\xff", b"[" * 100_000])
def test_wrong_line_is_named(path: Path, line: bytes) -> None:
    path.write_bytes(b'{"text":"good"}\n' + line)
    found = rows(path, None, ("text",))
    assert next(found) == (f"{path}:1", (b"good",))
    with pytest.raises(InputError, match=re.escape(f"{path}:2: expected a JSON object with a string `text`")):
        next(found)


def test_rows_of_a_table_have_their_places(path: Path) -> None:
    path.write_text('\ufefftext,other\n"one\nline",x\n\ntwo,y\n', encoding="utf-8")
    assert list(rows(None, path, ("text",))) == [(f"{path}:3", (b"one\nline",)), (f"{path}:5", (b"two",))]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"other\nx\n", ":1: no column `text`"),
        (b"", ":1: no column `text`"),
        (b"text,text\nx,y\n", ":1: two columns `text`"),
        (b"text,other\nx\n", ":2: 1 cells under 2 columns"),
        (b"text\n\xff\n", ": 'utf-8' codec can't decode"),
    ],
)
def test_wrong_table_is_named(path: Path, content: bytes, message: str) -> None:
    path.write_bytes(content)
    with pytest.raises(InputError, match=re.escape(f"{path}{message}")):
        list(rows(None, path, ("text",)))


def test_columns_are_numbers_or_missing(path: Path) -> None:
    path.write_text("time,b,a\nx, 1 ,2.5\ny,,-1e3\n")
    assert columns(path, ("a", "b")) == {"a": [2.5, -1000.0], "b": [1.0, None]}


@pytest.mark.parametrize(
    ("cell", "message"),
    [
        ("x", ":2: column a: not a number: 'x'"),
        ("nan", ":2: column a: not a finite number: 'nan'; leave the cell of a missing value empty"),
        ("1e999", ":2: column a: not a finite number: '1e999'"),
    ],
)
def test_wrong_cell_is_named(path: Path, cell: str, message: str) -> None:
    path.write_text(f"a\n{cell}\n")
    with pytest.raises(InputError, match=re.escape(f"{path}{message}")):
        columns(path, ("a",))


def test_file_is_read_as_it_is(path: Path) -> None:
    path.write_bytes(b"\xff\x00\r\n")
    assert read(path) == b"\xff\x00\r\n"


def test_missing_file_is_named(path: Path) -> None:
    for attempt in (
        lambda: read(path),
        lambda: list(rows(path, None, ("text",))),
        lambda: list(rows(None, path, ("text",))),
        lambda: columns(path, ("a",)),
    ):
        with pytest.raises(InputError, match=re.escape(f"{path}: No such file or directory")):
            attempt()
