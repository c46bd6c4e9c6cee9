"""How the cost of a function grows with the length of its input."""

import contextlib
import time
from collections.abc import Callable
from typing import TypeVar

from artifact.errors import LongdocError

T = TypeVar("T")

LINEAR = 20
"""Eight times the length costs less than this factor if the cost is linear; if it is quadratic, 64."""
REPETITIONS = 5


def growth(work: Callable[[T], object], make: Callable[[int], T], length: int) -> float:
    """Ratio of the processor times of `work` for inputs of 8 * length and of `length`, the least of several runs.

    Args:
        work: the function; it may reject the input.
        make: makes an input of a length.
        length: large enough that the function takes more than a millisecond.

    """
    return _seconds(work, make(8 * length)) / _seconds(work, make(length))


def _seconds(work: Callable[[T], object], given: T) -> float:
    """Least processor time of a run."""
    found = []
    for _ in range(REPETITIONS):
        start = time.process_time()
        with contextlib.suppress(LongdocError):
            work(given)
        found.append(time.process_time() - start)
    return min(found)
