"""Multivariate time series: CSV files -> scaled splits and windows. Used by the forecasting commands of `model`."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Literal, TypeVar

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from artifact.series import IRREGULAR, LARGEST, Step, impute, parse_frequency
from artifact.tables.series import LISTED, is_value, listed_places, numbers, parse_time, read_sheet
from artifact.tables.values import is_missing
from model.config.data import SeriesConfig
from model.errors import UserError, reading

Floats = NDArray[np.float32]
Doubles = NDArray[np.float64]
SplitName = Literal["train", "validation", "test"]
T = TypeVar("T")
Time = TypeVar("Time", datetime, int)
"""A time stamp, or a count of steps."""

BATCH = 128
HUGE = 1e301
"""Maximum absolute value in training: forecasts of values up to LARGEST are finite, too."""
FINEST = 32 * float(np.finfo(np.float64).eps)
"""Minimum range of a channel in training relative to its largest absolute value; a smaller one is mostly rounding."""
WHOLE = 2.0**53
"""Whole numbers from here on are rounded, so that different ones in a file may be the same."""
ETT_MONTH = 30 * 24 * 4
"""Rows of a 30-day month at 15-minute steps."""


@dataclass(frozen=True)
class SeriesSource:
    """A public benchmark file; its origin is in docs/train/data.md."""

    file: str
    terms: str
    boundaries: tuple[int, int, int] | None = None
    """End rows of train, validation and test; None splits by the recipe's fractions."""


SOURCES = {
    "ettm2": SeriesSource(
        "ETTm2.csv.gz",
        "ETDataset (Zhou et al., AAAI 2021): Creative Commons Attribution-NoDerivatives 4.0.",
        (12 * ETT_MONTH, 16 * ETT_MONTH, 20 * ETT_MONTH),
    ),
    "exchange": SeriesSource("exchange_rate.csv.gz", "Exchange rates (Lai et al., SIGIR 2018): no licence stated."),
    "weather": SeriesSource(
        "weather.csv.gz", "Weather station of the Max Planck Institute for Biogeochemistry, Jena: no licence stated."
    ),
    "ili": SeriesSource("national_illness.csv.gz", "US Centers for Disease Control and Prevention, FluView."),
}


@dataclass(frozen=True)
class Series:
    """A series, standardised by the mean and standard deviation of its training rows."""

    values: Floats
    """(rows, channels)."""
    channels: tuple[str, ...]
    mean: Doubles
    scale: Doubles
    boundaries: tuple[int, int, int]
    """End rows of train, validation and test."""
    frequency: str = IRREGULAR
    """Time step, such as 15min or 1mo; `irregular` also if it is unknown."""
    notes: tuple[str, ...] = ()
    """What the user should know about how the file was read."""

    def windows(self, split: SplitName, context_length: int, prediction_length: int) -> Floats:
        """All windows whose forecast is in a split; the context may start in the split before.

        Shape:  returns (windows, channels, context + prediction), a view. Raises: UserError if there are none.
        """
        ends = (0, *self.boundaries)
        index = ("train", "validation", "test").index(split)
        rows = self.values[max(0, ends[index] - context_length) : ends[index + 1]]
        length = context_length + prediction_length
        if len(rows) < length:
            raise UserError(f"the {split} split has {len(rows)} rows with its context; {length} are needed")
        return np.lib.stride_tricks.sliding_window_view(rows, length, axis=0)

    def validation_half(self, half: int) -> tuple[int, int]:
        """Start and end row of a half of validation: the first selects context and epoch, the second calibrates."""
        start, end, _ = self.boundaries
        middle = (start + end) // 2
        return (start, middle) if half == 0 else (middle, end)

    def by_target(
        self, forecast: Callable[[Floats], Floats], context_length: int, horizon: int, rows: tuple[int, int]
    ) -> Floats:
        """Forecasts of each row from `rows[0]` to `rows[1]`, by number of steps ahead.

        Windows may start before the first row, so that every number of steps ahead has the same targets. Whole windows
        within half a validation split would not give that.

        Shape:  `forecast` maps (B, context, C) to (B, horizon, C); returns (rows, horizon, C).
        Raises: UserError if the first row has too few rows before it.

        """
        start, end = rows
        first = max(0, start - horizon - context_length + 1)
        windows = np.lib.stride_tricks.sliding_window_view(self.values[first : end - 1], context_length, axis=0)
        found = np.zeros((end - start, horizon, self.values.shape[1]), np.float32)
        is_missing = np.ones((end - start, horizon), np.bool_)
        origin = first + context_length  # row of the first forecast step
        for index in tqdm(range(0, len(windows), BATCH), unit="batch", leave=False, disable=None):
            for steps_ahead in forecast(np.ascontiguousarray(windows[index : index + BATCH].transpose(0, 2, 1))):
                low, high = max(start, origin), min(end, origin + horizon)
                steps = np.arange(low, high)
                found[steps - start, steps - origin] = steps_ahead[steps - origin]
                is_missing[steps - start, steps - origin] = False
                origin += 1
        if is_missing.any():
            raise UserError(
                f"validation begins at row {start}; {context_length} + {horizon} rows are needed before it to calibrate"
            )
        return found


