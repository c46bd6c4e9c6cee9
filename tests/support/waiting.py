"""Wait for events. No test measures time: the one limit here only ends a test whose event never comes."""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

PATIENCE_S = 120.0
"""Limit of every wait; far above what the slowest machine needs."""


def wait_until(condition: Callable[[], T | None], describe: Callable[[], object] = lambda: "") -> T:
    """Poll until a condition is true; what it returned.

    Args:
        condition: cheap; once true, it stays true.
        describe: what to show if it never is.

    Raises: AssertionError after PATIENCE_S.

    """
    end, pause_s = time.monotonic() + PATIENCE_S, 0.001
    while not (found := condition()):
        assert time.monotonic() < end, f"never came true: {describe()}"
        time.sleep(pause_s)
        pause_s = min(0.05, 1.5 * pause_s)
    return found
