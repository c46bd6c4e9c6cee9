"""Preprocessing of series: windows, imputation, scaling, error bands, time stamps."""

import calendar
import csv
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import MAXYEAR, datetime, timedelta

import numpy as np
from numpy.typing import NDArray

from artifact.arrays import Doubles
from artifact.errors import InvalidInput

Column = Sequence[float | None]
"""One channel, oldest value first; None or NaN where a value is missing."""

LARGEST = 1e6
"""Maximum absolute value after scaling; larger input values are rejected."""
IRREGULAR = "irregular"
"""Frequency of a series without a known, regular time step."""


@dataclass(frozen=True)
class Step:
    """Time step of a series: a fixed time, or a number of months or business days. One field is positive."""

    time: timedelta = timedelta(0)
    months: int = 0
    business_days: int = 0
    """Monday to Friday; holidays are not known."""

    def __mul__(self, factor: int) -> "Step":
        """The step, `factor` times as long."""
        return Step(self.time * factor, self.months * factor, self.business_days * factor)

    def add(self, start: datetime, count: int) -> datetime:
        """Time of the value `count` steps after the value at `start`.

        Months keep the day of `start`, or take the last day of a shorter month. If `start` is the last day of its
        month, so is every result. Business days count a `start` on a weekend as the Monday after it.

        Raises: OverflowError beyond the year 9999.

        """
        if self.months:
            year, month = divmod(start.year * 12 + start.month - 1 + count * self.months, 12)
            if year > MAXYEAR:
                raise OverflowError
            last = calendar.monthrange(year, month + 1)[1]
            is_last = start.day == calendar.monthrange(start.year, start.month)[1]
            return start.replace(year=year, month=month + 1, day=last if is_last else min(start.day, last))
        if self.business_days:
            weeks, weekday = divmod(min(start.weekday(), 5) + count * self.business_days, 5)
            return start + timedelta(days=7 * weeks + weekday - start.weekday())
        return start + count * self.time

    def count(self, start: datetime, end: datetime) -> int | None:
        """Number of steps from `start` to `end`, which must not be earlier; None if it is not whole."""
        if self.months:
            count = ((end.year - start.year) * 12 + end.month - start.month) // self.months
        elif self.business_days:
            count = (business_day(end) - business_day(start)) // self.business_days
        else:
            count = (end - start) // self.time
        return count if self.add(start, count) == end else None

    @property
    def name(self) -> str:
        """The step in its largest unit, such as 15min, 7d or 1mo."""
        if self.months:
            return next(f"{self.months // size}{unit}" for unit, size in MONTHS if self.months % size == 0)
        if self.business_days:
            return f"{self.business_days}b"
        return next(f"{self.time // size}{unit}" for unit, size in TIMES if not self.time % size)


def business_day(time: datetime) -> int:
    """Number of business days from the year 1 to the day before `time`."""
    weeks, weekday = divmod(time.toordinal() - 1, 7)  # ordinal 1 is a Monday
    return 5 * weeks + min(weekday, 5)


MONTHS = (("y", 12), ("q", 3), ("mo", 1))
TIMES = (
    ("d", timedelta(days=1)),
    ("h", timedelta(hours=1)),
    ("min", timedelta(minutes=1)),
    ("s", timedelta(seconds=1)),
    ("ms", timedelta(milliseconds=1)),
)
"""Units of `Step.name`, the largest first."""
UNITS = {
    **dict.fromkeys(("ms", "L"), Step(timedelta(milliseconds=1))),
    **dict.fromkeys(("s", "S"), Step(timedelta(seconds=1))),
    **dict.fromkeys(("min", "T"), Step(timedelta(minutes=1))),
    **dict.fromkeys(("h", "H"), Step(timedelta(hours=1))),
    **dict.fromkeys(("d", "D"), Step(timedelta(days=1))),
    **dict.fromkeys(("b", "B"), Step(business_days=1)),
    **dict.fromkeys(("w", "W"), Step(timedelta(weeks=1))),
    **dict.fromkeys(("mo", "M", "MS", "ME", "BM", "BMS", "BME"), Step(months=1)),
    **dict.fromkeys(("q", "Q", "QS", "QE", "BQ", "BQS", "BQE"), Step(months=3)),
    **dict.fromkeys(("y", "Y", "YS", "YE", "A", "AS", "AE", "BY", "BYS", "BYE", "BA", "BAS", "BAE"), Step(months=12)),
}
"""Time units: the project's names, and pandas' aliases."""
WEEKDAYS = "MON|TUE|WED|THU|FRI|SAT|SUN"
MONTH_NAMES = "JAN|FEB|MAR|APR|MAY|JUN|JUL|AUG|SEP|OCT|NOV|DEC"
FREQUENCY = re.compile(
    rf"([1-9][0-9]{{0,5}})?(?:(W)-(?:{WEEKDAYS})|(B?[QYA][SE]?)-(?:{MONTH_NAMES})|({'|'.join(UNITS)}))"
)
"""A step; pandas' anchors, such as the Sunday of W-SUN, do not change its length."""


