"""Discrete-event simulation of replicas of the service behind a load balancer.

    costs = Costs.from_data(record.read("sizing").data["costs"])
    simulation = Simulation(costs, Pool(replicas=10, balancer="least"), seed=0)
    result = simulation.run(times, lengths)
    print(result.quantile(0.99), result.refused)

The batcher, its queue, its admission and its deadlines are those of the service (`service.batching`). They run on an
event loop whose clock is that of SimPy. Simulated are the processor, the time of each batch and of the work before and
after it, and the balancer. A replica has one core, shared by the threads of its event loop and its slots.
"""

import asyncio
import heapq
import math
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Executor, Future
from contextvars import Context
from dataclasses import dataclass
from typing import Any, Literal, cast

import numpy as np
import simpy
from numpy.typing import NDArray
from typing_extensions import override

from artifact.arrays import Floats
from artifact.documents import cut
from benchmarks.lib.interpolation import linear
from benchmarks.lib.record import Data
from service.batching.admission import Limits
from service.batching.batcher import Batcher
from service.errors import DeadlineExceeded, Overloaded
from service.metrics import Metrics

Balancer = Literal["random", "least"]

ANSWERED, REFUSED, LATE = 200, 429, 504
"""Outcomes of a request, as status codes."""
LIMITS = Limits(batch_rows=16, queue_rows=8192, queue_bytes=64 * 2**20, slots=1)
"""The service's defaults on one core of a CPU."""
ROW_BYTES, OVERLAP = 4096, 512
"""Longest row of the classifier, and the overlap of its windows, in bytes."""
EPSILON_S = 1e-12
"""Work that is shorter counts as done: sums of floating-point times err by less."""


@dataclass(frozen=True)
class Costs:
    """Measured times on one core, in seconds."""

    batches: dict[int, dict[int, float]]
    """Mean time of a batch, by bucket and rows."""
    spread: tuple[float, ...]
    """Quantiles of a batch's time divided by the mean of its size, evenly spaced from the lowest to the highest."""
    front_end: dict[int, float]
    """Processor time of a request without inference, by document bytes."""
    wake: dict[int, float]
    """Processor time that a request takes more, with inference, if the core was idle, by document bytes."""
    refusal: float
    """Processor time of a request that is refused from its headers."""

    @classmethod
    def from_data(cls, data: Data) -> "Costs":
        """Costs from a record, whose times are in ms."""
        return cls(
            {int(b): {int(n): ms / 1e3 for n, ms in of.items()} for b, of in data["batch_ms"].items()},
            tuple(data["spread"]),
            {int(length): ms / 1e3 for length, ms in data["front_end_ms"].items()},
            {int(length): ms / 1e3 for length, ms in data["wake_ms"].items()},
            data["refusal_ms"] / 1e3,
        )

    @property
    def buckets(self) -> list[int]:
        """Row lengths, ascending."""
        return sorted(self.batches)

    def batch_s(self, bucket: int, rows: int) -> float:
        """Mean time of a batch; linear between the measured sizes and beyond them."""
        return linear(self.batches[bucket], rows)

    def front_end_s(self, length: int) -> float:
        """Processor time of a request with one document of `length` bytes, without inference."""
        return linear(self.front_end, length)

    def wake_s(self, length: int) -> float:
        """Processor time that such a request takes more if the core was idle."""
        return linear(self.wake, length)

    def capacity(self, lengths: Sequence[int]) -> float:
        """Estimated documents per second of one core: the inverse of the mean work of the documents, in single rows."""
        work = [
            self.front_end_s(length) + sum(self.batch_s(self.bucket(row), 1) for row in row_lengths(length))
            for length in lengths
        ]
        return len(work) / sum(work)

    def bucket(self, length: int) -> int:
        """Bucket of a row."""
        return self.buckets[bisect_left(self.buckets, length)]


def row_lengths(length: int) -> list[int]:
    """Lengths of the rows of a document, whose windows are those of the service."""
    return [sum(end - start for start, end in row) for row in cut(length, ROW_BYTES, OVERLAP, "windows")]


@dataclass(frozen=True)
class Pool:
    """Replicas and what is in front of them."""

    replicas: int
    balancer: Balancer = "least"
    deadline_s: float = 30.0
    limits: Limits = LIMITS


