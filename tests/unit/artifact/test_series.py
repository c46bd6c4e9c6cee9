import math
import re
from collections.abc import Sequence
from datetime import datetime, timedelta

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from artifact.errors import InvalidInput
from artifact.series import (
    Calibration,
    Column,
    Step,
    Tails,
    calibrate,
    conformal_rank,
    continue_timestamps,
    impute,
    names_of,
    parse_frequency,
    parse_start,
    read_window,
    unscale,
)

Table = list[tuple[float | None, float | None]]

VALUE = st.none() | st.floats(-100, 100)
NAMES = ("left", "right")
MEAN, SCALE = (3.0, -1.0), (2.0, 0.5)


def read(
    columns: Sequence[Column], context_length: int, min_observations: int = 1
) -> tuple[np.ndarray, tuple[int, ...]]:
    """Read a window of two channels; return its values and counts."""
    window = read_window(
        Tails.of(columns, context_length),
        NAMES,
        context_length=context_length,
        min_observations=min_observations,
        mean=MEAN,
        scale=SCALE,
    )
    assert window.values.dtype == np.float32
    return window.values, (window.observations_total, window.observations_used, window.imputed)


def slow_window(column: Column, context_length: int) -> list[float]:
    """Fill each step from the nearest values on both sides, one step at a time."""
    steps = range(len(column) - context_length, len(column))
    known = {step: value for step in steps if step >= 0 and (value := column[step]) is not None}
    values = []
    for step in steps:
        before = max((other for other in known if other <= step), default=None)
        after = min((other for other in known if other >= step), default=None)
        if before is None or after is None:
            nearest = before if after is None else after
            assert nearest is not None
            values.append(known[nearest])
        else:
            share = (step - before) / max(1, after - before)
            values.append((1 - share) * known[before] + share * known[after])
    return values


@given(st.lists(st.tuples(VALUE, VALUE), min_size=1, max_size=30), st.integers(2, 12))
def test_window_equals_the_slow_reference(rows: Table, context_length: int) -> None:
    columns = [[row[0] for row in rows], [row[1] for row in rows]]
    known = [sum(value is not None for value in column[-context_length:]) for column in columns]
    if not all(known):
        with pytest.raises(InvalidInput, match=r"^series\.(left|right): 0 of the last"):
            read(columns, context_length)
        return
    values, counts = read(columns, context_length)
    for index, column in enumerate(columns):
        expected = (np.array(slow_window(column, context_length)) - MEAN[index]) / SCALE[index]
        assert values[:, index] == pytest.approx(expected, abs=1e-4)
    total = sum(value is not None for column in columns for value in column)
    assert counts == (total, sum(known), 2 * context_length - sum(known))


def test_only_the_end_of_a_long_series_is_read() -> None:
    """Values before the window neither fill a gap at its start nor do any harm if they are extreme."""
    values, counts = read([[1e300, 99, None, 5, 7], [-1] * 5], 3)
    assert values[:, 0].tolist() == [1, 1, 2]
    assert counts == (9, 5, 1)


@pytest.mark.parametrize(
    ("columns", "place", "words"),
    [
        ([[1, 2, 3], [1, 2]], "series", "not 2, 3"),
        ([[], []], "series.left", "0 of the last 4 values of left are there; at least 2"),
        ([[1, 2, 3], [1, None, None]], "series.right", "1 of the last 4 values of right"),
        ([[1, 2, 3], [1, 2e6, 3]], "series.right.1", "value 1 of right is more than 1e\\+06"),
        ([[1, 2, 3], [1, 2, -1e308]], "series.right.2", "value 2 of right"),
        ([[0, 0, 0, None, 1, -1e308], [0] * 6], "series.left.5", "value 5 of left"),
    ],
)
def test_error_names_channel_and_step(columns: list[Column], place: str, words: str) -> None:
    with pytest.raises(InvalidInput, match=words) as caught:
        read(columns, 4, min_observations=2)
    assert [where for where, _ in caught.value.errors] == [place]


