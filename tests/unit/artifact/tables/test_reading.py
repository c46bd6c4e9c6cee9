"""The reader of a file is chosen by its name; the columns that a task needs are checked."""

import gzip
import io
import json
import lzma
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow
import pytest
from pyarrow import parquet

from artifact.errors import InputError
from artifact.tables.reading import KNOWN, Field, found_in, is_table, open_table, read_fields
from artifact.tables.streams import STDIN
from artifact.tables.table import BadRow

TEXT = Field("text")
LABEL = Field("label", "a label", "--label-column")
SPLIT = Field("split", "a label", "--split", is_required=False)


def read(path: Path, *fields: Field, kind: str | None = None) -> list[Any]:
    """Line and values of each row, or why there are none."""
    with open_table(path, kind=kind) as table:
        found = [(place.rpartition(":")[2], row) for place, row in read_fields(table, fields)]
    return [(int(line), row.reason if isinstance(row, BadRow) else row) for line, row in found]


def write_parquet(path: Path, rows: list[dict[str, Any]]) -> None:
    parquet.write_table(pyarrow.Table.from_pylist(rows), path)


@pytest.mark.parametrize("name", ["a.csv", "A.TSV", "a.jsonl", "a.ndjson", "a.csv.gz", "a.jsonl.XZ", "a.parquet"])
def test_format_is_that_of_the_name(tmp_path: Path, name: str) -> None:
    path, rows = tmp_path / name, [{"label": "x", "text": "one"}, {"label": "y", "text": "two"}]
    first = 2
    if "parquet" in name:
        first = 1
        write_parquet(path, rows)
    else:
        separator = "\t" if "TSV" in name else ","
        lines = [separator.join(row.values()) for row in ({"label": "label", "text": "text"}, *rows)]
        if "json" in name:
            first, lines = 1, [json.dumps(row) for row in rows]
        content = "\n".join(lines).encode()
        packed = {"gz": gzip.compress(content, mtime=0), "XZ": lzma.compress(content)}
        path.write_bytes(packed.get(name.rpartition(".")[2], content))
    assert read(path, TEXT, LABEL, SPLIT) == [(first, (b"one", "x", "")), (first + 1, (b"two", "y", ""))]
    assert is_table(name)


def test_names_of_columns_may_have_the_spaces_of_the_file(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("text,class \none,x\n")
    assert read(tmp_path / "a.csv", TEXT, LABEL._replace(name="class ")) == [(2, (b"one", "x"))]
    assert read(tmp_path / "a.csv", TEXT, LABEL._replace(name="class")) == [(2, (b"one", "x"))]


def test_format_may_be_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a").write_text("text\none\n")
    assert read(tmp_path / "a", TEXT, kind=".csv") == [(2, (b"one",))]
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b'{"text": "one"}\n')))
    with open_table(STDIN, kind=".jsonl") as table:
        assert list(read_fields(table, [TEXT])) == [("stdin:1", (b"one",))]


def test_missing_values_are_missing_in_every_format(tmp_path: Path) -> None:
    expected = [((None, "x")), ((b"a", "")), ((None, "NA"))]
    (tmp_path / "a.csv").write_text("text,label\n,x\na,\nnull,NA\n")
    (tmp_path / "a.tsv").write_text("text\tlabel\n \tx\na\t\nNaN\tNA\n")
    (tmp_path / "a.jsonl").write_text('{"text": null, "label": "x"}\n{"text": "a"}\n{"text": NaN, "label": "NA"}\n')
    texts, labels = [None, "a", "none"], ["x", None, "NA"]
    parquet.write_table(pyarrow.table({"text": texts, "label": labels}), tmp_path / "a.parquet")
    for name in ("a.csv", "a.tsv", "a.jsonl", "a.parquet"):
        assert [row for _, row in read(tmp_path / name, TEXT, LABEL)] == expected, name


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("body,label\n", "a.csv:1: no column 'text'; columns: body, label; --text-column names another one"),
        ("text,kind\n", "a.csv:1: no column 'label'; columns: text, kind; --label-column names another one"),
        ("text,text,label\n", "a.csv:1: two columns 'text'; columns: text, text, label"),
        ("text,label,split,split\n", "a.csv:1: two columns 'split'; columns: text, label, split, split"),
        ("", "a.csv:1: no column 'text'; columns: none; --text-column names another one"),
        ("text\tlabel\n", "the columns seem to be separated by tabs: end its name in .tsv"),
        (
            "I loved this film from its first minute to the last,pos,2024,extra\nIt was dull,neg,2023,\n",
            "a.csv:1: no column 'text'; columns: I loved this film from its fir..., pos, 2024 and 1 more; "
            "--text-column names another one; if these are values, add a first line with the names of the columns",
        ),
    ],
)
def test_columns_of_a_table_are_checked(tmp_path: Path, content: str, message: str) -> None:
    path = tmp_path / "a.csv"
    path.write_text(content)
    with pytest.raises(InputError) as caught:
        read(path, TEXT, LABEL, SPLIT)
    assert str(caught.value).endswith(message)
    assert str(caught.value).startswith(f"{path}:1: ")


