"""The batching engine: rows of requests in, batches of one length bucket out.

No timer closes a batch. While every slot computes, rows pile up; when one is free, the next batch is whatever waits.
What a row of each bucket costs is measured all the time; a request that would be late is refused at once, and one that
has become hopeless in the queue is not computed.

Invariants, each a property test in tests/unit/service/batching/test_batcher.py:
- every accepted request ends exactly once: outputs, an error, or its caller's cancellation;
- rows and bytes that wait never exceed the limits, but for one request that is larger than them, alone;
- rows of one priority and bucket are computed in the order they came;
- a request that is cancelled, late or failed changes nothing for those batched with it;
- while interactive requests come, bulk leaves them a slot.
"""

import asyncio
import logging
import math
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from itertools import groupby

import numpy as np
from numpy.typing import NDArray

from artifact.errors import InferenceFailed, NonFiniteOutput
from artifact.loading import Floats
from service.batching.admission import Admission, Limits, Refusal
from service.batching.cost import CostModel
from service.batching.queue import Entry, FairQueue, Priority, Ticket
from service.errors import DeadlineExceeded, NotReady, ShuttingDown
from service.metrics import ModelMetrics

log = logging.getLogger(__name__)

Run = Callable[[Sequence[bytes], int], Floats]
"""Rows and their bucket -> outputs (rows, ...). Called on a thread of the executor, by several at once."""