Scaler = tuple[Sequence[float], Sequence[float]]
"""Mean and standard deviation of each channel."""


def load_series(config: SeriesConfig, data_dir: Path, scaler: Scaler | None = None) -> Series:
    """Read, split and scale a series. For `csv`, `data_dir` is the file. Without `scaler`, one is fitted.

    Raises: UserError naming file, lines and columns of bad cells and time stamps.
    """
    if config.name == "synthetic-series":
        return _scaled("synthetic-series", _synthetic(), _shares(config, SYNTHETIC_ROWS), scaler)
    if config.name == "csv":
        rows = _read_own(data_dir, config)
        return _scaled(str(data_dir), rows, _shares(config, len(rows.values)), scaler)
    source = SOURCES[config.name]
    path = data_dir / source.file
    if not path.exists():
        raise UserError(f"{path} does not exist; --data-dir or LONGDOC_DATA must name the folder of the data sets")
    table = read_table(path)
    if missing := _missing_values(table):
        raise UserError(f"{path}: {missing[0]}")
    boundaries = source.boundaries or _shares(config, len(table.values))
    if boundaries[-1] > len(table.values):
        raise UserError(f"{path} has {len(table.values)} rows; {boundaries[-1]} are needed")
    times = _parse_times(table, path) if table.stamps is not None else []
    rows = _Rows(table.channels, table.values, infer_frequency(times))
    return _scaled(str(path), rows, boundaries, scaler)


def data_terms(name: str) -> str:
    """Terms of use of a series."""
    if name == "synthetic-series":
        return "Generated; no terms."
    return SOURCES[name].terms if name in SOURCES else "Own data."


@dataclass(frozen=True)
class _Rows:
    """The rows of a series at equal steps, not scaled."""

    channels: tuple[str, ...]
    values: Doubles
    """(rows, channels)."""
    frequency: str
    notes: tuple[str, ...] = ()


def _shares(config: SeriesConfig, rows: int) -> tuple[int, int, int]:
    """End rows of train, validation and test; validation gets the rounding remainder, as in the published splits."""
    test = int(rows * round(1 - config.train_fraction - config.validation_fraction, 9))
    return int(rows * config.train_fraction), rows - test, rows


def _scaled(place: str, rows: _Rows, boundaries: tuple[int, int, int], scaler: Scaler | None) -> Series:
    """Scale a series, by default with the statistics of its training rows. Raises: UserError naming the channels."""
    train, channels = rows.values[: boundaries[0]], rows.channels
    if len(train) < 2:
        raise UserError(f"{place} leaves {len(train)} training rows")
    mean, scale = _statistics(place, train, channels) if scaler is None else map(np.array, scaler)
    if len(mean) != len(channels):
        raise UserError(f"{place} has {len(channels)} channels; the model was trained on {len(mean)}")
    with np.errstate(over="ignore"):
        values = (rows.values - mean) / scale
    for row, column in np.argwhere(~(np.abs(values) <= LARGEST))[:1]:
        raise UserError(
            f"{place}: column {channels[column]}: value {row + 1}, {rows.values[row, column]:g}, is more than "
            f"{LARGEST:.0e} standard deviations from the mean in training, {mean[column]:g}"
        )
    return Series(values.astype(np.float32), channels, mean, scale, boundaries, rows.frequency, rows.notes)


