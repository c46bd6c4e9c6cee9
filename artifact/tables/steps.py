"""Time step of a series, and the place of each of its rows on the grid of equal steps."""

import calendar
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

import numpy as np
from numpy.typing import NDArray

from artifact.series import Step, business_day

Integers = NDArray[np.int64]
REGULAR = 0.95
"""Minimum share of the time stamps that fit the step of a series; of 10 or more stamps, one may always be off."""
SMALLEST = 1 / 3
"""Minimum share of the rows that follow the row before by one step."""
TOLERANCE = 0.25
"""Maximum distance of a time stamp from the grid, in steps, at which it is rounded to it."""
MONTH_TOLERANCE = timedelta(days=7)
"""The same for steps of months."""
NICE = 0.1
"""Maximum deviation of the median step from a usual one."""
_MICROSECOND = timedelta(microseconds=1)
_EPOCH = datetime(1970, 1, 1)
DAY = timedelta(days=1) // _MICROSECOND
USUAL = [
    count * (timedelta(**{unit: 1}) // _MICROSECOND)
    for unit, counts in {
        "milliseconds": (1, 2, 4, 5, 10, 20, 25, 40, 50, 100, 200, 250, 500),
        "seconds": (1, 2, 3, 4, 5, 6, 10, 12, 15, 20, 30),
        "minutes": (1, 2, 3, 4, 5, 6, 10, 12, 15, 20, 30),
        "hours": (1, 2, 3, 4, 6, 8, 12),
        "days": (1, 2, 3, 4, 5, 6, 7, 10, 14, 28),
    }.items()
    for count in counts
]
"""Usual steps in microseconds."""


@dataclass(frozen=True)
class Placement:
    """Times on a grid of equal steps."""

    places: Integers
    """Number of the step that is nearest to each time."""
    distances: Integers
    """Microseconds between a time and its step."""
    fits: NDArray[np.bool_]
    """Whether a time is near enough to be rounded."""

    @property
    def exact(self) -> int:
        """Number of times that lie on the grid."""
        return int((self.fits & (self.distances == 0)).sum())


def infer_step(times: Sequence[datetime]) -> Step | None:
    """The step that nearly all time stamps fit, from a microsecond to years; None without one.

    Of several steps, it is the one that most often leads from a row to the next. Calendar steps count in the local time
    of the stamps; fixed ones in the time, local or UTC, in which more stamps fit.

    Args:
        times: time stamps in any order, either all with a time zone or none.

    """
    ordered = sorted(set(times))
    if len(ordered) < 2:
        return None
    best, score = None, (0.0, 0.0)
    for step in _candidates(ordered):
        found = place(ordered, step)
        misfits, count = int((~found.fits).sum()), len(ordered)
        if misfits > max((1 - REGULAR) * count, 1 if count >= 10 else 0):
            continue
        unit = float((np.diff(found.places[found.fits]) == 1).sum()) / (count - 1)
        if unit >= SMALLEST and (unit, found.exact / count) > score:
            best, score = step, (unit, found.exact / count)
    return best


def _candidates(ordered: Sequence[datetime]) -> Iterator[Step]:
    """Steps that may lead from most rows to the next."""
    for micros in _clocks(ordered):
        steps = np.diff(micros)
        steps = steps[steps > 0]
        if not len(steps):
            continue
        size, count = Counter(steps.tolist()).most_common(1)[0]
        if size in USUAL or 2 * count >= len(steps):
            yield _fixed_step(size)
        median = float(np.median(steps))
        usual = min(USUAL, key=lambda usual: abs(math.log(median / usual)))
        if usual != size and abs(usual - median) <= NICE * median:
            yield _fixed_step(usual)
    if days := _most_common([business_day(time) for time in ordered]):
        yield Step(business_days=days)
    if months := _most_common([time.year * 12 + time.month for time in ordered]):
        yield Step(months=months)


def _most_common(counts: Sequence[int]) -> int:
    """The most common of the positive differences; 0 if there are none."""
    steps = Counter(step for step in np.diff(counts).tolist() if step > 0)
    return steps.most_common(1)[0][0] if steps else 0


def _fixed_step(micros: int) -> Step:
    return Step(micros * _MICROSECOND)


def _clocks(times: Sequence[datetime]) -> list[Integers]:
    """Microseconds of times in local time and, if their distances from it differ, in UTC."""
    local = np.array([(time.replace(tzinfo=None) - _EPOCH) // _MICROSECOND for time in times], np.int64)
    offsets = np.array([(time.utcoffset() or timedelta()) // _MICROSECOND for time in times], np.int64)
    return [local] if (offsets == offsets[0]).all() else [local, local - offsets]


def place(times: Sequence[datetime], step: Step) -> Placement:
    """Places of times on the grid of a step that most of them fit."""
    if step.months:
        return _by_months(times, step.months)
    if step.business_days:
        return _by_business_days(times, step.business_days)
    size = max(1, step.time // _MICROSECOND)
    clocks = _clocks(times) if size >= DAY else _clocks(times)[::-1]  # hours count in UTC, days in local time
    found = [_by_time(micros, size) for micros in clocks]
    return max(found, key=lambda one: (int(one.fits.sum()), one.exact))


def _by_time(micros: Integers, size: int) -> Placement:
    """The grid goes through the most common phase; if there is none, through midnight, or the mean of all phases."""
    phases = micros % size
    phase, count = Counter(phases.tolist()).most_common(1)[0]
    if 2 * count < len(micros):
        at_midnight = _on_grid(micros, 0, size)
        if DAY % size == 0 and at_midnight.fits.mean() >= REGULAR:
            return at_midnight
        turns = np.exp(2j * np.pi * phases / size).mean()
        phase = round(float(np.angle(turns)) / (2 * np.pi) * size) % size
    return _on_grid(micros, phase, size)


def _on_grid(micros: Integers, phase: int, size: int) -> Placement:
    places = (micros - phase + size // 2) // size
    distances = np.abs(micros - phase - places * size)
    return Placement(places, distances, distances <= size * TOLERANCE)


def _by_months(times: Sequence[datetime], months: int) -> Placement:
    """Steps are on the most common day of the month, or on the last one."""
    clock = Counter(time.time() for time in times).most_common(1)[0][0]
    lasts = [calendar.monthrange(time.year, time.month)[1] for time in times]
    day, common = Counter(time.day for time in times).most_common(1)[0]
    at_end = sum(time.day == last for time, last in zip(times, lasts, strict=True))
    if at_end >= common:
        day = 31
    indices = np.array([time.year * 12 + time.month - 1 for time in times], np.int64)
    phase = Counter((indices % months).tolist()).most_common(1)[0][0]
    distances = np.array(
        [
            abs(time.replace(tzinfo=None) - datetime.combine(time.replace(day=min(day, last)), clock)) // _MICROSECOND
            for time, last in zip(times, lasts, strict=True)
        ],
        np.int64,
    )
    fits = (distances <= MONTH_TOLERANCE // _MICROSECOND) & (indices % months == phase)
    return Placement((indices - phase) // months, distances, fits)


def _by_business_days(times: Sequence[datetime], days: int) -> Placement:
    """Steps are at the most common time of the day."""
    clock = Counter(time.time() for time in times).most_common(1)[0][0]
    indices = np.array([business_day(time) for time in times], np.int64)
    phase = Counter((indices % days).tolist()).most_common(1)[0][0]
    distances = np.array(
        [abs(time.replace(tzinfo=None) - datetime.combine(time, clock)) // _MICROSECOND for time in times], np.int64
    )
    is_working = np.array([time.weekday() < 5 for time in times])
    fits = (distances <= TOLERANCE * DAY) & is_working & (indices % days == phase)
    return Placement((indices - phase) // days, distances, fits)
