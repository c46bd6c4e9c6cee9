"""The batching engine: rows of requests in, batches of one length bucket out. Used by `service.engine.engine`.

No timer closes a batch. While every slot computes, rows pile up; when one is free, the next batch is whatever waits.
What a row of each bucket costs is measured all the time; a request that would be late is refused at once, and one that
has become hopeless in the queue is not computed.

Invariants, each a property test in tests/unit/service/batching/test_batcher.py:
- every accepted request ends exactly once: outputs, an error, or its caller's cancellation;
- rows and bytes that wait never exceed the limits, but for one request that is larger than them, alone;
- rows of one class and bucket are computed in the order they came;
- a request that is cancelled, late or failed changes nothing for those batched with it;
- while interactive requests come, bulk leaves them a slot.
"""

import asyncio
import logging
import math
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from itertools import groupby

import numpy as np
from numpy.typing import NDArray

from artifact.errors import LongdocError, NonFiniteOutput
from service.errors import DeadlineExceeded, InferenceFailed, NotReady, Overloaded, ShuttingDown
from service.observe.metrics import ModelMetrics

log = logging.getLogger(__name__)

Floats = NDArray[np.float32]
Run = Callable[[Sequence[bytes], int], Floats]
"""Rows and their bucket -> outputs (rows, ...). Called on a thread of the executor, by several at once."""

Refusal = tuple[str, LongdocError]
"""Reason for the metric, and what the client is told."""

BULK_ROWS = 32
"""Requests with more rows are bulk: they give way to interactive ones."""
INTERACTIVE_WEIGHT, BULK_WEIGHT = 4, 1
"""Shares of the slots' time when both classes wait."""
ACTIVE_S = 1.0
"""After an interactive request, bulk leaves a slot free for the next one this long, and keeps its batches short."""
SHORTEST_WAIT_S = 0.001
"""Of a timer. Event loops may fire timers early, uvloop by half a millisecond: a shorter one could repeat at once."""
LONGEST_RETRY_S = 60
RATE_MEMORY = 0.9
"""Weight of the past in the running mean of a row's compute time."""
HOPE = 0.5
"""Share of the time left that the estimated wait may be: estimates err, and under load everything becomes slower."""
LONGEST_BATCH_S = 0.03
"""No more rows are put into a batch than are computed in this time: whoever comes next waits for it."""
STUCK_S = 60.0
"""A batch that computes for longer will not end: no request waits that long by default."""


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
    chosen: "_Class"
    arrived: float
    deadline: float
    """On the clock of the event loop."""
    future: asyncio.Future[Floats]
    outputs: list[Floats | None]
    waiting_rows: int = 0
    waiting_bytes: int = 0
    waiting: Counter[int] = field(default_factory=Counter)
    """Rows that wait, by bucket."""
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
    waiting: Counter[int] = field(default_factory=Counter)
    """Rows that somebody still waits for, by bucket."""
    passed: float = 0.0
    """Bytes served, padding included, divided by weight: the class that has passed least is next."""
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
class _Batch:
    """Rows of one bucket that are computed together."""

    bucket: int
    entries: list[_Entry]
    chosen: _Class
    started: float = 0.0
    watchdog: asyncio.TimerHandle | None = None