def test_unscale_inverts_scale() -> None:
    columns: list[Column] = [[3.5, -2.25, 10.0], [0.5, 1.5, -7.0]]
    values, _ = read(columns, 3)
    assert unscale(values, MEAN, SCALE) == pytest.approx(np.array(columns).T)


@pytest.mark.parametrize(
    ("count", "level", "rank"),
    [
        (9, 0.1, 1), (9, 0.45, 4), (9, 0.5, 5), (9, 0.55, 6), (9, 0.9, 9), (99, 0.105, 10), (99, 0.5, 50),
        (99, 0.895, 90), (1, 0.5, 1),
    ],
)  # fmt: skip
def test_rank_is_rounded_away_from_the_middle(count: int, level: float, rank: int) -> None:
    assert conformal_rank(level, count) == rank


@pytest.mark.parametrize(
    ("count", "level"),
    [
        *((9, level) for level in (0.0999, 0.9001, 0.0, 1.0, -0.5, 1.5, math.nan, math.inf)),
        *((99, level) for level in (0.00999, 0.99001)),
        *((1, level) for level in (0.4999, 0.5001)),
    ],
)
def test_level_that_needs_more_errors_is_rejected(count: int, level: float) -> None:
    with pytest.raises(InvalidInput, match="outside"):
        conformal_rank(level, count)


@given(st.integers(1, 100_000))
def test_limits_are_allowed_exactly_and_as_rounded_in_the_message(count: int) -> None:
    assert conformal_rank(1 / (count + 1), count) == 1
    assert conformal_rank(count / (count + 1), count) == count
    with pytest.raises(InvalidInput) as caught:
        conformal_rank(1e-9, count)
    lowest, highest = re.findall(r"\[(.+), (.+)\]", str(caught.value))[0]
    assert 1 <= conformal_rank(float(lowest), count) <= conformal_rank(float(highest), count) <= count


@pytest.mark.parametrize("count", [9, 19, 20, 57])
def test_band_covers_new_errors_at_its_nominal_rate(count: int) -> None:
    """Errors are skewed and heavy-tailed; the mean coverage of 20,000 bands has a standard deviation of 0.003."""
    generator = np.random.default_rng(count)
    errors = np.exp(2 * generator.standard_normal((count + 1, 200, 100))).astype(np.float32)
    calibration = calibrate(errors[:-1], (0.1, 0.25, 0.5, 0.75, 0.9))
    for low, high in ((0.1, 0.9), (0.25, 0.75), (0.1, 0.5)):
        lower, upper = calibration.error(low, 200), calibration.error(high, 200)
        covered = float(((lower <= errors[-1]) & (errors[-1] <= upper)).mean())
        assert high - low - 0.01 < covered < high - low + 2 / (count + 1) + 0.01


def test_calibration_stores_the_possible_levels_and_both_limits() -> None:
    errors = np.random.default_rng(0).standard_normal((9, 2, 3)).astype(np.float32)
    calibration = calibrate(errors, (0.01, 0.1, 0.5, 0.75, 0.99))
    assert calibration.levels == pytest.approx([0.1, 0.5, 0.75, 0.9])
    ordered = np.sort(errors, axis=0)
    assert calibration.errors.tolist() == ordered[[0, 4, 7, 8]].tolist()
    assert calibration.count == 9


def test_error_between_stored_levels_is_interpolated_linearly() -> None:
    errors = np.array([[[-4.0]], [[0.0]], [[8.0]]], np.float32)
    calibration = Calibration(np.array([0.1, 0.5, 0.9]), errors, 9)
    levels = (0.1, 0.2, 0.5, 0.6, 0.9)
    assert [float(calibration.error(level, 1)[0, 0]) for level in levels] == pytest.approx([-4, -3, 0, 2, 8])


def test_error_has_the_requested_number_of_steps() -> None:
    errors = np.random.default_rng(0).standard_normal((9, 5, 3)).astype(np.float32)
    calibration = calibrate(errors, (0.5,))
    assert calibration.error(0.7, 5).shape == (5, 3)
    assert calibration.error(0.7, 2).tolist() == calibration.error(0.7, 5)[:2].tolist()
    with pytest.raises(InvalidInput, match="outside"):
        calibration.error(0.95, 5)


