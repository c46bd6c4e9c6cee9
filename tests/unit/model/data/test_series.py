import gzip
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import numpy as np
import pytest
from numpy.typing import NDArray

from artifact.series import Layout, Tails, read_window
from artifact.tables.series import LISTED
from artifact.tables.timeline import Rows, read_series
from model.config.data import SeriesConfig
from model.data.series import SOURCES, ScaledSeries, Scaler, load_series, read_own_series
from model.errors import UserError, reading


def read_table(path: Path, time_column: str = "") -> Rows:
    with reading():
        return read_series(path, Layout(time_column=time_column))


def write(folder: Path, name: str, text: str) -> Path:
    path = folder / SOURCES[name].file
    path.write_bytes(gzip.compress(text.encode()))
    return path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """100 rows: a ramp and a square."""
    rows = "".join(f"{date(2020, 1, 1) + timedelta(days=i)},{i},{i * i}\n" for i in range(100))
    write(tmp_path, "exchange", "date,ramp,square\n" + rows)
    return tmp_path


def test_splits_are_in_order_and_scaled_by_the_training_rows(folder: Path) -> None:
    series = load_series(SeriesConfig(name="exchange"), folder)
    assert series.boundaries == (70, 80, 100)
    assert series.channels == ("ramp", "square")
    ramp = np.arange(100.0)
    expected = (ramp - ramp[:70].mean()) / ramp[:70].std()
    assert series.values[:, 0] == pytest.approx(expected, rel=1e-6)
    assert series.frequency == "1d"


def test_forecasts_stay_within_their_split(folder: Path) -> None:
    series = load_series(SeriesConfig(name="exchange"), folder)
    bounds = {"train": (0, 70), "validation": (70, 80), "test": (80, 100)}
    for split, (first, end) in bounds.items():
        windows = series.windows(split, 10, 4)  # type: ignore[arg-type]
        targets = windows[:, 0, 10:] * series.scale[0] + series.mean[0]
        expected_first = max(first, 10)
        assert targets.min() == pytest.approx(expected_first, abs=1e-3)
        assert targets.max() == pytest.approx(end - 1, abs=1e-3)
        assert len(windows) == end - expected_first - 3, "expected every window, including the last one"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", " has no rows"),
        ("date\n", "has no rows"),
        ("date,a\n", "has no rows"),
        ("date\n2024-01-01\n", ":1: expected at least one channel besides the time column"),
        ("date,a,b\n1,2,3\n2,3\n", ":3: expected 3 columns, not 2"),
        ("date,a,b\n1,2,3\n2,2,x\n", "cells that are not finite numbers (1): line 3 column b 'x'"),
        ("date,a,b\n1,2,3\n1,2,-inf\n", "cells that are not finite numbers (1): line 3 column b '-inf'"),
        ("date,a,a\n1,2,3\n", ":1: two columns 'a'"),
        ("2024-01-01,1.5,2\n2024-01-02,2.5,3\n", ":1: expected a line with the names of the columns, not 2024-01-01"),
        ('date,"a\nb"\n1,2\n', r":1: the name 'a\nb' contains a control character"),
    ],
)
def test_error_about_a_bad_cell_names_line_and_column(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "x.csv").write_text(text)
    with pytest.raises(UserError) as caught:
        read_table(tmp_path / "x.csv")
    assert words in str(caught.value)


