"""Files of a batch and their parts."""

import gzip
import json
import lzma
import re
from collections.abc import Callable
from pathlib import Path

import pyarrow
import pytest
from pyarrow import parquet
from pyarrow.fs import LocalFileSystem

from artifact.errors import InputError
from artifact.tables.reading import Field
from artifact.tables.table import BadRow
from service.offline import inputs as module
from service.offline.inputs import Part, filesystem, find_inputs, read_parts

TEXT = (Field("text"),)
RANK = (Field("query"), Field("documents", "a list of strings"))
SERIES = (Field("series", "a series"),)


def parts_of(path: Path, fields: tuple[Field, ...] = TEXT) -> list[Part]:
    return list(read_parts(str(path), fields))


def rows_of(path: Path, fields: tuple[Field, ...] = TEXT) -> list[object]:
    return [row for part in parts_of(path, fields) for _, row in part.rows]


def test_patterns_name_files_once_and_in_order(tmp_path: Path) -> None:
    for name in ("b/1.jsonl", "a/1.jsonl", "a/2.csv.gz", "a/.3.jsonl", "a/x/4.jsonl", "c.parquet"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("{}")
    found = find_inputs([f"{tmp_path}/*/*.jsonl", f"{tmp_path}/a/[12].*", f"{tmp_path}/?.parquet"])
    assert [file.name for file in found] == ["a/1.jsonl", "a/2.csv.gz", "b/1.jsonl", "c.parquet"]
    assert {file.size for file in found} == {2}
    (only,) = find_inputs([f"{tmp_path}/c.parquet"])
    assert (only.name, only.path) == ("c.parquet", f"{tmp_path}/c.parquet")
    assert only.modified_ns == (tmp_path / "c.parquet").stat().st_mtime_ns


def test_path_may_be_relative_or_a_uri(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.csv").write_text("text\n")
    assert [file.path for file in find_inputs(["a.csv"])] == [f"{tmp_path}/a.csv"]
    (file,) = find_inputs([f"file://{tmp_path}/*.csv"])
    assert (file.path, file.name) == (f"file://{tmp_path}/a.csv", "a.csv")
    assert list(read_parts(file.path, TEXT)) == []
    system, path = filesystem("mock://store/folder/a.csv?none=1")
    assert not isinstance(system, LocalFileSystem)
    assert path.endswith("folder/a.csv")
    with pytest.raises(InputError, match=r"^none://x: "):
        filesystem("none://x/a.csv")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("none/*.csv", "{}/none/*.csv: there is no such file"),
        ("none.csv", "{}/none.csv: there is no such file"),
        ("a.txt/*", "{}/a.txt/*: "),
        ("folder", "{0}/folder is a folder; give its files, such as {0}/folder/*.parquet"),
        ("a.txt", "{}/a.txt: expected a file that ends in .csv, .tsv, .jsonl, .ndjson (also with .gz or .xz) or .parq"),
    ],
)
def test_wrong_inputs_are_named(tmp_path: Path, name: str, message: str) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "a.txt").touch()
    with pytest.raises(InputError, match=f"^{re.escape(message.format(tmp_path))}"):
        find_inputs([f"{tmp_path}/{name}"])


def test_part_ends_after_its_rows_or_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PART_ROWS", 3)
    monkeypatch.setattr(module, "PART_BYTES", 45)
    texts = ["1", "2", "3", "4", "x" * 40, "5", "6", "7"]
    path = tmp_path / "a.jsonl"
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    parts = parts_of(path)
    assert [(part.number, part.first) for part in parts] == [(0, 0), (1, 3), (2, 5)]
    assert [[row for _, row in part.rows] for part in parts] == [
        [(b"1",), (b"2",), (b"3",)],
        [(b"4",), (b"x" * 40,)],
        [(b"5",), (b"6",), (b"7",)],
    ]
    assert sum(part.read for part in parts) == path.stat().st_size
    packed = tmp_path / "a.parquet"
    parquet.write_table(pyarrow.table({"text": texts}), packed)
    assert [[row for _, row in part.rows] for part in parts_of(packed)] == [[r for _, r in part.rows] for part in parts]
    assert sum(part.read for part in parts_of(packed)) == packed.stat().st_size


@pytest.mark.parametrize(("end", "pack"), [("", bytes), (".gz", gzip.compress), (".xz", lzma.compress)])
def test_bad_rows_keep_their_places(tmp_path: Path, end: str, pack: Callable[[bytes], bytes]) -> None:
    lines = b'{"text": "a"}\n\n{"text": 1}\n{\n"b"\n{"text": "\\ud800"}\n{"text": "c"}\n'
    path = tmp_path / f"a.jsonl{end}"
    path.write_bytes(pack(lines))
    (part,) = parts_of(path)
    places = [f"{path}:{number}" for number in (1, 3, 4, 5, 6, 7)]
    assert [place for place, _ in part.rows] == places
    assert [row for _, row in part.rows if not isinstance(row, BadRow)] == [(b"a",), (b"c",)]
    assert part.rows[1][1] == BadRow("text must be a string, not a number")
    table = tmp_path / f"a.csv{end}"
    table.write_bytes(pack(b'id,text\n1,"a\nb"\n2\n3,\xff\n4,c\n'))
    (part,) = parts_of(table)
    not_utf8 = BadRow("byte 3 of line 5 is not UTF-8; --encoding names the encoding, such as cp1252")
    rows = [(b"a\nb",), BadRow("expected 2 columns, not 1"), not_utf8, (b"c",)]
    assert part.rows == [(f"{table}:{line}", row) for line, row in zip((2, 4, 5, 6), rows, strict=True)]


def test_columns_of_parquet_files_are_checked(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    parquet.write_table(pyarrow.table({"text": [b"\xff", b"a", None]}), path)
    assert rows_of(path) == [(b"\xff",), (b"a",), (None,)]
    with pytest.raises(InputError, match=re.escape(f"{path}: no column 'query'; columns: text; --text-column")):
        parts_of(path, RANK)
    path.write_bytes(b"PAR1" + 100 * b"x")
    with pytest.raises(InputError, match=f"^{re.escape(str(path))}: "):
        parts_of(path)


def test_lists_and_series_are_json_in_tables(tmp_path: Path) -> None:
    path = tmp_path / "a.tsv"
    path.write_text('query\tdocuments\nq\t["a", "b"]\nq\t"a"\nq\t[1]\nq\t[\n')
    bad = BadRow("documents must be a list of strings, not a string")
    expected = [(b"q", [b"a", b"b"]), bad, BadRow("documents must be a string, not a number"), bad]
    assert rows_of(path, RANK) == expected
    table = tmp_path / "a.csv"
    table.write_text('series\n"[[1, null]]"\n"{""a"": [2]}"\n1\n[[NaN]]\n')
    reasons = ("be a list or an object, not a number", "not contain NaN or infinity; use null for a missing value")
    bad_rows = [BadRow(f"series must {reason}") for reason in reasons]
    assert rows_of(table, SERIES) == [([[1, None]],), ({"a": [2]},), *bad_rows]
