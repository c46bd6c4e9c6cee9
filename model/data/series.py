"""Multivariate time series: CSV files -> scaled splits and windows. Used by the forecasting commands of `model`."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Literal

import numpy as np

from artifact.arrays import Doubles, Floats
from artifact.series import IRREGULAR, LARGEST, PLAIN, impute
from artifact.tables.series import LISTED
from artifact.tables.steps import infer_step
from artifact.tables.timeline import read_series, read_timeline, times_of
from model.config.data import SeriesConfig
from model.errors import UserError, reading
from model.progress import progress

SplitName = Literal["train", "validation", "test"]

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
class ScaledSeries:
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
        for index in progress(range(0, len(windows), BATCH), unit="batch", leave=False):
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


@dataclass(frozen=True)
class Regular:
    """The rows of a series at equal steps, none of them missing, not scaled."""

    channels: tuple[str, ...]
    values: Doubles
    """(rows, channels)."""
    frequency: str
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class OwnSeries(Regular):
    """A user's series as a command has read it, once."""

    path: Path = Path()


Scaler = tuple[Sequence[float], Sequence[float]]
"""Mean and standard deviation of each channel."""


def load_series(config: SeriesConfig, source: Path | OwnSeries, scaler: Scaler | None = None) -> ScaledSeries:
    """Split and scale a series: the user's, or one in the folder of the data sets. Without `scaler`, one is fitted.

    Raises: UserError naming file, lines and columns of bad cells and time stamps.
    """
    if isinstance(source, OwnSeries):
        return _scaled(str(source.path), source, _shares(config, len(source.values)), scaler)
    place, rows, boundaries = _public(config, source)
    return _scaled(place, rows, boundaries, scaler)


def _public(config: SeriesConfig, data_dir: Path) -> tuple[str, Regular, tuple[int, int, int]]:
    """Place, rows and end rows of the splits of a data set. Raises: UserError naming the file."""
    if config.name == "synthetic-series":
        return config.name, _synthetic(), _shares(config, SYNTHETIC_ROWS)
    source = SOURCES[config.name]
    path = data_dir / source.file
    if not path.exists():
        raise UserError(f"{path} does not exist; --data-dir or LONGDOC_DATA must name the folder of the data sets")
    layout = PLAIN
    with reading():
        table = read_series(path, layout)
        times = [time for time in times_of(table, layout) if isinstance(time, datetime)]
    if missing := table.missing_values():
        raise UserError(f"{path}: {missing[0]}")
    boundaries = source.boundaries or _shares(config, len(table.values))
    if boundaries[-1] > len(table.values):
        raise UserError(f"{path} has {len(table.values)} rows; {boundaries[-1]} are needed")
    step = infer_step(times)
    rows = Regular(table.channels, table.values, IRREGULAR if step is None else step.name)
    return str(path), rows, boundaries


def data_terms(name: str) -> str:
    """Terms of use of a series."""
    if name == "synthetic-series":
        return "Generated; no terms."
    return SOURCES[name].terms if name in SOURCES else "Own data."


def _shares(config: SeriesConfig, rows: int) -> tuple[int, int, int]:
    """End rows of train, validation and test; validation gets the rounding remainder, as in the published splits."""
    test = int(rows * round(1 - config.train_fraction - config.validation_fraction, 9))
    return int(rows * config.train_fraction), rows - test, rows


def _scaled(place: str, rows: Regular, boundaries: tuple[int, int, int], scaler: Scaler | None) -> ScaledSeries:
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
    return ScaledSeries(values.astype(np.float32), channels, mean, scale, boundaries, rows.frequency, rows.notes)


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


def _synthetic() -> Regular:
    """Generated series for tests, hourly: two noisy waves, and their sum with a trend."""
    generator = np.random.default_rng(0)
    time = np.arange(SYNTHETIC_ROWS)
    noise = generator.normal(0, 0.1, (3, len(time)))
    day, week = np.sin(2 * np.pi * time / 24), np.cos(2 * np.pi * time / 168)
    values = np.stack([day, 5 + week, day + week + 0.002 * time]) + noise
    return Regular(("day", "week", "sum"), values.T, "1h")


def read_own_series(path: Path, config: SeriesConfig) -> OwnSeries:
    """Read a user's file; with `config.fill`, missing cells and rows are interpolated.

    Raises: UserError naming the lines of all bad cells, or of all missing values and repeated, unsorted and missing
        time stamps.
    """
    with reading():
        found = read_timeline(path, config.layout, fill=config.fill)
    values = found.values
    for channel, column in zip(found.channels, values.T, strict=True):
        if (known := int((~np.isnan(column)).sum())) < len(column) / 2:
            raise UserError(
                f"{path}: column {channel} has {known} values in {len(column)} time steps; at least half are needed"
            )
        column[:] = impute(column)
    return OwnSeries(found.channels, values, found.frequency, found.notes, path)