class Batcher:
    """Queue and slots of one model; lives on one event loop.

    Args:
        run: computes one batch.
        buckets: row lengths that `run` can compute, ascending.
        limits: what may wait and run.
        executor: threads for `run`, at least `limits.slots` of them.
        metrics: of the model.
        on_crash: called when the backend is gone.
        clock: seconds, for what is measured.

    """

    def __init__(
        self,
        run: Run,
        buckets: Sequence[int],
        limits: Limits,
        executor: Executor,
        metrics: ModelMetrics,
        on_crash: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._run = run
        self._buckets = tuple(buckets)
        self._limits = limits
        self._executor = executor
        self._metrics = metrics
        self._on_crash = on_crash
        self._clock = clock
        self._interactive, self._bulk = _Class(INTERACTIVE_WEIGHT), _Class(BULK_WEIGHT)
        self._retries: deque[_Batch] = deque()
        self._tickets: set[_Ticket] = set()
        self._free = limits.slots
        self._arrivals = 0
        self._row_seconds: dict[int, float] = {}
        """Running mean of what a row costs, by bucket; none before the first."""
        self._request_seconds = 0.0
        """Running mean of what an interactive request costs."""
        self._again: asyncio.TimerHandle | None = None
        self._now_passed = 0.0
        """What the class of the last batch had passed before it."""
        self._last_interactive = -math.inf
        self._closed = self._failed = False
        self.waiting_rows = 0
        self.waiting_bytes = 0

    @property
    def is_ready(self) -> bool:
        """Whether requests are taken."""
        return not (self._closed or self._failed)

    @property
    def is_computing(self) -> bool:
        """Whether a batch has not come back."""
        return self._free < self._limits.slots

    @property
    def is_idle(self) -> bool:
        """Whether every accepted request has ended."""
        return not self._tickets

    def oldest_s(self) -> float:
        """Age of the oldest request with a row that waits; 0 if none does."""
        arrived = [ticket.arrived for ticket in self._tickets if ticket.waiting_rows]
        return self._clock() - min(arrived) if arrived else 0.0

    async def infer(self, rows: list[bytes], deadline: float, *, bulk: bool = False) -> Outcome:
        """Compute the rows of one request; cancel the caller and they are forgotten.

        Args:
            rows: each at most as long as the longest bucket.
            deadline: on the clock of the event loop.
            bulk: whether it gives way to interactive requests, as those with more than BULK_ROWS rows do anyway.

        Raises: Overloaded, ShuttingDown, NotReady at once; DeadlineExceeded, InferenceFailed, NonFiniteOutput later.

        """
        loop = asyncio.get_running_loop()
        chosen = self._bulk if bulk or len(rows) > BULK_ROWS else self._interactive
        ticket = self._admit(rows, chosen, deadline, loop)
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
        seconds = self._seconds(self._interactive.waiting) + self._seconds(self._bulk.waiting)
        return max(1, min(LONGEST_RETRY_S, math.ceil(seconds / self._limits.slots)))

    def _seconds(self, rows: Mapping[int, int]) -> float:
        """Estimated time to compute rows, given by bucket, on one slot; 0 for what was never measured."""
        return sum(count * self._row_seconds.get(bucket, 0.0) for bucket, count in rows.items())

    def _admit(self, rows: list[bytes], chosen: _Class, deadline: float, loop: asyncio.AbstractEventLoop) -> _Ticket:
        """Put a request into the queue, or refuse it."""
        size = sum(map(len, rows))
        buckets = [next(b for b in self._buckets if len(row) <= b) for row in rows]
        counts = Counter(buckets)
        seconds = self._seconds(counts)
        refusal = self._refusal(deadline - loop.time(), len(rows), size, seconds, bulk=chosen is self._bulk)
        if refusal is not None:
            reason, error = refusal
            self._metrics.rejected(reason)
            raise error
        ticket = _Ticket(rows, chosen, self._clock(), deadline, loop.create_future(), [None] * len(rows))
        if not chosen.waiting.total():  # no credit for the time in which nothing of this class waited
            chosen.passed = max(chosen.passed, self._now_passed)
        for index, bucket in enumerate(buckets):
            chosen.buckets.setdefault(bucket, deque()).append((self._arrivals, ticket, index))
            self._arrivals += 1
        self._tickets.add(ticket)
        ticket.missing = len(rows)
        ticket.waiting_bytes = size
        self.waiting_bytes += size
        for bucket, count in counts.items():
            self._account(ticket, bucket, count)
        if chosen is self._interactive:
            self._request_seconds += (1 - RATE_MEMORY) * (seconds - self._request_seconds)
            self._last_interactive = ticket.arrived
        return ticket

    def refusal_at_door(self, left_s: float, entering: int) -> Refusal | None:
        """Why no request can be taken now, if so, before its rows are known.

        Args:
            left_s: until its deadline.
            entering: requests let in that have not asked yet; they are taken to be like those before them.

        """
        if not self.waiting_rows and 0 < entering < self._limits.slots:
            return None
        return self._refusal(left_s, entering + 1, 1, (entering + 1) * self._request_seconds, entering=entering)

    def _refusal(
        self, left_s: float, rows: int, size: int, seconds: float, *, bulk: bool = False, entering: int = 0
    ) -> Refusal | None:
        """Why a request cannot be taken now, if so.

        Args:
            left_s: until its deadline.
            rows: of the request.
            size: of the rows, in bytes.
            seconds: estimated time to compute the rows on one slot.
            bulk: whether it gives way to interactive requests.
            entering: requests that are ahead of it and do not wait yet.

        """
        limits = self._limits
        if self._failed:
            return "not_ready", NotReady("the model has failed; the server has to be restarted")
        if self._closed:
            return "shutting_down", ShuttingDown("the server is shutting down; ask another one")
        if not self.waiting_rows and not entering:
            return None
        if self.waiting_rows + rows > limits.queue_rows or self.waiting_bytes + size > limits.queue_bytes:
            return "overloaded", Overloaded(f"{self.waiting_rows} rows wait already", self.retry_after_s())
        wait_s = self._wait_s(self._bulk if bulk else self._interactive, seconds)
        if wait_s > HOPE * left_s:
            message = f"it would take about {wait_s:.1f} s, and {max(0.0, left_s):.1f} s are left"
            return "too_late", Overloaded(message, self.retry_after_s())
        return None

    def _wait_s(self, chosen: _Class, seconds: float) -> float:
        """Estimated time until rows that cost so much are computed, behind their class and the other one's share."""
        other = self._interactive if chosen is self._bulk else self._bulk
        ahead = self._seconds(chosen.waiting) + seconds
        beside = min(self._seconds(other.waiting), ahead * other.weight / chosen.weight)
        return (ahead + beside) / self._limits.slots

    def _dispatch(self) -> None:
        """Start batches while there are free slots and rows."""
        loop = asyncio.get_running_loop()
        while self._free and not self._failed and (batch := self._retry() or self._collect(loop.time())):
            self._free -= 1
            batch.chosen.running += 1
            rows = [ticket.rows[index] for _, ticket, index in batch.entries]
            self._metrics.batch_size.observe(len(rows))
            self._metrics.batch_padding.observe(1 - sum(map(len, rows)) / (batch.bucket * len(rows)))
            batch.started = self._clock()
            try:
                running = loop.run_in_executor(self._executor, self._run, rows, batch.bucket)
            except RuntimeError as error:  # the executor was shut down or cannot start a thread
                self._crash(error)
                return
            batch.watchdog = loop.call_later(STUCK_S, self._crash, TimeoutError(f"a batch computes for {STUCK_S} s"))
            running.add_done_callback(lambda done, b=batch: self._finish(b, done))  # type: ignore[misc]
        self._look_again(loop)

    def _look_again(self, loop: asyncio.AbstractEventLoop) -> None:
        """Let bulk have the slot it leaves free, as soon as no interactive request has come for ACTIVE_S."""
        if self._again is None and self._free and not self._failed and self._bulk.first() is not None:
            left_s = self._last_interactive + ACTIVE_S - self._clock()
            self._again = loop.call_later(max(SHORTEST_WAIT_S, left_s), self._dispatch_again)

    def _dispatch_again(self) -> None:
        self._again = None
        self._dispatch()

    def _retry(self) -> _Batch | None:
        """Rows of one request whose batch has failed, to be computed without the others."""
        while self._retries:
            batch = self._retries.popleft()
            if not batch.entries[0][1].future.done():
                return batch
        return None

    def _collect(self, now: float) -> _Batch | None:
        """Take the next batch from the queue: rows of one class and bucket, earliest first."""
        while (picked := self._pick()) is not None:
            chosen, bucket = picked
            entries = chosen.buckets[bucket]
            limit = self._most_rows(chosen, bucket)
            batch = _Batch(bucket, [], chosen)
            # With nothing to compute, there would be nothing to measure, and one slow batch would end all work.
            latest = now + self._row_seconds.get(bucket, 0.0) if self._free < self._limits.slots else -math.inf
            while entries and len(batch.entries) < limit:
                entry = entries.popleft()
                _, ticket, index = entry
                if ticket.future.done():
                    continue
                self._account(ticket, bucket, -1)
                ticket.waiting_bytes -= len(ticket.rows[index])
                self.waiting_bytes -= len(ticket.rows[index])
                if ticket.deadline < latest:  # it cannot be in time: to compute it would make the next ones late too
                    self._fail_late(ticket, "in the queue")
                    continue
                ticket.queue_s = max(ticket.queue_s, self._clock() - ticket.arrived)
                batch.entries.append(entry)
            if batch.entries:
                self._now_passed = chosen.passed
                chosen.passed += bucket * len(batch.entries) / chosen.weight
                self._metrics.batch_closed("full" if len(batch.entries) == limit else "drained")
                return batch
        return None

    def _most_rows(self, chosen: _Class, bucket: int) -> int:
        """Rows of the next batch at most."""
        rows = (1 if self._spares(chosen) else self._limits.batch_rows) * (self._buckets[-1] // bucket)
        row_seconds = self._row_seconds.get(bucket, 0.0)
        return max(1, min(rows, int(LONGEST_BATCH_S / row_seconds))) if row_seconds else rows

    def _pick(self) -> tuple[_Class, int] | None:
        """Class and bucket of the next batch: of the classes that may run, the one that has had least of its share."""
        waiting = []
        for chosen in (self._interactive, self._bulk):
            if (head := chosen.first()) is not None and not (
                self._spares(chosen) and self._limits.slots > 1 and chosen.running >= self._limits.slots - 1
            ):
                waiting.append((chosen.passed, head, chosen))
        if not waiting:
            return None
        _, (_, bucket), chosen = min(waiting, key=lambda item: item[:2])
        return chosen, bucket

    def _spares(self, chosen: _Class) -> bool:
        """Whether a class has to leave room for interactive requests."""
        return chosen is self._bulk and self._clock() < self._last_interactive + ACTIVE_S

    def _finish(self, batch: _Batch, done: asyncio.Future[Floats]) -> None:
        """Hand the outputs of a batch to its requests, and start the next one."""
        self._free += 1
        batch.chosen.running -= 1
        if batch.watchdog is not None:
            batch.watchdog.cancel()
        entries = batch.entries
        if done.cancelled():  # the executor was shut down before a thread took the batch
            for _, ticket, _ in entries:
                if not ticket.future.done():
                    ticket.future.set_exception(ShuttingDown("the server stopped before the answer was ready"))
            return
        error = done.exception()
        if error is None and len(done.result()) != len(entries):
            error = ValueError(f"the backend gave {len(done.result())} outputs for {len(entries)} rows")
        if error is None:
            seconds = self._clock() - batch.started
            self._measure(batch.bucket, seconds / len(entries))
            self._deliver(entries, done.result(), seconds)
        elif isinstance(error, Exception):
            self._separate(batch, error)
        else:
            self._crash(error)
        self._dispatch()

    def _measure(self, bucket: int, row_seconds: float) -> None:
        """Update the running mean of what a row costs."""
        before = self._row_seconds.get(bucket, row_seconds)
        self._row_seconds[bucket] = RATE_MEMORY * before + (1 - RATE_MEMORY) * row_seconds

    def _deliver(self, entries: list[_Entry], outputs: Floats, seconds: float) -> None:
        """Give each row its output; end the requests that are complete."""
        is_finite: NDArray[np.bool_] = np.asarray(np.isfinite(outputs).reshape(len(outputs), -1).all(axis=1))
        for place, (_, ticket, index) in enumerate(entries):
            if ticket.future.done():
                continue
            if not is_finite[place]:
                self._metrics.inference_error("non_finite")
                ticket.future.set_exception(NonFiniteOutput("the model gave no finite answer for this input"))
                continue
            ticket.outputs[index] = outputs[place : place + 1]
            ticket.missing -= 1
            ticket.compute_s = max(ticket.compute_s, seconds)
            if not ticket.missing:
                found = [output for output in ticket.outputs if output is not None]
                ticket.future.set_result(found[0] if len(found) == 1 else np.concatenate(found))

    def _separate(self, batch: _Batch, error: Exception) -> None:
        """A batch has failed: fail its only request, or compute each of its requests alone."""
        requests = list(_by_request(batch.entries))
        if len(requests) > 1:
            self._retries.extend(_Batch(batch.bucket, request, batch.chosen) for request in requests)
            return
        log.error("the backend failed on a batch of %d rows", len(batch.entries), exc_info=error)
        ticket = batch.entries[0][1]
        if not ticket.future.done():
            self._metrics.inference_error("raised")
            ticket.future.set_exception(InferenceFailed("the backend failed on this input"))

    def _crash(self, error: BaseException) -> None:
        """The backend is gone: fail everything, say so in readiness, and have the process end."""
        log.critical("the backend crashed", exc_info=error)
        self._failed = True
        for ticket in self._tickets:
            if not ticket.future.done():
                self._metrics.inference_error("crashed")
                ticket.future.set_exception(NotReady("the model has failed; the server has to be restarted"))
        self._on_crash()

    def _expire(self, ticket: _Ticket) -> None:
        """The deadline of a request has passed."""
        if not ticket.future.done():
            self._fail_late(ticket, "in the queue" if ticket.waiting_rows else "while it was computed")

    def _fail_late(self, ticket: _Ticket, stage: str) -> None:
        self._metrics.rejected("deadline")
        ticket.future.set_exception(DeadlineExceeded(f"the deadline passed {stage}"))

    def _forget(self, ticket: _Ticket) -> None:
        """Free what an ended request still holds; its rows are skipped when their turn comes."""
        for bucket, count in ticket.waiting.items():
            self._account(ticket, bucket, -count)
        self.waiting_bytes -= ticket.waiting_bytes
        ticket.waiting_bytes = 0
        self._tickets.discard(ticket)
        ticket.rows, ticket.outputs = [], []

    def _account(self, ticket: _Ticket, bucket: int, rows: int) -> None:
        """Add rows of a request to what waits."""
        ticket.waiting[bucket] += rows
        ticket.waiting_rows += rows
        ticket.chosen.waiting[bucket] += rows
        self.waiting_rows += rows


def _by_request(entries: list[_Entry]) -> Iterator[list[_Entry]]:
    """Split a batch by request; rows of one stand together because they came together."""
    for _, group in groupby(entries, key=lambda entry: id(entry[1])):
        yield list(group)