@dataclass(frozen=True)
class Result:
    """Outcomes of all requests, in order of arrival."""

    arrived: NDArray[np.float64]
    """Time of each arrival in seconds."""
    ended: NDArray[np.float64]
    """Time at which each request was answered, refused or late, in seconds."""
    status: NDArray[np.int64]
    """ANSWERED, REFUSED or LATE."""

    def after(self, seconds: float) -> "Result":
        """The requests that arrived at or after a time."""
        kept = self.arrived >= seconds
        return Result(self.arrived[kept], self.ended[kept], self.status[kept])

    @property
    def latencies(self) -> NDArray[np.float64]:
        """Latencies of the answered requests in seconds."""
        return cast("NDArray[np.float64]", (self.ended - self.arrived)[self.status == ANSWERED])

    @property
    def refused(self) -> float:
        """Share of the requests that were refused or late; 0 without requests."""
        return float((self.status != ANSWERED).mean()) if len(self.status) else 0.0

    def quantile(self, q: float) -> float:
        """Quantile of the latencies of the answered requests in seconds; NaN if there are none."""
        return float(np.quantile(self.latencies, q)) if len(self.latencies) else math.nan

    def quantile_of_all(self, q: float) -> float:
        """Quantile in seconds in which a refused or late request counts as infinitely long."""
        if not len(self.status):
            return math.nan
        every = np.where(self.status == ANSWERED, self.ended - self.arrived, math.inf)
        return float(np.quantile(every, q, method="higher"))


class Core:
    """A processor core that its runnable threads share equally."""

    def __init__(self, env: simpy.Environment) -> None:
        self._env = env
        self._jobs: list[tuple[float, int, Callable[[], None]]] = []
        """Heap of the jobs: the progress at which each is done, a number, what to call then."""
        self._progress = 0.0
        """Seconds of work that every job has had that runs since the beginning."""
        self._at = 0.0
        self._number = 0
        self._timer = 0

    def run(self, seconds: float, done: Callable[[], None]) -> None:
        """Add a job of `seconds` of work; `done` is called when it has had them."""
        self._advance()
        self._number += 1
        heapq.heappush(self._jobs, (self._progress + seconds, self._number, done))
        self._schedule()

    @property
    def is_idle(self) -> bool:
        """Whether there is no job."""
        return not self._jobs

    def _advance(self) -> None:
        if self._jobs:
            self._progress += (self._env.now - self._at) / len(self._jobs)
        self._at = self._env.now

    def _schedule(self) -> None:
        """Set a timer for the end of the next job; earlier timers have no effect any more."""
        self._timer += 1
        if self._jobs:
            number = self._timer
            left = max(0.0, self._jobs[0][0] - self._progress) * len(self._jobs)
            timeout = self._env.timeout(left)
            timeout.callbacks.append(lambda _: self._finish(number))

    def _finish(self, number: int) -> None:
        if number != self._timer:
            return
        self._advance()
        ended = []
        while self._jobs and self._jobs[0][0] <= self._progress + EPSILON_S:
            ended.append(heapq.heappop(self._jobs)[2])
        self._schedule()
        for done in ended:
            done()


class SimulatedLoop:
    """Event loop on SimPy's clock, with the methods that futures, tasks and `Batcher` use."""

    def __init__(self, env: simpy.Environment) -> None:
        self._env = env
        self._ready = deque[asyncio.Handle]()
        self.loop = cast(asyncio.AbstractEventLoop, self)
        """This object for asyncio, which calls no other method than those below."""

    def time(self) -> float:
        """Simulated seconds."""
        return float(self._env.now)

    def get_debug(self) -> bool:
        """No debug mode."""
        return False

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Raise the exception: in a simulation it is a bug."""
        raise context.get("exception") or RuntimeError(context["message"])

    def create_future(self) -> asyncio.Future[Any]:
        """Create a future of this loop."""
        return asyncio.Future(loop=self.loop)

    def call_soon(self, callback: Callable[..., object], *args: Any, context: Context | None = None) -> asyncio.Handle:
        """Call at the end of the current `enter`."""
        handle = asyncio.Handle(callback, args, self.loop, context)
        self._ready.append(handle)
        return handle

    def call_later(
        self, delay: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """Call after `delay` simulated seconds, unless cancelled."""
        handle = asyncio.TimerHandle(self.time() + delay, callback, args, self.loop, context)
        timeout = self._env.timeout(max(0.0, delay))

        def due(_: simpy.Event) -> None:
            if not handle.cancelled():
                self.enter(handle._run)

        timeout.callbacks.append(due)
        return handle

    def call_at(
        self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """Call at a simulated time, unless cancelled."""
        return self.call_later(when - self.time(), callback, *args, context=context)

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Nothing to do: a cancelled timer is skipped when it is due."""

    def call_soon_threadsafe(self, callback: Callable[..., object], *args: Any, context: Context) -> None:
        """Call at the end of the current `enter`, or of the next one."""
        self.call_soon(callback, *args, context=context)

    def enter(self, callback: Callable[[], object]) -> None:
        """Run a callback as the running loop, and everything that becomes ready."""
        asyncio._set_running_loop(self.loop)
        try:
            callback()
            while self._ready:
                handle = self._ready.popleft()
                if not handle.cancelled():
                    handle._run()
        finally:
            asyncio._set_running_loop(None)


