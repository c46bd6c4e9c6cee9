"""Classical decomposition with known seasons: shrunk, robust indices. Used by `artifact.univariate.features`."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from artifact.arrays import Doubles

OUTLYING = 20.0
"""An outlier is this many times farther from its neighbours than the farthest of the others."""
OUTLIER_STEPS = 64
"""There may be one outlier, and one more for each so many steps."""
NEIGHBOURS = 2
"""Steps on either side whose median a value is compared with."""
ROBUST = 3 * 1.4826
"""Deviations of more than this many times their median are clipped: three standard deviations of a normal variable."""
LOWEST = 0.05
"""Smallest seasonal factor, and smallest trend below a factor, relative to the mean."""
FLAT = 0.01
"""Range of a series, relative to its largest value, below which factors and terms are the same but for rounding."""
TINY = np.finfo(np.float64).tiny


@dataclass(frozen=True)
class Seasonal:
    """Seasonal component of each series, at the past and the future steps: value = level * factor + term."""

    factor: Doubles
    """(B, n + horizon)."""
    term: Doubles
    """(B, n + horizon)."""
    strength: Doubles
    """Share of each seasonal pattern that was kept, (B, seasons); 0 without a whole cycle twice."""
    is_multiplicative: NDArray[np.bool_]
    """(B,)."""


def find_outliers(values: Doubles) -> NDArray[np.bool_]:
    """Whether each value (B, n) is far from its neighbours, of which a few are; none are missing.

    The first and the last value may belong to another level. They are outliers if they are far outside of the range of
    the others, which must not be equal.
    """
    n = values.shape[1]
    if n < 8:
        return np.zeros(values.shape, np.bool_)
    padded = np.pad(values, ((0, 0), (NEIGHBOURS, NEIGHBOURS)), "edge")
    windows = np.lib.stride_tricks.sliding_window_view(padded, 2 * NEIGHBOURS + 1, axis=1)
    distance = np.abs(values - np.sort(windows, axis=2)[..., NEIGHBOURS])
    rank = n - 2 - n // OUTLIER_STEPS
    found: NDArray[np.bool_] = distance > OUTLYING * np.partition(distance, rank, axis=1)[:, rank, None]
    for end, others in ((0, values[:, 1:]), (-1, values[:, :-1])):
        low, high = others.min(axis=1), others.max(axis=1)
        beyond = np.maximum(values[:, end] - high, low - values[:, end])
        found[:, end] = (high > low) & (beyond > OUTLYING * (high - low))
    return found


def decompose(values: Doubles, known: NDArray[np.bool_], seasons: Sequence[int], horizon: int) -> Seasonal:
    """Seasonal component of each series, one season after the other.

    It is multiplied with the level if all values are positive and the seasons then explain them at least as well;
    otherwise added.

    Args:
        values: (B, n), missing values interpolated.
        known: (B, n), whether a value is not missing; the indices are computed from these.
        seasons: steps of each season, shortest first.
        horizon: number of future steps.

    """
    added, strength, remainder = _component(values, known, seasons, horizon, is_factor=False)
    if not seasons:
        return Seasonal(np.ones(added.shape), added, strength, np.zeros(len(values), np.bool_))
    largest = np.abs(values).max(axis=1)
    is_positive = (values.min(axis=1) > 0) & (np.ptp(values, axis=1) > FLAT * largest)
    if not is_positive.any():
        return Seasonal(np.ones(added.shape), added, strength, is_positive)
    positive = np.where(is_positive[:, None], values, 1.0)
    factor, other, error = _component(positive, known, seasons, horizon, is_factor=True)
    is_factor = is_positive & (error <= remainder)
    return Seasonal(
        np.where(is_factor[:, None], factor, 1.0),
        np.where(is_factor[:, None], 0.0, added),
        np.where(is_factor[:, None], other, strength),
        is_factor,
    )


def _component(
    values: Doubles, known: NDArray[np.bool_], seasons: Sequence[int], horizon: int, *, is_factor: bool
) -> tuple[Doubles, Doubles, Doubles]:
    """Component (B, n + horizon), strengths (B, seasons), mean absolute deviation (B,) of the values from it."""
    n = values.shape[1]
    component = np.full((len(values), n + horizon), float(is_factor))
    strengths, error = np.zeros((len(values), len(seasons))), np.zeros(len(values))
    for place, season in enumerate(seasons):
        if not 1 < season <= n // 2:
            continue
        level = values / component[:, :n] if is_factor else values - component[:, :n]
        trend = centred_average(level, season)
        if is_factor:
            trend = np.maximum(trend, LOWEST * level.mean(axis=1, keepdims=True))
        ratio = level / trend if is_factor else level - trend
        indices, strengths[:, place] = seasonal_indices(np.where(known, ratio, np.nan), season, is_factor=is_factor)
        pattern = indices[:, np.arange(n + horizon) % season]
        rest = np.abs(ratio - pattern[:, :n])
        error = (rest * trend if is_factor else rest).mean(axis=1)
        component = component * pattern if is_factor else component + pattern
    return component, strengths, error


def centred_average(values: Doubles, season: int) -> Doubles:
    """Moving average over a season (B, n), with half weight at either end if it is even; linear at the series' ends.

    n must be at least twice the season.
    """
    n = values.shape[1]
    sums = np.pad(values.cumsum(axis=1), ((0, 0), (1, 0)))
    means = (sums[:, season:] - sums[:, :-season]) / season
    if season % 2 == 0:
        means = (means[:, 1:] + means[:, :-1]) / 2
    first, count = season // 2, means.shape[1]
    steps = min(season, count - 1)
    before = (means[:, steps] - means[:, 0]) / steps
    after = (means[:, -1] - means[:, -1 - steps]) / steps
    return np.concatenate(
        [
            means[:, :1] - before[:, None] * np.arange(first, 0, -1),
            means,
            means[:, -1:] + after[:, None] * np.arange(1, n - first - count + 1),
        ],
        axis=1,
    )


def seasonal_indices(ratio: Doubles, season: int, *, is_factor: bool) -> tuple[Doubles, Doubles]:
    """Index of each phase of a season, and the share of the pattern that was kept.

    An index is the mean of its phase, whose deviations from their median are clipped. The pattern shrinks by the share
    of its variance that noise alone would give; of an exact pattern all is kept.

    Shape:  ratio (B, n), relative to the trend, NaN where it is unknown; returns (B, season) and (B,).
    """
    cycles = -(-ratio.shape[1] // season)
    phases = np.full((len(ratio), cycles * season), np.nan)
    phases[:, : ratio.shape[1]] = ratio
    phases = phases.reshape(len(ratio), cycles, season)
    is_known = ~np.isnan(phases)
    count = is_known.sum(axis=1)  # (B, season)
    ordered = np.sort(phases, axis=1)  # NaN last
    low, high = np.maximum(count - 1, 0) // 2, np.minimum(count // 2, cycles - 1)
    middle = (np.take_along_axis(ordered, low[:, None], 1) + np.take_along_axis(ordered, high[:, None], 1)) / 2
    middle = np.where(count[:, None] > 0, middle, float(is_factor))
    deviation = np.where(is_known, phases - middle, 0.0)
    total = count.sum(axis=1)
    sizes = np.sort(np.where(is_known, np.abs(deviation), np.inf).reshape(len(ratio), -1), axis=1)
    limit = ROBUST * np.take_along_axis(sizes, np.maximum(total // 2, 0)[:, None], 1)[:, :, None]
    deviation = np.clip(deviation, -limit, limit)
    shift = deviation.sum(axis=1) / np.maximum(count, 1)
    indices = middle[:, 0] + shift
    noise = np.square(np.where(is_known, deviation - shift[:, None], 0.0)).sum(axis=(1, 2)) / np.maximum(
        total - season, 1
    )
    centred = indices - indices.mean(axis=1, keepdims=True)
    kept = np.maximum(0.0, 1 - noise * season / np.maximum(total, 1) / np.maximum(centred.var(axis=1), TINY))
    indices = float(is_factor) + centred * kept[:, None]
    if is_factor:
        indices = np.maximum(indices, LOWEST)
        indices = indices / indices.mean(axis=1, keepdims=True)
    return indices, kept
