"""The seasons of a series: those that the time between two values suggests, or those that its values show."""

import math
from datetime import timedelta

import numpy as np
from numpy.typing import NDArray

from artifact.arrays import Doubles
from artifact.series import Step
from artifact.univariate.decomposition import find_outliers
from artifact.univariate.features import CONTEXT, EXACT, TINY, interpolate

NONE = (1,)
"""Seasons of a series without any."""
CYCLES = ((timedelta(days=1), timedelta(weeks=1)), (timedelta(hours=1),), (timedelta(minutes=1),))
"""What values that are less than a week apart repeat after: the first of these that a model can read."""
WEEK, YEAR = timedelta(weeks=1), timedelta(days=365.25)
MONTHS, BUSINESS_DAYS = 12, 5
"""Months of a year, business days of a week."""
SHORTEST = 3
"""Steps of the shortest season that is inferred: values that merely alternate are often noise."""
MIN_CYCLES = 3
"""A season is inferred only if the series has so many."""
SPREAD = 0.55
"""Standard deviation of the correlation between two cycles of a random walk less its moving average."""
USUAL = (4, 5, 7, 12, 24, 26, 48, 52, 60, 96, 144, 168)
"""Seasons for which less is enough: of quarters, days, months, hours, weeks, minutes."""
CLEAR_USUAL, CLEAR = (0.3, 2.5), (0.7, 3.0)
"""Minimum autocorrelation at a usual season, and at any other; in itself and in standard errors."""
AS_GOOD = 0.75
"""The shortest season is chosen among those whose autocorrelation is at least this part of the largest one."""
CLEARER, REMAINDER = 0.05, 0.5
"""A multiple is clearer if its autocorrelation is larger by this, and what it lacks to 1 at most this part."""
FAR = 5
"""A clearer multiple replaces the season, or from so many times it on is a second season."""
HARDLY = 0.05
"""A usual season replaces one that differs by a step, if its autocorrelation is smaller by at most this."""


def seasons_of(step: Step) -> tuple[int, ...]:
    """Seasons, in steps, of values that are a step apart: at most two that a model reads, the shortest first.

    Months, quarters and weeks repeat after a year; days after a week; hours, and minutes down to three, after a day and
    a week; shorter steps after an hour or a minute. (1,) if none of these is a whole number of steps.
    """
    if step.months:
        return _whole(MONTHS, step.months)
    if step.business_days:
        return _whole(BUSINESS_DAYS, step.business_days)
    if step.time >= WEEK:
        return (max(1, round(YEAR / step.time)),)
    for cycles in CYCLES:
        counts = tuple(cycle // step.time for cycle in cycles if cycle > step.time and not cycle % step.time)
        if read := tuple(count for count in counts if count <= CONTEXT):
            return read
    return NONE


def _whole(cycle: int, step: int) -> tuple[int, ...]:
    return NONE if cycle % step else (cycle // step,)


def infer_seasons(values: Doubles) -> tuple[int, ...]:
    """Seasons that a series (n,) shows, one or two, the shortest first; (1,) if none is clear. NaN is a missing value.

    A season of m steps is clear if the autocorrelation at lag m of the series less its average over m steps is large
    for its standard error, and larger than at the lags beside it.
    """
    known = ~np.isnan(values)
    longest = len(values) // MIN_CYCLES
    if longest < SHORTEST or not known.any():
        return NONE
    filled = interpolate(values[None], known[None])
    filled = interpolate(filled, known[None] & ~find_outliers(filled))[0]
    lags = np.arange(SHORTEST, longest + 1)
    centred = filled - filled.mean()
    found, error = _autocorrelations(centred / max(float(np.abs(centred).max()), TINY), lags)
    beside = np.pad(found, 1, constant_values=-1.0)
    peaks = np.flatnonzero((found >= beside[:-2]) & (found >= beside[2:]))
    places = np.unique([_usual(lags, found, peak) for peak in peaks.tolist()])
    size, deviations = (np.where(np.isin(lags, USUAL), *pair) for pair in zip(CLEAR_USUAL, CLEAR, strict=True))
    places = places[(found >= size)[places] & (found >= deviations * error)[places]]
    if not places.size:
        return NONE
    clear, strength = lags[places], found[places]
    first = int((strength >= AS_GOOD * strength.max()).argmax())
    enough = strength[first] + max(CLEARER, REMAINDER * (1 - strength[first]))
    longer = clear[(clear % clear[first] == 0) & (strength >= enough)]
    if not longer.size:
        return (int(clear[first]),)
    second = int(longer[0])
    return (int(clear[first]), second) if second >= FAR * clear[first] else (second,)


def _usual(lags: NDArray[np.int64], found: Doubles, peak: int) -> int:
    """Place of the lag of a peak, or of a usual one beside it whose autocorrelation is hardly smaller."""
    beside = [place for place in (peak, peak - 1, peak + 1) if 0 <= place < len(lags)]
    usual = (place for place in beside if lags[place] in USUAL and found[place] >= found[peak] - HARDLY)
    return next(usual, peak)


def _autocorrelations(values: Doubles, lags: NDArray[np.int64]) -> tuple[Doubles, Doubles]:
    """Autocorrelation at each lag of a series (n,) less its moving average over the lag, and its standard error.

    The error is Bartlett's for a first-order autoregression, or that of cycles of a random walk if it is smaller.
    """
    sums = np.r_[0.0, values.cumsum()]
    found, error = np.zeros(len(lags)), np.full(len(lags), np.inf)
    for place, lag in enumerate(lags.tolist()):
        means = (sums[lag:] - sums[:-lag]) / lag
        if lag % 2 == 0:
            means = (means[1:] + means[:-1]) / 2
        rest = values[lag // 2 : lag // 2 + len(means)] - means
        late, early = rest[lag:], rest[:-lag]
        size = late @ late + early @ early
        if size > EXACT * len(late):
            found[place] = 2 * (late @ early) / size
            square = min(1.0 - EXACT, (rest[1:] @ rest[:-1] / (rest @ rest)) ** 2)
            error[place] = math.sqrt(min((1 + square) / (1 - square), SPREAD**2 * lag) / len(late))
    return found, error
