"""Time steps of series, and places on their grid."""

from collections.abc import Sequence
from datetime import datetime, timedelta

import numpy as np
import pytest

from artifact.series import parse_frequency
from artifact.tables.steps import infer_step, place


def frequency_of(times: Sequence[datetime]) -> str:
    step = infer_step(times)
    return "irregular" if step is None else step.name


def every(step: timedelta, count: int = 20) -> list[datetime]:
    return [datetime(2024, 2, 25) + i * step for i in range(count)]


@pytest.mark.parametrize(
    ("step", "expected"),
    [
        (timedelta(seconds=0.5), "500ms"), (timedelta(seconds=30), "30s"), (timedelta(minutes=10), "10min"),
        (timedelta(minutes=15), "15min"), (timedelta(minutes=90), "90min"), (timedelta(hours=1), "1h"),
        (timedelta(hours=36), "36h"), (timedelta(days=1), "1d"), (timedelta(days=7), "7d"),
    ],
)  # fmt: skip
def test_frequency_is_the_step_in_its_largest_unit(step: timedelta, expected: str) -> None:
    assert frequency_of(every(step)) == expected


@pytest.mark.parametrize("frequency", ["1b", "1mo", "2mo", "1q", "1y"])
@pytest.mark.parametrize("start", [datetime(2023, 1, 2), datetime(2023, 1, 31, 12), datetime(2023, 2, 28)])
def test_frequency_is_a_calendar_step(frequency: str, start: datetime) -> None:
    step = parse_frequency(frequency)
    assert frequency_of([step.add(start, i) for i in range(60)]) == frequency


def test_frequency_of_business_days_allows_holidays() -> None:
    days = [parse_frequency("1b").add(datetime(2024, 1, 1), i) for i in range(260)]
    assert frequency_of([day for day in days if (day.month, day.day) not in ((5, 1), (12, 25))]) == "1b"


def test_gaps_do_not_change_the_frequency() -> None:
    hours = every(timedelta(hours=1), 100)
    assert frequency_of([*hours, datetime(2025, 3, 1)]) == "1h"
    assert frequency_of([time for i, time in enumerate(hours) if i % 4]) == "1h"
    days = [parse_frequency("1b").add(datetime(2024, 1, 1), i) for i in range(100)]
    assert frequency_of([day for i, day in enumerate(days) if i % 4]) == "1b"


@pytest.mark.parametrize("order", [slice(None, None, -1), slice(None)])
def test_order_of_the_rows_does_not_change_the_frequency(order: slice) -> None:
    hours = every(timedelta(hours=1))
    assert frequency_of([*hours[::2], *hours[1::2]][order]) == "1h"


@pytest.mark.parametrize(
    "times",
    [
        [datetime(2024, 1, 1)] * 20,
        [datetime(2024, 1, 1)],
        [],
        [datetime(2024, 1, 1) + timedelta(days=i * i) for i in range(40)],
    ],
    ids=["standing still", "one row", "none", "squares"],
)
def test_frequency_of_anything_else_is_irregular(times: list[datetime]) -> None:
    assert frequency_of(times) == "irregular"


def near(step: str, start: datetime, distances: Sequence[timedelta]) -> list[datetime]:
    """Times at this step, each off by a distance."""
    return [parse_frequency(step).add(start, i) + distance for i, distance in enumerate(distances)]


@pytest.mark.parametrize(
    ("step", "start", "unit", "most"),
    [
        ("1min", datetime(2024, 1, 1), timedelta(seconds=1), 8),
        ("15min", datetime(2024, 1, 1, 0, 7), timedelta(seconds=1), 60),
        ("1h", datetime(2024, 1, 1, 0, 30), timedelta(milliseconds=1), 5000),
        ("1d", datetime(2024, 1, 1, 8), timedelta(minutes=1), 90),
        ("7d", datetime(2024, 1, 7), timedelta(days=1), 1),
        ("1mo", datetime(2020, 1, 15), timedelta(days=1), 3),
        ("1q", datetime(2000, 2, 15), timedelta(days=1), 3),
    ],
)
@pytest.mark.parametrize("seed", range(3))
def test_jitter_does_not_change_the_step(step: str, start: datetime, unit: timedelta, most: int, seed: int) -> None:
    jitter = np.random.default_rng(seed).integers(-most, most + 1, 100).tolist()
    times = near(step, start, [one * unit for one in jitter])
    del times[50:53]
    assert frequency_of(times) == step
    found = place(times, parse_frequency(step))
    assert found.fits.all()
    assert (found.places - found.places[0]).tolist() == [*range(50), *range(53, 100)]


@pytest.mark.parametrize("step", ["61min", "7min", "45s", "17s", "3d", "2b", "5d"])
def test_unusual_steps_are_exact(step: str) -> None:
    times = near(step, datetime(2024, 1, 1), [timedelta()] * 100)
    expected = "7d" if step == "5b" else step
    assert frequency_of(times) == expected
    assert place(times, parse_frequency(step)).exact == 100


def test_last_working_days_are_months() -> None:
    ends = [parse_frequency("1mo").add(datetime(2020, 1, 31), i) for i in range(60)]
    times = [end - timedelta(days=max(0, end.weekday() - 4)) for end in ends]
    assert frequency_of(times) == "1mo"
    assert int((place(times, parse_frequency("1mo")).distances > 0).sum()) == sum(end.weekday() > 4 for end in ends)


def test_stamps_that_do_not_fit_are_told() -> None:
    times = every(timedelta(hours=1), 100)
    times[40] += timedelta(minutes=30)
    assert frequency_of(times) == "1h"
    assert np.flatnonzero(~place(times, parse_frequency("1h")).fits).tolist() == [40]
    days = [datetime(2024, 1, 1) + timedelta(days=i) for i in range(7)]
    assert place(days, parse_frequency("1b")).fits.tolist() == [True] * 5 + [False] * 2
