"""Preparation of recordings for a classifier of series: the same computation for training and serving.

A recording holds the values of one or several channels at equal time steps. It becomes rows of a fixed length; what is
longer is read in windows.
"""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from artifact.arrays import Array, Doubles
from artifact.documents import OnOverflow, Span
from artifact.errors import InvalidInput
from artifact.series import Column, SeriesCoverage, impute

GRID = 2.0**-9
"""Resolution of the standardised values. Sums of such values have no rounding errors in float32, so that every backend
computes the features of MiniRocket alike."""
FARTHEST = 30.0
"""Limit of the standardised values."""
CONSTANT = 1e-9
"""A channel counts as constant if its standard deviation is at most this share of its largest absolute value: what
varies are rounding errors."""
MAX_STEPS = 1_000_000
"""Maximum number of steps after resampling."""
MAX_SHOWN = 32
"""Maximum characters of an unknown channel's name in an error."""
STRETCHES = 16
"""Maximum number of stretches of a recording whose contributions are computed."""


@dataclass(frozen=True)
class Recording:
    """A recording as it was sent, checked."""

    values: Doubles
    """(steps, channels), in the order of the model; NaN if missing."""
    rate: float | None = None
    """Steps per second; None if it was not given."""
    place: str = "series"
    """Location in the request, for errors."""


@dataclass(frozen=True)
class RecordingCoverage(SeriesCoverage):
    """How much of a recording was read."""

    steps: int
    """Number of steps of the recording as it was sent."""
    windows: int
    is_resampled: bool

    def as_json(self, on_overflow: OnOverflow) -> dict[str, Any]:
        """The JSON object returned to clients."""
        is_cut = self.windows > 1 or self.observations_used < self.observations_total
        return {
            "observations_total": self.observations_total,
            "observations_used": self.observations_used,
            "imputed": self.imputed,
            "strategy": on_overflow if is_cut else "whole",
            "windows": self.windows,
            "resampled": self.is_resampled,
        }


@dataclass(frozen=True)
class Scaling:
    """How the values of a model's recordings are standardised."""

    mean: Doubles
    """(channels,): mean of the training recordings."""
    scale: Doubles
    """(channels,): their standard deviation."""
    rate: float | None
    """Steps per second of the training recordings; None if unknown."""
    own: tuple[int, ...] = ()
    """Channels that are read a second time, after all others, with the mean and deviation that they have in the
    recording."""

    @property
    def num_columns(self) -> int:
        """Number of columns of a standardised recording."""
        return len(self.mean) + len(self.own)

    def steps_of(self, recording: Recording) -> int:
        """Number of steps of a recording at the rate of the model.

        Raises: InvalidInput if there are more than MAX_STEPS or less than one, or if the model has no rate.
        """
        count = len(recording.values)
        if recording.rate is None:
            return count
        if self.rate is None:
            raise InvalidInput.at("rate", "the rate of the training recordings is not known; leave it out")
        steps = count * (self.rate / recording.rate)
        if steps > MAX_STEPS:
            message = f"the recording would have more than {MAX_STEPS:,} steps at the {self.rate:g} per second of"
            raise InvalidInput.at("rate", f"{message} the model")
        if steps < 1:
            message = f"the recording would have less than one step at the {self.rate:g} per second of the model"
            raise InvalidInput.at("rate", message)
        return round(steps)

    def standardise(self, recording: Recording) -> Doubles:
        """Standardise a recording, impute missing values and resample to the rate of the model: (steps, columns).

        Raises: as `steps_of`.
        """
        steps = self.steps_of(recording)
        with np.errstate(over="ignore"):  # beyond FARTHEST anyway
            common = (recording.values - self.mean) / self.scale
        columns = (common, *(_by_itself(recording.values[:, channel, None]) for channel in self.own))
        scaled = np.clip(np.concatenate(columns, axis=1), -FARTHEST, FARTHEST)
        for column in np.flatnonzero(np.isnan(scaled).any(axis=0)):
            scaled[:, column] = impute(scaled[:, column])
        return resample(scaled, steps)


def _by_itself(values: Doubles) -> Doubles:
    """Values of a channel, NaN if missing, with mean 0 and deviation 1; zeros if they are constant."""
    known = values[~np.isnan(values)]
    size = np.abs(known).max(initial=0.0) or 1.0
    known = known / size  # so that squares are finite
    if known.size < 2 or known.std() <= CONSTANT:
        return 0.0 * values
    scaled: Doubles = (values / size - known.mean()) / known.std()
    return scaled


def recording_of(
    columns: Sequence[Column | Array],
    names: Sequence[str] | None,
    channels: Sequence[str],
    rate: float | None = None,
    place: str = "series",
) -> Recording:
    """Check a recording and put its channels in the order of a model. Steps at its end without any value are left out.

    Args:
        columns: values of each channel, oldest first; None or NaN where one is missing.
        names: names of the channels, in any order; None if they have the order of the model.
        channels: channels of the model.
        rate: steps per second, if known.
        place: location in the request, for errors.

    Raises: InvalidInput naming the channel that is missing, unknown, of another length, or without a known value.

    """
    check_rate(rate)
    ordered = _in_order(columns, names, channels, place)
    found = [np.array(column, np.float64) for column in ordered]  # None becomes NaN
    for channel, column in zip(channels, found, strict=True):
        if len(column) != len(found[0]):
            message = f"its length is {len(column)}, that of {channels[0]} {len(found[0])}; both must be equal"
            raise InvalidInput.at(f"{place}.{channel}", message)
    values = np.stack(found, axis=1)
    if not len(values):
        raise InvalidInput.at(place, "at least 1 value of each channel is needed")
    if (wrong := np.argwhere(np.isinf(values))).size:
        step, index = wrong[0].tolist()
        raise InvalidInput.at(f"{place}.{channels[index]}.{step}", "must be finite or missing")
    if (empty := np.flatnonzero(np.isnan(values).all(axis=0))).size:
        raise InvalidInput.at(f"{place}.{channels[empty[0]]}", "it has no known value")
    end = int(np.flatnonzero(~np.isnan(values).all(axis=1))[-1]) + 1
    return Recording(values[:end], rate, place)


