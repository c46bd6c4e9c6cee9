"""Dynamic batching: queues the rows of requests, and computes them in batches.

- A row is one input of the model, such as a window of a document.
- A bucket is a row length that the model can compute. A row is padded to the next bucket; a batch has one bucket.
- A slot computes one batch at a time.
- A lane is a queue with its slots: the foreground for short requests, the background for the others
  (`service.batching.lane`).

There is no batching delay: as soon as a slot is free, it computes the rows that are queued in its lane. Rows that
arrive while all slots are busy form the next batches. The thread that has computed a batch takes the next one from the
queue itself, so that a slot does not wait for the event loop. While the event loop has yet to receive the outputs
of several batches, a batch that ends keeps its slot until its own are received: the threads would otherwise take the
processor time that the loop needs to answer. The time per row of each bucket is measured continuously. A request that
would miss its deadline is rejected at once, and a queued row that can no longer meet its deadline is not computed.

Invariants, each a property test in tests/unit/service/batching/test_batcher.py:
- every accepted request ends exactly once: with outputs, an error, or the cancellation of its caller;
- a row is counted as queued from its arrival until the first batch that has it gets a slot, or its request ends;
- queued rows and bytes never exceed the limits, except that an empty queue accepts a request of any size;
- rows of one lane, priority class and bucket are computed in order of arrival;
- a request that is cancelled, late or failed does not affect the other requests of its batch;
- requests in the foreground never wait for slots of the background.
"""

import asyncio
import contextlib
import functools
import itertools
import logging
import math
import threading
import time
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future
from contextvars import Context
from typing import Any, NamedTuple

import numpy as np

from artifact.arrays import Floats
from artifact.errors import InferenceFailed, NonFiniteOutput
from service.batching.admission import Admission, ClientLimit, Limits, Rejection, limited, server_limit
from service.batching.cost import CostModel
from service.batching.lane import Batch, Lane
from service.batching.queue import AcceptedRequest, Entry, FairQueue
from service.errors import DeadlineExceeded, NotReady, Overloaded, ShuttingDown
from service.metrics import ModelMetrics

log = logging.getLogger(__name__)

RunRows = Callable[[Sequence[bytes], int], Floats]
"""Rows and their bucket -> outputs (rows, ...). Called by several threads of the executor concurrently."""

BULK_ROWS = 32
"""Requests with more rows are bulk requests, with a lower weight than interactive ones."""
RETRY_S = 0.1
"""Time between two attempts to queue a line of an upload while the queue is full."""
STUCK_S = 60.0
"""Time after which a batch counts as stuck; longer than the default deadline."""
TICK_S = 1.0
"""Interval of the timer that counts how long batches take. If the process is paused (SIGSTOP, `docker pause`, a
suspended machine), the clock jumps but the timer fires only once, so the pause does not count as compute time."""


class Outcome(NamedTuple):
    """Outputs and times of a request."""

    outputs: list[Floats]
    """Output of each row, in the order of the request's rows."""
    queue_s: float
    """Longest time that one of its rows was queued."""
    compute_s: float
    """Time of its longest batch."""