def _statistics(place: str, train: Doubles, channels: Sequence[str]) -> tuple[Doubles, Doubles]:
    """Mean and standard deviation (C,) of the training rows (rows, C).

    They are computed in units of a power of two, which changes no digit, so that no square overflows or underflows.

    Raises: UserError naming the channels that cannot be scaled.

    """
    largest = np.abs(train).max(axis=0)
    exponents = np.frexp(largest)[1]
    rows = np.ldexp(train, -exponents)
    mean, scale = np.ldexp(rows.mean(0), exponents), np.ldexp(rows.std(0), exponents)
    faults = []
    for channel, size, spread, deviation in zip(channels, largest, np.ptp(rows, axis=0), scale, strict=True):
        if spread == 0 and size < WHOLE:
            faults.append(f"column {channel} is constant in training; leave it out")
        elif spread < FINEST:
            faults.append(
                f"column {channel} varies in training by less than {FINEST:.0e} of its values, up to {size:g}, and "
                "floating-point numbers have 16 digits; subtract a constant from it"
            )
        elif not (size <= HUGE and deviation >= np.finfo(np.float64).tiny):
            faults.append(
                f"column {channel} has values up to {size:g} and a standard deviation of {deviation:g} in training; "
                f"use a unit in which they are within {HUGE:g} and {np.finfo(np.float64).tiny:.1e}"
            )
    if faults:
        raise UserError(f"{place}: {'; '.join(faults[:LISTED])}")
    return mean, scale


SYNTHETIC_ROWS = 600


def _synthetic() -> _Rows:
    """Generated series for tests, hourly: two noisy waves, and their sum with a trend."""
    generator = np.random.default_rng(0)
    time = np.arange(SYNTHETIC_ROWS)
    noise = generator.normal(0, 0.1, (3, len(time)))
    day, week = np.sin(2 * np.pi * time / 24), np.cos(2 * np.pi * time / 168)
    values = np.stack([day, 5 + week, day + week + 0.002 * time]) + noise
    return _Rows(("day", "week", "sum"), values.T, "1h")


REGULAR = 0.95
"""Minimum share of equal steps in a series with a regular step."""


def infer_frequency(times: Sequence[datetime]) -> str:
    """Most common step between time stamps, such as 15min, 7d, 1b or 1mo; `irregular` below a share of REGULAR.

    Business days (b) are tried before months (mo), quarters (q) and years (y).
    """
    step = _most_common(later - earlier for earlier, later in pairwise(times))
    if step is not None:
        seconds, rest = divmod(step, timedelta(seconds=1))
        if step <= timedelta(0) or rest:
            return IRREGULAR
        units = (("d", 86400), ("h", 3600), ("min", 60), ("s", 1))
        return next(f"{seconds // size}{unit}" for unit, size in units if seconds % size == 0)
    if not times or any(later <= earlier for earlier, later in pairwise(times)):
        return IRREGULAR
    if _most_common(Step(business_days=1).count(*pair) for pair in pairwise(times)) == 1:
        return "1b"
    since = [Step(months=1).count(times[0], time) for time in times]
    whole = [count for count in since if count is not None]
    months = _most_common(later - earlier for earlier, later in pairwise(whole))
    if months is None or len(whole) < len(times):
        return IRREGULAR
    return next(f"{months // size}{unit}" for unit, size in (("y", 12), ("q", 3), ("mo", 1)) if months % size == 0)


def _most_common(steps: Iterable[T]) -> T | None:
    """The value of at least a share of REGULAR of the steps."""
    counts = Counter(steps)
    return next((step for step, count in counts.most_common(1) if count >= REGULAR * counts.total()), None)


TIME_FORMATS = "ISO 8601, year/month/day with or without hour:minute, year-month, or year-Q1"


@dataclass(frozen=True)
class Table:
    """The cells of a file."""

    channels: tuple[str, ...]
    stamps: tuple[str, ...] | None
    """The time column; None if there is none."""
    values: Doubles
    """(rows, channels), NaN where a value is missing."""
    lines: tuple[int, ...]
    """Line of each row in the file."""


