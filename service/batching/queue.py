"""The queue of a model: rows of two priorities, which share the slots by weight."""

import asyncio
import math
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field

from artifact.loading import Floats

INTERACTIVE_WEIGHT, BULK_WEIGHT = 4, 1
"""Shares of the slots' time when both priorities wait."""
ACTIVE_S = 1.0
"""After an interactive request, bulk leaves a slot free for the next one this long, and keeps its batches short."""


@dataclass
class Priority:
    """Rows of one priority, by bucket."""

    weight: int
    buckets: dict[int, "deque[Entry]"] = field(default_factory=dict)
    waiting: Counter[int] = field(default_factory=Counter)
    """Rows that somebody still waits for, by bucket."""
    passed: float = 0.0
    """Bytes served, padding included, divided by weight: the priority that has passed least is next."""
    running: int = 0
    """Batches that compute."""

    def first(self) -> tuple[int, int] | None:
        """Arrival number and bucket of the earliest row that somebody still waits for."""
        heads = []
        for bucket, entries in self.buckets.items():
            while entries and entries[0][1].future.done():
                entries.popleft()
            if entries:
                heads.append((entries[0][0], bucket))
        return min(heads, default=None)


@dataclass(eq=False)
class Ticket:
    """One accepted request."""

    rows: list[bytes]
    priority: Priority
    arrived: float
    deadline: float
    """On the clock of the event loop."""
    future: asyncio.Future[Floats]
    outputs: list[Floats | None]
    missing: int
    """Outputs that are not there yet."""
    waiting_rows: int = 0
    waiting_bytes: int = 0
    waiting: Counter[int] = field(default_factory=Counter)
    """Rows that wait, by bucket."""
    queue_s: float = 0.0
    compute_s: float = 0.0


Entry = tuple[int, Ticket, int]
"""Arrival number, ticket, index of the row in it."""


class FairQueue:
    """Rows that wait for a batch. Within a priority and bucket they leave in the order they came.

    Args:
        slots: batches that may run at once.
        clock: seconds.

    """

    def __init__(self, slots: int, clock: Callable[[], float]) -> None:
        self.interactive, self.bulk = Priority(INTERACTIVE_WEIGHT), Priority(BULK_WEIGHT)
        self.waiting_rows = 0
        self.waiting_bytes = 0
        self._slots = slots
        self._clock = clock
        self._arrivals = 0
        self._last_interactive = -math.inf
        self._now_passed = 0.0
        """What the priority of the last batch had passed before it."""

    def add(self, ticket: Ticket, buckets: list[int]) -> None:
        """Put a request at the end; `buckets` are those of its rows."""
        priority = ticket.priority
        if not priority.waiting.total():  # no credit for the time in which nothing of this priority waited
            priority.passed = max(priority.passed, self._now_passed)
        for index, bucket in enumerate(buckets):
            priority.buckets.setdefault(bucket, deque()).append((self._arrivals, ticket, index))
            self._arrivals += 1
        for bucket, count in Counter(buckets).items():
            self._account(ticket, bucket, count)
        ticket.waiting_bytes = sum(map(len, ticket.rows))
        self.waiting_bytes += ticket.waiting_bytes
        if priority is self.interactive:
            self._last_interactive = ticket.arrived

    def next(self) -> tuple[Priority, int] | None:
        """Priority and bucket of the next batch: of the priorities that may run, the one that has passed least."""
        waiting = []
        for priority in (self.interactive, self.bulk):
            if (head := priority.first()) is not None and not (
                self.leaves_room(priority) and self._slots > 1 and priority.running >= self._slots - 1
            ):
                waiting.append((priority.passed, head, priority))
        if not waiting:
            return None
        _, (_, bucket), priority = min(waiting, key=lambda item: item[:2])
        return priority, bucket

    def take(self, entry: Entry, bucket: int) -> None:
        """Account for a row that has left the queue."""
        _, ticket, index = entry
        size = len(ticket.rows[index])
        self._account(ticket, bucket, -1)
        ticket.waiting_bytes -= size
        self.waiting_bytes -= size

    def passed(self, priority: Priority, size: int) -> None:
        """Charge a batch of `size` bytes, padding included, to its priority."""
        self._now_passed = priority.passed
        priority.passed += size / priority.weight

    def forget(self, ticket: Ticket) -> None:
        """Free what an ended request still holds; its rows are skipped when their turn comes."""
        for bucket, count in ticket.waiting.items():
            self._account(ticket, bucket, -count)
        self.waiting_bytes -= ticket.waiting_bytes
        ticket.waiting_bytes = 0
        ticket.rows, ticket.outputs = [], []

    def leaves_room(self, priority: Priority) -> bool:
        """Whether a priority has to leave a slot free, since interactive requests come."""
        return priority is self.bulk and self._clock() < self._last_interactive + ACTIVE_S

    def leaves_room_s(self) -> float:
        """Seconds until bulk no longer has to."""
        return self._last_interactive + ACTIVE_S - self._clock()

    def _account(self, ticket: Ticket, bucket: int, rows: int) -> None:
        """Add rows of a request to what waits."""
        ticket.waiting[bucket] += rows
        ticket.waiting_rows += rows
        ticket.priority.waiting[bucket] += rows
        self.waiting_rows += rows