class Batcher:
    """Queue and slots of one model; used from the event loop and by the threads that compute its batches.

    Args:
        run: computes one batch.
        buckets: row lengths that `run` can compute, ascending.
        limits: limits of the queue and of batches.
        foreground: at least `limits.slots` threads for `run`, which other models share: the time of a batch includes
            waiting for one.
        background: as many threads for batches of the background.
        metrics: metrics of the model.
        on_crash: called when the backend has crashed.
        clock: returns seconds on the clock of the event loop; called from several threads.

    """

    def __init__(
        self,
        run: RunRows,
        buckets: Sequence[int],
        limits: Limits,
        foreground: Executor,
        background: Executor,
        metrics: ModelMetrics,
        on_crash: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._run = run
        self._buckets = tuple(buckets)
        self._limits = limits
        self._short_bytes = max(limits.short_bytes, buckets[0])
        """Maximum bytes of a short request; for a model that takes long rows only, a single row is short."""
        self._metrics = metrics
        self._on_crash = on_crash
        self._clock = clock
        self._foreground, self._background = self._lanes = [
            Lane(FairQueue(), threads, limits.slots) for threads in (foreground, background)
        ]
        self._lock = threading.Lock()
        """Held to change what threads use, too: queues, slots, costs."""
        self._cost = CostModel()
        self._admission = Admission(self._foreground.queue, self._background.queue, self._cost, limits)
        self._computing: set[Batch] = set()
        """Batches that have a slot."""
        self._ticks: asyncio.TimerHandle | None = None
        """Timer that counts how long they take; None while nothing is computed and no request waits."""
        self._requests: set[AcceptedRequest] = set()
        self._expiry_at = math.inf
        """When the next deadline of these requests is checked; they share one timer."""
        self._expiry: asyncio.TimerHandle | None = None
        self._line_turn = asyncio.Lock()
        """Held by the line of an upload that waits for room in the queue; the next ones wait for the lock."""
        self._closed = self._failed = False

    @property
    def waiting_rows(self) -> int:
        """Queued rows."""
        return sum(lane.queue.waiting_rows for lane in self._lanes)

    @property
    def waiting_bytes(self) -> int:
        """Bytes of the queued rows."""
        return sum(lane.queue.waiting_bytes for lane in self._lanes)

    @property
    def batch_rows(self) -> int:
        """Maximum rows per batch of the longest bucket; batches of shorter buckets have proportionally more."""
        return self._limits.batch_rows

    @property
    def is_ready(self) -> bool:
        """Whether requests are accepted."""
        return not (self._closed or self._failed)

    @property
    def is_computing(self) -> bool:
        """Whether a batch is being computed."""
        return any(lane.free_slots < lane.slots for lane in self._lanes)

    @property
    def is_idle(self) -> bool:
        """Whether every accepted request has ended."""
        return not self._requests

    def oldest_age_s(self) -> float:
        """Age of the oldest request with a queued row, without lines of uploads; 0 if there is none."""
        arrived = [request.arrived for request in self._requests if request.waiting_rows and not request.is_line]
        return self._clock() - min(arrived) if arrived else 0.0

    def rejection(self, left_s: float, size: int | None = None) -> Rejection | None:
        """Why a request is rejected before its rows are known; None if it is admitted.

        Args:
            left_s: seconds until its deadline.
            size: bytes of its rows; None if not known.

        """
        is_long = size is not None and size > self._short_bytes
        return self._unavailable() or self._admission.rejection_without_rows(left_s, is_long=is_long)

    async def infer(self, rows: list[bytes], deadline: float, *, bulk: bool = False, waits: bool = False) -> Outcome:
        """Compute the rows of one request. Cancelling the call drops its rows.

        Args:
            rows: each at most as long as the longest bucket.
            deadline: on the clock of the event loop; a ClientLimit if it is the client's.
            bulk: whether the request has lines of an upload. Like one with more than BULK_ROWS rows, it then has a
                lower weight.
            waits: whether such a request waits for room in the queue until its deadline, one behind the other. Without
                it, `Overloaded` is not counted: the upload sends the lines again, one by one.

        Raises: Overloaded, ShuttingDown, NotReady at once; DeadlineExceeded, InferenceFailed, NonFiniteOutput later.

        """
        loop = asyncio.get_running_loop()
        is_line, bulk = bulk, bulk or len(rows) > BULK_ROWS
        is_short = sum(map(len, rows)) <= self._short_bytes
        lane = self._foreground if is_short and not bulk else self._background
        admit = functools.partial(self._admit, lane, rows, deadline, loop, bulk=bulk, is_line=is_line)
        if is_line and not waits and self._line_turn.locked():
            raise Overloaded("lines of uploads wait already", self._admission.retry_after_s())
        request = await self._admit_in_turn(admit, deadline) if waits else admit()
        if deadline < self._expiry_at:
            self._set_expiry(deadline)
        if self._ticks is None:
            self._ticks = loop.call_later(TICK_S, self._tick, context=Context())
        try:
            self._dispatch(lane, loop)
            outputs = await request.future
        except asyncio.CancelledError:
            self._metrics.cancelled("queue" if request.waiting_rows else "compute")
            raise
        finally:
            with self._lock:
                lane.queue.forget(request)
            self._requests.discard(request)
            if not self._requests:
                self._set_expiry(math.inf)
        return Outcome(outputs, request.queue_s, request.compute_s)

    def close(self) -> None:
        """Reject new requests; those accepted are still computed."""
        self._closed = True

    async def drain(self) -> None:
        """Wait until every accepted request has ended."""
        while self._requests:
            await asyncio.wait([request.future for request in self._requests])
            await asyncio.sleep(0)  # let `infer` discard the requests that have ended

    def _unavailable(self) -> Rejection | None:
        """Why every request is rejected; None if requests are accepted."""
        if self._failed:
            return Rejection("not_ready", NotReady("the model has failed; the server must be restarted"))
        if self._closed:
            return Rejection("shutting_down", ShuttingDown("the server is shutting down; retry on another one"))
        return None

    def _admit(
        self,
        lane: Lane,
        rows: list[bytes],
        deadline: float,
        loop: asyncio.AbstractEventLoop,
        *,
        bulk: bool,
        is_line: bool,
    ) -> AcceptedRequest:
        """Queue a request. Raises: Overloaded, ShuttingDown, NotReady."""
        priority = lane.queue.bulk if bulk else lane.queue.interactive
        buckets = [self._buckets[bisect_left(self._buckets, len(row))] for row in rows]
        request = AcceptedRequest(rows, buckets, priority, self._clock(), deadline, loop.create_future(), is_line)
        seconds, now = self._cost.seconds(request.waiting), loop.time()
        left_s = limited(server_limit(deadline) - now, deadline - now)
        rejection = self._unavailable() or self._admission.rejection(
            lane.queue, priority, left_s, request.waiting_rows, request.waiting_bytes, seconds, is_line=is_line
        )
        if rejection is not None:
            if not (is_line and isinstance(rejection.error, Overloaded)):
                self._metrics.rejected(rejection.reason)
            raise rejection.error
        with self._lock:
            lane.queue.add(request)
        self._requests.add(request)
        if not bulk:
            self._cost.record_request(seconds)
        return request

    async def _admit_in_turn(self, admit: Callable[[], AcceptedRequest], deadline: float) -> AcceptedRequest:
        """Queue lines of an upload with `_admit`; if there is no room, try again behind the lines that wait already.

        Raises: ShuttingDown, NotReady; Overloaded if there is no room until the deadline.
        """
        if not self._line_turn.locked():
            with contextlib.suppress(Overloaded):
                return admit()
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout_at(deadline), self._line_turn:
                while True:
                    try:
                        return admit()
                    except Overloaded:
                        if loop.time() + RETRY_S > deadline:
                            raise
                    await asyncio.sleep(RETRY_S)
        except (Overloaded, TimeoutError) as error:
            self._metrics.rejected("overloaded")
            if isinstance(error, Overloaded):
                raise
            message = "the queue had no room until the deadline"
            raise Overloaded(message, self._admission.retry_after_s()) from None

    def _dispatch(self, lane: Lane, loop: asyncio.AbstractEventLoop) -> None:
        """Start batches of a lane while it has free slots and rows."""
        while (batch := self._take(lane, loop)) is not None:
            self._submit(batch, loop)

    def _take(self, lane: Lane, loop: asyncio.AbstractEventLoop, *, is_busy: bool = False) -> Batch | None:
        """Take the next batch of a lane, with a slot; None if there are no rows, or no slot is free.

        Args:
            lane: the lane.
            loop: the event loop.
            is_busy: whether a batch has just ended; then late rows are dropped even if all slots are free.

        """
        if not lane.free_slots:  # without the lock, because most calls end here under load
            return None
        with self._lock:
            if not lane.free_slots:
                return None
            batch = self._next_retry(lane) or self._next_batch(lane, loop, is_busy or lane.free_slots < lane.slots)
            if batch is None:
                return None
            lane.free_slots -= 1
            self._computing.add(batch)
            batch.rows = [request.rows[index] for _, request, index in batch.entries]
            batch.started = self._clock()
            return batch

    def _submit(self, batch: Batch, loop: asyncio.AbstractEventLoop) -> None:
        """Hand a batch over to the threads of its lane."""
        size = len(batch.rows)
        self._metrics.batch_size.observe(size)
        self._metrics.batch_padding.observe(1 - sum(map(len, batch.rows)) / (batch.bucket * size))
        try:
            running = batch.lane.executor.submit(self._compute, batch, loop)
        except RuntimeError as error:  # the executor was shut down or cannot start a thread
            if self._closed:
                _call_soon(loop, batch.request, self._drop, batch, loop)
            else:
                self._failed = True
                self._free_slot(batch)
                _call_soon(loop, batch.request, self._crash, error)
        else:
            running.add_done_callback(functools.partial(self._report, batch, loop))

    def _compute(self, batch: Batch, loop: asyncio.AbstractEventLoop) -> None:
        """Compute a batch, hand its outputs over to the event loop, and start the next batch. Runs in a thread."""
        outputs = self._run(batch.rows, batch.bucket)
        lane, ended = batch.lane, self._clock()
        with self._lock:
            self._computing.discard(batch)
            lane.undelivered += 1
            batch.keeps_slot = lane.undelivered > lane.max_undelivered
            if not batch.keeps_slot:
                lane.free_slots += 1
        _call_soon(loop, batch.request, self._receive, batch, outputs, ended, loop)
        if not batch.keeps_slot and (following := self._take(lane, loop, is_busy=True)) is not None:
            self._submit(following, loop)

    def _report(self, batch: Batch, loop: asyncio.AbstractEventLoop, done: Future[None]) -> None:
        """Tell the event loop if a batch has no outputs. Runs in its thread, or where the executor is shut down."""
        if done.cancelled():
            _call_soon(loop, batch.request, self._drop, batch, loop)
        elif (error := done.exception()) is not None:
            _call_soon(loop, batch.request, self._fail, batch, error, loop)

    def _receive(self, batch: Batch, outputs: Floats, ended: float, loop: asyncio.AbstractEventLoop) -> None:
        """Receive the outputs of a batch that ended at `ended`, on the event loop."""
        with self._lock:
            batch.lane.undelivered -= 1
            if batch.keeps_slot:
                batch.lane.free_slots += 1
        if len(outputs) == len(batch.entries):
            self._succeed(batch, outputs, ended, self._clock() if batch.keeps_slot else ended)
        else:
            message = f"the backend gave {len(outputs)} outputs for {len(batch.entries)} rows"
            self._handle_failure(batch, ValueError(message))
        self._dispatch(batch.lane, loop)

    def _drop(self, batch: Batch, loop: asyncio.AbstractEventLoop) -> None:
        """Fail the requests of a batch that no thread took before the executor was shut down; then of the next one."""
        self._free_slot(batch)
        for _, request, _ in batch.entries:
            if not request.future.done():
                request.future.set_exception(ShuttingDown("the server stopped before the response was ready"))
        self._dispatch(batch.lane, loop)

    def _fail(self, batch: Batch, error: BaseException, loop: asyncio.AbstractEventLoop) -> None:
        """Handle an error of the backend."""
        self._free_slot(batch)
        if isinstance(error, Exception):
            self._handle_failure(batch, error)
        else:
            self._crash(error)
        self._dispatch(batch.lane, loop)

    def _free_slot(self, batch: Batch) -> None:
        """Free the slot of a batch without outputs."""
        with self._lock:
            if batch in self._computing:
                self._computing.discard(batch)
                batch.lane.free_slots += 1

    def _tick(self) -> None:
        """Count the time of the batches; treat one that is stuck as a crash."""
        with self._lock:
            computing = list(self._computing)
        for batch in computing:
            batch.ticks += 1
            if batch.ticks * TICK_S >= STUCK_S:
                batch.request.context.run(self._crash, TimeoutError(f"a batch has not finished in {STUCK_S:g} s"))
                return
        is_needed = computing or self._requests
        self._ticks = asyncio.get_running_loop().call_later(TICK_S, self._tick) if is_needed else None

    def _next_retry(self, lane: Lane) -> Batch | None:
        """The next request of a failed batch, to be computed alone; None if there is none."""
        while lane.retries and not self._failed:
            batch = lane.retries.popleft()
            if not batch.entries[0][1].future.done():
                return batch
        return None

    def _next_batch(self, lane: Lane, loop: asyncio.AbstractEventLoop, is_busy: bool) -> Batch | None:
        """Take the next batch from the queue: rows of one priority class and bucket, earliest first."""
        late: AcceptedRequest | None = None
        while not self._failed and (found := lane.queue.next()) is not None:
            priority, bucket = found
            entries = priority.buckets[bucket]
            limit = share = self._max_rows(bucket)
            count = priority.waiting[bucket]
            if count == lane.queue.waiting_rows:  # no other rows need a slot
                share = min(limit, -(-count // self._cost.parts(bucket, count, lane.slots)))
            batch = Batch(lane, priority, bucket, [])
            # If the lane was idle, rows are computed even if they are estimated to be late. Only a new measurement
            # corrects the estimate; otherwise one slow batch could make the model reject every row.
            earliest_end = self._clock() + (self._cost.row_seconds(bucket) if is_busy else 0.0)
            while entries and len(batch.entries) < share:
                entry = entries.popleft()
                request = entry[1]
                if request.future.done():
                    continue
                lane.queue.uncount(entry, bucket)
                if request.deadline >= earliest_end:
                    batch.entries.append(entry)
                elif request is not late:  # it would delay the next rows; those of a request are adjacent
                    late = request
                    _call_soon(loop, request, self._fail_late, request, "in the queue")
            if batch.entries:
                lane.queue.charge(priority, bucket * len(batch.entries))
                is_full = len(batch.entries) == limit
                self._metrics.batch_closed("full" if is_full else "spread" if entries else "drained")
                return batch
        return None

    def _max_rows(self, bucket: int) -> int:
        """Maximum rows of the next batch."""
        return int(min(self._limits.batch_rows * (self._buckets[-1] // bucket), self._cost.max_rows(bucket)))

    def _succeed(self, batch: Batch, outputs: Floats, ended: float, freed: float) -> None:
        """Record the time of a batch that ended at `ended`, and whose slot was free at `freed`; deliver its outputs."""
        entries = batch.entries
        # A pause of the process counts as one tick at most.
        seconds, undelivered_s = min(ended - batch.started, (batch.ticks + 1) * TICK_S), min(freed - ended, TICK_S)
        with self._lock:
            self._cost.record_batch(batch.bucket, (seconds + undelivered_s) / len(entries))
        self._metrics.batch_computed(len(entries), seconds)
        self._deliver(batch, outputs, seconds)

    def _deliver(self, batch: Batch, outputs: Floats, seconds: float) -> None:
        """Assign each row its output; finish the requests that are complete."""
        is_finite: list[bool] = np.asarray(np.isfinite(outputs).reshape(len(outputs), -1).all(axis=1)).tolist()
        for position, (_, request, index) in enumerate(batch.entries):
            if request.future.done():
                continue
            if not is_finite[position]:
                self._metrics.inference_error("non_finite")
                request.future.set_exception(NonFiniteOutput("the model returned NaN or infinity for this input"))
                continue
            request.outputs[index] = outputs[position]
            request.missing -= 1
            request.queue_s = max(request.queue_s, batch.started - request.arrived)
            request.compute_s = max(request.compute_s, seconds)
            if not request.missing:
                request.future.set_result([output for output in request.outputs if output is not None])

    def _handle_failure(self, batch: Batch, error: Exception) -> None:
        """Handle a failed batch: fail its only request, or retry each of its requests alone."""
        groups = list(_by_request(batch.entries))
        if len(groups) > 1:
            batch.lane.retries.extend(Batch(batch.lane, batch.priority, batch.bucket, entries) for entries in groups)
            return
        log.error("the backend failed on a batch of %d rows", len(batch.entries), exc_info=error)
        request = batch.request
        if not request.future.done():
            self._metrics.inference_error("raised")
            request.future.set_exception(InferenceFailed("the backend failed on this input"))

    def _crash(self, error: BaseException) -> None:
        """Fail all requests, reject new ones and call `on_crash`."""
        log.critical("the backend crashed", exc_info=error)
        self._failed = True
        for request in self._requests:
            if not request.future.done():
                self._metrics.inference_error("crashed")
                request.future.set_exception(NotReady("the model has failed; the server must be restarted"))
        self._on_crash()

    def _set_expiry(self, deadline: float) -> None:
        """Check the deadlines of the requests at this time; never if it is infinite."""
        if self._expiry is not None:
            self._expiry.cancel()
        self._expiry_at = deadline
        is_due = deadline < math.inf
        self._expiry = asyncio.get_running_loop().call_at(deadline, self._expire) if is_due else None

    def _expire(self) -> None:
        """Fail the requests whose deadline has passed, and wait for the next one."""
        now = asyncio.get_running_loop().time()
        unfinished = [request for request in self._requests if not request.future.done()]
        for request in unfinished:
            if request.deadline <= now:
                self._fail_late(request, "in the queue" if request.waiting_rows else "during inference")
        later = (request.deadline for request in unfinished if request.deadline > now)
        self._set_expiry(min(later, default=math.inf))

    def _fail_late(self, request: AcceptedRequest, stage: str) -> None:
        if request.future.done():
            return
        self._metrics.rejected("client_deadline" if isinstance(request.deadline, ClientLimit) else "deadline")
        request.future.set_exception(DeadlineExceeded(f"the deadline passed {stage}"))


def _call_soon(
    loop: asyncio.AbstractEventLoop, request: AcceptedRequest, function: Callable[..., None], *args: Any
) -> None:
    """Call a function on the event loop soon, from any thread; the log names the request."""
    with contextlib.suppress(RuntimeError):  # the loop was closed: no request waits
        loop.call_soon_threadsafe(function, *args, context=request.context)


def _by_request(entries: list[Entry]) -> Iterator[list[Entry]]:
    """Split a batch by request; the rows of a request are adjacent because they arrived together."""
    for _, group in itertools.groupby(entries, key=lambda entry: id(entry[1])):
        yield list(group)
