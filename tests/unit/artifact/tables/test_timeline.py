"""Series at equal steps: long tables, and options. The tests of model.data.series read wide ones."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pytest
from pyarrow import parquet

from artifact.errors import InputError
from artifact.series import Layout
from artifact.tables.timeline import Timeline, read_timeline

LONG: dict[str, Any] = {"id_column": "shop", "target_column": "sales"}
NAN = float("nan")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "a.csv"


def read(path: Path, lines: Sequence[str], *, fill: bool = False, **layout: Any) -> Timeline:
    path.write_text("\n".join(lines) + "\n")
    return read_timeline(path, Layout(**layout), fill=fill)


def refused(path: Path, lines: Sequence[str], **options: Any) -> str:
    with pytest.raises(InputError) as caught:
        read(path, lines, **options)
    return str(caught.value).removeprefix(str(path))


def shops(first: int = 0, last: int = 30) -> list[str]:
    """Days of two shops, one after the other; those of shop 2 from `first` to `last`."""
    days = [f"{datetime(2024, 1, 1) + timedelta(days=i):%Y-%m-%d}" for i in range(30)]
    return [
        "shop,day,sales,promo",
        *(f"1,{day},{i},no" for i, day in enumerate(days)),
        *(f"2,{day},{100 + i},no" for i, day in list(enumerate(days))[first:last]),
    ]


def test_long_table_has_a_channel_per_series(path: Path) -> None:
    found = read(path, shops(), **LONG)
    assert (found.channels, found.frequency) == (("1", "2"), "1d")
    assert found.notes == ("left out the columns promo of the long table",)
    np.testing.assert_array_equal(found.values, [[i, 100 + i] for i in range(30)])


def test_rows_of_a_long_table_may_be_mixed(path: Path) -> None:
    header, *rows = shops()
    mixed = [header, *(row for pair in zip(rows[:30], rows[30:], strict=True) for row in pair)]
    np.testing.assert_array_equal(read(path, mixed, **LONG).values, read(path, shops(), **LONG).values)


def test_series_are_chosen_by_name(path: Path) -> None:
    found = read(path, shops(first=10), channels=("2",), **LONG)
    assert (found.channels, found.values[:, 0].tolist()) == (("2",), [float(110 + i) for i in range(20)])
    assert refused(path, shops(), channels=("3",), **LONG) == ": no series '3' in the column shop; series: 1, 2"


def test_missing_ends_of_series_are_named_or_missing(path: Path) -> None:
    lines = shops(first=4, last=28)
    del lines[40]
    assert refused(path, lines, **LONG) == (
        ": series without a row at some time steps (1): '2' (4 at the start, 1 inside, 2 at the end); "
        "--fill repeats the first and last values at the ends, and interpolates inside"
    )
    found = read(path, lines, fill=True, **LONG)
    assert found.notes[1:] == (
        "series without a row at some time steps (1): '2' (4 at the start, 1 inside, 2 at the end); "
        "the first and last values are repeated at the ends",
        "filled 7 values, 11.7% of all; 0 rows were missing",
    )
    expected = [NAN if i < 4 or i == 13 or i >= 28 else 100 + i for i in range(30)]
    np.testing.assert_array_equal(found.values.T, [list(range(30)), expected])


def test_faults_of_long_tables_are_named(path: Path) -> None:
    lines = shops()
    lines[35], lines[40], lines[45] = lines[34], lines[41], "1,2024-01-20,,no"
    message = refused(path, lines, **LONG)
    assert "missing values (1): line 46 column sales; --fill interpolates them; repeated time stamps (3): " in message
    assert "line 36 '2024-01-04' as in line 35" in message
    assert "line 46 '2024-01-20' as in line 21" in message
    lines = shops()
    lines[40], lines[41] = lines[41], lines[40]
    assert refused(path, lines, **LONG) == (
        ": time stamps before that of an earlier line (1): line 42 '2024-01-10'; sort the rows, oldest first"
    )
    lines[40] = lines[40].replace("2,", ",", 1)
    assert refused(path, lines, **LONG) == ": rows without a value of shop (1): line 41"


def test_gap_of_all_series_is_a_gap(path: Path) -> None:
    lines = [line for line in shops() if "2024-01-10" not in line]
    assert "1 missing time stamps at a step of 1d, gaps (1): 1 after line 10 '2024-01-09'" in refused(
        path, lines, **LONG
    )
    assert read(path, lines, fill=True, **LONG).notes[-1] == "filled 2 values, 3.3% of all; 1 row was missing"


def test_error_for_a_long_table_names_the_options(path: Path) -> None:
    hint = "; keep one row of each; or is this a long table? --id-column shop --target-column sales reads it"
    assert refused(path, shops()).endswith(hint)
    counts = ["unique_id,ds,y", *(f"{name},{i},{i % 5}" for name in "ab" for i in range(20))]
    assert refused(path, counts).endswith("--id-column unique_id --target-column y reads it")
    found = read(path, counts, id_column="unique_id", target_column="y")
    assert (found.channels, found.notes) == (("a", "b"), ("the time column counts the steps",))
    assert refused(path, shops(), id_column="shop").startswith(
        "--id-column needs --target-column: a long table has both"
    )
    assert refused(path, shops(), target_column="sales").startswith("--target-column needs --id-column")
    assert refused(path, shops(), id_column="x", target_column="y") == (
        ":1: no column 'x'; columns: shop, day, sales, promo"
    )
    skus = ["day,shop,sku,y", *(f"2024-01-{i + 1:02},{k % 2},{k // 2},{i}" for i in range(20) for k in range(4))]
    assert refused(path, skus).endswith("? Join shop and sku in one column for --id-column; --target-column y")
    no_time = ["shop,sales", "1,5.5", "1,4.5", "2,3.5"]
    assert refused(path, no_time, **LONG) == ":1: a long table needs a time column; --time-column names it"


def test_names_of_series_in_parquet_have_types(tmp_path: Path) -> None:
    days = [datetime(2024, 1, day) for day in range(1, 21)] * 2
    columns = {"shop": [1.0] * 20 + [2.0] * 20, "when": days, "sales": list(range(40))}
    parquet.write_table(pyarrow.table(columns), tmp_path / "a.parquet")
    found = read_timeline(tmp_path / "a.parquet", Layout(**LONG), fill=False)
    assert (found.channels, found.frequency, found.values.shape) == (("1", "2"), "1d", (20, 2))


def test_dates_that_end_in_the_year_name_the_option(path: Path) -> None:
    lines = ["date,a", *(f"{i + 1:02}/01/2024,{i}" for i in range(28))]
    message = refused(path, lines)
    assert message.startswith(": time stamps that cannot be read (28): line 2 '01/01/2024', ")
    assert "; --day-first reads dates that begin with the day; write those that begin with the month in ISO" in message
    assert read(path, lines, day_first=True).frequency == "1d"
    american = ["date,a", *(f"01/{i + 1:02}/2024,{i}" for i in range(28))]
    assert "time stamps that cannot be read (16): line 14 '01/13/2024'" in refused(path, american, day_first=True)


@pytest.mark.parametrize(("zoned", "kind", "line"), [(1, "with", 2), (19, "without", 21)])
def test_time_stamps_with_and_without_a_zone_do_not_mix(path: Path, zoned: int, kind: str, line: int) -> None:
    lines = ["date,a", *(f"2024-01-{i + 1:02}T00:00{'Z' * (i < zoned)},{i}" for i in range(20))]
    assert f"time stamps {kind} a time zone, unlike the others (1): line {line} " in refused(path, lines)


@pytest.mark.parametrize(
    ("given", "step", "frequency"), [("W-SUN", 7, "7d"), ("D", 1, "1d"), ("2D", 2, "2d"), ("24h", 1, "1d")]
)
def test_frequencies_have_the_names_of_pandas(path: Path, given: str, step: int, frequency: str) -> None:
    lines = ["date,a", *(f"{datetime(2024, 1, 7) + i * timedelta(days=step)},{i}" for i in range(20))]
    assert read(path, lines, frequency=given).frequency == frequency
    del lines[5]
    assert f"1 missing time stamps at a step of {frequency}" in refused(path, lines, frequency=given)


def test_numbers_in_the_first_line_are_names_if_asked(path: Path) -> None:
    lines = ["101,205", *(f"{i * 7 % 11},{i * 5 % 13}" for i in range(20))]
    assert "not 101, 205; if these are names, --channels lists them" in refused(path, lines)
    assert read(path, lines, channels=("101", "205")).channels == ("101", "205")
    assert read(path, ["1,2", *lines[1:]]).channels == ("1", "2")
    dated = ["date,101,205", *(f"2024-01-{i + 1:02},{i},{i}" for i in range(20))]
    assert read(path, dated).channels == ("101", "205")
