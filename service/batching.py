"""The batching engine: rows of requests in, batches of one length bucket out. Used by `service.engine`.

There is no timer. While every slot computes, rows pile up; when one is free, the next batch is whatever waits.

Invariants, each a property test in tests/service/test_batching.py:
- every accepted request ends exactly once: outputs, an error, or its caller's cancellation;
- rows and bytes that wait never exceed the limits, but for one request that is larger than them, alone;
- rows of one class and bucket are computed in the order they came;
- a request that is cancelled, late or failed changes nothing for those batched with it.
"""

import asyncio
import logging
import math
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from itertools import groupby

import numpy as np
from numpy.typing import NDArray

from service.errors import (
    DeadlineExceeded,
    InferenceFailed,
    NonFiniteOutput,
    NotReady,
    Overloaded,
    ServiceError,
    ShuttingDown,
)
from service.metrics import ModelMetrics

log = logging.getLogger(__name__)

Floats = NDArray[np.float32]
Run = Callable[[Sequence[bytes], int], Floats]
"""Rows and their bucket -> outputs (rows, ...). Called on a thread of the executor, by several at once."""

BULK_ROWS = 32
"""Requests with more rows are bulk: they give way to interactive ones."""
WEIGHTS = {"interactive": 4, "bulk": 1}
"""Shares of the batches when both classes wait."""
LONGEST_RETRY_S = 60
RATE_MEMORY = 0.9
"""Weight of the past in the running mean of a row's compute time."""


@dataclass(frozen=True)
class Limits:
    """What may wait and run."""

    batch_rows: int
    """Rows of the longest bucket in one batch; of shorter ones as many more as have the same length together."""
    queue_rows: int
    """Rows that may wait."""
    queue_bytes: int
    """Bytes that may wait."""
    slots: int
    """Batches that may run at once."""


@dataclass(frozen=True)
class Outcome:
    """What became of a request."""

    outputs: Floats
    """(rows, ...), in the order of the request's rows."""
    queue_s: float
    """Longest wait of one of its rows."""
    compute_s: float
    """Longest batch one of its rows was in."""


@dataclass(eq=False)
class _Ticket:
    """One accepted request."""

    rows: list[bytes]
    arrived: float
    future: asyncio.Future[Floats]
    outputs: list[Floats | None]
    waiting_rows: int = 0
    waiting_bytes: int = 0
    missing: int = 0
    queue_s: float = 0.0
    compute_s: float = 0.0


_Entry = tuple[int, _Ticket, int]
"""Arrival number, ticket, index of the row in it."""


@dataclass
class _Class:
    """Rows of one priority, by bucket."""

    weight: int
    buckets: dict[int, deque[_Entry]] = field(default_factory=dict)
    passed: float = 0.0
    """Rows served divided by weight: the class that has passed least is next."""

    def first(self) -> tuple[int, int] | None:
        """Arrival number and bucket of the earliest row that somebody still waits for."""
        heads = []
        for bucket, entries in self.buckets.items():
            while entries and entries[0][1].future.done():
                entries.popleft()
            if entries:
                heads.append((entries[0][0], bucket))
        return min(heads, default=None)


