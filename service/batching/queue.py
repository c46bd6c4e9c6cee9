"""A queue of rows of two priority classes, which share the slots by weighted fair queuing."""

import asyncio
from collections import Counter, deque
from contextvars import Context, copy_context
from dataclasses import dataclass, field

from artifact.arrays import Floats

INTERACTIVE_WEIGHT, BULK_WEIGHT = 4, 1
"""Shares of the slots' time while both classes have rows waiting."""


@dataclass
class PriorityClass:
    """Queued rows of one class, by bucket."""

    weight: int
    buckets: dict[int, "deque[Entry]"] = field(default_factory=dict)
    waiting: Counter[int] = field(default_factory=Counter)
    """Number of queued rows whose request has not ended, by bucket."""
    virtual_time: float = 0.0
    """Bytes computed, padding included, divided by the weight. The class with the smallest value runs next."""

    def first(self) -> tuple[int, int] | None:
        """Arrival number and bucket of the earliest row whose request has not ended."""
        first: tuple[int, int] | None = None
        for bucket, entries in self.buckets.items():
            while entries and entries[0][1].future.done():
                entries.popleft()
            if entries and (first is None or entries[0][0] < first[0]):
                first = entries[0][0], bucket
        return first


@dataclass(eq=False)
class AcceptedRequest:
    """One accepted request."""

    rows: list[bytes]
    buckets: list[int]
    """Bucket of each row."""
    priority: PriorityClass
    arrived: float
    """On the clock of the queue."""
    deadline: float
    """On the clock of the event loop."""
    future: asyncio.Future[list[Floats]]
    is_line: bool = False
    """Whether it is a line of an upload; these wait for each other."""
    context: Context = field(default_factory=copy_context)
    """Context variables, such as the request id for the log."""
    queue_s: float = 0.0
    compute_s: float = 0.0

    def __post_init__(self) -> None:
        """Count every row as queued."""
        self.outputs: list[Floats | None] = [None] * len(self.rows)
        self.missing = self.waiting_rows = len(self.rows)  # rows without output, and those still queued
        self.waiting_bytes = sum(map(len, self.rows))
        self.waiting: dict[int, int] = {}
        for bucket in self.buckets:
            self.waiting[bucket] = self.waiting.get(bucket, 0) + 1


Entry = tuple[int, AcceptedRequest, int]
"""Arrival number, request, index of the row in it."""


class FairQueue:
    """Queued rows of all requests; first in, first out within a class and bucket."""

    def __init__(self) -> None:
        self.interactive, self.bulk = PriorityClass(INTERACTIVE_WEIGHT), PriorityClass(BULK_WEIGHT)
        self.waiting_rows = 0
        self.waiting_bytes = 0
        self._arrivals = 0
        self._virtual_time = 0.0
        """Virtual time of the class of the last batch, before that batch."""

    def add(self, request: AcceptedRequest) -> None:
        """Append the rows of a request."""
        priority = request.priority
        if not any(priority.waiting.values()):  # an idle class earns no credit
            priority.virtual_time = max(priority.virtual_time, self._virtual_time)
        for index, bucket in enumerate(request.buckets):
            if bucket not in priority.buckets:
                priority.buckets[bucket] = deque()
            priority.buckets[bucket].append((self._arrivals, request, index))
            priority.waiting[bucket] += 1
            self._arrivals += 1
        self.waiting_rows += request.waiting_rows
        self.waiting_bytes += request.waiting_bytes

    def next(self) -> tuple[PriorityClass, int] | None:
        """Class and bucket of the next batch: the class with the smallest virtual time among those with rows."""
        chosen, earliest = self.interactive, self.interactive.first()
        other = self.bulk.first()
        if other is not None and (
            earliest is None or (self.bulk.virtual_time, other) < (chosen.virtual_time, earliest)
        ):
            chosen, earliest = self.bulk, other
        return None if earliest is None else (chosen, earliest[1])

    def uncount(self, entry: Entry, bucket: int) -> None:
        """Stop counting a row that has left the queue."""
        _, request, index = entry
        size = len(request.rows[index])
        request.waiting[bucket] -= 1
        request.waiting_rows -= 1
        request.waiting_bytes -= size
        request.priority.waiting[bucket] -= 1
        self.waiting_rows -= 1
        self.waiting_bytes -= size

    def charge(self, priority: PriorityClass, size: int) -> None:
        """Charge a batch of `size` bytes, padding included, to its class."""
        self._virtual_time = priority.virtual_time
        priority.virtual_time += size / priority.weight

    def forget(self, request: AcceptedRequest) -> None:
        """Free the rows of a request that has ended; batches skip those that are still queued."""
        for bucket, count in request.waiting.items():
            request.priority.waiting[bucket] -= count
        self.waiting_rows -= request.waiting_rows
        self.waiting_bytes -= request.waiting_bytes
        request.waiting_rows = request.waiting_bytes = 0
        request.waiting, request.rows, request.outputs = {}, [], []
