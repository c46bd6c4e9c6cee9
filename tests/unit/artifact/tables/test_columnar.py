"""Rows of Parquet."""

import io
import sys
from datetime import datetime
from typing import Any

import pyarrow
import pytest
from pyarrow import parquet

from artifact.errors import InputError
from artifact.tables.columnar import ROWS, Parquet
from artifact.tables.table import BadRow


def opened(columns: dict[str, Any], **options: Any) -> tuple[Parquet, int]:
    """The reader of a file with these columns, and the size of the file."""
    target = io.BytesIO()
    parquet.write_table(pyarrow.table(columns), target, **options)
    return Parquet(target, "a.parquet"), len(target.getvalue())


def cells(columns: dict[str, Any], *names: str) -> list[Any]:
    found = [row for _, row in opened(columns)[0].rows(names)]
    assert not any(isinstance(row, BadRow) for row in found)
    return found


def test_rows_have_their_numbers_and_cells_their_types() -> None:
    time = datetime(2024, 1, 1)
    columns = {
        "text": ["a", None],
        "raw": [b"\xff", b""],
        "n": pyarrow.array([1.0, None]),
        "kind": pyarrow.array(["x", "y"]).dictionary_encode(),
        "time": [time, None],
    }
    table, _ = opened(columns)
    assert table.columns == tuple(columns)
    assert list(table.rows(["time", "text", "kind", "n", "raw"])) == [
        ("a.parquet:1", (time, "a", "x", 1.0, b"\xff")),
        ("a.parquet:2", (None, None, "y", None, b"")),
    ]


def test_fields_of_structures_have_dotted_names() -> None:
    columns = {"doc": [{"body": "a", "meta": {"n": 1}}, None, {"body": None, "meta": None}], "x": [1, 2, 3]}
    assert opened(columns)[0].columns == ("doc", "doc.body", "doc.meta", "doc.meta.n", "x")
    assert cells(columns, "doc.body", "x", "doc.meta.n") == [("a", 1, 1), (None, 2, None), (None, 3, None)]


@pytest.mark.parametrize(
    "kind",
    [
        pyarrow.map_(pyarrow.string(), pyarrow.list_(pyarrow.float64())),
        pyarrow.struct({"a": pyarrow.list_(pyarrow.float64())}),
    ],
)
def test_series_are_maps_or_structures(kind: pyarrow.DataType) -> None:
    value = {"a": [1.0, None]}
    given = [list(value.items())] if pyarrow.types.is_map(kind) else [value]
    assert cells({"series": pyarrow.array(given, kind)}, "series") == [(value,)]


def test_position_is_the_share_of_the_rows() -> None:
    count = 10 * ROWS
    table, size = opened({"text": [f"text {number}" for number in range(count)]}, row_group_size=3 * ROWS)
    assert table.position() == 0
    for number, _ in enumerate(table.rows(["text"]), 1):
        assert table.position() == size * number // count
    assert table.position() == size


def test_pyarrow_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(InputError, match=r"^a\.parquet: Parquet needs pyarrow: pip install '\.\[parquet\]'$"):
        Parquet(io.BytesIO(b"PAR1"), "a.parquet")


def test_damaged_file_is_named() -> None:
    with pytest.raises(InputError, match=r"^a\.parquet: \S"):
        Parquet(io.BytesIO(b"PAR1" + 100 * b"x"), "a.parquet")
