"""Measurements in turns, so that a change of clock or load meets all of them."""

from collections.abc import Callable, Mapping
from typing import TypeVar

from tqdm import tqdm

T = TypeVar("T")
Key = TypeVar("Key")


def interleave(
    turns: Mapping[Key, Callable[[], T]], rounds: int, *, warm_up: int = 0, label: str = "rounds"
) -> dict[Key, list[T]]:
    """Call everything once in each round, each round beginning with another one.

    Args:
        turns: what is measured; each call returns one measurement.
        rounds: how many measurements of each are returned.
        warm_up: rounds before them, whose measurements are dropped.
        label: of the progress bar.

    """
    names = list(turns)
    measured: dict[Key, list[T]] = {name: [] for name in names}
    for number in tqdm(range(-warm_up, rounds), desc=label, unit="round"):
        first = number % max(1, len(names))
        for name in names[first:] + names[:first]:
            found = turns[name]()
            if number >= 0:
                measured[name].append(found)
    return measured
