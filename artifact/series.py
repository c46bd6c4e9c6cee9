"""Series <-> tensors: windows, gaps, scaling, error bands, time stamps. The one home of preprocessing of forecasts."""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

import numpy as np
from numpy.typing import NDArray

from artifact.errors import InvalidInput

Doubles = NDArray[np.float64]
Column = Sequence[float | None]
"""One channel, oldest value first; None or NaN where a value is missing."""

LARGEST = 1e6
"""Values further than this many training deviations from the training mean are refused."""
UNITS = {
    **dict.fromkeys(("s", "S"), "seconds"),
    **dict.fromkeys(("min", "T"), "minutes"),
    **dict.fromkeys(("h", "H"), "hours"),
    **dict.fromkeys(("d", "D"), "days"),
    **dict.fromkeys(("w", "W"), "weeks"),
}
"""Ours, and pandas'."""


@dataclass(frozen=True)
class Window:
    """What a model reads of a series."""

    values: NDArray[np.float32]
    """(context, channels), scaled."""
    observations_total: int
    """Values that were sent."""
    observations_used: int
    """Those of them that lie within the context."""
    imputed: int
    """Values of the context that were filled in."""


@dataclass(frozen=True)
class Tails:
    """The ends of all channels of a series, of which a model reads no more."""

    values: Doubles
    """(channels, steps), oldest first, NaN where one is missing; no steps if the channels are not equally long."""
    lengths: NDArray[np.int64]
    """(channels,): steps of each whole channel."""
    known: NDArray[np.int64]
    """(channels,): values of each whole channel that are not missing."""

    @classmethod
    def of(cls, columns: Sequence[Column], max_steps: int) -> "Tails":
        """Keep the last `max_steps` values of each channel."""
        lengths = np.array([len(column) for column in columns], np.int64)
        steps = min(max_steps, int(lengths[0])) if len(set(lengths.tolist())) == 1 else 0
        values, known = np.empty((len(columns), steps)), np.empty(len(columns), np.int64)
        for index, column in enumerate(columns):
            whole = np.array(column, np.float64)  # None becomes NaN
            values[index] = whole[len(whole) - steps :]
            known[index] = len(whole) - np.isnan(whole).sum()
        return cls(values, lengths, known)

    def take(self, places: Sequence[int]) -> "Tails":
        """Some of the channels, or all in another order."""
        chosen = list(places)
        return Tails(self.values[chosen], self.lengths[chosen], self.known[chosen])


def read_window(
    tails: Tails,
    names: Sequence[str],
    *,
    context_length: int,
    min_observations: int,
    mean: Sequence[float],
    scale: Sequence[float],
) -> Window:
    """Take the last `context_length` steps, fill gaps, scale.

    A gap between two values is filled on the line between them, one at an end (a series shorter than the context has
    one at its start) with the nearest value.

    Raises: InvalidInput naming channel and place: no or unequal lengths, too few values, a value out of all proportion.

    """
    lengths = set(tails.lengths.tolist())
    if len(lengths) != 1:
        raise InvalidInput.at(
            "series", f"all channels must be equally long, not {', '.join(map(str, sorted(lengths)))} values"
        )
    first = max(0, lengths.pop() - context_length)
    values = np.empty((context_length, len(names)))
    used = 0
    for index, (column, name) in enumerate(zip(tails.values[:, -context_length:], names, strict=True)):
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
            place = first + int(known[far.argmax()])
            raise InvalidInput.at(
                f"series.{name}.{place}",
                f"value {place} of {name} is more than {LARGEST:.0e} deviations of the training data from their mean",
            )
        values[:, index] = np.interp(np.arange(context_length), steps, scaled)
    return Window(values.astype(np.float32), int(tails.known.sum()), used, values.size - used)


def unscale(values: NDArray[np.float32], mean: Sequence[float], scale: Sequence[float]) -> Doubles:
    """Scaled (..., channels) -> the units of the data."""
    unscaled: Doubles = values.astype(np.float64) * np.array(scale) + np.array(mean)
    return unscaled


