"""Served models: a loaded model with its batcher, metrics and requests in flight."""

import asyncio
import logging
import math
import time
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass, field
from typing import Any, Generic, NamedTuple, TypeVar, assert_never

import numpy as np

from artifact.arrays import Floats
from artifact.errors import InferenceFailed, NonFiniteOutput
from artifact.manifest import ExportManifest
from artifact.tasks.base import Answer, Computation, RunHead, RunModel, StepOutputs, Task, advance
from service.batching.admission import LONGEST_RETRY_S, SAFETY_FACTOR, ClientLimit, limited, server_limit
from service.batching.batcher import Batcher
from service.batching.cost import EARLIER_WEIGHT
from service.engine.cache import EncodingCache
from service.errors import DeadlineExceeded, Overloaded, ShuttingDown
from service.metrics import ModelMetrics
from service.offload import offload

log = logging.getLogger(__name__)

A = TypeVar("A")
T = TypeVar("T", bound=Task, covariant=True)


HEAD_PAIRS = 256
"""Pairs that a thread scores at once. In between, other requests have their turn, and a late request stops."""


class Timing(NamedTuple):
    """Stages of a request in seconds."""

    decode: float
    """Conversion of the inputs to rows."""
    queue: float
    """Longest time that a row of the request was queued."""
    compute: float
    """Longest batch of the request; if its rows are computed in chunks, the sum of the longest batch of each chunk."""


class _InFlight:
    """Counts requests in flight: each runs in a block of this context manager, which may be entered many times."""

    def __init__(self, metrics: ModelMetrics) -> None:
        self.count = 0
        self.are_done = asyncio.Event()
        self.are_done.set()
        self._gauge = metrics.in_flight

    def __enter__(self) -> None:
        """Count a request."""
        self.count += 1
        self.are_done.clear()
        self._gauge.inc()

    def __exit__(self, *_: object) -> None:
        """Stop counting it."""
        self.count -= 1
        self._gauge.dec()
        if not self.count:
            self.are_done.set()


class _Pairs:
    """Pairs that wait for the head of a matcher, and the measured time of one.

    Args:
        slots: number of threads that score pairs at once.

    """

    def __init__(self, slots: int) -> None:
        self._slots = slots
        self._pair_s = 0.0
        self.waiting = 0

    def wait_s(self, more: int = 0) -> float:
        """Estimated time until the waiting pairs and some more are scored."""
        return (self.waiting + more) * self._pair_s / self._slots

    def record(self, pairs: int, seconds: float) -> None:
        """Add a measurement to the running mean."""
        weight = EARLIER_WEIGHT if self._pair_s else 0.0
        self._pair_s = weight * self._pair_s + (1 - weight) * seconds / pairs


