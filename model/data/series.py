"""Multivariate time series: CSV files -> scaled splits and windows. Used by the forecasting commands of `model`."""

import csv
import gzip
import io
import zlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from artifact.manifest import is_text
from model.config.data import SeriesConfig
from model.errors import UserError

Floats = NDArray[np.float32]
SplitName = Literal["train", "validation", "test"]

ETT_MONTH = 30 * 24 * 4
"""Rows of a month of 30 days at 15 minutes."""


@dataclass(frozen=True)
class SeriesSource:
    """A public benchmark file; its origin is in docs/data.md."""

    file: str
    terms: str
    boundaries: tuple[int, int, int] | None = None
    """Ends of train, validation and test in rows; None splits by the recipe's shares."""


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
    """One file, scaled by the mean and deviation of its training rows."""

    values: Floats
    """(rows, channels)."""
    channels: tuple[str, ...]
    timestamps: tuple[str, ...]
    mean: NDArray[np.float64]
    scale: NDArray[np.float64]
    boundaries: tuple[int, int, int]
    """Ends of train, validation and test in rows."""

    def windows(self, split: SplitName, context_length: int, prediction_length: int) -> Floats:
        """Every window whose forecast lies within a split; its context may reach into the split before.

        Shape:  returns (windows, channels, context + prediction), a view. Raises: UserError if there is none.
        """
        ends = (0, *self.boundaries)
        index = ("train", "validation", "test").index(split)
        rows = self.values[max(0, ends[index] - context_length) : ends[index + 1]]
        length = context_length + prediction_length
        if len(rows) < length:
            raise UserError(f"the {split} split has {len(rows)} rows with its context; {length} are needed")
        return np.lib.stride_tricks.sliding_window_view(rows, length, axis=0)


Scaler = tuple[Sequence[float], Sequence[float]]
"""Mean and deviation of each channel."""


def load_series(config: SeriesConfig, data_dir: Path, scaler: Scaler | None = None) -> Series:
    """Read, split and scale a series; for `csv`, `data_dir` is the file. By default the scaler is fitted.

    Raises: UserError naming file, line and column of a bad cell.
    """
    if config.name == "synthetic-series":
        return _scaled("synthetic-series", *_synthetic(), _shares(config, SYNTHETIC_ROWS), scaler)
    if config.name == "csv":
        path = data_dir
        channels, timestamps, raw = read_csv(path, config.time_column)
        return _scaled(str(path), channels, timestamps, raw, _shares(config, len(raw)), scaler)
    source = SOURCES[config.name]
    path = data_dir / source.file
    if not path.exists():
        raise UserError(f"{path} does not exist; --data-dir or LONGDOC_DATA says where the data lies")
    channels, timestamps, raw = read_csv(path)
    boundaries = source.boundaries or _shares(config, len(raw))
    if boundaries[-1] > len(raw):
        raise UserError(f"{path} has {len(raw)} rows; {boundaries[-1]} are needed")
    return _scaled(str(path), channels, timestamps, raw, boundaries, scaler)


def data_terms(name: str) -> str:
    """Terms of use of a series."""
    if name == "synthetic-series":
        return "Generated; no terms."
    return SOURCES[name].terms if name in SOURCES else "Own data."


def infer_frequency(timestamps: Sequence[str]) -> str:
    """Most common step between time stamps, as in 15min or 7d; `irregular` if it makes up less than 95 %.

    Raises: UserError for a time stamp that is neither ISO 8601 nor year/month/day hour:minute.
    """
    times = [_parse_time(text, row) for row, text in enumerate(timestamps, 2)]
    for row, time in enumerate(times, 2):
        if (time.tzinfo is None) != (times[0].tzinfo is None):
            raise UserError(f"row {row}: some time stamps have a time zone and others have none")
    steps = Counter(later - earlier for earlier, later in pairwise(times))
    if not steps:
        return "irregular"
    step, count = steps.most_common(1)[0]
    if step < timedelta(0):
        raise UserError("the rows go back in time; sort them, oldest first")
    if count < 0.95 * len(times[1:]) or step <= timedelta(0):
        return "irregular"
    seconds, rest = divmod(step, timedelta(seconds=1))
    if rest:
        return "irregular"
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds % size == 0:
            return f"{seconds // size}{unit}"
    return f"{seconds}s"


def _parse_time(text: str, row: int) -> datetime:
    for parse in (datetime.fromisoformat, lambda value: datetime.strptime(value, "%Y/%m/%d %H:%M")):
        try:
            return parse(text)
        except ValueError:
            continue
    raise UserError(f"row {row}: not a time: {text[:40]!r}; expected ISO 8601, or year/month/day hour:minute")