def conformal_rank(level: float, count: int) -> int:
    """Which of `count` sorted errors, from 1, bounds the share `level` of new ones.

    ceil((m + 1) q) for q >= 0.5, floor((m + 1) q) below: both ends of a band are on the safe side.

    Reference:  Lei et al. 2018, arXiv:1604.04173, sec. 2.2 (split conformal), for each tail.
    Raises:     InvalidInput if so few errors cannot bound this level.
    """
    product = round((count + 1) * level, 9) if 0 < level < 1 else 0.0  # 0.9 * 10 is not 9 in binary
    rank = math.ceil(product) if level >= 0.5 else math.floor(product)
    if not 1 <= rank <= count:
        lowest = math.ceil(1e6 / (count + 1)) / 1e6  # rounded so that it is allowed itself
        raise InvalidInput.at(
            "quantiles", f"level {level} is outside [{lowest:g}, {1 - lowest:g}], what was calibrated"
        )
    return rank


@dataclass(frozen=True)
class Calibration:
    """Quantiles of the model's errors on the rows that the manifest's `calibration_source` names."""

    levels: Doubles
    """(Q,), increasing; first and last are 1 / (m + 1) and m / (m + 1)."""
    errors: NDArray[np.float32]
    """(Q, horizon, channels): truth minus forecast, scaled; not decreasing along Q."""
    count: int
    """m: errors behind each quantile."""

    def error(self, level: float, horizon: int) -> NDArray[np.float32]:
        """Quantile of the error at each step, (horizon, channels); between stored levels on the line between them.

        Raises: InvalidInput for a level that the calibration cannot bound.
        """
        conformal_rank(level, self.count)
        upper = min(int(np.searchsorted(self.levels, level - 1e-9)), len(self.levels) - 1)
        lower = max(0, upper - 1)
        width = self.levels[upper] - self.levels[lower]
        share = min(1.0, max(0.0, (level - self.levels[lower]) / width)) if width > 0 else 1.0
        below, above = self.errors[[lower, upper], :horizon].astype(np.float64)  # float32 would end beside `above`
        between: NDArray[np.float32] = (below + share * (above - below)).astype(np.float32)
        return between


def calibrate(errors: NDArray[np.float32], levels: Sequence[float]) -> Calibration:
    """Split-conformal quantiles of signed errors.

    Args:
        errors: (m, horizon, channels), truth minus forecast.
        levels: those to store; what m errors cannot bound is left out, the two extreme levels are added.

    """
    count = len(errors)
    lowest, highest = 1 / (count + 1), count / (count + 1)
    kept = sorted({lowest, highest, *(level for level in levels if lowest < level < highest)})
    ordered = np.sort(errors, axis=0)
    chosen = ordered[[conformal_rank(level, count) - 1 for level in kept]]
    return Calibration(np.array(kept), chosen, count)


def parse_frequency(text: str) -> timedelta:
    """Length of a step: a number, if it is not 1, and s, min, h, d or w, as in 10min, h, 7d; or pandas' 10T, H, 7D.

    Raises: InvalidInput, for months and years too, which have no fixed length.
    """
    found = re.fullmatch(rf"([1-9][0-9]{{0,5}})?({'|'.join(UNITS)})", text)
    if found is None:
        raise InvalidInput.at("frequency", "expected a number and one of s, min, h, d, w, as in 10min or 7d")
    return timedelta(**{UNITS[found[2]]: int(found[1] or 1)})


def parse_start(text: str) -> datetime:
    """Time of the first value, ISO 8601. Raises: InvalidInput."""
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        raise InvalidInput.at("start", "expected ISO 8601, as in 2016-07-01T00:00:00") from None


def continue_timestamps(start: datetime, step: timedelta, length: int, horizon: int) -> list[str]:
    """Times of the forecast that follows `length` values. Raises: InvalidInput beyond the year 9999."""
    try:
        return [(start + (length + i) * step).isoformat() for i in range(horizon)]
    except OverflowError:
        raise InvalidInput.at("start", "the forecast would end after the year 9999") from None