def test_nearest_of_many_columns_are_named(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text(",".join(["label", *(f"q{i}" for i in range(205)), "full_text", "Text"]) + "\n")
    with pytest.raises(InputError) as caught:
        read(path, TEXT)
    listed = str(caught.value).partition("columns: ")[2].partition(" and ")[0].split(", ")
    assert len(listed) == 8
    assert {"Text", "full_text"} <= set(listed)
    assert str(caught.value).endswith(" and 200 more; --text-column names another one")


def test_columns_of_parquet_are_checked_without_a_line(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    write_parquet(path, [{"doc": {"body": "a"}}])
    assert read(path, Field("doc.body")) == [(1, (b"a",))]
    with pytest.raises(InputError, match=f"^{path}: no column 'text'; columns: doc, doc.body; --text-column names"):
        read(path, TEXT)


def test_bytes_in_parquet_have_the_encoding_that_is_named(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    write_parquet(path, [{"text": "é".encode("cp1252")}])
    with open_table(path, encoding="cp1252") as table:
        assert list(read_fields(table, [TEXT])) == [(f"{path}:1", ("é".encode(),))]


def test_rows_without_a_column_are_bad(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"body": "a", "meta": {"n": 1}}\n{"text": "a"}\n{"text": 5}\n{"text": "b", "label": "x"}\n')
    assert read(path, TEXT, LABEL) == [
        (1, "no column 'text'; columns: body, meta.n; --text-column names another one"),
        (2, (b"a", "")),
        (3, "text must be a string, not a number"),
        (4, (b"b", "x")),
    ]


def test_label_column_that_no_row_of_json_lines_has_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"text": "a", "topic": "x"}\n{"text": "b"}\n')
    told = f"^{path}: no column 'label'; columns: text, topic; --label-column names another one$"
    with pytest.raises(InputError, match=told):
        read(path, TEXT, LABEL)
    assert read(path, TEXT, LABEL._replace(is_required=False)) == [(1, (b"a", "")), (2, (b"b", ""))]


@pytest.mark.parametrize(
    ("name", "content", "what"),
    [
        ("a.txt", b"text", ""),
        ("a", b"", ""),
        ("a.csv.zip", b"PK\x03\x04" + bytes(40), "; it is a ZIP archive"),
        (
            "a.xlsx",
            b"PK\x03\x04" + bytes(26) + b"[Content_Types].xml",
            "; it is an Office document, such as .xlsx or .docx; ",
        ),
        ("a.parquet.gz", gzip.compress(b"PAR1", mtime=0), "; it is compressed with gzip; unpack it"),
        ("a.json", b'[{"text": "a"}]', "; it is a JSON array: write one object a line and end its name in .jsonl"),
        (
            "a.json",
            b'{"text": "a"}\n{"text": "b"}\n',
            "; it is JSON Lines: write one object a line and end its name in",
        ),
        (
            "a.json",
            b'[\n{"text": "a"},\n' * 9,
            "; it is a JSON array: write one object a line and end its name in .jsonl",
        ),
    ],
)
def test_other_files_are_refused_by_name(tmp_path: Path, name: str, content: bytes, what: str) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    assert not is_table(name)
    with pytest.raises(InputError) as caught:
        read(path, TEXT)
    assert str(caught.value).startswith(f"{path}: expected a file that ends in {KNOWN}{what}")
    assert found_in(path).startswith(what)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"text,label\n", "expected Parquet"),
        (gzip.compress(b"PAR1", mtime=0), "expected Parquet, but it is compressed with gzip"),
        (b"", "expected Parquet"),
    ],
)
def test_file_named_parquet_must_be_one(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "a.parquet"
    path.write_bytes(content)
    with pytest.raises(InputError, match=f"^{path}: {message}$"):
        read(path, TEXT)


@pytest.mark.parametrize("pack", [gzip.compress, lzma.compress])
def test_error_inside_a_compressed_file_names_it(tmp_path: Path, pack: Callable[[bytes], bytes]) -> None:
    path = tmp_path / ("a.csv.gz" if pack is gzip.compress else "a.csv.xz")
    path.write_bytes(pack(b"text\n" + bytes(range(32, 127)) * 99)[:-9])
    with pytest.raises(InputError, match=f"^{path}: "):
        read(path, TEXT)
