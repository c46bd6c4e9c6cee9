"""Interleaved measurements, so that changes of clock or load affect all candidates alike."""

import time
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from tqdm import tqdm

T = TypeVar("T")
Key = TypeVar("Key")


def interleave(
    turns: Mapping[Key, Callable[[], T]], rounds: int, *, warm_up: int = 0, label: str = "rounds"
) -> dict[Key, list[T]]:
    """Call every function once per round, starting each round with a different one.

    Args:
        turns: functions to measure; each call returns one measurement.
        rounds: number of measurements returned per function.
        warm_up: number of rounds before the measured ones, whose measurements are discarded.
        label: label of the progress bar.

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


def timed(run: Callable[[], Any], clock: Callable[[], float] = time.perf_counter) -> float:
    """Seconds of one call."""
    started = clock()
    run()
    return clock() - started
