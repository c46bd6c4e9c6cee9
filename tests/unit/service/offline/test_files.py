"""Files of documents and pairs."""

import gzip
import io
import lzma
import re
import sys
from collections.abc import Callable
from pathlib import Path

import pyarrow
import pytest
from pyarrow import parquet

from artifact.errors import InputError
from artifact.tables.reading import KNOWN, Field
from artifact.tables.streams import STDIN
from artifact.tables.table import BadRow
from service.offline.files import read_inputs, read_rows, table_kind

TEXT, PAIR = (Field("text"),), (Field("a"), Field("b"))


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
    columnar = tmp_path / "d.parquet"
    parquet.write_table(pyarrow.table({"text": ["7", "8"]}), columnar)
    assert list(read_inputs([*paths, columnar], TEXT)) == [
        *((f"{lines}:{i}", (str(i).encode(),)) for i in (1, 2, 3)),
        (f"{table}:2", (b"4",)),
        (str(document), (b"5,6",)),
        (f"{columnar}:1", (b"7",)),
        (f"{columnar}:2", (b"8",)),
    ]


def test_bad_rows_keep_their_places(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"a":"\\u00e9","b":"2","more":1}\n\n{\n{"b":"","a":"x"}\r\n{"a":"x"}\n')
    found = list(read_inputs([path], PAIR))
    assert [place for place, _ in found] == [f"{path}:{line}" for line in (1, 3, 4, 5)]
    assert [row for _, row in found if not isinstance(row, BadRow)] == [("é".encode(), b"2"), (b"x", None)]


def test_file_of_one_text_is_no_pair(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("text")
    with pytest.raises(InputError, match=re.escape(f"{path}: pairs are read from files that end in {KNOWN}")):
        list(read_inputs([path], PAIR))


def test_minus_is_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    for content, kind in ((b'{"text":"1"}\n', ".jsonl"), (b"text\n1\n", ".csv")):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))
        ((place, row),) = read_rows(STDIN, TEXT, kind=kind)
        assert (place.partition(":")[0], row) == ("stdin", (b"1",))
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"text\n1\n")))
    assert list(read_inputs([STDIN], TEXT)) == [("stdin", (b"text\n1\n",))]


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("a.csv", ".csv"),
        ("A.TSV.gz", ".tsv"),
        ("a.parquet", ".parquet"),
        ("a", ".csv"),
        ("-", ".csv"),
        ("a.txt", ".csv"),
    ],
)
def test_table_of_columns_is_csv_unless_its_name_says_otherwise(name: str, kind: str) -> None:
    assert table_kind(Path(name)) == kind


@pytest.mark.parametrize("content", [b"PAR1" + bytes(20), b"PK\x03\x04" + bytes(40), b"%PDF-1.7", b'[{"text": "a"}]'])
def test_container_is_no_document(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(content)
    with pytest.raises(InputError, match=f"^{path}: expected a? ?text, but it is an? "):
        list(read_inputs([path], TEXT))
