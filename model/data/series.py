"""Multivariate time series: CSV files -> scaled splits and windows. Used by the forecasting commands of `model`."""

import csv
import gzip
import io
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from model.errors import UserError

Floats = NDArray[np.float32]
SplitName = Literal["train", "validation", "test"]

ETT_MONTH = 30 * 24 * 4
"""Rows of a month of 30 days at 15 minutes."""


@dataclass(frozen=True)
class SeriesSource:
    """A public benchmark file; its origin and terms are in docs/data.md."""

    file: str
    boundaries: tuple[int, int, int] | None = None
    """Ends of train, validation and test in rows; None splits 7:1:2."""


SOURCES = {
    "ettm2": SeriesSource("ETTm2.csv.gz", (12 * ETT_MONTH, 16 * ETT_MONTH, 20 * ETT_MONTH)),
    "exchange": SeriesSource("exchange_rate.csv.gz"),
    "weather": SeriesSource("weather.csv.gz"),
    "ili": SeriesSource("national_illness.csv.gz"),
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


def load_series(name: str, data_dir: Path) -> Series:
    """Read and scale a benchmark. Raises: UserError naming file, line and column of a bad cell."""
    source = SOURCES[name]
    channels, timestamps, raw = read_csv(data_dir / source.file)
    rows = len(raw)
    test = int(rows * 0.2)
    boundaries = source.boundaries or (int(rows * 0.7), rows - test, rows)
    if boundaries[-1] > rows:
        raise UserError(f"{data_dir / source.file} has {rows} rows; {boundaries[-1]} are needed")
    train = raw[: boundaries[0]]
    mean, scale = train.mean(0), train.std(0)
    if (scale == 0).any():
        raise UserError(f"{data_dir / source.file}: column {channels[int(scale.argmin())]} is constant in training")
    values = ((raw - mean) / scale).astype(np.float32)
    return Series(values, channels, timestamps, mean, scale, boundaries)


def read_csv(path: Path) -> tuple[tuple[str, ...], tuple[str, ...], NDArray[np.float64]]:
    """Read a CSV file, gzip-packed or not, whose first column is time and whose others are numbers.

    Returns:    names of the channels, timestamps, values (rows, channels).
    Raises:     UserError naming line and column of a cell that is not a finite number.
    """
    try:
        raw = path.read_bytes()
        text = (gzip.decompress(raw) if path.suffix == ".gz" else raw).decode("utf-8")
    except FileNotFoundError:
        raise UserError(f"{path} does not exist; --data-dir or LONGDOC_DATA says where the data lies") from None
    except (OSError, EOFError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: {error}") from None
    reader = csv.reader(io.StringIO(text))
    header = next(reader, [])
    if len(header) < 2:
        raise UserError(f"{path}:1: expected a time column and at least one channel, not {len(header)} columns")
    timestamps, values = [], []
    for row in reader:
        place = f"{path}:{reader.line_num}"
        if len(row) != len(header):
            raise UserError(f"{place}: {len(row)} cells under {len(header)} columns")
        timestamps.append(row[0])
        values.append(
            [_number(cell, f"{place}: column {name}") for name, cell in zip(header[1:], row[1:], strict=True)]
        )
    if not values:
        raise UserError(f"{path} has no rows")
    return tuple(header[1:]), tuple(timestamps), np.array(values, np.float64)


def _number(cell: str, place: str) -> float:
    """Parse one cell."""
    try:
        value = float(cell)
    except ValueError:
        raise UserError(f"{place}: not a number: {cell[:40]!r}") from None
    if not np.isfinite(value):
        raise UserError(f"{place}: not a finite number: {cell[:40]!r}")
    return value
