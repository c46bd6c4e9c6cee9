import csv
import gzip
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from pathlib import Path

import numpy as np
import pytest

from model.config.data import SeriesConfig
from model.data.series import SOURCES, infer_frequency, load_series, read_csv
from model.errors import UserError


def write(folder: Path, name: str, text: str) -> Path:
    path = folder / SOURCES[name].file
    path.write_bytes(gzip.compress(text.encode()))
    return path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """100 rows: a ramp and a square."""
    rows = "".join(f"2020-01-{i},{i},{i * i}\n" for i in range(100))
    write(tmp_path, "exchange", "date,ramp,square\n" + rows)
    return tmp_path


def test_splits_are_in_order_and_scaled_by_training_alone(folder: Path) -> None:
    series = load_series(SeriesConfig(name="exchange"), folder)
    assert series.boundaries == (70, 80, 100)
    assert series.channels == ("ramp", "square")
    ramp = np.arange(100.0)
    expected = (ramp - ramp[:70].mean()) / ramp[:70].std()
    assert series.values[:, 0] == pytest.approx(expected, rel=1e-6)
    assert series.timestamps[99] == "2020-01-99"


def test_no_forecast_crosses_into_another_split(folder: Path) -> None:
    series = load_series(SeriesConfig(name="exchange"), folder)
    bounds = {"train": (0, 70), "validation": (70, 80), "test": (80, 100)}
    for split, (first, end) in bounds.items():
        windows = series.windows(split, 10, 4)  # type: ignore[arg-type]
        targets = windows[:, 0, 10:] * series.scale[0] + series.mean[0]
        expected_first = max(first, 10)
        assert targets.min() == pytest.approx(expected_first, abs=1e-3)
        assert targets.max() == pytest.approx(end - 1, abs=1e-3)
        assert len(windows) == end - expected_first - 3, "every window, the last one too"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", ":1: expected a time column"),
        ("date\n", ":1: expected a time column"),
        ("date,a\n", "has no rows"),
        ("date,a,b\n1,2,3\n2,3\n", ":3: 2 cells under 3 columns"),
        ("date,a,b\n1,2,x\n", ":2: column b: not a number: 'x'"),
        ("date,a,b\n1,2,\n", ":2: column b: not a number"),
        ("date,a,b\n1,nan,3\n", ":2: column a: not a finite number"),
        ("date,a,b\n1,2,3\n1,2,-inf\n", ":3: column b: not a finite number"),
        ("date,a,a\n1,2,3\n", ":1: two columns have the same name"),
        ('date,"a\nb"\n1,2\n', r":1: the name 'a\nb' holds a control character"),
    ],
)
def test_bad_cells_are_named_with_line_and_column(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "x.csv").write_text(text)
    with pytest.raises(UserError) as caught:
        read_csv(tmp_path / "x.csv")
    assert words in str(caught.value)


