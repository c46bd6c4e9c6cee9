"""Paired comparison of two models on the same examples."""

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from model.tasks.link import Outputs, Targets

Labels = NDArray[np.bool_]
"""Labels of documents, (documents, classes)."""
RESAMPLES = 1_000
"""Number of bootstrap samples."""
Metric = Callable[[Outputs, Targets], float]
"""Outputs and labels -> a value in [0, 1]; larger is better."""


class Difference(NamedTuple):
    """Difference of two values of a metric, and its standard error."""

    value: float
    error: float
    """Infinite for fewer than two examples or groups."""

    @property
    def is_behind(self) -> bool:
        """Whether the first value is lower by more than two standard errors."""
        return self.value < -2 * self.error

    def __str__(self) -> str:
        error = f"{100 * self.error:.1f}" if math.isfinite(self.error) else "unknown"
        return f"{100 * self.value:+.1f} ± {error} points"


def difference(
    metric: Metric, first: Outputs, second: Outputs, labels: Targets, groups: Sequence[Any] = ()
) -> Difference:
    """Difference of a metric of two models' outputs for the same examples, first less second.

    The standard error is that of a paired bootstrap over the examples, or over their groups, if there are any.

    Reference:  Efron and Tibshirani 1993, An Introduction to the Bootstrap, algorithm 6.1.
    """
    unit = np.unique(groups, return_inverse=True)[1] if len(groups) else np.arange(len(labels))
    members = np.split(np.argsort(unit, kind="stable"), np.cumsum(np.bincount(unit))[:-1])
    generator, found = np.random.default_rng(0), list[float]()
    for _ in range(RESAMPLES if len(members) > 1 else 0):
        rows = np.concatenate([members[i] for i in generator.integers(len(members), size=len(members))])
        found.append(metric(first[rows], labels[rows]) - metric(second[rows], labels[rows]))
    error = float(np.std(found, ddof=1)) if found else math.inf
    return Difference(metric(first, labels) - metric(second, labels), error)


def micro_f1_difference(first: Labels, second: Labels, truth: Labels, groups: Sequence[Any] = ()) -> Difference:
    """Difference of the micro F1 of two models' labels of the same documents, as `difference`."""

    def micro_f1(counts: Outputs, _: Targets) -> float:
        right, either = counts.sum(0)
        return float(2 * right / max(1, either))

    ours, theirs = (
        np.stack([(chosen & truth).sum(1), chosen.sum(1) + truth.sum(1)], axis=1) for chosen in (first, second)
    )
    return difference(micro_f1, ours, theirs, truth, groups)
