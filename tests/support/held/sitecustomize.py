"""Holds the second measurement of `benchmarks.papers.attention_speed` until a signal ends the program.

Python imports this module at its start if its folder is in PYTHONPATH. Without it, the second measurement could be over
before a test has seen the first one.
"""

import time
from collections.abc import Sequence

from benchmarks.papers import attention_speed

SECOND = 64
"""Length of the inputs of the second measurement at toy scale."""
measured = attention_speed.speed


def hold(rows: Sequence[str], length: int, batch: int, rounds: int, *, trains: bool) -> dict[str, float]:
    """Measure, but sleep instead of the second measurement."""
    while length == SECOND:
        time.sleep(0.01)
    return measured(rows, length, batch, rounds, trains=trains)


attention_speed.speed = hold
