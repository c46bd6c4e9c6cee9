"""The preparation of recordings, and the answers of `tests.support.models.series_classifier`, in plain and slow Python.

Written from the descriptions in `artifact.recordings`, with exact fractions where these matter.
"""

import math
from collections.abc import Sequence
from fractions import Fraction

from artifact.documents import OnOverflow, cut
from tests.support.models import MEAN, SCALE, STEP_OVERLAP, STEPS

Values = Sequence[float | None]


def imputed(values: Values) -> list[float]:
    """Return the values with gaps filled by straight lines, at either end by the nearest value."""
    known = [step for step, value in enumerate(values) if value is not None]
    filled = []
    for step, value in enumerate(values):
        before = max((at for at in known if at <= step), default=known[0])
        after = min((at for at in known if at >= step), default=known[-1])
        first, last = values[before], values[after]
        assert first is not None
        assert last is not None
        share = (step - before) / (after - before) if before < step < after else 0.0
        nearest = first if step >= known[0] else last
        filled.append(nearest + (last - first) * share if value is None else value)
    return filled


def resampled(values: Sequence[float], steps: int) -> list[float]:
    """Return `steps` values of the same duration: points on the line through the values, or means over longer steps."""
    count = len(values)
    if count == 1:
        return [values[0]] * steps
    if steps >= count:
        points = []
        for step in range(steps):
            place = Fraction(step * (count - 1), steps - 1)
            lower = min(math.floor(place), count - 2)
            share = place - lower
            points.append(float((1 - share) * Fraction(values[lower]) + share * Fraction(values[lower + 1])))
        return points
    means = []
    for step in range(steps):
        start, end = Fraction(step * count, steps), Fraction((step + 1) * count, steps)
        parts = [
            Fraction(value) * max(Fraction(0), min(end, Fraction(at + 1)) - max(start, Fraction(at)))
            for at, value in enumerate(values)
        ]
        means.append(float(sum(parts) / (end - start)))
    return means


def standardised(values: Values, steps: int | None = None) -> list[float]:
    """Return a channel as a model with MEAN and SCALE reads it, with `steps` steps if they are given."""
    limited = [None if value is None else min(30.0, max(-30.0, (value - MEAN) / SCALE)) for value in values]
    filled = imputed(limited)
    return filled if steps is None else resampled(filled, steps)


def on_grid(value: float) -> float:
    """Round to the nearest of the values that models read."""
    return round(value * 512) / 512


def logit(x: Sequence[float], y: Sequence[float], on_overflow: OnOverflow = "windows") -> float:
    """Return the logit of `wave` for two standardised channels: the mean over the windows."""
    plan = cut(len(x), STEPS, STEP_OVERLAP, on_overflow)
    logits = []
    for spans in plan:
        own_x, own_y = ([value for start, end in spans for value in channel[start:end]] for channel in (x, y))
        mean = sum(map(on_grid, own_x)) / len(own_x)
        logits.append(mean + on_grid(resampled(own_y, STEPS)[-1]))
    return sum(logits) / len(logits)


def score(x: Values, y: Values, on_overflow: OnOverflow = "windows", steps: int | None = None) -> float:
    """Return the score of `wave` for a recording with these channels."""
    return 1 / (1 + math.exp(-logit(standardised(x, steps), standardised(y, steps), on_overflow)))
