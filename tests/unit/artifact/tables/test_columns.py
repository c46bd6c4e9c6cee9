"""Columns of tables of series: the time, the channels, and those that are left out."""

import csv
import io
import re
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from artifact.errors import InputError
from artifact.series import PLAIN, Layout
from artifact.tables.columns import Columns, find_columns, find_id_columns
from artifact.tables.series import Sheet, read_sheet

COUNT = 24
HOURS = [str(datetime(2024, 1, 1) + timedelta(hours=i)) for i in range(COUNT)]
LOAD = [round(20 + i * 37 % 11 * 0.7, 2) for i in range(COUNT)]
TEMP = [i * 53 % 17 for i in range(COUNT)]
ROWS = list(range(COUNT))

Table = Mapping[str, Sequence[object]]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "a.csv"


def sheet(path: Path, columns: Table) -> Sheet:
    text = io.StringIO()
    csv.writer(text).writerows([list(columns), *zip(*columns.values(), strict=True)])
    path.write_text(text.getvalue())
    return read_sheet(path)


def found(path: Path, columns: Table, layout: Layout = PLAIN) -> Columns:
    return find_columns(sheet(path, columns), layout)


@pytest.mark.parametrize(
    "columns",
    [
        {"": ROWS, "date": HOURS, "load": LOAD},
        {"Unnamed: 0": ROWS, "date": HOURS, "load": LOAD},
        {"": [7 * i % 31 for i in ROWS], "date": HOURS, "load": LOAD},
        {"row": [i + 1 for i in ROWS], "load": LOAD, "date": HOURS},
        {"date": HOURS, "load": LOAD, "id": ROWS},
        {"x": ROWS, "year": [1900 + i for i in ROWS], "load": LOAD},
    ],
)
def test_row_numbers_are_left_out(path: Path, columns: Table) -> None:
    columns_found = found(path, columns)
    assert (columns_found.time, columns_found.values) == (next(n for n in columns if n in ("date", "year")), ("load",))
    name = next(name for name in columns if name not in ("date", "year", "load"))
    assert columns_found.notes == (f"left out {name!r}: row numbers",)


def test_trend_is_a_channel(path: Path) -> None:
    assert found(path, {"date": HOURS, "trend": ROWS, "load": LOAD}) == Columns("date", ("trend", "load"), ())


def test_texts_are_left_out(path: Path) -> None:
    texts: Table = {
        "date": HOURS,
        "load": LOAD,
        "sky": ["sun", "fog"] * 12,
        "flag": ["True"] * COUNT,
        "until": HOURS[::-1],
    }
    assert found(path, texts) == Columns("date", ("load",), ("left out 'sky', 'flag', 'until': text, not numbers",))
    message = ":1: expected at least one channel besides the time column; columns: date, sky; left out 'sky'"
    with pytest.raises(InputError, match=re.escape(message)):
        found(path, {"date": HOURS, "sky": texts["sky"]})


@pytest.mark.parametrize("cell", ["1,234.5", "12 %", "$5.20", "inf", "1 234"])
def test_numbers_in_other_notations_are_channels(path: Path, cell: str) -> None:
    """Their cells are errors, not texts that are left out."""
    assert found(path, {"date": HOURS, "load": [cell] * COUNT}).values == ("load",)


@pytest.mark.parametrize(
    ("columns", "time"),
    [
        ({"load": LOAD, "date": HOURS}, "date"),
        ({"load": LOAD, "whatever": HOURS}, "whatever"),
        ({"": HOURS, "load": LOAD}, ""),
        ({"load": LOAD, "updated": HOURS[::-1], "Date": HOURS}, "Date"),
        ({"start": HOURS, "load": LOAD, "end": HOURS}, "start"),
        ({"x": [1900 + i for i in ROWS], "load": LOAD}, "x"),
        ({"x": [1900 - i for i in ROWS], "load": LOAD}, "x"),
        ({"load": LOAD, "year": [1900 + i for i in ROWS]}, "year"),
        ({"load": LOAD, "unix": [1_700_000_000 + 3600 * i for i in ROWS]}, "unix"),
        ({"x": [195001 + 100 * (i // 12) + i % 12 for i in ROWS], "load": LOAD}, "x"),
        ({"": ROWS, "load": LOAD}, ""),
        ({"n": [5 * i for i in ROWS], "load": LOAD}, "n"),
        ({"a": TEMP, "load": LOAD}, None),
        ({"a": [1900 + value for value in TEMP], "load": LOAD}, None),
        ({"load": [2000.5 + i for i in ROWS], "b": [1999.12] * COUNT}, None),
    ],
)
def test_time_column_is_found(path: Path, columns: Table, time: str | None) -> None:
    columns_found = found(path, columns)
    assert columns_found.time == time
    assert "load" in columns_found.values


def test_several_time_columns_are_named(path: Path) -> None:
    columns: Table = {"load": LOAD, "start": HOURS, "end": HOURS}
    with pytest.raises(InputError, match="the columns start, end hold times; --time-column names the time column"):
        found(path, columns)
    assert found(path, columns, Layout(time_column="end")).time == "end"
    assert found(path, columns, Layout(ignore=("start",))).time == "end"


@pytest.mark.parametrize("cell", ["Monday 5", "5h", "week 7/2024"])
def test_unreadable_time_column_is_no_text(path: Path, cell: str) -> None:
    assert found(path, {"load": LOAD, "time": [cell] * COUNT}).time == "time"
    assert found(path, {"x": ["7:00 on day 5"] * COUNT, "load": LOAD}).time == "x"


@pytest.mark.parametrize("exponent", [-300, -12, 9, 300])
def test_numbers_in_scientific_notation_are_a_channel_in_the_first_column(path: Path, exponent: int) -> None:
    columns: Table = {"a": [f"{1 + step % 7 / 8}e{exponent:+}" for step in range(COUNT)], "b": LOAD}
    assert found(path, columns) == Columns(None, ("a", "b"), ())


def test_channels_are_chosen(path: Path) -> None:
    columns: Table = {"load": LOAD, "temp": TEMP, "date": HOURS, "id": ROWS, "sky": ["sun"] * COUNT}
    assert found(path, columns, Layout(channels=("temp", "id"))) == Columns("date", ("temp", "id"), ())
    left = ("left out 'id': row numbers", "left out 'sky': text, not numbers")
    assert found(path, columns, Layout(ignore=("temp",))) == Columns("date", ("load",), left)
    for layout in (Layout(channels=("x",)), Layout(ignore=("x",)), Layout(time_column="x")):
        with pytest.raises(InputError, match=":1: no column 'x'; columns: load, temp, date, id, sky"):
            found(path, columns, layout)


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        ({"unit": ["a", "b"] * 12, "ds": sorted(HOURS[:12] * 2), "y": LOAD}, ("unit",)),
        ({"ds": sorted(HOURS[:12] * 2), "store": [1, 2] * 12, "promo": [0] * COUNT, "y": LOAD}, ("store",)),
        ({"ds": sorted(HOURS[:12] * 2), "y": LOAD}, ()),
        ({"ds": HOURS[:12] * 2, "unit": ["a", "a", "b", "b"] * 6}, ()),
        ({"ds": sorted(HOURS[:6] * 4), "sku": ["a", "b"] * 12, "shop": [1, 1, 2, 2] * 6, "y": LOAD}, ("sku", "shop")),
    ],
)
def test_id_column_of_a_long_table_is_found(path: Path, columns: Table, expected: tuple[str, ...]) -> None:
    assert find_id_columns(sheet(path, columns), "ds") == expected