@dataclass(frozen=True)
class Layout:
    """How a table holds a series."""

    time_column: str = ""
    """Default: the column that holds times."""
    id_column: str = ""
    """Column with the name of the series of each row, in a long table; default: one column per channel."""
    target_column: str = ""
    """Column with the values of a long table."""
    channels: tuple[str, ...] = ()
    """Columns, or series of a long table, that are channels; default: all that hold numbers."""
    ignore: tuple[str, ...] = ()
    """Columns that are left out."""
    frequency: str = ""
    """Time step, or `irregular` for rows that are read as equally spaced; default: that of the time stamps."""
    day_first: bool = False
    """Whether dates such as 31/12/2024 begin with the day."""
    encoding: str = ""
    """Encoding of a file without a byte order mark."""


PLAIN = Layout()
"""A time column if there is one, and one column per channel."""


def names_of(text: str) -> tuple[str, ...]:
    """Names of columns from an option: separated by commas, in quotes if they have a comma."""
    return tuple(name.strip() for name in next(csv.reader([text], skipinitialspace=True), []) if name.strip())


@dataclass(frozen=True)
class SeriesCoverage:
    """How much of a series was read."""

    observations_total: int
    """Number of values in the request."""
    observations_used: int
    """Number of those values inside the context."""
    imputed: int
    """Number of imputed values in the context."""
    context_length: int
    """Number of last steps that the model reads."""

    @staticmethod
    def sums(coverages: Sequence["SeriesCoverage"]) -> dict[str, int | float]:
        """Sums over the series of a request."""
        return {
            "observations_total": sum(coverage.observations_total for coverage in coverages),
            "observations_used": sum(coverage.observations_used for coverage in coverages),
            "imputed": sum(coverage.imputed for coverage in coverages),
        }


@dataclass(frozen=True)
class SeriesWindow(SeriesCoverage):
    """Input window of a model."""

    values: NDArray[np.float32]
    """(context, channels), scaled."""


@dataclass(frozen=True)
class Tails:
    """The last steps of every channel, as many as a model reads."""

    values: tuple[Doubles, ...]
    """(steps,) of each channel, oldest first, NaN if missing."""
    lengths: NDArray[np.int64]
    """(channels,): length of each whole channel."""
    observations: NDArray[np.int64]
    """(channels,): number of known values in each whole channel."""

    @classmethod
    def of(cls, columns: Sequence[Column], max_steps: int) -> "Tails":
        """Keep the last `max_steps` values of each channel."""
        values, observations = list[Doubles](), list[int]()
        for column in columns:
            whole = np.array(column, np.float64)  # None becomes NaN
            values.append(whole[-max_steps:].copy() if len(whole) > max_steps else whole)
            observations.append(len(whole) - int(np.isnan(whole).sum()))
        lengths = np.array([len(column) for column in columns], np.int64)
        return cls(tuple(values), lengths, np.array(observations, np.int64))

    @property
    def nbytes(self) -> int:
        """Size of the values in bytes."""
        return sum(column.nbytes for column in self.values)

    def take(self, order: Sequence[int]) -> "Tails":
        """Select channels by index, in the given order."""
        chosen = list(order)
        return Tails(tuple(self.values[index] for index in chosen), self.lengths[chosen], self.observations[chosen])


def read_window(
    tails: Tails,
    names: Sequence[str],
    *,
    context_length: int,
    min_observations: int,
    mean: Sequence[float],
    scale: Sequence[float],
) -> SeriesWindow:
    """Take the last `context_length` steps, impute missing values and scale.

    Missing values are filled by `impute`; a series shorter than the context has a gap at its start.

    Raises: InvalidInput naming channel and value: empty or unequal channels, too few values, or a value beyond LARGEST.

    """
    lengths = set(tails.lengths.tolist())
    if len(lengths) != 1:
        raise InvalidInput.at(
            "series", f"all channels must be equally long, not {', '.join(map(str, sorted(lengths)))} values"
        )
    first = max(0, lengths.pop() - context_length)
    values = np.empty((context_length, len(names)))
    used = 0
    for index, (whole, name) in enumerate(zip(tails.values, names, strict=True)):
        column = whole[-context_length:]
        known = np.flatnonzero(~np.isnan(column))
        if len(known) < min_observations:
            raise InvalidInput.at(
                f"series.{name}",
                f"{len(known)} of the last {context_length} values of {name} are there; at least {min_observations} "
                "are needed",
            )
        used += len(known)
        steps = known + (context_length - len(column))
        with np.errstate(over="ignore"):
            scaled = (column[known] - mean[index]) / scale[index]
        if (far := np.abs(scaled) > LARGEST).any():
            number = first + int(known[far.argmax()])
            raise InvalidInput.at(
                f"series.{name}.{number}",
                f"value {number} of {name} is more than {LARGEST:.0e} standard deviations from the training mean",
            )
        gapped = np.full(context_length, np.nan)
        gapped[steps] = scaled
        values[:, index] = impute(gapped)
    total = int(tails.observations.sum())
    return SeriesWindow(total, used, values.size - used, context_length, values.astype(np.float32))