def read_table(path: Path, time_column: str = "", encoding: str = "") -> Table:
    """Read numeric columns and a time column.

    Without `time_column`, the first column is the time column, unless it holds numbers that are not times. Integers
    that rise in equal steps are a time column, too: they count the steps.

    Raises: UserError naming line and column of all cells that are not numbers, up to LISTED; missing ones become NaN.
    """
    with reading():
        sheet = read_sheet(path, encoding)
    if time_column and time_column not in sheet.columns:
        raise UserError(f"{sheet.place}: no column {time_column!r}; columns: {', '.join(sheet.columns)}")
    time = time_column or sheet.columns[0]
    stamps = tuple(_stamp(cell) for cell in sheet.column(time))
    is_timed = bool(time_column) or _is_time_column(stamps)
    channels = tuple(name for name in sheet.columns if not is_timed or name != time)
    if not channels:
        raise UserError(f"{sheet.place}: expected at least one channel besides the time column, not 1 column")
    with reading():
        values = numbers(sheet, channels)
    return Table(channels, stamps if is_timed else None, values, sheet.lines)


def _stamp(cell: object) -> str:
    """A cell of the time column as text."""
    return cell.isoformat() if isinstance(cell, date) else "" if cell is None else str(cell)


def _is_time_column(cells: Sequence[str]) -> bool:
    """Whether a first column without a known role is the time column."""
    known = [cell for cell in cells if not is_missing(cell)]
    if not known or parse_time(known[0]) is not None:
        return True
    try:
        steps = np.diff(np.array(cells, np.int64))
    except (ValueError, OverflowError):
        pass
    else:
        return (_most_common(steps.tolist()) or 0) > 0
    return not is_value(known[0])


def _missing_values(table: Table) -> list[str]:
    """A fault that names the missing values of a table; none if there are none."""
    places = [
        f"line {table.lines[row]} column {table.channels[column]}"
        for row, column in np.argwhere(np.isnan(table.values))
    ]
    return [listed_places("missing values", places)] if places else []


def _parse_times(table: Table, path: Path) -> list[datetime]:
    """Parse the time column. Raises: UserError naming the lines of all bad time stamps, up to LISTED."""
    stamps = table.stamps or ()
    times = [parse_time(text) for text in stamps]
    places = [f"line {line} {text[:40]!r}" for line, text in zip(table.lines, stamps, strict=True)]
    if bad := [place for place, time in zip(places, times, strict=True) if time is None]:
        raise UserError(
            f"{path}: {listed_places('time stamps that cannot be read', bad)}; expected {TIME_FORMATS}; --time-column "
            "names the time column"
        )
    known = [time for time in times if time is not None]
    zoned = [place for place, time in zip(places, known, strict=True) if time.tzinfo is not None]
    if 0 < len(zoned) < len(known):
        without = [place for place, time in zip(places, known, strict=True) if time.tzinfo is None]
        kind, fewer = min(("with", zoned), ("without", without), key=lambda item: len(item[1]))
        raise UserError(f"{path}: {listed_places(f'time stamps {kind} a time zone, unlike the others', fewer)}")
    return known


