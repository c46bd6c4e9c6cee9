"""Baselines of the forecasters: repeating the last value or season, and a linear map solved by least squares."""

from dataclasses import dataclass
from datetime import timedelta

import numpy as np
from numpy.typing import NDArray

from artifact.arrays import Doubles, Floats
from artifact.series import IRREGULAR, parse_frequency

CHUNK = 2000
"""Windows per chunk of the computation."""
EXACT = 1e-5
"""Error in scaled units up to which a forecast counts as exact: the rounding of single precision."""
RIDGE = 1e-6
"""Ridge term relative to the number of rows; only makes the normal equations solvable, not tuned."""
SEASONS = (
    (timedelta(minutes=1), timedelta(hours=1)),
    (timedelta(days=1), timedelta(days=1)),
    (timedelta(weeks=1), timedelta(weeks=1)),
    (timedelta.max, timedelta(weeks=52)),
)
"""(limit, season), ascending: a step has the season of the first limit above it."""
MONTHS_A_YEAR, BUSINESS_DAYS_A_WEEK = 12, 5


@dataclass(frozen=True)
class LinearMap:
    """forecast = last + W (series - last) + b, with W and b shared by all channels."""

    weight: Doubles
    """(context, prediction)."""
    bias: Doubles
    """(prediction,)."""

    @classmethod
    def repeating(cls, season: int, context: int, prediction: int) -> "LinearMap":
        """The map that repeats the last season, or with 1 the last value. `season` is at most `context`."""
        weight = np.zeros((context, prediction))
        if season > 1:
            weight[context - season + np.arange(prediction) % season, np.arange(prediction)] = 1
        return cls(weight, np.zeros(prediction))

    def mixed(self, other: "LinearMap", share: float) -> "LinearMap":
        """The map whose forecast is this one's by `share` and otherwise that of another map."""
        rest = 1 - share
        return LinearMap(share * self.weight + rest * other.weight, share * self.bias + rest * other.bias)

    def forecast(self, context: Floats) -> Floats:
        """Forecast (B, context, C) -> (B, prediction, C)."""
        series = context.astype(np.float64)
        last = series[:, -1:]
        forecast: Floats = (last + np.einsum("bnc,no->boc", series - last, self.weight) + self.bias[:, None]).astype(
            np.float32
        )
        return forecast


def season_of(frequency: str) -> int:
    """Number of steps in a season; 1 if the frequency has none or is irregular.

    The season is an hour for steps below a minute, a day for steps below a day, a week for steps below a week, and a
    year of 52 weeks or 12 months for longer steps; the table is in docs/train/own-series.md.
    """
    if frequency == IRREGULAR:
        return 1
    step = parse_frequency(frequency)
    if step.months:
        return _whole(MONTHS_A_YEAR, step.months)
    if step.business_days:
        return _whole(BUSINESS_DAYS_A_WEEK, step.business_days)
    season = next(season for limit, season in SEASONS if step.time < limit)
    return 1 if season % step.time else season // step.time


def _whole(season: int, step: int) -> int:
    """Number of steps in a season; 1 if it is not whole."""
    return 1 if season % step else season // step


def seasonal_naive(values: Floats, origins: NDArray[np.int64], horizon: int, season: int) -> Floats:
    """Repeat the last season before each origin, the row of the first forecast step.

    Shape:  values (rows, C); origins (B,), at least `season`; returns (B, horizon, C).
    """
    steps = np.arange(horizon) % season - season
    forecast: Floats = values[origins[:, None] + steps]
    return forecast


def seasonal_error(values: Floats, season: int) -> Doubles:
    """Mean absolute error (C,) of repeating the season before, over all rows (rows, C); MASE divides by it.

    A channel that repeats its season exactly gets the error of repeating its last value, which is at least EXACT.

    Reference:  Hyndman & Koehler 2006, Another look at measures of forecast accuracy, International Journal of
                Forecasting 22(4), 679-688, sec. 3; with a season as in Hyndman & Athanasopoulos 2021, sec. 5.8.
    """
    error, last = (np.abs(values[n:] - values[:-n]).mean(axis=0, dtype=np.float64) for n in (season, 1))
    scale: Doubles = np.where(error > EXACT, error, np.maximum(last, EXACT))
    return scale


def solve_linear_map(windows: Floats, context_length: int) -> LinearMap:
    """Least squares over all windows and channels.

    Shape:  windows (W, C, context + prediction), in scaled units.
    """
    size = context_length + 1
    gram, moment = np.zeros((size, size)), np.zeros((size, windows.shape[2] - context_length))
    for first in range(0, len(windows), CHUNK):
        rows = _centred(windows[first : first + CHUNK], context_length)
        inputs = np.hstack([rows[:, :context_length], np.ones((len(rows), 1))])
        gram += inputs.T @ inputs
        moment += inputs.T @ rows[:, context_length:]
    gram += RIDGE * gram[-1, -1] * np.eye(size)
    solution: Doubles = np.linalg.solve(gram, moment).astype(np.float64)
    return LinearMap(solution[:-1], solution[-1])


def errors(windows: Floats, context_length: int, linear: LinearMap | None) -> tuple[float, float]:
    """MSE and MAE over all windows, channels and steps; without `linear`, of repeating the last value."""
    squared = absolute = 0.0
    for first in range(0, len(windows), CHUNK):
        rows = _centred(windows[first : first + CHUNK], context_length)
        error = rows[:, context_length:]
        if linear is not None:
            error = error - (rows[:, :context_length] @ linear.weight + linear.bias)
        squared += float((error**2).sum())
        absolute += float(np.abs(error).sum())
    count = windows.shape[0] * windows.shape[1] * (windows.shape[2] - context_length)
    return squared / count, absolute / count


def _centred(windows: Floats, context_length: int) -> Doubles:
    """Rows (W C, context + prediction) in float64, minus the last value of each context."""
    rows = windows.reshape(-1, windows.shape[2]).astype(np.float64)
    return rows - rows[:, context_length - 1 : context_length]