class Threads(Executor):
    """The threads of a lane of a replica, which share its core; to them, this object is the event loop."""

    def __init__(self, replica: "Replica") -> None:
        self._replica = replica

    @override
    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Take the time of a batch; then the event loop of the replica gets the result."""
        batch, _ = args  # of `Batcher._compute`
        replica, future = self._replica, Future[Any]()

        def finish() -> None:
            fn(batch, self)  # hands the outputs over, and submits the next batch
            future.set_result(None)

        replica.core.run(replica.draw_batch_s(batch.bucket, len(batch.rows)), finish)
        return future

    def call_soon_threadsafe(self, callback: Callable[..., None], *args: Any, context: Context) -> None:
        """Call when the event loop of the replica has done what came before."""
        self._replica.work(0.0, lambda: context.run(callback, *args))


@dataclass(eq=False)
class _Request:
    """A request in a simulation."""

    index: int
    length: int
    done: Callable[[int, int], None]
    """Called with index and status when the response is complete."""


class Replica:
    """A process of the service on a core: its event loop works on one thing at a time, its batcher is the service's.

    Args:
        env: SimPy's environment.
        loop: the event loop of the simulation.
        costs: measured times.
        pool: limits and deadlines.
        generator: source of random numbers.
        metrics: metrics of the batcher, which nobody reads.

    """

    def __init__(
        self,
        env: simpy.Environment,
        loop: SimulatedLoop,
        costs: Costs,
        pool: Pool,
        generator: np.random.Generator,
        metrics: Metrics,
    ) -> None:
        self.loop = loop
        self.core = Core(env)
        self.open = 0
        """Requests that have not ended."""
        self._costs = costs
        self._pool = pool
        self._random = generator
        self._front_end_s: dict[int, float] = {}
        self._batch_s: dict[tuple[int, int], float] = {}
        self._tasks = deque[tuple[float, Callable[[], None]]]()
        self._is_working = False
        foreground, background = Threads(self), Threads(self)
        self.batcher = Batcher(
            _compute,
            costs.buckets,
            pool.limits,
            foreground,
            background,
            metrics.of("simulated"),
            clock=lambda: float(env.now),
        )

    def draw_batch_s(self, bucket: int, rows: int) -> float:
        """Draw the time of a batch."""
        if (mean := self._batch_s.get((bucket, rows))) is None:
            mean = self._batch_s[bucket, rows] = self._costs.batch_s(bucket, rows)
        spread = self._costs.spread
        position = self._random.random() * (len(spread) - 1)
        low = int(position)
        return mean * (spread[low] + (spread[min(low + 1, len(spread) - 1)] - spread[low]) * (position - low))

    def work(self, seconds: float, then: Callable[[], None]) -> None:
        """Add work to the queue of the event loop."""
        self._tasks.append((seconds, then))
        if not self._is_working:
            self._next_task()

    def receive(self, request: _Request) -> None:
        """Take a request: headers first, the rest after everything that has arrived before."""
        self.open += 1
        wake_s = self._costs.wake_s(request.length) if self.core.is_idle else 0.0
        self.work(wake_s + self._costs.refusal, lambda: self._head(request))

    def _next_task(self) -> None:
        if not self._tasks:
            self._is_working = False
            return
        self._is_working = True
        seconds, then = self._tasks.popleft()

        def finish() -> None:
            self.loop.enter(then)
            self._next_task()

        if seconds:
            self.core.run(seconds, finish)
        else:
            finish()

    def _head(self, request: _Request) -> None:
        """Admit or refuse a request from its headers, as `service.http.admission` does."""
        if self.batcher.rejection(self._pool.deadline_s, request.length) is not None:
            self._end(request, REFUSED)
            return
        self.work(self._half_s(request.length), lambda: self._body(request))

    def _body(self, request: _Request) -> None:
        asyncio.Task(self._infer(request), loop=self.loop.loop)

    async def _infer(self, request: _Request) -> None:
        status = ANSWERED
        try:
            await self.batcher.infer(_rows(request.length), self.loop.time() + self._pool.deadline_s)
        except Overloaded:
            status = REFUSED
        except DeadlineExceeded:
            status = LATE
        self.work(self._half_s(request.length), lambda: self._end(request, status))

    def _half_s(self, length: int) -> float:
        """Half of the front end's time after the headers: one half comes before the inference, the other after it."""
        if (seconds := self._front_end_s.get(length)) is None:
            seconds = max(0.0, self._costs.front_end_s(length) - self._costs.refusal) / 2
            self._front_end_s[length] = seconds
        return seconds

    def _end(self, request: _Request, status: int) -> None:
        self.open -= 1
        request.done(request.index, status)


