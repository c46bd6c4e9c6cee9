"""What a forecaster of any series reads, and how its answer becomes a forecast in the units of the series."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from artifact.arrays import Array, Doubles, Floats
from artifact.univariate.decomposition import decompose, find_outliers
from artifact.univariate.smoothing import theta

CONTEXT = 512
"""Number of the last observations that are read."""
HORIZON = 96
"""Number of steps that one computation forecasts."""
PATCH = 8
"""Steps of a token."""
CHANNELS = 4
"""Values of each step in a token: see `Prepared.tokens`."""
WIDTH = CHANNELS * PATCH
"""Numbers of a token."""
FUTURE = HORIZON // PATCH
"""Tokens of the future steps."""
LEVELS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
"""Levels of the quantiles that the model computes."""
MEDIAN = LEVELS.index(0.5)
MAX_SEASONS = 2
SHORTEST_WINDOW = 48
"""Minimum steps before the end whose distances from the last value give the scale of a series."""
EXACT = 64 * float(np.finfo(np.float64).eps)
"""Distance of all values from a line with a season, relative to the largest value, that is rounding."""
MIN_LINE = 5
"""Minimum number of observations of a line that goes on exactly; a constant needs one."""
SPARSE = 0.1
"""Share of zeros from which counts are sparse."""
TINY = np.finfo(np.float64).tiny


@dataclass(frozen=True)
class Prepared:
    """A batch of series as a model reads it, and what `restore` needs.

    The series without their season are divided into units of `scale` from `origin`, the last value.
    """

    tokens: Floats
    """(B, 1 + FUTURE + past tokens, WIDTH). First a token of statistics, then the future, then the past, newest first.

    Channels of a future step: seasonal component, value one season before, value two seasons before (or one of the
    longer season), Theta forecast. Channels of a past step: value, whether it is known, seasonal component, value one
    season before. All but the second are asinh(x)."""
    origin: Doubles
    """(B, HORIZON): the last value; of an exact line, the line."""
    scale: Doubles
    """(B,): unit of the model; 0 for an exact line."""
    theta: Doubles
    """Theta forecast in units of the model, (B, HORIZON)."""
    factor: Doubles
    """(B, HORIZON): seasonal factor of the future steps."""
    term: Doubles
    """(B, HORIZON): seasonal term of the future steps, and what was subtracted from the values."""
    is_sparse: NDArray[np.bool_]
    """(B,): whether the series has whole numbers, none negative and many zero."""
    exponent: NDArray[np.int32]
    """(B,): all else is in units of 2 ** exponent."""

    def targets(self, future: Doubles) -> Doubles:
        """What the model should forecast for future values (B, HORIZON); NaN for an exact line."""
        value = (np.ldexp(future, -self.exponent[:, None]) - self.term) / self.factor
        return (value - self.origin) / np.where(self.scale > 0, self.scale, np.nan)[:, None]

    def mixed(self, quantiles: Doubles, theta_share: float) -> Doubles:
        """Quantiles (B, levels, HORIZON) in increasing order, moved so that the medians are mixed with Theta forecasts.

        Those of sparse series are not moved: a forecast between two counts would leave the band.
        """
        ordered = np.sort(quantiles, axis=1)
        shares = np.where(self.is_sparse, 0.0, theta_share)[:, None]
        shift: Doubles = shares * (self.theta - ordered[:, MEDIAN])
        return ordered + shift[:, None]

    def restore(self, quantiles: Doubles, theta_share: float) -> Doubles:
        """Quantiles in the units of the series, in increasing order.

        Args:
            quantiles: (B, levels, HORIZON) in units of the model.
            theta_share: share of the Theta forecast in the medians.

        """
        level = self.origin[:, None] + self.scale[:, None, None] * self.mixed(quantiles, theta_share)
        value = level * self.factor[:, None] + self.term[:, None]
        return np.ldexp(value, self.exponent[:, None, None])


def prepare(values: Doubles, seasons: Sequence[int]) -> Prepared:
    """Prepare series (B, n) of equal length, n at most CONTEXT; NaN is a missing value, the first is known in each.

    `seasons` are the steps of up to MAX_SEASONS seasons, shortest first; 1 and those longer than half the series have
    no seasonal component.
    """
    n = values.shape[1]
    is_whole = values == np.rint(values)
    is_count = (is_whole | np.isnan(values)).all(axis=1)
    values, first = _in_units(values)  # so that nothing overflows
    known = ~np.isnan(values)
    known &= ~find_outliers(interpolate(values, known))
    values, second = _in_units(np.where(known, values, np.nan))
    filled = interpolate(values, known)
    seasonal = decompose(filled, known, seasons, HORIZON)
    # Differences from the last value keep the digits of large values.
    last = np.where(seasonal.is_multiplicative, 0.0, filled[:, -1])[:, None]
    level = interpolate((filled - last - seasonal.term[:, :n]) / seasonal.factor[:, :n], known)
    line = theta(level, HORIZON)
    is_exact = np.abs(level - line.line[:, :n]).max(axis=1) <= EXACT
    is_exact &= (known.sum(axis=1) >= MIN_LINE) | (np.ptp(level, axis=1) <= EXACT)
    scale = np.where(is_exact, 0.0, _scale(level, known, max(SHORTEST_WINDOW, 2 * max(seasons, default=1))))
    origin = np.where(is_exact[:, None], line.line[:, n:], level[:, -1:])
    unit = np.where(is_exact, np.inf, scale)[:, None]  # all that an exact line shows the model is 0
    z = (level - level[:, -1:]) / unit
    forecast = (line.forecast - level[:, -1:]) / unit
    component = (level[:, -1:] * (seasonal.factor - 1) + seasonal.term) / unit
    statistics = _statistics(
        z,
        seasons,
        seasonal.strength,
        (
            seasonal.is_multiplicative,
            filled.min(axis=1) >= 0,
            (filled == 0).mean(axis=1),
            known.mean(axis=1),
            is_whole.mean(axis=1),
            line.alpha,
            np.arcsinh((line.line[:, -1] - line.line[:, n - 1]) / unit[:, 0]),
            np.log(np.abs(filled[:, -1]) / unit[:, 0] + 1e-3) / 4,
        ),
    )
    tokens = _tokens(np.where(known, z, 0.0), known, component, forecast, statistics, seasons)
    is_sparse = is_count & (filled.min(axis=1) >= 0) & ((filled == 0).mean(axis=1) > SPARSE)
    term = seasonal.term[:, n:] + last
    return Prepared(tokens, origin, scale, forecast, seasonal.factor[:, n:], term, is_sparse, first + second)


def _in_units(values: Doubles) -> tuple[Doubles, NDArray[np.int32]]:
    """Values (B, n) in units of a power of two, so that the largest is at most 1, and its exponent (B,)."""
    exponent: NDArray[np.int32] = np.frexp(np.nanmax(np.abs(values), axis=1))[1]
    return np.ldexp(values, -exponent[:, None]), exponent


def interpolate(values: Doubles, known: NDArray[np.bool_]) -> Doubles:
    """Values (B, n) with those that are not known interpolated linearly; the nearest known value beyond the ends."""
    if known.all():
        return values
    filled, steps = values.copy(), np.arange(values.shape[1])
    for row in np.flatnonzero(~known.all(axis=1)):
        filled[row] = np.interp(steps, steps[known[row]], values[row, known[row]])
    return filled


def _scale(level: Doubles, known: NDArray[np.bool_], window: int) -> Doubles:
    """Root mean square distance (B,) of the last `window` values from the last one; of all, if that is tiny."""
    distance = np.where(known, np.square(level - level[:, -1:]), 0.0)
    overall = distance.mean(axis=1)
    recent = distance[:, -window:].sum(axis=1) / np.maximum(known[:, -window:].sum(axis=1), 1)
    root: Doubles = np.sqrt(np.where(recent > 1e-12 * overall, recent, overall))
    return root


def _statistics(z: Doubles, seasons: Sequence[int], strength: Doubles, others: Sequence[Array]) -> Doubles:
    """Statistics of each series (B, at most WIDTH), about between -2 and 2: of the values z, and others (B,)."""
    rows, n = z.shape
    short, long = min(seasons, default=1), max(seasons, default=1)
    same = [math.log(n) / 6, math.log(short) / 5, math.log(long) / 5, min(n / short, 40) / 40, float(short == 1)]
    strengths = np.zeros((rows, MAX_SEASONS))
    strengths[:, : len(seasons)] = strength
    step = np.diff(z, axis=1) if n > 1 else np.zeros((rows, 1))
    size = np.abs(step).mean(axis=1) + 1e-3
    correlation = (step[:, 1:] * step[:, :-1]).sum(axis=1) / np.maximum(np.square(step).sum(axis=1), TINY)
    largest = np.log((np.abs(step).max(axis=1) + 1e-3) / size)
    return np.column_stack([np.tile(same, (rows, 1)), strengths, np.log(size), correlation, largest, *others])


def _tokens(
    z: Doubles,
    known: NDArray[np.bool_],
    component: Doubles,
    forecast: Doubles,
    statistics: Doubles,
    seasons: Sequence[int],
) -> Floats:
    """`Prepared.tokens` of the values z (B, n), the component (B, n + HORIZON) and the forecast (B, HORIZON)."""
    rows, n = z.shape
    short, long = (min(seasons, default=1), max(seasons, default=1))
    lags = (short, long if long > short else 2 * short)
    future = np.stack([component[:, n:], *(_before(z, lag) for lag in lags), forecast], axis=1)
    earlier = np.zeros(z.shape)
    if 1 < short < n:
        earlier[:, short:] = z[:, :-short]
    past = np.zeros((rows, CHANNELS, -(-n // PATCH) * PATCH))
    past[..., :n] = np.stack([z, known, component[:, :n], earlier], axis=1)[..., ::-1]
    steps = np.concatenate([future, past], axis=2).reshape(rows, CHANNELS, -1, PATCH)
    tokens = np.zeros((rows, 1 + steps.shape[2], WIDTH), np.float32)
    tokens[:, 0, : statistics.shape[1]] = statistics
    tokens[:, 1:] = np.arcsinh(steps).transpose(0, 2, 1, 3).reshape(rows, -1, WIDTH)
    tokens[:, 1 + FUTURE :, PATCH : 2 * PATCH] = past[:, 1].reshape(rows, -1, PATCH)
    return tokens


def _before(z: Doubles, lag: int) -> Doubles:
    """Value `lag` steps before each future step, the last `lag` steps being repeated; 0 before the first value."""
    steps = z.shape[1] - lag + np.arange(HORIZON) % lag
    return np.where(steps >= 0, z[:, np.maximum(steps, 0)], 0.0)
