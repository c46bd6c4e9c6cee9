"""Lanes: two queues of a model, each with slots and threads of its own.

Short requests are computed in the foreground; long ones and bulk requests are computed in the background, by threads
whose priority in the operating system is lower. A document of 65,536 bytes takes a hundred times as long as one of 256.
The short one does not wait for it: the operating system interrupts the long one. The background uses all of the
processor time that the foreground leaves.
"""

import asyncio
import os
import sys
import threading
from collections import deque
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass, field

from service.batching.queue import Entry, FairQueue, PriorityClass

NICENESS = 10
"""Added to the niceness of background threads. They get a tenth of a core for which foreground threads compete."""
MAX_NICENESS = 19


@dataclass(eq=False)
class Batch:
    """Rows of one bucket that are computed together."""

    lane: "Lane"
    priority: PriorityClass
    bucket: int
    entries: list[Entry]
    started: float = 0.0
    ticks: int = 0
    """Ticks since it started."""
    watchdog: asyncio.TimerHandle | None = None


@dataclass(eq=False)
class Lane:
    """A queue with its slots."""

    queue: FairQueue
    executor: Executor
    """At least one thread per slot."""
    slots: int
    """Batches that may run concurrently."""
    retries: deque[Batch] = field(default_factory=deque)
    """Requests of failed batches, each to be computed alone."""

    def __post_init__(self) -> None:
        """Free every slot."""
        self.free_slots = self.slots


def background_threads(slots: int) -> ThreadPoolExecutor:
    """Threads of lower priority. Only Linux has priorities of single threads; elsewhere they are like all others."""
    return ThreadPoolExecutor(slots, thread_name_prefix="background", initializer=_lower_priority)


def _lower_priority() -> None:
    """Lower the priority of the calling thread."""
    if sys.platform == "linux":
        niceness = min(MAX_NICENESS, os.getpriority(os.PRIO_PROCESS, 0) + NICENESS)
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), niceness)
