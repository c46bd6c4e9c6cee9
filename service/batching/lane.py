"""Lanes: two queues of a model, each with slots and threads of its own.

Short requests are computed in the foreground, long ones and bulk requests in the background, so that a document of 256
bytes does not wait for one of 65,536. While short requests arrive, background threads have a lower priority, and the
operating system interrupts them for the foreground. The background uses all of the processor time that is left.
"""

import math
import os
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import ParamSpec, TypeVar

from typing_extensions import override

from service.batching.queue import AcceptedRequest, Entry, FairQueue, PriorityClass

P = ParamSpec("P")
T = TypeVar("T")

ACTIVE_S = 1.0
"""Seconds after a batch of the foreground during which the priority of the background is lower."""
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
    rows: list[bytes] = field(default_factory=list)
    """Copied when the batch gets its slot, because a request drops its rows when it ends."""
    started: float = 0.0
    """When it got its slot."""
    ticks: int = 0
    """Ticks of the timer since it started."""
    keeps_slot: bool = False
    """Whether its slot stays taken until the event loop has its outputs."""

    @property
    def request(self) -> AcceptedRequest:
        """The request of its first row; the log names it."""
        return self.entries[0][1]


@dataclass(eq=False)
class Lane:
    """A queue with its slots."""

    queue: FairQueue
    executor: Executor
    """At least one thread per slot."""
    slots: int
    """Batches that may run concurrently."""
    undelivered: int = 0
    """Batches that have ended, and whose outputs the event loop does not have yet."""
    retries: deque[Batch] = field(default_factory=deque)
    """Requests of failed batches, each to be computed alone."""

    def __post_init__(self) -> None:
        """Free every slot."""
        self.free_slots = self.slots
        self.max_undelivered = max(1, self.slots // 2)
        """Maximum of `undelivered` with which threads take the next batch: more show that the event loop is behind."""


class BackgroundThreads(Executor):
    """Threads for the background.

    Their priority is lower while short requests arrive. Without them it is not: it would let the event loop, which can
    reject thousands of requests a second, take the time of the batches. A thread cannot raise its priority again, so
    that there are two pools. Only Linux has priorities of single threads.

    Args:
        slots: threads of each pool.
        clock: returns seconds.

    """

    def __init__(self, slots: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lower_until = -math.inf
        self._normal = ThreadPoolExecutor(slots, "background")
        self._lower = ThreadPoolExecutor(slots, "background-lower", initializer=_lower_priority)

    def yield_to_foreground(self) -> None:
        """Lower the priority of the batches that start within ACTIVE_S."""
        self._lower_until = self._clock() + ACTIVE_S

    @override
    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        pool = self._lower if self._clock() < self._lower_until else self._normal
        return pool.submit(fn, *args, **kwargs)

    @override
    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        for pool in (self._normal, self._lower):
            pool.shutdown(wait, cancel_futures=cancel_futures)


class ForegroundThreads(ThreadPoolExecutor):
    """Threads for the foreground, to which the background yields."""

    def __init__(self, slots: int, background: BackgroundThreads) -> None:
        super().__init__(slots, "foreground")
        self._background = background

    @override
    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        self._background.yield_to_foreground()
        return super().submit(fn, *args, **kwargs)


def _lower_priority() -> None:
    """Lower the priority of the calling thread."""
    if sys.platform == "linux":
        niceness = min(MAX_NICENESS, os.getpriority(os.PRIO_PROCESS, 0) + NICENESS)
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), niceness)