def _compute(rows: Sequence[bytes], bucket: int) -> Floats:
    del bucket
    return np.zeros((len(rows), 2), np.float32)


_ROWS: dict[int, list[bytes]] = {}


def _rows(length: int) -> list[bytes]:
    """Rows of a document of zeros; a new list, because the batcher owns it."""
    if (found := _ROWS.get(length)) is None:
        found = _ROWS[length] = [bytes(row) for row in row_lengths(length)]
    return list(found)


class Simulation:
    """Replicas behind a balancer. An instance simulates one load.

    Args:
        costs: measured times.
        pool: the replicas.
        seed: seed of batch times and of the balancer.

    """

    def __init__(self, costs: Costs, pool: Pool, seed: int = 0) -> None:
        self._env = simpy.Environment()
        self._pool = pool
        self._random = np.random.default_rng(seed)
        loop, metrics = SimulatedLoop(self._env), Metrics()
        self._replicas = [Replica(self._env, loop, costs, pool, self._random, metrics) for _ in range(pool.replicas)]
        self._heap: list[tuple[int, float, int]] = [(0, self._random.random(), i) for i in range(pool.replicas)]
        heapq.heapify(self._heap)
        self._arrived: list[float] = []
        self._ended: list[float] = []
        self._status: list[int] = []
        self._left = 0
        self._finished = self._env.event()

    def run(self, times: Sequence[float] | NDArray[np.float64], lengths: Sequence[int] | NDArray[np.int64]) -> Result:
        """Simulate an open loop.

        Args:
            times: arrival times in seconds, ascending.
            lengths: bytes of the document of each request.

        """
        if len(times) != len(lengths):
            raise ValueError(f"there are {len(lengths)} lengths for {len(times)} times; their number must be equal")
        self._left = len(times)
        if self._left:
            self._env.process(self._arrivals([float(at) for at in times], [int(length) for length in lengths]))
            self._env.run(until=self._finished)
        return Result(
            np.array(self._arrived, np.float64), np.array(self._ended, np.float64), np.array(self._status, np.int64)
        )

    def _arrivals(self, times: list[float], lengths: list[int]) -> Generator[simpy.Event, None, None]:
        for at, length in zip(times, lengths, strict=True):
            if at > self._env.now:
                yield self._env.timeout(at - self._env.now)
            self._send(length)

    def _send(self, length: int) -> None:
        """Send a request to the replica that the balancer chooses."""
        index = len(self._arrived)
        self._arrived.append(self._env.now)
        self._ended.append(math.nan)
        self._status.append(0)
        chosen = self._choose()

        def done(request: int, status: int) -> None:
            self._ended[request] = self._env.now
            self._status[request] = status
            self._push(chosen)
            self._left -= 1
            if not self._left:
                self._finished.succeed()

        self._replicas[chosen].receive(_Request(index, length, done))
        self._push(chosen)

    def _push(self, index: int) -> None:
        """Enter the open requests of a replica; earlier entries of it are outdated."""
        if self._pool.balancer == "random":
            return
        heapq.heappush(self._heap, (self._replicas[index].open, self._random.random(), index))

    def _choose(self) -> int:
        """Index of the replica for the next request. Ties are broken at random."""
        if self._pool.balancer == "random":
            return int(self._random.integers(len(self._replicas)))
        while True:
            count, _, index = heapq.heappop(self._heap)
            if count == self._replicas[index].open:
                return index
