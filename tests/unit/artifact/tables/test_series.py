"""Tables of series."""

import json
import re
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pytest
from pyarrow import parquet

from artifact.errors import InputError
from artifact.tables import series
from artifact.tables.series import LISTED, Sheet, numbers, read_sheet


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "a.csv"


def sheet(path: Path, content: bytes | str) -> Sheet:
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return read_sheet(path)


def values(path: Path, content: bytes | str, *columns: str) -> list[list[float]]:
    found = sheet(path, content)
    read: list[list[float]] = numbers(found, columns or found.columns).tolist()
    return read


def test_rows_keep_their_lines(path: Path) -> None:
    found = sheet(path, '\ufeffa,b\r\n1,2\r\n\r\n,\r\n"3\n",4\r\n\n')
    assert (found.columns, found.lines, found.cells) == (("a", "b"), (2, 5), (("1", "2"), ("3\n", "4")))
    assert found.column("b") == ["2", "4"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", " has no rows"),
        ("date,a\n", " has no rows"),
        ("date,a\n1,2\n3\n", ":3: expected 2 columns, not 1"),
        ('date,a\n1,"2\n', ":2: a quote opens a cell and is never closed"),
        ("date,a,a\n1,2,3\n", ":1: two columns 'a'"),
        ('date,"a\nb"\n1,2\n', ":1: the name 'a\\nb' contains a control character"),
        (
            "2024-01-01,1.5,2\n2024-01-02,2.5,3\n",
            ":1: expected a line with the names of the columns, not 2024-01-01, 1.5, 2",
        ),
    ],
)
def test_unusable_table_is_an_error(path: Path, content: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        sheet(path, content)
    assert str(caught.value) == f"{path}{message}"


def test_number_of_cells_has_a_limit(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(series, "MOST_CELLS", 4)
    assert len(sheet(path, "a,b\n1,2\n3,4\n").cells) == 2
    with pytest.raises(InputError, match=r":4: more than 4 cells$"):
        sheet(path, "a,b\n1,2\n3,4\n5,6\n")


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("a,b\n 1 ,-2.5e3\n+.5,1.\n", [[1, -2500], [0.5, 1]]),
        ("a;b\n1,5;-2,5e3\n,5;1\n", [[1.5, -2500], [0.5, 1]]),
        ("a;b\n1.5;2\n", [[1.5, 2]]),
        ("a|b\n1,5|2\n", [[1.5, 2]]),
    ],
)
def test_numbers_have_a_decimal_point_or_comma(path: Path, content: str, expected: list[list[float]]) -> None:
    assert values(path, content) == expected


def test_cells_of_parquet_have_types(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    columns: dict[str, Any] = {
        "i": [1, None],
        "d": [Decimal("1.50"), None],
        "t": ["2", "n/a"],
        "when": [datetime(2024, 1, 1), None],
    }
    parquet.write_table(pyarrow.table(columns), path)
    found = read_sheet(path)
    np.testing.assert_array_equal(numbers(found, ["i", "d", "t"]), [[1, 1.5, 2], [np.nan] * 3])
    with pytest.raises(InputError, match=re.escape("(1): line 1 column when '2024-01-01 00:00:00'")):
        numbers(found, ["when"])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('a,b\n1,2\n"1,5",x\n', "cells that are not finite numbers (2): line 3 column a '1,5', line 3 column b 'x'"),
        ("a;b\n1.234,5;2\n", "cells that are not finite numbers (1): line 2 column a '1.234,5'"),
        ("a;b\n1.234;2\n3;0,5\n", "decimal points and decimal commas: line 2 column a '1.234', line 3 column b '0,5'"),
        ("a\n1_000\n", "cells that are not finite numbers (1): line 2 column a '1_000'"),
        ("a\n1e999\n-inf\n", "cells that are not finite numbers (2): line 2 column a '1e999', line 3 column a '-inf'"),
        ("a\n" + "x" * 1000 + "\n", f"cells that are not finite numbers (1): line 2 column a '{'x' * 40}'"),
    ],
)
def test_other_cells_are_named(path: Path, content: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        values(path, content)
    assert str(caught.value) == f"{path}: {message}"


def test_error_names_a_bounded_number_of_cells_and_their_total(path: Path) -> None:
    with pytest.raises(InputError) as caught:
        values(path, "a\n" + "x\n" * 30)
    assert str(caught.value).count("line") == LISTED
    assert str(caught.value).endswith(f", and {30 - LISTED} more")


def test_missing_key_of_json_lines_is_a_missing_value(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in ({"a": {"x": 1}}, {"b": 2, "a": None}, {"a": {"x": 3}})))
    found = read_sheet(path)
    assert found.columns == ("a.x", "b", "a")
    np.testing.assert_array_equal(numbers(found, ["a.x", "b"]), [[1, np.nan], [np.nan, 2], [3, np.nan]])