BULK_ROWS = 32
"""Requests with more rows are bulk: they give way to interactive ones."""
SHORTEST_WAIT_S = 0.001
"""Of a timer. Event loops may fire timers early, uvloop by half a millisecond: a shorter one could repeat at once."""
STUCK_S = 60.0
"""A batch that computes for longer will not end: no request waits that long by default."""
TICK_S = 1.0
"""The time of a batch is counted in ticks. A process that was paused (SIGSTOP, `docker pause`, a machine that slept)
sees its clock jump between two of them, which counts as one: nothing was computed meanwhile."""


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
class _Batch:
    """Rows of one bucket that are computed together."""

    bucket: int
    entries: list[Entry]
    priority: Priority
    started: float = 0.0
    ticks: int = 0
    """Since it started."""
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
        self._queue = FairQueue(limits.slots, clock)
        self._cost = CostModel()
        self._admission = Admission(self._queue, self._cost, limits)
        self._retries: deque[_Batch] = deque()
        self._tickets: set[Ticket] = set()
        self._free = limits.slots
        self._again: asyncio.TimerHandle | None = None
        self._closed = self._failed = False

    @property
    def waiting_rows(self) -> int:
        """Rows that wait for a batch."""
        return self._queue.waiting_rows

    @property
    def waiting_bytes(self) -> int:
        """Their bytes."""
        return self._queue.waiting_bytes

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

    def refusal(self, left_s: float, entering: int) -> Refusal | None:
        """Why no request can be taken now, if so, before its rows are known.

        Args:
            left_s: until its deadline.
            entering: requests admitted that have not asked yet; they are taken to be like those before them.

        """
        return self._unable() or self._admission.refusal_unread(left_s, entering)

    async def infer(self, rows: list[bytes], deadline: float, *, bulk: bool = False) -> Outcome:
        """Compute the rows of one request; cancel the caller and they are forgotten.

        Args:
            rows: each at most as long as the longest bucket.
            deadline: on the clock of the event loop.
            bulk: whether it gives way to interactive requests, as those with more than BULK_ROWS rows do anyway.

        Raises: Overloaded, ShuttingDown, NotReady at once; DeadlineExceeded, InferenceFailed, NonFiniteOutput later.

        """
        loop = asyncio.get_running_loop()
        ticket = self._admit(rows, deadline, loop, bulk=bulk or len(rows) > BULK_ROWS)
        timer = loop.call_at(deadline, self._expire, ticket)
        try:
            self._dispatch()
            outputs = await ticket.future
        except asyncio.CancelledError:
            self._metrics.cancelled("queue" if ticket.waiting_rows else "compute")
            raise
        finally:
            timer.cancel()
            self._queue.forget(ticket)
            self._tickets.discard(ticket)
        return Outcome(outputs, ticket.queue_s, ticket.compute_s)

    def close(self) -> None:
        """Take no more requests; those accepted go on."""
        self._closed = True

    async def drain(self) -> None:
        """Wait until every accepted request has ended."""
        while self._tickets:
            await asyncio.wait([ticket.future for ticket in self._tickets])
            await asyncio.sleep(0)

    def _unable(self) -> Refusal | None:
        """Why no request is taken at all, if so."""
        if self._failed:
            return Refusal("not_ready", NotReady("the model has failed; the server has to be restarted"))
        if self._closed:
            return Refusal("shutting_down", ShuttingDown("the server is shutting down; ask another one"))
        return None

    def _admit(self, rows: list[bytes], deadline: float, loop: asyncio.AbstractEventLoop, *, bulk: bool) -> Ticket:
        """Put a request into the queue, or refuse it."""
        priority = self._queue.bulk if bulk else self._queue.interactive
        buckets = [next(b for b in self._buckets if len(row) <= b) for row in rows]
        seconds, size = self._cost.seconds(Counter(buckets)), sum(map(len, rows))
        refusal = self._unable() or self._admission.refusal(priority, deadline - loop.time(), len(rows), size, seconds)
        if refusal is not None:
            self._metrics.rejected(refusal.reason)
            raise refusal.error
        ticket = Ticket(
            rows, priority, self._clock(), deadline, loop.create_future(), [None] * len(rows), missing=len(rows)
        )
        self._queue.add(ticket, buckets)
        self._tickets.add(ticket)
        if not bulk:
            self._cost.requested(seconds)
        return ticket

    def _dispatch(self) -> None:
        """Start batches while there are free slots and rows."""
        loop = asyncio.get_running_loop()
        while self._free and not self._failed and (batch := self._retry() or self._collect(loop.time())):
            self._free -= 1
            batch.priority.running += 1
            rows = [ticket.rows[index] for _, ticket, index in batch.entries]
            self._metrics.batch_size.observe(len(rows))
            self._metrics.batch_padding.observe(1 - sum(map(len, rows)) / (batch.bucket * len(rows)))
            batch.started = self._clock()
            try:
                running = loop.run_in_executor(self._executor, self._run, rows, batch.bucket)
            except RuntimeError as error:  # the executor was shut down or cannot start a thread
                self._crash(error)
                return
            batch.watchdog = loop.call_later(TICK_S, self._tick, batch)
            running.add_done_callback(lambda done, b=batch: self._finish(b, done))  # type: ignore[misc]
        self._look_again(loop)

    def _tick(self, batch: _Batch) -> None:
        """Count the time of a batch; one that takes too long ends everything."""
        batch.ticks += 1
        if batch.ticks * TICK_S >= STUCK_S:
            self._crash(TimeoutError(f"a batch computes for {STUCK_S} s"))
        else:
            batch.watchdog = asyncio.get_running_loop().call_later(TICK_S, self._tick, batch)

    def _look_again(self, loop: asyncio.AbstractEventLoop) -> None:
        """Let bulk have the slot it leaves free, as soon as no interactive request has come for ACTIVE_S."""
        if self._again is None and self._free and not self._failed and self._queue.bulk.first() is not None:
            left_s = max(SHORTEST_WAIT_S, self._queue.leaves_room_s())
            self._again = loop.call_later(left_s, self._dispatch_again)

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
        """Take the next batch from the queue: rows of one priority and bucket, earliest first."""
        while (found := self._queue.next()) is not None:
            priority, bucket = found
            entries = priority.buckets[bucket]
            limit = self._most_rows(priority, bucket)
            batch = _Batch(bucket, [], priority)
            # With nothing to compute, there would be nothing to measure, and one slow batch would end all work.
            latest = now + self._cost.row_seconds(bucket) if self._free < self._limits.slots else -math.inf
            while entries and len(batch.entries) < limit:
                entry = entries.popleft()
                ticket = entry[1]
                if ticket.future.done():
                    continue
                self._queue.take(entry, bucket)
                if ticket.deadline < latest:  # it cannot be in time: to compute it would make the next ones late too
                    self._fail_late(ticket, "in the queue")
                    continue
                ticket.queue_s = max(ticket.queue_s, self._clock() - ticket.arrived)
                batch.entries.append(entry)
            if batch.entries:
                self._queue.passed(priority, bucket * len(batch.entries))
                self._metrics.batch_closed("full" if len(batch.entries) == limit else "drained")
                return batch
        return None

    def _most_rows(self, priority: Priority, bucket: int) -> int:
        """Rows of the next batch at most."""
        full = 1 if self._queue.leaves_room(priority) else self._limits.batch_rows
        return int(min(full * (self._buckets[-1] // bucket), self._cost.rows_in_time(bucket)))

    def _finish(self, batch: _Batch, done: asyncio.Future[Floats]) -> None:
        """Hand the outputs of a batch to its requests, and start the next one."""
        self._free += 1
        batch.priority.running -= 1
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
            seconds = min(self._clock() - batch.started, (batch.ticks + 1) * TICK_S)  # without a pause
            self._cost.measured(batch.bucket, seconds / len(entries))
            self._deliver(entries, done.result(), seconds)
        elif isinstance(error, Exception):
            self._separate(batch, error)
        else:
            self._crash(error)
        self._dispatch()

    def _deliver(self, entries: list[Entry], outputs: Floats, seconds: float) -> None:
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
            self._retries.extend(_Batch(batch.bucket, request, batch.priority) for request in requests)
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

    def _expire(self, ticket: Ticket) -> None:
        """The deadline of a request has passed."""
        if not ticket.future.done():
            self._fail_late(ticket, "in the queue" if ticket.waiting_rows else "while it was computed")

    def _fail_late(self, ticket: Ticket, stage: str) -> None:
        self._metrics.rejected("deadline")
        ticket.future.set_exception(DeadlineExceeded(f"the deadline passed {stage}"))


def _by_request(entries: list[Entry]) -> Iterator[list[Entry]]:
    """Split a batch by request; rows of one stand together because they came together."""
    for _, group in groupby(entries, key=lambda entry: id(entry[1])):
        yield list(group)