def check_rate(rate: float | None) -> None:
    """Raises: InvalidInput unless it is a positive number or None."""
    if rate is not None and not 0 < rate < np.inf:
        raise InvalidInput.at("rate", f"must be a positive number of steps per second, not {rate:g}")


def _in_order(
    columns: Sequence[Column | Array], names: Sequence[str] | None, channels: Sequence[str], place: str
) -> Sequence[Column | Array]:
    """Columns in the order of the channels. Raises: InvalidInput naming the channel that is missing or unknown."""
    expected = ", ".join(channels)
    if names is None:
        if len(columns) != len(channels):
            message = f"the model has {len(channels)} channels ({expected}), a list of values each, not {len(columns)}"
            raise InvalidInput.at(place, message)
        return columns
    given = dict(zip(names, columns, strict=True))
    if missing := [channel for channel in channels if channel not in given]:
        raise InvalidInput.at(place, f"the model needs the channels {expected}; {missing[0]} is missing")
    if unknown := given.keys() - set(channels):
        first = next(name for name in names if name in unknown)
        shown = first if len(first) <= MAX_SHOWN else f"{first[:MAX_SHOWN]}..."
        raise InvalidInput.at(place, f"the model has the channels {expected}; {shown} is not one of them")
    return [given[channel] for channel in channels]


def resample(values: Doubles, steps: int) -> Doubles:
    """Values (n, channels) at `steps` equally spaced times of the same duration.

    Longer: linear interpolation between the first and the last value. Shorter: the mean over each new step, where each
    old value holds for its whole step, so that fast changes do not appear as slow ones.
    """
    count = len(values)
    if count == 1:
        return np.repeat(values, steps, axis=0)
    if steps == count:
        return values
    if steps > count:
        return _at(values, np.linspace(0, count - 1, steps))
    integral = np.concatenate([np.zeros((1, values.shape[1])), np.cumsum(values, axis=0)])
    means: Doubles = np.diff(_at(integral, np.linspace(0, count, steps + 1)), axis=0) * (steps / count)
    return means


def _at(values: Doubles, places: Doubles) -> Doubles:
    """Linear interpolation of values (n, channels), n above 1, at places from 0 to n - 1."""
    lower = np.minimum(places.astype(np.intp), len(values) - 2)
    share = (places - lower)[:, None]
    found: Doubles = values[lower] * (1 - share) + values[lower + 1] * share
    return found


def rows_of(standardised: Doubles, plan: Sequence[Sequence[Span]], length: int) -> list[bytes]:
    """Rows of a model for the windows of a recording.

    Args:
        standardised: (steps, columns).
        plan: spans of each row, as `artifact.documents.cut` returns them, in steps.
        length: number of steps that the model reads.

    A row holds float32 numbers: the steps of the row resampled to `length`, the same steps padded with zeros, and their
    number.

    """
    rows = []
    for spans in plan:
        window = np.concatenate([standardised[start:end] for start, end in spans])
        padded = np.zeros((length, window.shape[1]), np.float32)
        padded[: len(window)] = on_grid(window)
        stretched = on_grid(resample(window, length))
        rows.append(stretched.tobytes() + padded.tobytes() + np.float32(len(window)).tobytes())
    return rows


def row_bytes(length: int, columns: int) -> int:
    """Bytes of a row."""
    return 4 * (2 * length * columns + 1)


def unpack_rows(rows: Sequence[bytes], length: int, columns: int) -> Mapping[str, Array]:
    """Inputs of the graph for a batch of rows.

    Shape:  returns `stretched` and `series` (B, length, columns) float32, and `lengths` (B,) int32.
    """
    numbers = np.frombuffer(bytearray().join(rows), np.float32).reshape(len(rows), -1)
    size, shape = length * columns, (len(rows), length, columns)
    return {
        "stretched": numbers[:, :size].reshape(shape),
        "series": numbers[:, size : 2 * size].reshape(shape),
        "lengths": numbers[:, -1].astype(np.int32),
    }


def on_grid(values: Doubles) -> NDArray[np.float32]:
    """Standardised values, rounded to GRID."""
    rounded: NDArray[np.float32] = (np.round(values / GRID) * GRID).astype(np.float32)
    return rounded


def stretch_bounds(steps: int) -> list[Span]:
    """Start and end of up to STRETCHES parts of a recording, of almost equal length."""
    count = min(STRETCHES, steps)
    bounds = [round(index * steps / count) for index in range(count + 1)]
    return list(itertools.pairwise(bounds))


def without(standardised: Doubles, start: int, end: int) -> Doubles:
    """The recording with a straight line in place of a stretch, from the value before it to the value after it.

    At either end of the recording, the nearest value outside is repeated; a stretch that is the whole recording
    becomes its mean.
    """
    count = len(standardised)
    outside = [step for step in (start - 1, end) if 0 <= step < count]
    changed = standardised.copy()
    if not outside:
        changed[:] = standardised.mean(axis=0)
        return changed
    before, after = standardised[outside[0]], standardised[outside[-1]]
    share = np.arange(1, end - start + 1)[:, None] / (end - start + 1)
    changed[start:end] = before * (1 - share) + after * share
    return changed