def _shares(config: SeriesConfig, rows: int) -> tuple[int, int, int]:
    """Ends of train, validation and test; the test gets what rounding leaves, as in the published splits."""
    test = int(rows * round(1 - config.train_fraction - config.validation_fraction, 9))
    return int(rows * config.train_fraction), rows - test, rows


def _scaled(
    place: str,
    channels: tuple[str, ...],
    timestamps: tuple[str, ...],
    raw: NDArray[np.float64],
    boundaries: tuple[int, int, int],
    scaler: Scaler | None,
) -> Series:
    """Scale, by default by the training rows. Raises: UserError for a channel that is constant there."""
    train = raw[: boundaries[0]]
    if len(train) < 2:
        raise UserError(f"{place} leaves {len(train)} training rows")
    spread = np.ptp(train, axis=0)
    if (spread == 0).any():
        raise UserError(f"{place}: column {channels[int(spread.argmin())]} is constant in training")
    mean, scale = (train.mean(0), train.std(0)) if scaler is None else map(np.array, scaler)
    if len(mean) != len(channels):
        raise UserError(f"{place} has {len(channels)} channels; the model was trained on {len(mean)}")
    values = ((raw - mean) / scale).astype(np.float32)
    return Series(values, channels, timestamps, mean, scale, boundaries)


SYNTHETIC_ROWS = 600


def _synthetic() -> tuple[tuple[str, ...], tuple[str, ...], NDArray[np.float64]]:
    """Generated for tests: two waves with noise, and their sum with a trend, by the hour."""
    generator = np.random.default_rng(0)
    time = np.arange(SYNTHETIC_ROWS)
    noise = generator.normal(0, 0.1, (3, len(time)))
    day, week = np.sin(2 * np.pi * time / 24), np.cos(2 * np.pi * time / 168)
    values = np.stack([day, 5 + week, day + week + 0.002 * time]) + noise
    start = datetime(2024, 1, 1)
    return ("day", "week", "sum"), tuple((start + timedelta(hours=int(t))).isoformat() for t in time), values.T


def read_csv(path: Path, time_column: str = "") -> tuple[tuple[str, ...], tuple[str, ...], NDArray[np.float64]]:
    """Read a CSV file, gzip-packed or not: one column of time, by default the first, the others numbers.

    Returns:    names of the channels, timestamps, values (rows, channels).
    Raises:     UserError naming line and column of a cell that is not a finite number.
    """
    try:
        raw = path.read_bytes()
        text = (gzip.decompress(raw) if path.suffix == ".gz" else raw).decode("utf-8-sig")
    except FileNotFoundError:
        raise UserError(f"{path} does not exist") from None
    except IsADirectoryError:
        raise UserError(f"{path} is a folder; --data names the file that the model was trained on") from None
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        raise UserError(f"{path}: {error}") from None
    names, timestamps, values = _parse_table(text, path, time_column)
    if not values:
        raise UserError(f"{path} has no rows")
    return tuple(names), tuple(timestamps), np.array(values, np.float64)


def _parse_table(text: str, path: Path, time_column: str) -> tuple[list[str], list[str], list[list[float]]]:
    """Names of the channels, time stamps and values. Raises: UserError naming line and column; csv.Error."""
    reader = csv.reader(io.StringIO(text, newline=""))
    header = next(reader, [])
    if len(header) < 2:
        raise UserError(f"{path}:1: expected a time column and at least one channel, not {len(header)} columns")
    if len(set(header)) < len(header):
        raise UserError(f"{path}:1: two columns have the same name")
    if unsound := [name for name in header if not is_text(name)]:
        raise UserError(f"{path}:1: the name {unsound[0]!r} holds a control character")
    if time_column and time_column not in header:
        raise UserError(f"{path}:1: no column {time_column!r}; there are: {', '.join(header)}")
    time_index = header.index(time_column) if time_column else 0
    names = header[:time_index] + header[time_index + 1 :]
    timestamps, values = list[str](), list[list[float]]()
    try:
        for row in reader:
            place = f"{path}:{reader.line_num}"
            if len(row) != len(header):
                raise UserError(f"{place}: {len(row)} cells under {len(header)} columns")
            timestamps.append(row.pop(time_index))
            values.append([_number(cell, f"{place}: column {name}") for name, cell in zip(names, row, strict=True)])
    except csv.Error as error:
        raise UserError(f"{path}:{reader.line_num}: {error}") from None
    return names, timestamps, values


def _number(cell: str, place: str) -> float:
    """Parse one cell."""
    try:
        value = float(cell)
    except ValueError:
        raise UserError(f"{place}: not a number: {cell[:40]!r}") from None
    if not np.isfinite(value):
        raise UserError(f"{place}: not a finite number: {cell[:40]!r}")
    return value
