"""Files of documents, pairs and series."""

import gzip
import io
import lzma
import re
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from service.offline.files import STDIN, Field, InputError, columns, read, rows, texts

TEXT, PAIR = (Field("text"),), (Field("a"), Field("b"))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "file"


def test_json_lines_have_their_locations(path: Path) -> None:
    path.write_bytes(b'{"a":"\\u00e9","b":"2","more":1}\n\n{"b":"","a":"x"}\r\n')
    assert list(rows(path, None, PAIR)) == [
        (f"{path}:1", ("é".encode(), b"2")),
        (f"{path}:3", (b"x", b"")),
    ]


@pytest.mark.parametrize("line", [b"{", b"1", b"[]", b"{}", b'{"text":1}', b"\xff", b"[" * 100_000])
def test_error_names_the_wrong_line(path: Path, line: bytes) -> None:
    path.write_bytes(b'{"text":"good"}\n' + line)
    found = rows(path, None, TEXT)
    assert next(found) == (f"{path}:1", (b"good",))
    message = f"{path}:2: expected a JSON object with a string `text`; use --text-column for other names"
    with pytest.raises(InputError, match=re.escape(message)):
        next(found)


def test_rows_of_a_table_have_their_locations(path: Path) -> None:
    path.write_text('\ufefftext,other\n"one\nline",x\n\ntwo,y\n', encoding="utf-8")
    assert list(rows(None, path, TEXT)) == [(f"{path}:2", (b"one\nline",)), (f"{path}:5", (b"two",))]


@pytest.mark.parametrize("name", ["rows.tsv", "ROWS.TSV", "rows.tsv.gz", "rows.csv.gz"])
def test_table_may_be_tab_separated_and_compressed(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    content = "id,text\n1,one\n" if "csv" in name else "id\ttext\n1\tone\n"
    path.write_bytes(gzip.compress(content.encode()) if name.endswith("gz") else content.encode())
    assert list(rows(None, path, TEXT)) == [(f"{path}:2", (b"one",))]


@pytest.mark.parametrize(
    "content", [b"text\n", gzip.compress(b"text\none\n", mtime=0)[:-9], gzip.compress(b"text\n", mtime=0) + b"x"]
)
def test_error_names_a_damaged_compressed_table(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "rows.csv.gz"
    path.write_bytes(content)
    with pytest.raises(InputError, match=f"^{re.escape(str(path))}: (?!None)"):
        list(rows(None, path, TEXT))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"other\nx\n", ":1: no column `text`; there are: other; use --text-column for other names"),
        (b"x" * 1000, f":1: no column `text`; there are: {'x' * 200}; use --text-column"),
        (b"", ":1: no column `text`; there are: none"),
        (b"text,text\nx,y\n", ":1: two columns `text`"),
        (b"text,other\nx\n", ":2: 1 cells under 2 columns"),
        (b"text\n\xff\n", ":2: the text is not valid UTF-8"),
    ],
)
def test_error_names_the_wrong_table(path: Path, content: bytes, message: str) -> None:
    path.write_bytes(content)
    with pytest.raises(InputError, match=re.escape(f"{path}{message}")):
        list(rows(None, path, TEXT))


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
def test_error_names_the_wrong_cell(path: Path, cell: str, message: str) -> None:
    path.write_text(f"a\n{cell}\n")
    with pytest.raises(InputError, match=re.escape(f"{path}{message}")):
        columns(path, ("a",))


def test_file_is_read_unchanged(path: Path) -> None:
    path.write_bytes(b"\xff\x00\r\n")
    assert read(path) == b"\xff\x00\r\n"


def test_error_names_a_missing_file(path: Path) -> None:
    for attempt in (
        lambda: read(path),
        lambda: list(rows(path, None, TEXT)),
        lambda: list(rows(None, path, TEXT)),
        lambda: columns(path, ("a",)),
    ):
        with pytest.raises(InputError, match=re.escape(f"{path}: No such file or directory")):
            attempt()


def test_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=re.escape(f"{tmp_path} is a folder; give its files, --jsonl or --csv")):
        read(tmp_path)


@pytest.mark.parametrize(("pack", "end"), [(None, ""), (gzip.compress, ".gz"), (lzma.compress, ".XZ")])
def test_files_of_many_documents_are_read_row_by_row(
    tmp_path: Path, pack: Callable[[bytes], bytes] | None, end: str
) -> None:
    """Three lines are three documents, not one."""
    files = {"a.jsonl": b'{"text":"1"}\n{"text":"2"}\n{"text":"3"}\n', "b.tsv": b"text\tid\n4\t1\n", "c.txt": b"5,6"}
    paths = []
    for name, content in files.items():
        is_packed = pack is not None and not name.endswith(".txt")
        paths.append(tmp_path / (name + end if is_packed else name))
        paths[-1].write_bytes(pack(content) if pack is not None and is_packed else content)
    lines, table, document = paths
    assert list(texts(paths, TEXT)) == [
        *((f"{lines}:{i}", (str(i).encode(),)) for i in (1, 2, 3)),
        (f"{table}:2", (b"4",)),
        (str(document), (b"5,6",)),
    ]


def test_file_of_one_text_is_no_pair(path: Path) -> None:
    message = f"{path}: pairs are read from files that end in .jsonl, .ndjson, .csv, .tsv, also with .gz or .xz"
    with pytest.raises(InputError, match=f"^{re.escape(message)}$"):
        list(texts([path], PAIR))


def test_minus_is_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    cases: list[tuple[bytes, Callable[[], Iterable[Any]], list[Any]]] = [
        (b'{"text":"1"}\n', lambda: rows(STDIN, None, TEXT), [("stdin:1", (b"1",))]),
        (b"text\n1\n", lambda: rows(None, STDIN, TEXT), [("stdin:2", (b"1",))]),
        (b"text\n1\n", lambda: texts([STDIN], TEXT), [("stdin", (b"text\n1\n",))]),
    ]
    for content, read_stdin, expected in cases:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))
        assert list(read_stdin()) == expected


@pytest.mark.parametrize("name", ["a.jsonl.gz", "a.jsonl.xz", "a.csv.xz"])
def test_damaged_packed_file_is_named(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    whole = b'{"text":"1"}\n' * 99 if "jsonl" in name else b"text\n" * 99
    path.write_bytes((lzma.compress if name.endswith("xz") else gzip.compress)(whole)[:-9])
    with pytest.raises(InputError, match=f"^{re.escape(str(path))}: "):
        list(texts([path], TEXT))