def _read_own(path: Path, config: SeriesConfig) -> _Rows:
    """Read a user's file; with `config.fill`, missing cells and rows are interpolated.

    Raises: UserError naming the lines of all bad cells, or of all missing values and repeated, unsorted and missing
        time stamps.
    """
    table = read_table(path, config.time_column, config.encoding)
    faults = [] if config.fill else [f"{fault}; --fill interpolates them" for fault in _missing_values(table)]
    frequency, notes = config.frequency or IRREGULAR, list[str]()
    if table.stamps is None:
        places = list(range(len(table.values)))
        notes.append("no time column: rows are equally spaced")
    elif (counts := _counts(table.stamps)) is not None:
        places, found = _places(table, counts, _count_between(counts), fill=config.fill)
        faults += found
        notes.append("the time column counts the steps")
    else:
        times = _parse_times(table, path)
        frequency = config.frequency or infer_frequency(sorted(set(times)))
        step = None if frequency == IRREGULAR else parse_frequency(frequency)
        if step is not None and not config.frequency and any(step.count(min(times), time) is None for time in times):
            step, frequency = None, IRREGULAR
        if step is None:
            notes.append("the time stamps have no regular step: rows are read as equally spaced")
        places, found = _places(table, times, step.count if step else None, fill=config.fill, frequency=frequency)
        faults += found
    if faults:
        raise UserError(f"{path}: {'; '.join(faults)}")
    values = np.full((places[-1] + 1, len(table.channels)), np.nan)
    values[places] = table.values
    filled = np.isnan(values)
    for channel, column in zip(table.channels, values.T, strict=True):
        if (known := int((~np.isnan(column)).sum())) < len(column) / 2:
            raise UserError(
                f"{path}: column {channel} has {known} values in {len(column)} time steps; at least half are needed"
            )
        column[:] = impute(column)
    if filled.any():
        rows = len(values) - len(places)
        added = f"{rows} row was" if rows == 1 else f"{rows} rows were"
        notes.append(f"filled {int(filled.sum())} values, {filled.mean():.1%} of all; {added} missing")
    return _Rows(table.channels, values, frequency, tuple(notes))


def _counts(stamps: Sequence[str]) -> list[int] | None:
    """The time column as integers that count steps; None if it holds times."""
    if parse_time(stamps[0]) is not None:
        return None
    try:
        return [int(stamp) for stamp in stamps]
    except ValueError:
        return None


def _count_between(counts: Sequence[int]) -> Callable[[int, int], int | None] | None:
    """Function that gives the number of steps between two counts; None without a regular step."""
    known = sorted(set(counts))
    step = _most_common(later - earlier for earlier, later in pairwise(known))
    return None if step is None else lambda start, end: None if (end - start) % step else (end - start) // step


def _places(
    table: Table,
    times: Sequence[Time],
    count: Callable[[Time, Time], int | None] | None,
    *,
    fill: bool,
    frequency: str = "",
) -> tuple[list[int], list[str]]:
    """Index of each row on the regular grid that starts at the first time, and the faults of the time stamps.

    A fault names the lines of all repeated, unsorted or missing time stamps, or of those off the grid.

    Args:
        table: the table of the rows.
        times: time of each row, in comparable units.
        count: number of steps between two times, None if it is not whole; None if there is no regular step.
        fill: whether rows may be missing.
        frequency: name of the step.

    """
    stamps = table.stamps or ()
    lines = dict[Time, int]()
    texts = dict[Time, str]()
    repeated, unsorted = list[str](), list[str]()
    latest = times[0]
    for time, line, text in zip(times, table.lines, stamps, strict=True):
        if time in lines:
            repeated.append(f"line {line} {text!r} as in line {lines[time]}")
            continue
        lines[time], texts[time] = line, text
        if time < latest:
            unsorted.append(f"line {line} {text!r}")
        else:
            latest = time
    known = sorted(lines)
    steps = [count(known[0], time) for time in known] if count else list(range(len(known)))
    off = [f"line {lines[time]} {texts[time]!r}" for time, step in zip(known, steps, strict=True) if step is None]
    places = [step for step in steps if step is not None]
    faults = []
    if repeated:
        faults.append(f"{listed_places('repeated time stamps', repeated)}; keep one row of each")
    if unsorted:
        faults.append(
            f"{listed_places('time stamps before that of an earlier line', unsorted)}; sort the rows, oldest first"
        )
    if off:
        faults.append(listed_places(f"time stamps that are not a whole number of {frequency} after the first", off))
    elif (absent := places[-1] + 1 - len(places)) and (not fill or absent > len(places)):
        gaps = [
            f"{after - before - 1} after line {lines[time]} {texts[time]!r}"
            for time, before, after in zip(known, places, places[1:], strict=False)
            if after > before + 1
        ]
        hint = "--fill interpolates them" if absent <= len(places) else "too many to interpolate"
        step = f" at a step of {frequency}" if frequency else ""
        listed = listed_places(f"{absent} missing time stamps{step}, gaps", gaps)
        faults.append(f"{listed}; {hint}")
    return places, faults