def test_byte_order_mark_and_windows_line_endings_are_removed(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_bytes(b"\xef\xbb\xbftime,a\r\n2020-01-01,5\r\n")
    table = read_table(path, "time")
    assert (table.channels, table.stamps, table.values.tolist()) == (("a",), ("2020-01-01",), [[5.0]])


@pytest.mark.parametrize(
    "damage",
    [lambda data: data[:-20], lambda data: data[: len(data) // 2] + b"\xff\xff" + data[len(data) // 2 :]],
    ids=["end missing", "damaged inside"],
)
def test_error_names_a_damaged_gzip_file(folder: Path, damage: Callable[[bytes], bytes]) -> None:
    path = folder / SOURCES["exchange"].file
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(UserError, match=rf"^{path}: \S"):
        read_table(path)


def test_error_names_a_missing_or_broken_file(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="exchange_rate"):
        load_series(SeriesConfig(name="exchange"), tmp_path)
    (tmp_path / "exchange_rate.csv.gz").write_bytes(b"not gzip")
    with pytest.raises(UserError, match="exchange_rate"):
        load_series(SeriesConfig(name="exchange"), tmp_path)


def test_short_series_are_rejected(folder: Path) -> None:
    with pytest.raises(UserError, match="90 are needed"):
        load_series(SeriesConfig(name="exchange"), folder).windows("validation", 40, 50)


@pytest.mark.parametrize(
    "value",
    ["5", "0", "0.1"],
)
def test_constant_channel_is_an_error_that_names_it(tmp_path: Path, value: str) -> None:
    write(tmp_path, "ili", "date,a,b\n" + "".join(f"2024-01-01T{i // 2:02}:{i % 2}0,{i},{value}\n" for i in range(48)))
    with pytest.raises(UserError, match="column b is constant in training"):
        load_series(SeriesConfig(name="ili"), tmp_path)


def own_series(path: Path, values: NDArray[np.float64], scaler: Scaler | None = None) -> ScaledSeries:
    """Read a file of these channels."""
    names = ",".join(f"c{i}" for i in range(values.shape[1]))
    path.write_text("\n".join([names, *(",".join(map(repr, row)) for row in values.tolist())]) + "\n")
    return load_series(config := SeriesConfig(name="csv"), read_own_series(path, config), scaler)


def noise(rows: int = 100) -> NDArray[np.float64]:
    return np.random.default_rng(0).standard_normal((rows, 2))


@pytest.mark.parametrize("exponent", [-1020, -700, -40, 40, 600, 990])
def test_tiny_and_huge_channels_are_scaled_like_others(exponent: int, path: Path) -> None:
    values = noise() + np.array([0, 100])
    expected, found = own_series(path, values), own_series(path, np.ldexp(values, exponent))
    assert np.array_equal(found.values, expected.values)
    for statistics, others in ((found.mean, expected.mean), (found.scale, expected.scale)):
        assert np.ldexp(statistics, -exponent) == pytest.approx(others)


def test_values_of_mixed_magnitude_are_scaled_by_the_largest(path: Path) -> None:
    values = noise()
    values[::7] *= 1e24
    series = own_series(path, values * 1e-12)
    assert series.values[:70].std(axis=0) == pytest.approx(1, rel=1e-5)


@pytest.mark.parametrize(
    ("column", "message"),
    [
        ([0] * 100, "column c1 is constant in training; leave it out"),
        ([0.1] * 70 + [0.2] * 30, "column c1 is constant in training; leave it out"),
        ([0.1 + 0.2, 0.3] * 50, "column c1 varies in training by less than 7e-15 of its values, up to 0.3, and "),
        ([2**53 + i % 3 for i in range(100)], "column c1 varies in training by less than 7e-15 of its values, up to 9"),
        (
            [10**18 + i % 50 for i in range(100)],
            "column c1 varies in training by less than 7e-15 of its values, up to ",
        ),
        ([i % 9 * 5e-324 for i in range(100)], "column c1 has values up to 3.95253e-323 and a standard deviation of "),
        ([1.7e308, -1.7e308] * 50, "column c1 has values up to 1.7e+308 and a standard deviation of 1.7e+308 in "),
        ([1e-12 * (i % 5) for i in range(80)] + [1e12] * 20, "column c1: value 81, 1e+12, is more than 1e+06 standard"),
    ],
    ids=[
        "constant",
        "constant in training",
        "rounding",
        "whole numbers",
        "equal when rounded",
        "subnormal",
        "overflow",
        "far from training",
    ],
)
def test_channel_that_cannot_be_scaled_is_an_error_that_names_it(column: list[float], message: str, path: Path) -> None:
    values = noise()
    values[:, 1] = column
    with pytest.raises(UserError) as error:
        own_series(path, values)
    assert str(error.value).startswith(f"{path}: {message}")


def test_error_names_all_channels_that_cannot_be_scaled(path: Path) -> None:
    with pytest.raises(UserError, match=r"column c0 is constant .*; column c1 has values up to 3e\+301 "):
        own_series(path, np.array([[1, i % 4 * 1e301] for i in range(100)]))


def test_given_scaler_allows_a_constant_channel(path: Path) -> None:
    series = own_series(path, np.full((100, 2), 5.0), ([1, 5], [2, 1e300]))
    assert series.values.tolist() == [[2, 0]] * 100


def test_time_column_is_the_first_or_the_named_one(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text("a,when,b\n1,2020-01-01,2\n3,2020-01-02,4\n")
    table = read_table(path, "when")
    assert (table.channels, table.stamps) == (("a", "b"), ("2020-01-01", "2020-01-02"))
    assert (table.values.tolist(), table.lines) == ([[1, 2], [3, 4]], (2, 3))
    path.write_text("1,a\n2020-01-01,5\n")
    assert read_table(path).channels == ("a",)
    with pytest.raises(UserError, match=rf"{path}:1: no column 'time'; columns: 1, a"):
        read_table(path, "time")


def test_own_file_is_split_by_the_fractions_of_the_recipe(tmp_path: Path) -> None:
    path = tmp_path / "own.csv"
    path.write_text("t,a\n" + "".join(f"{i},{i % 7}\n" for i in range(50)))
    config = SeriesConfig(name="csv", train_fraction=0.5, validation_fraction=0.3)
    assert load_series(config, read_own_series(path, config)).boundaries == (25, 40, 50)


def own(path: Path, lines: Sequence[str], **settings: object) -> ScaledSeries:
    """A file of these lines, read as a user's series."""
    path.write_text("\n".join(lines) + "\n")
    config = SeriesConfig.model_validate({"name": "csv", **settings})
    return load_series(config, read_own_series(path, config))


def refused(path: Path, lines: Sequence[str], **settings: object) -> str:
    """The error of reading these lines, without the path that it starts with."""
    with pytest.raises(UserError) as caught:
        own(path, lines, **settings)
    message = str(caught.value)
    assert message.startswith(f"{path}")
    return message.removeprefix(f"{path}")


def units(series: ScaledSeries) -> list[list[float]]:
    """The values in the units of the file."""
    found: list[list[float]] = np.round(series.values * series.scale + series.mean, 4).tolist()
    return found


def hourly(count: int = 30) -> list[str]:
    """A header, and rows whose two channels are the number of the row and its square."""
    times = [datetime(2024, 1, 1) + timedelta(hours=i) for i in range(count)]
    return ["time,a,b", *(f"{time.isoformat()},{i},{i * i}" for i, time in enumerate(times))]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "own.csv"


@pytest.mark.parametrize(
    ("form", "frequency"),
    [
        (lambda i: f"{1990 + i // 12}/{i % 12 + 1}/1 0:00", "1mo"),
        (lambda i: f"{1990 + i // 12}/{i % 12 + 1}/1", "1mo"),
        (lambda i: f"{1990 + i // 12}-{i % 12 + 1:02}", "1mo"),
        (lambda i: f"{1990 + i // 4}Q{i % 4 + 1}", "1q"),
        (lambda i: f"{1990 + i // 4}-Q{i % 4 + 1}", "1q"),
        (lambda i: f"{1990 + i}-12-31", "1y"),
        (lambda i: f"20240101T{i // 2:02}{3 * (i % 2)}0Z", "30min"),
    ],
)
def test_time_stamps_have_many_formats(form: Callable[[int], str], frequency: str, path: Path) -> None:
    series = own(path, ["time,a", *(f"{form(i)},{i}" for i in range(40))])
    assert (series.frequency, series.channels, series.notes) == (frequency, ("a",), ())


@pytest.mark.parametrize("text", ["", "yesterday", "01.02.2024", "2024-13-01", "2024-02-30 00:00", "0000Q1", "2024Q5"])
def test_time_stamps_of_unknown_formats_are_named_at_once(text: str, path: Path) -> None:
    lines = hourly()
    lines[3], lines[7] = f"{text},1,2", f"{text},1,3"
    message = refused(path, lines)
    assert message.startswith(f": time stamps that cannot be read (2): line 4 {text!r}, line 8 {text!r}; expected ISO")


def test_time_stamps_with_and_without_a_zone_are_named(path: Path) -> None:
    lines = hourly()
    lines[3] = lines[3].replace(",", "Z,", 1)
    message = refused(path, lines)
    assert message == ": time stamps with a time zone, unlike the others (1): line 4 '2024-01-01T02:00:00Z'"


def test_repeated_unsorted_and_missing_time_stamps_are_named_at_once(path: Path) -> None:
    lines = hourly(60)
    lines[3] = lines[2]
    lines[10], lines[11] = lines[11], lines[10]
    del lines[20:22]
    assert refused(path, lines) == (
        ": repeated time stamps (1): line 4 '2024-01-01T01:00:00' as in line 3; keep one row of each; "
        "time stamps before that of an earlier line (1): line 12 '2024-01-01T09:00:00'; sort the rows, oldest first; "
        "3 missing time stamps at a step of 1h, gaps (2): 1 after line 3 '2024-01-01T01:00:00', "
        "2 after line 20 '2024-01-01T18:00:00'; --fill interpolates them"
    )


def test_error_names_a_bounded_number_of_places_and_their_total(path: Path) -> None:
    lines = hourly(60)
    for i in range(10, 40):
        lines[i] = lines[i].replace(",", ",x", 1)
    message = refused(path, lines)
    assert message.startswith(": cells that are not finite numbers (30): line 11 column a 'x9', ")
    assert message.count("line") == LISTED
    assert message.endswith(f", and {30 - LISTED} more")


@pytest.mark.parametrize("cell", ["", " ", "NaN", "nan", "n/a", "N/A", "null", "NULL", "NA", "None"])
def test_missing_cells_are_named_or_filled(cell: str, path: Path) -> None:
    lines = hourly()
    for i in (1, 10, 11, 30):
        lines[i] = f"{lines[i].partition(',')[0]},{cell},{i - 1}"
    message = refused(path, lines)
    assert message == (
        ": missing values (4): line 2 column a, line 11 column a, line 12 column a, line 31 column a; "
        "--fill interpolates them"
    )
    series = own(path, lines, fill=True)
    expected = [float(max(1, min(28, i))) for i in range(30)]
    assert [row[0] for row in units(series)] == expected
    assert series.notes == ("filled 4 values, 6.7% of all; 0 rows were missing",)


def test_fill_does_not_hide_cells_that_are_no_numbers(path: Path) -> None:
    lines = hourly()
    lines[4], lines[5] = "2024-01-01T03:00:00,,1", "2024-01-01T04:00:00,five,1"
    assert refused(path, lines, fill=True) == ": cells that are not finite numbers (1): line 6 column a 'five'"
    assert refused(path, lines) == ": cells that are not finite numbers (1): line 6 column a 'five'"


def test_missing_values_and_rows_are_named_at_once(path: Path) -> None:
    lines = hourly()
    lines[4] = "2024-01-01T03:00:00,,1"
    del lines[10]
    assert refused(path, lines) == (
        ": missing values (1): line 5 column a; --fill interpolates them; 1 missing time stamps at a step of 1h, "
        "gaps (1): 1 after line 10 '2024-01-01T08:00:00'; --fill interpolates them"
    )
    assert own(path, lines, fill=True).notes == ("filled 3 values, 5.0% of all; 1 row was missing",)


def test_public_series_must_be_complete(tmp_path: Path) -> None:
    write(tmp_path, "ili", "date,a\n" + "".join(f"2024-01-{i:02},{i if i != 7 else ''}\n" for i in range(1, 30)))
    with pytest.raises(UserError, match=r"national_illness.csv.gz: missing values \(1\): line 8 column a$"):
        load_series(SeriesConfig(name="ili"), tmp_path)


def test_missing_rows_are_filled_as_serving_fills_them(path: Path) -> None:
    lines = hourly()
    del lines[10:13]
    assert "3 missing time stamps" in refused(path, lines)
    series = own(path, lines, fill=True)
    squares = [float(i * i) for i in range(30)]
    known = [None if 9 <= i < 12 else value for i, value in enumerate(squares)]
    window = read_window(Tails.of([known], 30), ("b",), context_length=30, min_observations=2, mean=[0.0], scale=[1.0])
    assert [row[1] for row in units(series)] == pytest.approx(window.values[:, 0].tolist(), abs=1e-3)
    assert len(series.values) == 30
    assert series.notes == ("filled 6 values, 10.0% of all; 3 rows were missing",)


def test_missing_months_are_filled(path: Path) -> None:
    lines = ["month,a", *(f"{2000 + i // 12}-{i % 12 + 1:02},{i}" for i in range(48))]
    del lines[20]
    assert "1 missing time stamps at a step of 1mo, gaps (1): 1 after line 20 '2001-07'" in refused(path, lines)
    series = own(path, lines, fill=True)
    assert [row[0] for row in units(series)] == [float(i) for i in range(48)]


def test_more_missing_than_known_rows_are_not_filled(path: Path) -> None:
    lines = hourly()
    lines[-1] = lines[-1].replace("2024", "2204")
    assert "too many to interpolate" in refused(path, lines, fill=True)


def test_column_without_half_its_values_is_not_filled(path: Path) -> None:
    lines = [line if i % 3 == 0 else line.rpartition(",")[0] + "," for i, line in enumerate(hourly())]
    assert refused(path, lines, fill=True) == ": column b has 10 values in 30 time steps; at least half are needed"


@pytest.mark.parametrize(
    ("header", "form"),
    [
        ("a,b", "{i},{square}"),
        ("a,b", "{i}.5,{square}"),
        ("0,1", "-{i},{square}"),
        ("b", "{square}"),
    ],
)
def test_file_without_a_time_column_is_read_as_equal_steps(header: str, form: str, path: Path) -> None:
    lines = [header, *(form.format(i=i * 7 % 30, square=i * i % 17) for i in range(30))]
    series = own(path, lines)
    assert (series.channels, series.frequency) == (tuple(header.split(",")), "irregular")
    assert series.notes == ("no time column: rows are equally spaced",)
    assert own(path, lines, frequency="1h").frequency == "1h"


@pytest.mark.parametrize("first", [0, 1, 5000])
@pytest.mark.parametrize("step", [1, 3600])
def test_integers_in_equal_steps_count_the_rows(first: int, step: int, path: Path) -> None:
    lines = [",a", *(f"{first + i * step},{i % 7}" for i in range(60))]
    series = own(path, lines, frequency="1mo")
    assert (series.channels, series.frequency) == (("a",), "1mo")
    assert series.notes == ("the time column counts the steps",)
    gapped, repeated = [*lines[:9], *lines[11:]], [*lines[:9], lines[8], *lines[9:]]
    assert f"2 missing time stamps, gaps (1): 2 after line 9 '{first + 7 * step}'" in refused(path, gapped)
    assert f"repeated time stamps (1): line 10 '{first + 7 * step}' as in line 9" in refused(path, repeated)
    assert len(own(path, gapped, fill=True).values) == 60


def test_given_frequency_is_checked_against_the_time_stamps(path: Path) -> None:
    lines = [line for i, line in enumerate(hourly(40)) if i % 4 or i == 0]
    assert "9 missing time stamps at a step of 1h" in refused(path, lines)
    series = own(path, lines, frequency="1h", fill=True)
    assert (series.frequency, len(series.values)) == ("1h", 39)
    assert "time stamps that are not a whole number of 2h after the first (" in refused(path, lines, frequency="2h")
    assert own(path, lines, frequency="irregular").notes == ("as asked: rows are read as equally spaced",)


def test_time_stamps_off_the_common_step_are_named(path: Path) -> None:
    lines = hourly(60)
    lines[30] = lines[30].replace(":00:00", ":30:00")
    message = ": time stamps that are not a whole number of 1h after the first (1): line 31 '2024-01-02T05:30:00'"
    assert refused(path, lines) == message
    assert refused(path, lines, fill=True) == message


def jittered(count: int = 200) -> list[str]:
    """Hours with seconds of jitter; the gap of 50 hours and a stamp off by a minute are real."""
    generator = np.random.default_rng(0)
    seconds = generator.integers(-20, 20, count).tolist()
    times = [datetime(2024, 1, 1) + timedelta(hours=i + 50 * (i >= 100), seconds=s) for i, s in enumerate(seconds)]
    return ["time,a", *(f"{time},{i % 7}" for i, time in enumerate(times))]


def test_jitter_is_rounded_and_gaps_are_named(path: Path) -> None:
    lines = jittered()
    assert f"50 missing time stamps at a step of 1h, gaps (1): 50 after line 101 '{lines[100][:19]}'" in refused(
        path, lines
    )
    series = own(path, lines, fill=True)
    assert (series.frequency, len(series.values)) == ("1h", 250)
    rounded, filled = series.notes
    assert "time stamps were rounded to the step of 1h, by up to 0:00:20; the first in line 2 '2024-01-01" in rounded
    assert filled == "filled 50 values, 20.0% of all; 50 rows were missing"


def test_one_stamp_off_by_a_second_is_rounded(path: Path) -> None:
    lines = hourly(60)
    lines[30] = lines[30].replace(":00:00", ":00:01")
    series = own(path, lines)
    assert (series.frequency, len(series.values)) == ("1h", 60)
    assert series.notes == (
        "1 time stamp was rounded to the step of 1h, by up to 0:00:01; the first in line 31 '2024-01-02T05:00:01'",
    )
    lines[31] = lines[31].replace("06:00:00", "05:00:02")
    assert refused(path, lines) == (
        ": time stamps in the same step of 1h (1): line 32 '2024-01-02T05:00:02' as line 31 '2024-01-02T05:00:01'; "
        "1 missing time stamps at a step of 1h, gaps (1): 1 after line 32 '2024-01-02T05:00:02'; "
        "--fill interpolates them"
    )


def test_irregular_stamps_name_their_gaps(path: Path) -> None:
    generator = np.random.default_rng(1)
    minutes = np.cumsum(generator.integers(1, 600, 100))
    minutes[60:] += 100_000
    times = [datetime(2024, 1, 1) + timedelta(minutes=int(minute)) for minute in minutes]
    series = own(path, ["time,a", *(f"{time},{i % 7}" for i, time in enumerate(times))])
    assert series.frequency == "irregular"
    (note,) = series.notes
    assert note.startswith("the time stamps have no regular step: rows are read as equally spaced; steps over 10 times")
    assert f"(1): {times[60] - times[59]} after line 61 '{times[59]}'" in note


def test_more_missing_than_given_rows_name_the_way_out(path: Path) -> None:
    times = [datetime(2024, 1, 1) + timedelta(days=i // 8, hours=9 + i % 8) for i in range(160)]
    lines = ["time,a", *(f"{time},{i % 7}" for i, time in enumerate(times))]
    hint = "; too many to interpolate; --frequency irregular reads the rows as equally spaced"
    assert refused(path, lines, fill=True).endswith(hint)
    assert len(own(path, lines, frequency="irregular").values) == 160
    assert refused(path, lines, fill=True, frequency="1h").endswith("; too many to interpolate")


@pytest.mark.parametrize("zone", ["Europe/Berlin", "America/New_York", "Australia/Lord_Howe"])
@pytest.mark.parametrize("is_utc", [False, True])
def test_local_midnights_are_days(zone: str, is_utc: bool, path: Path) -> None:
    days = [datetime(2023, 1, 1, tzinfo=ZoneInfo(zone)) + timedelta(days=i) for i in range(400)]
    stamps = [str(day.astimezone(UTC) if is_utc else day) for day in days]
    lines = ["time,a", *(f"{stamp},{i % 7}" for i, stamp in enumerate(stamps))]
    series = own(path, lines)
    assert (series.frequency, len(series.values), len(series.notes)) == ("1d", 400, int(is_utc))
    assert own(path, lines, frequency="D").frequency == "1d"
    del lines[200]
    assert "1 missing time stamps at a step of 1d, gaps (1): 1 after line 200" in refused(path, lines)


def test_hours_count_in_absolute_time(path: Path) -> None:
    start, zone = datetime(2023, 3, 20, tzinfo=UTC), ZoneInfo("Europe/Berlin")
    times = [(start + timedelta(hours=i)).astimezone(zone) for i in range(240)]
    series = own(path, ["time,a", *(f"{time},{i % 7}" for i, time in enumerate(times))])
    assert (series.frequency, len(series.values), series.notes) == ("1h", 240, ())