@given(st.integers(0, 1000), st.lists(st.floats(0.05, 0.95), min_size=2, max_size=8))
def test_error_does_not_decrease_with_the_level(seed: int, levels: list[float]) -> None:
    errors = (np.random.default_rng(seed).integers(-3, 4, (19, 4, 3)) / 7).astype(np.float32)
    calibration = calibrate(errors, (0.1, 0.2, 0.5, 0.8, 0.9))
    found = np.stack([calibration.error(level, 4) for level in sorted({*levels, *calibration.levels})])
    assert (np.diff(found, axis=0) >= 0).all()


@pytest.mark.parametrize(
    ("text", "step"),
    [
        ("1s", Step(timedelta(seconds=1))), ("10min", Step(timedelta(minutes=10))), ("2w", Step(timedelta(days=14))),
        ("999999w", Step(timedelta(weeks=999_999))), ("min", Step(timedelta(minutes=1))),
        ("S", Step(timedelta(seconds=1))), ("15T", Step(timedelta(minutes=15))), ("H", Step(timedelta(hours=1))),
        ("7D", Step(timedelta(days=7))), ("W", Step(timedelta(days=7))), ("1b", Step(business_days=1)),
        ("5B", Step(business_days=5)), ("1mo", Step(months=1)), ("M", Step(months=1)), ("2ME", Step(months=2)),
        ("QE", Step(months=3)), ("1y", Step(months=12)), ("4q", Step(months=12)), ("YS", Step(months=12)),
        ("W-SUN", Step(timedelta(days=7))), ("2W-MON", Step(timedelta(days=14))), ("QS-OCT", Step(months=3)),
        ("BQE-DEC", Step(months=3)), ("A-JUN", Step(months=12)), ("YE-DEC", Step(months=12)), ("BMS", Step(months=1)),
        ("250ms", Step(timedelta(milliseconds=250))),
    ],
)  # fmt: skip
def test_frequency_is_a_number_and_a_unit_of_ours_or_of_pandas(text: str, step: Step) -> None:
    assert parse_frequency(text) == step


@pytest.mark.parametrize(
    "text",
    [
        *("", "1", "0h", "-1h", "1.5h", "1 h", "m", "1Y1", "month", "1hour", "01h", "1000000w", "1h\n", "\u0661h"),
        *("1hh", "W-OCT", "QS-SUN", "MS-OCT", "D-SUN", "MIN"),
    ],
)
def test_other_frequencies_are_refused(text: str) -> None:
    with pytest.raises(InvalidInput, match="10min, 7d or 1mo") as caught:
        parse_frequency(text)
    assert [place for place, _ in caught.value.errors] == ["frequency"]


@pytest.mark.parametrize(
    ("start", "frequency", "expected"),
    [
        ("2016-07-01", "15min", ["2016-07-01T00:45:00", "2016-07-01T01:00:00"]),
        ("2016-02-28T00:00:00Z", "1d", ["2016-03-02T00:00:00+00:00", "2016-03-03T00:00:00+00:00"]),
        ("2016-12-31T23:59:59+05:30", "1s", ["2017-01-01T00:00:02+05:30", "2017-01-01T00:00:03+05:30"]),
        ("2016-07-01T12:00:00.5", "1h", ["2016-07-01T15:00:00.500000", "2016-07-01T16:00:00.500000"]),
        ("0001-01-01T00:00:00+23:59", "1d", ["0001-01-04T00:00:00+23:59", "0001-01-05T00:00:00+23:59"]),
        ("2023-11-01", "1mo", ["2024-02-01T00:00:00", "2024-03-01T00:00:00"]),
        ("2023-11-30", "1mo", ["2024-02-29T00:00:00", "2024-03-31T00:00:00"]),
        ("2023-10-30T06:00:00Z", "1mo", ["2024-01-30T06:00:00+00:00", "2024-02-29T06:00:00+00:00"]),
        ("2023-03-31", "1q", ["2023-12-31T00:00:00", "2024-03-31T00:00:00"]),
        ("2024-02-29", "1y", ["2027-02-28T00:00:00", "2028-02-29T00:00:00"]),
        ("2024-05-15T12:00:00", "1b", ["2024-05-20T12:00:00", "2024-05-21T12:00:00"]),
        ("2024-05-18", "1b", ["2024-05-23T00:00:00", "2024-05-24T00:00:00"]),
    ],
)
def test_timestamps_follow_the_series(start: str, frequency: str, expected: list[str]) -> None:
    assert continue_timestamps(parse_start(start), parse_frequency(frequency), 3, 2) == expected


