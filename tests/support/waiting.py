"""Wait for events; no test measures time. The only limit here ends a test whose event never happens."""

import asyncio
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

PATIENCE_S = 600.0
"""Limit of every wait; far more than a slow machine needs, even for parser processes, which have a low priority."""


def wait_until(condition: Callable[[], T | None], describe: Callable[[], object] = lambda: "") -> T:
    """Poll until a condition is true and return its value.

    Args:
        condition: cheap; once true, it stays true.
        describe: returns what to show if the condition never becomes true.

    Raises: AssertionError after PATIENCE_S.

    """
    end, pause_s = time.monotonic() + PATIENCE_S, 0.001
    while not (found := condition()):
        assert time.monotonic() < end, f"condition never became true: {describe()}"
        time.sleep(pause_s)
        pause_s = min(0.05, 1.5 * pause_s)
    return found


async def wait_until_async(condition: Callable[[], object]) -> None:
    """Poll until a condition is true, while other tasks run. Raises: TimeoutError after PATIENCE_S."""
    async with asyncio.timeout(PATIENCE_S):
        while not condition():  # noqa: ASYNC110  # threads and other tasks change it; there is no event to wait for
            await asyncio.sleep(0.001)