@dataclass(frozen=True)
class ServedModel(Generic[T]):
    """One version of a model with its batcher."""

    task: T
    batcher: Batcher
    metrics: ModelMetrics
    run_head: Callable[[Floats, Floats], Floats]
    """`LoadedModel.run_head`."""
    executor: Executor
    """Where the head runs."""
    slots: int
    """Number of its threads."""
    cache: EncodingCache | None
    """Vectors of texts; None if the task has no head."""
    card: str
    """The card of the export, as Markdown; empty without one."""
    created: int
    """When the manifest of the export was written, in seconds since 1970."""
    in_flight: _InFlight = field(init=False, repr=False, compare=False)
    """Counts a request while its block runs; an upload of lines is one request."""
    _pairs: _Pairs = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Count from 0."""
        object.__setattr__(self, "in_flight", _InFlight(self.metrics))
        object.__setattr__(self, "_pairs", _Pairs(self.slots))

    @property
    def manifest(self) -> ExportManifest:
        """The manifest of the export."""
        return self.task.manifest

    @property
    def is_idle(self) -> bool:
        """Whether no request is in flight and no batch is being computed."""
        return not self.in_flight.count and self.batcher.is_idle and not self.batcher.is_computing

    async def drain(self) -> None:
        """Wait until no request is in flight."""
        await self.in_flight.are_done.wait()
        await self.batcher.drain()

    async def run(
        self,
        computation: Computation[A],
        deadline: float,
        *,
        items: int = 1,
        bulk: bool = False,
        waits: bool = False,
    ) -> tuple[A, Timing]:
        """Run a computation of the task; its rows go to the batcher, those of a step together.

        Args:
            computation: returned by a method of `task`.
            deadline: on the clock of the event loop.
            items: number of inputs, as `offload` counts them: many are converted in a thread.
            bulk: whether the request has lines of an upload; see `Batcher.infer`.
            waits: whether they wait until their deadline, rather than be rejected because of the load, likewise.

        Raises: InvalidInput naming the input; DeadlineExceeded, InferenceFailed, NonFiniteOutput, Overloaded,
            ShuttingDown; what `Batcher.infer` raises.

        """
        started = time.perf_counter()
        step = await offload(items, advance, computation)
        decode_s, queue_s, compute_s = time.perf_counter() - started, 0.0, 0.0
        while not isinstance(step, Answer):
            outputs: StepOutputs
            match step:
                case RunModel(rows):
                    outcome = await self.batcher.infer(list(rows), deadline, bulk=bulk, waits=waits)
                    queue_s, compute_s = max(queue_s, outcome.queue_s), compute_s + outcome.compute_s
                    outputs = outcome.outputs
                case RunHead(a, b):
                    outputs = [await self._run_head(a, b, deadline, waits=waits)]
                case _:
                    assert_never(step)
            step = await offload(items, advance, computation, outputs)
        self.metrics.count_inputs(step.coverages)
        return step.value, Timing(decode_s, queue_s, compute_s)

    async def _run_head(self, a: Floats, b: Floats, deadline: float, *, waits: bool) -> Floats:
        """Logits of pairs of encodings. Raises: as `run`."""
        loop, pairs = asyncio.get_running_loop(), self._pairs
        now = loop.time()
        left_s, wait_s = limited(server_limit(deadline) - now, deadline - now), pairs.wait_s(len(a))
        if not waits and pairs.waiting and wait_s > SAFETY_FACTOR * left_s:
            is_slow = wait_s > SAFETY_FACTOR * server_limit(left_s)
            self.metrics.rejected("too_late" if is_slow else "client_deadline")
            message = f"scoring would take about {wait_s:.1f} s, and the deadline is in {max(0.0, left_s):.1f} s"
            raise Overloaded(message, max(1, min(LONGEST_RETRY_S, math.ceil(pairs.wait_s()))))
        logits, waiting = list[Floats](), len(a)
        pairs.waiting += waiting
        try:
            for first in range(0, len(a), HEAD_PAIRS):
                part = slice(first, first + HEAD_PAIRS)
                logits.append(await self._score(a[part], b[part], deadline))
                pairs.waiting -= len(logits[-1])
                waiting -= len(logits[-1])
        finally:
            pairs.waiting -= waiting
        return np.concatenate(logits)

    async def _score(self, a: Floats, b: Floats, deadline: float) -> Floats:
        """Logits of at most HEAD_PAIRS pairs, from a thread. Raises: as `run`."""
        try:
            running = asyncio.get_running_loop().run_in_executor(self.executor, self._timed_head, a, b)
        except RuntimeError:
            raise ShuttingDown("the server is shutting down; retry on another one") from None
        try:
            async with asyncio.timeout_at(deadline):
                logits, seconds = await running
        except TimeoutError:
            self.metrics.rejected("client_deadline" if isinstance(deadline, ClientLimit) else "deadline")
            raise DeadlineExceeded("the deadline passed while the pairs were scored") from None
        except Exception as error:
            log.exception("the head of the matcher failed on %d pairs", len(a))
            self.metrics.inference_error("raised")
            raise InferenceFailed("the backend failed on this input") from error
        if not np.isfinite(logits).all():
            self.metrics.inference_error("non_finite")
            raise NonFiniteOutput("the model returned NaN or infinity for this input")
        self._pairs.record(len(a), seconds)
        return logits

    def _timed_head(self, a: Floats, b: Floats) -> tuple[Floats, float]:
        """Logits of pairs, and the seconds that they took."""
        started = time.perf_counter()
        return self.run_head(a, b), time.perf_counter() - started


AnyModel = ServedModel[Any]