def impute(column: Doubles) -> Doubles:
    """Fill the missing values (NaN) of a channel (steps,), which must have at least one value.

    Gaps between two values are interpolated linearly. Gaps at either end are filled with the nearest value.
    """
    known = np.flatnonzero(~np.isnan(column))
    return np.interp(np.arange(len(column)), known, column[known])


def unscale(values: NDArray[np.float32], mean: Sequence[float], scale: Sequence[float]) -> Doubles:
    """Convert scaled values (..., channels) to the units of the data."""
    unscaled: Doubles = values.astype(np.float64) * np.array(scale) + np.array(mean)
    return unscaled


def conformal_rank(level: float, count: int) -> int:
    """Rank, among `count` errors, of the one that a fraction `level` of new errors does not exceed; the smallest has 1.

    ceil((m + 1) q) for q >= 0.5, floor((m + 1) q) below, with q = `level` and m = `count`: both ends of a band are
    conservative.

    Reference:  Lei et al. 2018, arXiv:1604.04173, sec. 2.2 (split conformal), for each tail.
    Raises:     InvalidInput if `count` errors cannot bound this level.
    """
    product = round((count + 1) * level, 9) if 0 < level < 1 else 0.0  # 0.9 * 10 is not exactly 9 in floating point
    rank = math.ceil(product) if level >= 0.5 else math.floor(product)
    if not 1 <= rank <= count:
        lowest = math.ceil(1e6 / (count + 1)) / 1e6  # rounded up, so that the printed bound is itself allowed
        raise InvalidInput.at(
            "quantiles", f"level {level} is outside [{lowest:g}, {1 - lowest:g}], the calibrated range"
        )
    return rank


@dataclass(frozen=True)
class Calibration:
    """Quantiles of the model's forecast errors before the test split; see the manifest's `calibration_source`."""

    levels: Doubles
    """(Q,), increasing; first and last are 1 / (m + 1) and m / (m + 1)."""
    errors: NDArray[np.float32]
    """(Q, horizon, channels): truth minus forecast, scaled; non-decreasing along Q."""
    count: int
    """m: number of errors behind each quantile."""

    def error(self, level: float, horizon: int) -> NDArray[np.float32]:
        """Quantile of the error at each step, (horizon, channels), interpolated linearly between stored levels.

        Raises: InvalidInput if the calibration cannot bound this level.
        """
        conformal_rank(level, self.count)
        upper = min(int(np.searchsorted(self.levels, level - 1e-9)), len(self.levels) - 1)  # 1e-9: rounding of levels
        lower = max(0, upper - 1)
        width = self.levels[upper] - self.levels[lower]
        share = min(1.0, max(0.0, (level - self.levels[lower]) / width)) if width > 0 else 1.0
        # In float32 the interpolation may miss `above` at share 1.
        below, above = self.errors[[lower, upper], :horizon].astype(np.float64)
        between: NDArray[np.float32] = (below + share * (above - below)).astype(np.float32)
        return between


def calibrate(errors: NDArray[np.float32], levels: Sequence[float]) -> Calibration:
    """Split-conformal quantiles of signed errors.

    Args:
        errors: (m, horizon, channels), truth minus forecast.
        levels: levels to store; those that m errors cannot bound are dropped, the two extreme levels are added.

    """
    count = len(errors)
    lowest, highest = 1 / (count + 1), count / (count + 1)
    kept = sorted({lowest, highest, *(level for level in levels if lowest < level < highest)})
    ordered = np.sort(errors, axis=0)
    chosen = ordered[[conformal_rank(level, count) - 1 for level in kept]]
    return Calibration(np.array(kept), chosen, count)


def parse_frequency(text: str) -> Step:
    """Parse a time step: an optional count and ms, s, min, h, d, b (business days), w, mo, q or y, such as 10min.

    pandas' aliases (10T, H, 7D, MS, W-SUN, QS-OCT) are read, too. Raises: InvalidInput.
    """
    found = FREQUENCY.fullmatch(text)
    if found is None:
        raise InvalidInput.at(
            "frequency",
            "expected an optional number and one of ms, s, min, h, d, b (business days), w, mo, q, y, such as 10min, "
            "7d or 1mo; or an alias of pandas, such as MS",
        )
    return UNITS[found[2] or found[3] or found[4]] * int(found[1] or 1)


def parse_start(text: str) -> datetime:
    """Parse the time of the first value, ISO 8601. Raises: InvalidInput."""
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        raise InvalidInput.at("start", "expected ISO 8601, such as 2016-07-01T00:00:00") from None


def continue_timestamps(start: datetime, step: Step, length: int, horizon: int) -> list[str]:
    """Time stamps of the forecast that follows `length` values. Raises: InvalidInput beyond the year 9999."""
    try:
        return [step.add(start, length + i).isoformat() for i in range(horizon)]
    except OverflowError:
        raise InvalidInput.at("start", "the forecast would end after the year 9999") from None