class Batcher:
    """Queue and slots of one model; lives on one event loop.

    Args:
        run: computes one batch.
        buckets: row lengths that `run` can compute, ascending.
        limits: what may wait and run.
        executor: threads for `run`, at least `limits.slots` of them.
        metrics: of the model.

    """

    def __init__(
        self, run: Run, buckets: Sequence[int], limits: Limits, executor: Executor, metrics: ModelMetrics
    ) -> None:
        self._run = run
        self._buckets = tuple(buckets)
        self._limits = limits
        self._executor = executor
        self._metrics = metrics
        self._classes = {name: _Class(weight) for name, weight in WEIGHTS.items()}
        self._retries: deque[tuple[int, list[_Entry]]] = deque()
        self._tickets: set[_Ticket] = set()
        self._free = limits.slots
        self._arrivals = 0
        self._row_seconds = 0.0
        self._closed = self._failed = False
        self.waiting_rows = 0
        self.waiting_bytes = 0

    @property
    def is_ready(self) -> bool:
        """Whether requests are taken."""
        return not (self._closed or self._failed)

    @property
    def is_idle(self) -> bool:
        """Whether every accepted request has ended."""
        return not self._tickets

    def oldest_s(self) -> float:
        """Age of the oldest request with a row that waits; 0 if none does."""
        arrived = [ticket.arrived for ticket in self._tickets if ticket.waiting_rows]
        return time.monotonic() - min(arrived) if arrived else 0.0

    async def infer(self, rows: list[bytes], deadline: float) -> Outcome:
        """Compute the rows of one request; cancel the caller and they are forgotten.

        Args:
            rows: each at most as long as the longest bucket.
            deadline: on the clock of the event loop.

        Raises: Overloaded, ShuttingDown, NotReady at once; DeadlineExceeded, InferenceFailed, NonFiniteOutput later.

        """
        loop = asyncio.get_running_loop()
        ticket = self._admit(rows, loop)
        timer = loop.call_at(deadline, self._expire, ticket)
        try:
            self._dispatch()
            outputs = await ticket.future
        except asyncio.CancelledError:
            self._metrics.cancelled("queue" if ticket.waiting_rows else "compute")
            raise
        finally:
            timer.cancel()
            self._forget(ticket)
        return Outcome(outputs, ticket.queue_s, ticket.compute_s)

    def close(self) -> None:
        """Take no more requests; those accepted go on."""
        self._closed = True

    async def drain(self) -> None:
        """Wait until every accepted request has ended."""
        while self._tickets:
            await asyncio.wait([ticket.future for ticket in self._tickets])
            await asyncio.sleep(0)

    def retry_after_s(self) -> int:
        """Seconds until what waits now is computed, from the measured time of a row."""
        return max(1, min(LONGEST_RETRY_S, math.ceil(self.waiting_rows * self._row_seconds / self._limits.slots)))

    def _admit(self, rows: list[bytes], loop: asyncio.AbstractEventLoop) -> _Ticket:
        """Put a request into the queue, or refuse it."""
        size = sum(map(len, rows))
        self._check_door(len(rows), size)
        ticket = _Ticket(rows, time.monotonic(), loop.create_future(), [None] * len(rows), missing=len(rows))
        name = "bulk" if len(rows) > BULK_ROWS else "interactive"
        chosen = self._classes[name]
        if chosen.first() is None:  # no credit for the time in which nothing of this class waited
            others = [c.passed for c in self._classes.values() if c is not chosen and c.first() is not None]
            chosen.passed = max(chosen.passed, min(others, default=chosen.passed))
        for index, row in enumerate(rows):
            bucket = next(b for b in self._buckets if len(row) <= b)
            chosen.buckets.setdefault(bucket, deque()).append((self._arrivals, ticket, index))
            self._arrivals += 1
        self._tickets.add(ticket)
        ticket.waiting_rows, ticket.waiting_bytes = len(rows), size
        self.waiting_rows += len(rows)
        self.waiting_bytes += size
        return ticket

    def _check_door(self, rows: int, size: int) -> None:
        """Refuse what cannot be taken now."""
        limits = self._limits
        is_full = self.waiting_rows + rows > limits.queue_rows or self.waiting_bytes + size > limits.queue_bytes
        error: ServiceError
        if self._failed:
            reason, error = "not_ready", NotReady("the model has failed; the server has to be restarted")
        elif self._closed:
            reason, error = "shutting_down", ShuttingDown("the server is shutting down; ask another one")
        elif is_full and self.waiting_rows:
            reason = "overloaded"
            error = Overloaded(f"{self.waiting_rows} rows wait already", self.retry_after_s())
        else:
            return
        self._metrics.rejected(reason)
        raise error

    def _dispatch(self) -> None:
        """Start batches while there are free slots and rows."""
        loop = asyncio.get_running_loop()
        while self._free and (batch := self._retry() or self._collect()):
            bucket, entries = batch
            self._free -= 1
            rows = [ticket.rows[index] for _, ticket, index in entries]
            self._metrics.batch_size.observe(len(rows))
            self._metrics.batch_padding.observe(1 - sum(map(len, rows)) / (bucket * len(rows)))
            started = time.monotonic()
            try:
                running = loop.run_in_executor(self._executor, self._run, rows, bucket)
            except RuntimeError as error:  # the executor was shut down or cannot start a thread
                self._crash(error)
                return
            running.add_done_callback(lambda done, b=batch, s=started: self._finish(b, s, done))  # type: ignore[misc]

    def _retry(self) -> tuple[int, list[_Entry]] | None:
        """Rows of one request whose batch has failed, to be computed without the others."""
        while self._retries:
            bucket, entries = self._retries.popleft()
            if not entries[0][1].future.done():
                return bucket, entries
        return None

    def _collect(self) -> tuple[int, list[_Entry]] | None:
        """Take the next batch from the queue: rows of one class and bucket, earliest first."""
        waiting = [(c.passed, head, c) for c in self._classes.values() if (head := c.first()) is not None]
        if not waiting:
            return None
        _, (_, bucket), chosen = min(waiting, key=lambda item: item[:2])
        entries, batch = chosen.buckets[bucket], list[_Entry]()
        limit = self._limits.batch_rows * (self._buckets[-1] // bucket)
        now = time.monotonic()
        while entries and len(batch) < limit:
            entry = entries.popleft()
            _, ticket, index = entry
            if ticket.future.done():
                continue
            self._release(ticket, 1, len(ticket.rows[index]))
            ticket.queue_s = max(ticket.queue_s, now - ticket.arrived)
            batch.append(entry)
        chosen.passed += len(batch) / chosen.weight
        self._metrics.batch_closed("full" if len(batch) == limit else "drained")
        return bucket, batch

    def _finish(self, batch: tuple[int, list[_Entry]], started: float, done: asyncio.Future[Floats]) -> None:
        """Hand the outputs of a batch to its requests, and start the next one."""
        self._free += 1
        bucket, entries = batch
        if done.cancelled():  # the executor was shut down before a thread took the batch
            for _, ticket, _ in entries:
                if not ticket.future.done():
                    ticket.future.set_exception(ShuttingDown("the server stopped before the answer was ready"))
            return
        error = done.exception()
        if error is None and len(done.result()) != len(entries):
            error = ValueError(f"the backend gave {len(done.result())} outputs for {len(entries)} rows")
        if error is None:
            seconds = time.monotonic() - started
            self._measure(seconds / len(entries))
            self._deliver(entries, done.result(), seconds)
        elif isinstance(error, Exception):
            self._separate(bucket, entries, error)
        else:
            self._crash(error)
        self._dispatch()

    def _measure(self, row_seconds: float) -> None:
        """Update the running mean of a row's compute time."""
        memory = RATE_MEMORY if self._row_seconds else 0.0
        self._row_seconds = memory * self._row_seconds + (1 - memory) * row_seconds

    def _deliver(self, entries: list[_Entry], outputs: Floats, seconds: float) -> None:
        """Give each row its output; end the requests that are complete."""
        is_finite = [bool(np.isfinite(output).all()) for output in outputs]
        for (_, ticket, index), output, finite in zip(entries, outputs, is_finite, strict=True):
            if ticket.future.done():
                continue
            if not finite:
                self._metrics.inference_error("non_finite")
                ticket.future.set_exception(NonFiniteOutput("the model gave no finite answer for this input"))
                continue
            ticket.outputs[index] = output
            ticket.missing -= 1
            ticket.compute_s = max(ticket.compute_s, seconds)
            if not ticket.missing:
                ticket.future.set_result(np.stack([o for o in ticket.outputs if o is not None]))

    def _separate(self, bucket: int, entries: list[_Entry], error: Exception) -> None:
        """A batch has failed: fail its only request, or compute each of its requests alone."""
        requests = list(_by_request(entries))
        if len(requests) > 1:
            self._retries.extend((bucket, request) for request in requests)
            return
        log.error("the backend failed on a batch of %d rows", len(entries), exc_info=error)
        ticket = entries[0][1]
        if not ticket.future.done():
            self._metrics.inference_error("raised")
            ticket.future.set_exception(InferenceFailed("the backend failed on this input"))

    def _crash(self, error: BaseException) -> None:
        """The backend is gone: fail everything, and say so in readiness."""
        log.critical("the backend crashed", exc_info=error)
        self._failed = True
        for ticket in self._tickets:
            if not ticket.future.done():
                self._metrics.inference_error("crashed")
                ticket.future.set_exception(NotReady("the model has failed; the server has to be restarted"))

    def _expire(self, ticket: _Ticket) -> None:
        """The deadline of a request has passed."""
        if not ticket.future.done():
            stage = "in the queue" if ticket.waiting_rows else "while it was computed"
            self._metrics.rejected("deadline")
            ticket.future.set_exception(DeadlineExceeded(f"the deadline passed {stage}"))

    def _forget(self, ticket: _Ticket) -> None:
        """Free what an ended request still holds; its rows are skipped when their turn comes."""
        self._release(ticket, ticket.waiting_rows, ticket.waiting_bytes)
        self._tickets.discard(ticket)
        ticket.rows, ticket.outputs = [], []

    def _release(self, ticket: _Ticket, rows: int, size: int) -> None:
        """Take rows of a request out of the account of what waits."""
        ticket.waiting_rows -= rows
        ticket.waiting_bytes -= size
        self.waiting_rows -= rows
        self.waiting_bytes -= size


def _by_request(entries: list[_Entry]) -> Iterator[list[_Entry]]:
    """Split a batch by request; rows of one stand together because they came together."""
    for _, group in groupby(entries, key=lambda entry: id(entry[1])):
        yield list(group)
