"""Recordings at equal steps, by their times."""

from collections import Counter
from dataclasses import replace

import numpy as np

from artifact.arrays import Doubles
from artifact.errors import InputError
from artifact.recordings import MAX_STEPS, resample
from artifact.series import impute
from artifact.tables.labelled import Contents, LabelledRecording
from artifact.tables.steps import TOLERANCE

SAME_RATE = 0.01
"""Maximum deviation of the step of a recording from that of the file at which it is read as it is."""
UNITS = 100.0
"""Ratio of the step of a recording to that of the file, or its inverse, from which on its times are in another unit."""
DIGITS = 9
"""Significant digits of a rate; more are errors of rounding."""


def equal_steps(contents: Contents, rate: float | None) -> tuple[list[LabelledRecording], float | None, list[str]]:
    """Recordings at equal steps, their rate in steps per second, and notes.

    The step of the file is the median of those of its recordings. Recordings with other or unequal steps are
    interpolated; each channel of a recording must have a value.

    Args:
        contents: the recordings, and their times.
        rate: steps per second of recordings without times, if it is known.

    Raises: InputError if there are times and a rate, the step of a recording is UNITS times that of the file, or a
        recording would have more than MAX_STEPS steps.

    """
    recordings = list(contents.recordings)
    if contents.times is None:
        return recordings, rate, []
    if rate is not None and not contents.counts_steps:
        raise InputError(f"--rate {rate:g} is for recordings without times; {recordings[0].place} has times")
    steps = [_step_of(times) for times in contents.times]
    if not (known := [step for step in steps if step]):
        return recordings, rate, []
    step = _median(known)
    found = rate if contents.counts_steps else float(f"{1 / step:.{DIGITS}g}")
    told = f"{found:g} steps per second" if found else f"a step of {step:g}"
    changes = Counter[str]()
    for number, (recording, times, own) in enumerate(zip(recordings, contents.times, steps, strict=True)):
        if own and not 1 / UNITS < own / step < UNITS:
            raise InputError(
                f"{recording.place}: the recording {recording.name!r} has a step of {own:g}, the file one of {step:g}; "
                "its times seem to be in another unit"
            )
        if own and not _is_regular(times, own):
            changes["unequal steps; they are interpolated"] += 1
            recordings[number] = replace(recording, values=_interpolated(recording, times, step))
        elif own and abs(own / step - 1) > SAME_RATE:
            changes["another rate; they are resampled"] += 1
            recordings[number] = at_rate(recording, own / step)
    notes = [] if contents.counts_steps else [f"rate: {told}, from the times"]
    notes += [f"{count} of {len(steps)} recordings have {what} to {told}" for what, count in changes.items()]
    return recordings, found, notes


def _step_of(times: Doubles) -> float:
    """Step of a recording: the mean, with as many steps between two times as medians fit in; 0 for only one time.

    The median alone is inexact if times have jitter, the mean alone if some are missing.
    """
    if len(times) < 2:
        return 0.0
    differences, span = np.diff(times), float(times[-1] - times[0])
    mean = span / len(differences)
    if _is_regular(times, mean):
        return mean
    return span / float(np.maximum(1, np.round(differences / _median(differences.tolist()))).sum())


def _median(steps: list[float]) -> float:
    """The median, of an even number the lower one: it is a step that there is."""
    return sorted(steps)[(len(steps) - 1) // 2]


def _is_regular(times: Doubles, step: float) -> bool:
    """Whether times that rise are near equal steps from the first."""
    return bool((np.abs(times - times[0] - step * np.arange(len(times))) <= TOLERANCE * step).all())


def at_rate(recording: LabelledRecording, factor: float) -> LabelledRecording:
    """The recording with `factor` times as many steps, as a model reads a recording of another rate.

    Raises: InputError for more than MAX_STEPS steps.
    """
    steps = _checked(recording, len(recording.values) * factor)
    return replace(recording, values=resample(_imputed(recording.values), steps))


def _interpolated(recording: LabelledRecording, times: Doubles, step: float) -> Doubles:
    """Values at equal steps from the first time on. Raises: InputError for more than MAX_STEPS steps."""
    steps = _checked(recording, 1 + np.floor((times[-1] - times[0]) / step + TOLERANCE))
    values, grid = recording.values, times[0] + step * np.arange(steps)
    known = [~np.isnan(column) for column in values.T]
    return np.stack(
        [np.interp(grid, times[kept], column[kept]) for column, kept in zip(values.T, known, strict=True)], axis=1
    )


def _checked(recording: LabelledRecording, steps: float) -> int:
    """A number of steps as an integer, at least 1. Raises: InputError if it is too large."""
    if steps > MAX_STEPS:
        raise InputError(
            f"{recording.place}: the recording {recording.name!r} would have {steps:,.0f} equal steps; at most "
            f"{MAX_STEPS:,} are allowed"
        )
    return max(1, round(steps))


def _imputed(values: Doubles) -> Doubles:
    return np.stack([impute(column) for column in values.T], axis=1)