def test_byte_order_mark_and_line_ends_of_windows_are_no_part_of_a_cell(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_bytes(b"\xef\xbb\xbftime,a\r\n2020-01-01,5\r\n")
    names, timestamps, values = read_csv(path, "time")
    assert (names, timestamps, values.tolist()) == (("a",), ("2020-01-01",), [[5.0]])


@pytest.mark.parametrize(
    "damage",
    [lambda data: data[:-20], lambda data: data[: len(data) // 2] + b"\xff\xff" + data[len(data) // 2 :]],
    ids=["end missing", "damaged inside"],
)
def test_damaged_gzip_file_is_an_error_that_names_it(folder: Path, damage: Callable[[bytes], bytes]) -> None:
    path = folder / SOURCES["exchange"].file
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(UserError, match=rf"^{path}: \S"):
        read_csv(path)


@pytest.fixture
def _usual_cells() -> Iterator[None]:
    """The csv module's own limit, which `service.offline.predict` raises for the whole process."""
    previous = csv.field_size_limit(131_072)
    yield
    csv.field_size_limit(previous)


@pytest.mark.usefixtures("_usual_cells")
def test_cell_that_the_csv_reader_refuses_is_an_error_that_names_the_line(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text('date,a\n1,2\n"' + "x" * 140_000 + '",3\n')
    with pytest.raises(UserError, match=rf"^{path}:\d"):
        read_csv(path)


def test_missing_and_broken_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="exchange_rate"):
        load_series(SeriesConfig(name="exchange"), tmp_path)
    (tmp_path / "exchange_rate.csv.gz").write_bytes(b"not gzip")
    with pytest.raises(UserError, match="exchange_rate"):
        load_series(SeriesConfig(name="exchange"), tmp_path)


def test_short_series_are_refused(folder: Path) -> None:
    with pytest.raises(UserError, match="90 are needed"):
        load_series(SeriesConfig(name="exchange"), folder).windows("validation", 40, 50)


@pytest.mark.parametrize(
    "value",
    ["5", "0", "0.1"],
)
def test_constant_channel_is_an_error_that_names_it(tmp_path: Path, value: str) -> None:
    write(tmp_path, "ili", "date,a,b\n" + "".join(f"1,{i},{value}\n" for i in range(50)))
    with pytest.raises(UserError, match="column b is constant in training"):
        load_series(SeriesConfig(name="ili"), tmp_path)


def test_time_column_is_the_first_or_the_named_one(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text("a,when,b\n1,2020-01-01,2\n3,2020-01-02,4\n")
    names, timestamps, values = read_csv(path, "when")
    assert (names, timestamps, values.tolist()) == (("a", "b"), ("2020-01-01", "2020-01-02"), [[1, 2], [3, 4]])
    path.write_text("1,a\n2020-01-01,5\n")
    assert read_csv(path)[0] == ("a",)
    with pytest.raises(UserError, match=rf"{path}:1: no column 'time'; there are: 1, a"):
        read_csv(path, "time")


def test_own_file_is_split_by_the_shares_of_the_recipe(tmp_path: Path) -> None:
    path = tmp_path / "own.csv"
    path.write_text("t,a\n" + "".join(f"{i},{i % 7}\n" for i in range(50)))
    config = SeriesConfig(name="csv", train_fraction=0.5, validation_fraction=0.3)
    assert load_series(config, path).boundaries == (25, 40, 50)


def every(step: timedelta, count: int = 20) -> list[str]:
    return [(datetime(2024, 2, 25) + i * step).isoformat() for i in range(count)]


@pytest.mark.parametrize(
    ("step", "expected"),
    [
        pytest.param(timedelta(seconds=0.5), "irregular"),
        (timedelta(seconds=30), "30s"),
        (timedelta(minutes=10), "10min"),
        (timedelta(minutes=15), "15min"),
        (timedelta(minutes=90), "90min"),
        (timedelta(hours=1), "1h"),
        (timedelta(hours=36), "36h"),
        (timedelta(days=1), "1d"),
        (timedelta(days=7), "7d"),
    ],
)
def test_frequency_is_the_step_in_its_largest_unit(step: timedelta, expected: str) -> None:
    assert infer_frequency(every(step)) == expected


def test_frequency_is_read_from_the_format_of_the_benchmarks_too() -> None:
    assert infer_frequency([f"1990/1/{day} 0:00" for day in range(1, 30)]) == "1d"


def test_frequency_allows_one_gap_in_twenty_steps() -> None:
    assert infer_frequency([*every(timedelta(hours=1), 20), "2024-03-01"]) == "1h"
    assert infer_frequency([*every(timedelta(hours=1), 19), "2024-03-01"]) == "irregular"


@pytest.mark.parametrize(
    "timestamps",
    [
        [*every(timedelta(hours=1))[::2], *every(timedelta(hours=1))[1::2][::-1]],
        ["2024-01-01"] * 20,
        ["2024-01-01"],
        [f"2024-{month:02}-01" for month in range(1, 13)],
    ],
    ids=["shuffled", "standing still", "one row", "months"],
)
def test_frequency_of_anything_else_is_irregular(timestamps: list[str]) -> None:
    assert infer_frequency(timestamps) == "irregular"


def test_rows_that_go_back_in_time_are_an_error() -> None:
    with pytest.raises(UserError, match="oldest first"):
        infer_frequency(every(timedelta(hours=1))[::-1])


@pytest.mark.parametrize("text", ["", "yesterday", "01.02.2024", "2024-13-01", "2024-02-30 00:00"])
def test_time_stamp_of_an_unknown_format_is_an_error_that_names_its_row(text: str) -> None:
    with pytest.raises(UserError, match=rf"^row 4: not a time: '{text}'; expected ISO 8601"):
        infer_frequency(["2024-01-01", "2024-01-02", text])


def test_time_stamps_with_and_without_a_zone_are_an_error() -> None:
    with pytest.raises(UserError, match="row 3"):
        infer_frequency(["2024-01-01T00:00:00", "2024-01-01T01:00:00Z", "2024-01-01T02:00:00"])
