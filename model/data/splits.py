"""Splits of user data: which of its parts are held out, by a hash."""

import hashlib
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from artifact.arrays import Doubles

FOLDS = 5
"""Number of folds of cross-validation in training."""
HELD_OUT = 1_000
"""Number of held-out documents after which cross-validation in training stops: large data needs fewer folds."""


def assign(labels: Mapping[bytes, str], fractions: Mapping[str, float], seed: int) -> dict[bytes, str]:
    """Split of each unit: a text or recording, or a group of them.

    Of the units of each label, the first in a random order are held out. A split has at least one unit of a label, and
    `train` has one if there are more units than splits.

    Args:
        labels: label of each unit.
        fractions: fraction of the units in each split besides `train`.
        seed: seed of the random order.

    """
    split = dict[bytes, str]()
    for label in sorted(set(labels.values())):
        units = sorted((unit for unit in labels if labels[unit] == label), key=lambda unit: digest(seed, unit))
        counts = {name: max(1, round(fraction * len(units))) for name, fraction in fractions.items()}
        if sum(counts.values()) >= len(units):
            counts = dict.fromkeys(counts, 1)
        names = [name for name, count in counts.items() for _ in range(count)]
        names += ["train"] * (len(units) - len(names))
        split |= dict(zip(units, names, strict=True))
    return split


def hold_out_groups(labels: Mapping[str, Sequence[str]], fraction: float, seed: int) -> set[str]:
    """Groups that together have nearly this fraction of the examples of each label.

    The group that brings all labels nearest to the fraction is taken first, and so on. No label is held out as a whole.

    Args:
        labels: labels of the examples of each group.
        fraction: fraction of each label that is held out.
        seed: seed of the random order, which decides between groups that are alike.

    """
    groups = sorted(labels, key=lambda group: digest(seed, group.encode()))
    names = {label: number for number, label in enumerate(sorted(set().union(*labels.values())))}
    shares = np.zeros((len(groups), len(names)))
    for row, group in zip(shares, groups, strict=True):
        np.add.at(row, [names[label] for label in labels[group]], 1)
    shares /= shares.sum(axis=0)

    def cost(held_out: Doubles) -> Doubles:
        """Distance of each label from the fraction, 1 if none of it is held out, summed over the labels."""
        missing, excess = (fraction - held_out) / fraction, (held_out - fraction) / (1 - fraction)
        distances = np.where(held_out > 1 - 1e-9, np.inf, np.maximum(missing, excess))
        rounded: Doubles = np.round(distances.sum(axis=-1), 9)  # groups that are alike have equal costs
        return rounded

    chosen, total = np.zeros(len(groups), np.bool_), np.zeros(len(names))
    while True:
        costs = np.where(chosen, np.inf, cost(total + shares))
        best = int(costs.argmin())
        if costs[best] >= cost(total):
            return {group for group, is_chosen in zip(groups, chosen, strict=True) if is_chosen}
        chosen[best], total = True, total + shares[best]


def folds(labels: NDArray[np.int64], groups: NDArray[np.int64]) -> list[NDArray[np.int64]]:
    """The folds on which training chooses settings: those of `partition`, up to HELD_OUT documents."""
    parts = partition(labels, groups, FOLDS)
    needed = 1 + int(np.searchsorted(np.cumsum([len(part) for part in parts]), HELD_OUT))
    return parts[:needed]


def partition(labels: NDArray[np.int64], groups: NDArray[np.int64], count: int) -> list[NDArray[np.int64]]:
    """Held-out documents of each of `count` folds, with the classes spread evenly.

    Each group is in one fold; of fewer groups than folds, there is a fold of each.
    """
    unit = np.unique(groups, return_inverse=True)[1]
    label_of_unit = np.zeros(unit.max() + 1, dtype=np.int64)
    label_of_unit[unit] = labels  # of a group with several labels, the last one's
    place = np.empty(len(label_of_unit), dtype=np.int64)
    place[np.argsort(label_of_unit, kind="stable")] = np.arange(len(label_of_unit))
    return [np.flatnonzero(place[unit] % count == fold) for fold in range(min(count, len(place)))]


def digest(seed: int, unit: bytes) -> bytes:
    """Hash that assigns a unit to a split."""
    return hashlib.sha256(seed.to_bytes(8, "little", signed=True) + unit).digest()
