"""Time steps of series, and places on their grid."""

from collections.abc import Sequence
from datetime import datetime, timedelta

import pytest

from artifact.series import parse_frequency
from artifact.tables.steps import infer_step


def frequency_of(times: Sequence[datetime]) -> str:
    step = infer_step(times)
    return "irregular" if step is None else step.name


def every(step: timedelta, count: int = 20) -> list[datetime]:
    return [datetime(2024, 2, 25) + i * step for i in range(count)]


@pytest.mark.parametrize(
    ("step", "expected"),
    [
        (timedelta(seconds=0.5), "500ms"),
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