@pytest.mark.parametrize(
    ("start", "frequency", "length"),
    [
        ("9999-12-29", "1d", 2), ("2016-07-01", "999999w", 1), ("2016-07-01", "999999w", 10_000_000),
        ("9999-12-31T23:59:59-12:00", "1s", 1), ("9999-11-30", "1mo", 1), ("2016-07-01", "999999y", 10_000_000),
        ("9999-12-31", "1b", 1), ("2016-07-01", "999999b", 10_000_000),
    ],
)  # fmt: skip
def test_timestamps_beyond_the_calendar_are_rejected(start: str, frequency: str, length: int) -> None:
    with pytest.raises(InvalidInput, match="year 9999") as caught:
        continue_timestamps(parse_start(start), parse_frequency(frequency), length, 2)
    assert [place for place, _ in caught.value.errors] == ["start"]


@pytest.mark.parametrize(
    "text", ["", "yesterday", "2016", "2016-13-01", "01.07.2016", "2016-07-01T25:00:00", "1467331200"]
)
def test_invalid_start_time_is_rejected(text: str) -> None:
    with pytest.raises(InvalidInput, match="ISO 8601"):
        parse_start(text)


TIMES = st.datetimes(datetime(1900, 1, 1), datetime(2100, 1, 1))
STEPS = st.sampled_from(["1s", "15min", "36h", "7d", "1b", "3b", "1mo", "1q", "5mo", "1y"])


@given(start=TIMES, frequency=STEPS, count=st.integers(1, 1000))
def test_count_is_the_inverse_of_add(start: datetime, frequency: str, count: int) -> None:
    step = parse_frequency(frequency)
    later = step.add(start, count)
    assert later > start
    assert step.add(start, count + 1) > later
    assert step.count(start, later) == count
    assert step.count(start, later + timedelta(microseconds=1)) is None


@pytest.mark.parametrize(
    ("frequency", "end"),
    [
        ("1b", "2024-05-18"),
        ("2b", "2024-05-16"),
        ("1mo", "2024-06-14"),
        ("1q", "2024-06-15"),
        ("1h", "2024-05-15T01:30"),
    ],
)
def test_count_between_times_that_are_not_whole_steps_apart_is_none(frequency: str, end: str) -> None:
    assert parse_frequency(frequency).count(datetime(2024, 5, 15), datetime.fromisoformat(end)) is None


def test_imputed_gaps_are_on_the_line_between_values_and_equal_to_the_nearest_at_the_ends() -> None:
    nan = float("nan")
    assert impute(np.array([nan, nan, 1, nan, nan, 4, 2, nan])).tolist() == [1, 1, 1, 2, 3, 4, 2, 2]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("60min", "1h"), ("24h", "1d"), ("1w", "7d"), ("W-SUN", "7d"), ("90s", "90s"), ("QS-OCT", "1q"),
        ("24mo", "2y"), ("2B", "2b"), ("1500ms", "1500ms"),
    ],
)  # fmt: skip
def test_name_of_a_step_is_in_its_largest_unit(text: str, expected: str) -> None:
    assert parse_frequency(text).name == expected
    assert parse_frequency(expected) == parse_frequency(text)


def test_names_of_columns_are_separated_by_commas() -> None:
    assert names_of('a, b c ,"d,e",') == ("a", "b c", "d,e")
    assert names_of("") == ()
