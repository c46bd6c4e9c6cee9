"""The batcher with a simulated clock and an executor whose jobs finish when the test says so."""

import asyncio
import functools
import inspect
import itertools
import math
import random
import selectors
import sys
import threading
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from typing import Any, Literal, cast
from unittest import mock

import numpy as np
import pytest
import uvloop
from hypothesis import given, settings
from hypothesis import strategies as st

from artifact.arrays import Floats
from artifact.errors import InferenceFailed, NonFiniteOutput
from service.batching.admission import Limits, limited
from service.batching.batcher import BULK_ROWS, RETRY_S, STUCK_S, TICK_S, Batcher, Outcome, RunRows
from service.batching.cost import SHORTEST_BATCH_S
from service.errors import DeadlineExceeded, NotReady, Overloaded, ShuttingDown
from service.metrics import Metrics, ModelMetrics
from service.statistics import Duration

POISON, NAN = b"poison", b"nan"
MAX_TURNS = 100_000
"""More iterations of the event loop than any scenario needs without advancing the clock."""


def run(rows: Sequence[bytes], bucket: int) -> Floats:
    """Return a number for each row that depends on its content only. Poison fails the whole batch."""
    assert all(len(row) <= bucket for row in rows)
    if POISON in rows:
        raise RuntimeError("poisoned")
    return np.array([[np.nan if row == NAN else float(int.from_bytes(row[:3], "big"))] for row in rows], np.float32)


class ClockSelector(selectors.DefaultSelector):
    """Never sleeps: advances the clock by the time it would have slept. Raises if the loop never sleeps."""

    now = 0.0
    turns = 0
    """Iterations of the event loop since the clock last advanced."""

    def select(self, timeout: float | None = None) -> list[Any]:
        ready = super().select(0)
        self.turns = 0 if timeout else self.turns + 1
        assert self.turns < MAX_TURNS, "the event loop spins"
        if not ready:
            self.now += timeout or 0.0
        return ready


class ClockLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self.clock = ClockSelector()
        super().__init__(self.clock)

    def time(self) -> float:
        return self.clock.now

    async def pause(self, seconds: float) -> None:
        """Advance the clock as if the process had been suspended."""
        self.clock.now += seconds
        await settle()


Name = Literal["foreground", "background"]


class ManualExecutor(Executor):
    """Keeps the jobs of both lanes until `finish`."""

    def __init__(self) -> None:
        self.jobs: list[tuple[Future[Any], Callable[[], Any]]] = []
        self.batches: list[list[bytes]] = []
        self.running: list[list[bytes]] = []
        """Rows of the unfinished jobs."""
        self.lanes: list[Name] = []
        """Lane of each batch."""
        self.running_lanes: list[Name] = []
        """Lane of each unfinished job."""

    def submit(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        return self.add("foreground", function, *args, **kwargs)

    def add(self, lane: Name, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        self.lanes.append(lane)
        self.running_lanes.append(lane)
        self.jobs.append((future, lambda: function(*args, **kwargs)))
        self.batches.append(list(args[0].rows))
        self.running.append(list(args[0].rows))
        return future

    async def finish_all(self, *tasks: asyncio.Task[Outcome]) -> None:
        """Finish every job, and wait for these tasks."""
        while self.jobs:
            await self.finish()
        await asyncio.gather(*tasks)

    def compute(self, index: int = 0) -> None:
        """Finish a job, before the event loop runs again."""
        future, job = self.jobs.pop(index)
        del self.running[index], self.running_lanes[index]
        future.set_running_or_notify_cancel()
        try:
            future.set_result(job())
        except BaseException as error:
            future.set_exception(error)

    async def finish(self, index: int = 0, stall_s: float = 0.0) -> None:
        """Finish a job; the event loop is blocked for `stall_s` before it notices."""
        self.compute(index)
        if stall_s:
            clock_loop().clock.now += stall_s
        await settle()


class Background(Executor):
    """The threads of the background of a `ManualExecutor`."""

    def __init__(self, executor: ManualExecutor) -> None:
        self._executor = executor

    def submit(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        return self._executor.add("background", function, *args, **kwargs)


def clock_loop() -> ClockLoop:
    return cast(ClockLoop, asyncio.get_running_loop())


async def settle() -> None:
    for _ in range(6):
        await asyncio.sleep(0)


def created(
    executor: Executor,
    background: Executor | None = None,
    *,
    compute: RunRows = run,
    buckets: Sequence[int] = (4, 16),
    metrics: ModelMetrics | None = None,
    on_crash: Callable[[], None] = lambda: None,
    **limits: int,
) -> Batcher:
    """Return a batcher on the running loop; without threads for the background, those of the foreground compute all."""
    allowed = Limits(**{"batch_rows": 4, "queue_rows": 8, "queue_bytes": 1000, "slots": 1, **limits})
    threads, clock = (executor, background or executor), asyncio.get_running_loop().time
    return Batcher(compute, buckets, allowed, *threads, metrics or Metrics().of("m"), on_crash, clock)


def simulated(**options: Any) -> Callable[[Callable[..., Coroutine[Any, Any, None]]], Callable[..., None]]:
    """Run a test on a loop with a simulated clock, with the executor, and a batcher of these options, that it asks for.

    Other arguments of the test that are named like limits are limits of the batcher, too.
    """

    def decorate(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
        parameters = inspect.signature(test).parameters
        signature = inspect.Signature([one for name, one in parameters.items() if name not in ("batcher", "executor")])

        @functools.wraps(test)
        def simulate(*values: Any, **named: Any) -> None:
            given = signature.bind(*values, **named).arguments

            async def scenario() -> None:
                executor = ManualExecutor()
                limits = {name: value for name, value in given.items() if name in Limits.__dataclass_fields__}
                batcher = created(executor, Background(executor), **{**options, **limits})
                made = {"batcher": batcher, "executor": executor}
                await test(**{name: made[name] for name in made.keys() & parameters.keys()}, **given)

            with asyncio.Runner(loop_factory=ClockLoop) as runner:
                runner.run(scenario())

        vars(simulate)["__signature__"] = signature
        return simulate

    return decorate


def ask(
    batcher: Batcher, *rows: bytes, within: float = 30.0, bulk: bool = False, waits: bool = False
) -> asyncio.Task[Outcome]:
    loop = asyncio.get_running_loop()
    return asyncio.create_task(batcher.infer(list(rows), loop.time() + within, bulk=bulk, waits=waits))


def values(outcome: Outcome) -> list[float]:
    return [float(output[0]) for output in outcome.outputs]


@simulated(buckets=[16], queue_rows=20)
async def test_thread_takes_the_next_batch_itself(batcher: Batcher, executor: ManualExecutor) -> None:
    """So that it need not wait for the event loop, which may be busy."""
    tasks = [ask(batcher, bytes([number])) for number in range(7)]
    await settle()
    assert executor.running == [[b"\x00"]]
    executor.compute()
    assert executor.running == [[b"\x01", b"\x02", b"\x03", b"\x04"]], "the event loop has not run"
    assert batcher.waiting_rows == 2
    tasks.append(ask(batcher, b"joins"[:1]))
    await settle()
    assert tasks[0].done()
    executor.compute()
    assert executor.running == [[b"\x05", b"\x06", b"j"]]
    executor.compute()
    await settle()
    assert not batcher.is_computing
    assert [values(await task) for task in tasks] == [[float(number)] for number in (*range(7), ord("j"))]


@pytest.mark.parametrize(("slots", "ended"), [(1, 2), (2, 3), (4, 6)])
@simulated(buckets=[16], batch_rows=1, queue_rows=20)
async def test_threads_wait_for_an_event_loop_that_is_behind(
    batcher: Batcher, executor: ManualExecutor, slots: int, ended: int
) -> None:
    """Otherwise they would take the processor time that it needs to answer."""
    tasks = [ask(batcher, bytes([number])) for number in range(10)]
    await settle()
    for _ in range(ended):
        executor.compute()
    assert not executor.running
    assert batcher.waiting_rows == 10 - ended
    await settle()
    assert [len(batch) for batch in executor.running] == slots * [1]
    assert sum(task.done() for task in tasks) == ended
    await executor.finish_all(*tasks)


@pytest.mark.parametrize("seed", range(3))
def test_requests_end_while_threads_and_the_event_loop_take_turns_at_random(seed: int) -> None:
    """Threads switch often: rows are computed once, and none is lost."""
    computed, generator = Counter[bytes](), random.Random(seed)

    def compute(rows: Sequence[bytes], bucket: int) -> Floats:
        computed.update(bytes(row) for row in rows)
        return run(rows, bucket)

    async def client(batcher: Batcher, name: bytes) -> int:
        count = 0
        for number in range(60):
            rows = [name + bytes([number, index]) + b"." * generator.choice([0, 8]) for index in range(1 + number % 3)]
            asked = ask(batcher, *rows, bulk=number % 5 == 0)
            if number % 7 == 0:
                await asyncio.sleep(0)
                asked.cancel()
            try:
                outcome = await asked
            except asyncio.CancelledError:
                continue
            assert np.array_equal(outcome.outputs, run(rows, 16))
            count += 1
        return count

    async def scenario() -> None:
        with ThreadPoolExecutor(3) as foreground, ThreadPoolExecutor(3) as background:
            batcher = created(foreground, background, compute=compute, slots=3, queue_rows=1000, short_bytes=8)
            answered = await asyncio.gather(*[client(batcher, bytes([number])) for number in range(12)])
            await batcher.drain()
            assert min(answered) >= 50
            assert (batcher.waiting_rows, batcher.waiting_bytes, batcher.is_idle) == (0, 0, True)
            foreground.shutdown()
            background.shutdown()
            assert not batcher.is_computing

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        uvloop.run(asyncio.wait_for(scenario(), 60))
    finally:
        sys.setswitchinterval(interval)
    assert set(computed.values()) == {1}


@simulated(slots=2)
async def test_each_slot_takes_its_share_of_the_queued_rows(batcher: Batcher, executor: ManualExecutor) -> None:
    """So that there are rows left for the other slot, which may be free or soon be."""
    first = ask(batcher, b"a", b"b")
    await settle()
    assert [len(batch) for batch in executor.running] == [2], "nothing was measured yet"
    await asyncio.sleep(0.01)
    await executor.finish()
    second = ask(batcher, *(bytes([i]) for i in range(5)))
    await settle()
    assert [len(batch) for batch in executor.running] == [3, 1]
    await executor.finish()
    assert [len(batch) for batch in executor.running] == [1, 1]
    for _ in range(2):
        await executor.finish()
    assert first.done()
    assert values(await second) == [float(i) for i in range(5)]


@simulated(slots=2)
async def test_a_slot_takes_all_rows_of_a_bucket_if_those_of_another_need_a_slot(
    batcher: Batcher, executor: ManualExecutor
) -> None:
    first = ask(batcher, b"a")
    await settle()
    await asyncio.sleep(0.002)
    await executor.finish()
    second = ask(batcher, *(3 * [b"abcd", b"abcdefgh"]))
    await settle()
    assert executor.running[0] == 3 * [b"abcd"]
    await executor.finish_all(second)
    assert first.done()


@simulated(slots=2)
async def test_rows_that_take_little_time_are_computed_together(batcher: Batcher, executor: ManualExecutor) -> None:
    first = ask(batcher, b"a")
    await settle()
    await asyncio.sleep(SHORTEST_BATCH_S / 4)
    await executor.finish()
    second = ask(batcher, b"a", b"b", b"c", b"d")
    await settle()
    assert [len(batch) for batch in executor.running] == [4]
    await executor.finish()
    assert first.done()
    assert len(values(await second)) == 4


@simulated()
async def test_time_of_a_batch_counts_from_before_its_thread_has_it() -> None:
    """A thread may finish a batch while the event loop still submits it."""

    class Immediate(Executor):
        def submit(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
            clock_loop().clock.now += 0.5
            done: Future[Any] = Future()
            done.set_result(function(*args, **kwargs))
            clock_loop().clock.now += 0.25
            return done

    assert (await created(Immediate()).infer([b"row"], 30.0)).compute_s == 0.5


@simulated(batch_rows=1)
async def test_time_of_a_batch_counts_from_the_end_of_the_one_before(
    batcher: Batcher, executor: ManualExecutor
) -> None:
    """Also if the event loop notices that end later."""
    first, second = ask(batcher, b"longest 1"), ask(batcher, b"longest 2")
    await settle()
    await asyncio.sleep(0.5)
    await executor.finish(stall_s=0.2)
    await asyncio.sleep(0.25)
    await executor.finish()
    assert ((await first).queue_s, (await first).compute_s) == (0, 0.5)
    assert (await second).queue_s == 0.5
    assert (await second).compute_s == pytest.approx(0.45)


@simulated(short_bytes=3)
async def test_unread_request_is_judged_by_its_lane_if_its_size_is_known(
    batcher: Batcher, executor: ManualExecutor
) -> None:
    await measure(batcher, executor, 2.0)
    tasks = [ask(batcher, b"long request", within=math.inf) for _ in range(4)]
    await settle()
    assert [batcher.rejection(5.0, size) is None for size in (None, 4, 5)] == [True, True, False]
    await executor.finish_all(*tasks)


@simulated(buckets=[16], batch_rows=2, queue_rows=20)
async def test_retries_are_computed_while_full_batches_wait(batcher: Batcher, executor: ManualExecutor) -> None:
    tasks = [ask(batcher, row) for row in (b"a", POISON[:6], *[b"longest %d" % number for number in range(2)])]
    await settle()
    for _ in range(2):
        await executor.finish()
    tasks += [ask(batcher, b"longest %d" % number) for number in range(2, 6)]
    await settle()
    await executor.finish_all()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert [task.exception() is None for task in tasks] == [True, False, *[True] * 6]


@pytest.mark.parametrize(("row", "sizes"), [(b"long", [1, 12]), (b"longest", [1, 3, 3, 3, 3])])
@simulated(batch_rows=3, queue_rows=100)
async def test_batch_of_shorter_rows_holds_proportionally_more(
    batcher: Batcher, executor: ManualExecutor, row: bytes, sizes: list[int]
) -> None:
    tasks = [ask(batcher, row) for _ in range(13)]
    await settle()
    await executor.finish_all()
    assert [len(batch) for batch in executor.batches] == sizes
    await asyncio.gather(*tasks)


@pytest.mark.parametrize(("length", "bucket"), [(1, 4), (3, 4), (4, 4), (5, 16), (15, 16), (16, 16)])
@simulated()
async def test_row_is_computed_in_the_smallest_bucket_that_fits(
    executor: ManualExecutor, length: int, bucket: int
) -> None:
    computed, metrics = list[int](), Metrics()

    def note(rows: Sequence[bytes], bucket: int) -> Floats:
        computed.append(bucket)
        return run(rows, bucket)

    task = ask(created(executor, compute=note, metrics=metrics.of("m")), b"x" * length)
    await settle()
    await executor.finish_all(task)
    assert computed == [bucket]
    padding = metrics.registry.get_sample_value("longdoc_batch_padding_ratio_sum", {"model": "m"})
    assert padding == pytest.approx(1 - length / bucket)


@simulated()
async def test_full_queue_rejects_with_retry_after(batcher: Batcher, executor: ManualExecutor) -> None:
    tasks = [ask(batcher, b"1"), ask(batcher, *[b"2"] * 8)]
    await settle()
    for rows in ([b"3"], [b"3" * 16] * 100):
        with pytest.raises(Overloaded, match="8 rows wait"):
            await batcher.infer(rows, 30.0)
    await executor.finish_all(*tasks)


@simulated(queue_bytes=20)
async def test_queue_is_limited_in_bytes_too(batcher: Batcher, executor: ManualExecutor) -> None:
    tasks = [ask(batcher, b"1"), ask(batcher, b"x" * 16)]
    await settle()
    with pytest.raises(Overloaded, match="rows wait"):
        await batcher.infer([b"y" * 16], 30.0)
    await executor.finish_all(*tasks)


@simulated()
async def test_lines_wait_for_room_in_order_of_arrival(executor: ManualExecutor) -> None:
    """Only the first one asks again and again; it would take the event loop's time if each of them did."""
    metrics = Metrics()
    batcher = created(executor, queue_rows=1, batch_rows=1, metrics=metrics.of("m"))
    with mock.patch.object(Batcher, "_admit", autospec=True, side_effect=Batcher._admit) as admit:
        lines = [ask(batcher, b"%d" % number, bulk=True, waits=True) for number in range(7)]
        await asyncio.sleep(10 * RETRY_S)
    assert 10 < admit.call_count < 20
    with pytest.raises(Overloaded, match="lines of uploads wait already"):
        await batcher.infer([b"group", b"group"], 30.0, bulk=True)
    lines.pop(5).cancel()
    while not all(line.done() for line in lines):
        await executor.finish()
        await asyncio.sleep(RETRY_S)
    assert executor.batches == [[b"%d" % number] for number in (0, 1, 2, 3, 4, 6)]
    labels = {"model": "m", "reason": "overloaded"}
    assert metrics.registry.get_sample_value("longdoc_requests_rejected_total", labels) == 0


@simulated()
async def test_line_that_finds_no_room_until_its_deadline_is_rejected_once(executor: ManualExecutor) -> None:
    metrics = Metrics()
    batcher = created(executor, queue_rows=1, batch_rows=1, metrics=metrics.of("m"))
    tasks = [ask(batcher, b"1"), ask(batcher, b"2")]
    await settle()
    lines = [ask(batcher, b"line", within=within, bulk=True, waits=True) for within in (10.05, 5.05, 5.0)]
    await asyncio.sleep(6)
    for line in lines[1:]:
        with pytest.raises(Overloaded, match="no room until the deadline"):
            await line
    with pytest.raises(Overloaded, match="1 rows wait already"):
        await lines[0]
    labels = {"model": "m", "reason": "overloaded"}
    assert metrics.registry.get_sample_value("longdoc_requests_rejected_total", labels) == 3
    await executor.finish_all(*tasks)


@simulated()
async def test_cancelled_request_frees_its_place_and_does_not_affect_others(
    batcher: Batcher, executor: ManualExecutor
) -> None:
    running, waiting, other = ask(batcher, b"1"), ask(batcher, b"2", b"3"), ask(batcher, b"4")
    await settle()
    assert batcher.waiting_rows == 3
    waiting.cancel()
    running.cancel()
    await settle()
    assert (batcher.waiting_rows, batcher.waiting_bytes) == (1, 1)
    await executor.finish()
    await executor.finish()
    assert executor.batches == [[b"1"], [b"4"]]
    assert values(await other) == [float(b"4"[0])]
    for task in (running, waiting):
        with pytest.raises(asyncio.CancelledError):
            await task


@simulated()
async def test_deadline_ends_a_request_in_the_queue_and_in_a_batch(batcher: Batcher, executor: ManualExecutor) -> None:
    running, waiting, patient = ask(batcher, b"1", within=2), ask(batcher, b"2", within=1), ask(batcher, b"3")
    with pytest.raises(DeadlineExceeded, match="in the queue"):
        await waiting
    with pytest.raises(DeadlineExceeded, match="during inference"):
        await running
    await executor.finish()
    await executor.finish()
    assert executor.batches == [[b"1"], [b"3"]]
    await patient


@simulated()
async def test_rejections_are_counted_by_whose_deadline_it_is_and_not_for_lines_of_uploads(
    executor: ManualExecutor,
) -> None:
    metrics, clock = Metrics(), asyncio.get_running_loop().time
    batcher = created(executor, buckets=[16], metrics=metrics.of("m"), batch_rows=1, queue_rows=2)

    def count(reason: str) -> float | None:
        return metrics.registry.get_sample_value("longdoc_requests_rejected_total", {"model": "m", "reason": reason})

    tasks = [ask(batcher, b"row", within=9.0, bulk=bulk) for bulk in (False, True, True)]
    await settle()
    await asyncio.sleep(1)
    assert batcher.oldest_age_s() == 0
    late = asyncio.create_task(batcher.infer([b"client's"], limited(clock() + 9, clock() + 1)))
    await asyncio.sleep(0.5)
    assert batcher.oldest_age_s() == 0.5
    for bulk in (True, False):
        with pytest.raises(Overloaded, match="2 rows wait"):
            await batcher.infer([b"row"], clock() + 9, bulk=bulk)
        assert count("overloaded") == (not bulk)
    with pytest.raises(DeadlineExceeded, match="in the queue"):
        await late
    assert (count("client_deadline"), count("deadline")) == (1, 0)
    for task in tasks:
        with pytest.raises(DeadlineExceeded):
            await task
    assert (count("client_deadline"), count("deadline")) == (1, 3)


@simulated(buckets=[16])
async def test_failed_batch_is_computed_again_request_by_request(batcher: Batcher, executor: ManualExecutor) -> None:
    first = ask(batcher, b"0")
    await settle()
    good, bad, late = ask(batcher, b"1", b"2"), ask(batcher, POISON[:6]), ask(batcher, b"3")
    await settle()
    await executor.finish_all(first, good, late)
    assert values(await good) == [float(b"1"[0]), float(b"2"[0])]
    assert values(await late) == [float(b"3"[0])]
    with pytest.raises(InferenceFailed):
        await bad


@simulated()
async def test_retried_rows_leave_the_queue_once(batcher: Batcher, executor: ManualExecutor) -> None:
    tasks = [ask(batcher, b"first row")]
    await settle()
    tasks += [ask(batcher, row) for row in (b"good row", POISON, b"other row", b"cancelled row")]
    await settle()
    await executor.finish()
    waiting = ask(batcher, b"waiting row")
    await settle()
    running: list[list[bytes]] = []
    while not waiting.done():
        running += executor.running[:1]
        is_queued = running[-1] != [b"waiting row"]
        assert (batcher.waiting_rows, batcher.waiting_bytes) == (is_queued, is_queued * len(b"waiting row"))
        if running[-1] == [POISON]:
            tasks[-1].cancel()
        await executor.finish()
    batch = [b"good row", POISON, b"other row", b"cancelled row"]
    assert running == [batch, [b"good row"], [POISON], [b"other row"], [b"waiting row"]]
    assert (batcher.waiting_rows, batcher.waiting_bytes, batcher.is_idle) == (0, 0, True)
    await asyncio.gather(*tasks, return_exceptions=True)


@simulated()
async def test_computed_batches_are_counted_with_their_time(executor: ManualExecutor) -> None:
    """A failed batch is not counted; its requests are computed again one by one and counted."""
    bound, unit_s = Metrics().of("m"), 2.0**-10
    batcher = created(executor, buckets=[16], metrics=bound)
    assert batcher.batch_rows == 4
    tasks = [ask(batcher, b"0")]
    await settle()
    tasks += [ask(batcher, b"1", b"2"), ask(batcher, POISON)]
    await settle()
    for part in (4, 1, 2, 1):
        await clock_loop().pause(part * unit_s)
        await executor.finish()
    assert [len(batch) for batch in executor.batches] == [1, 3, 2, 1]
    await asyncio.gather(*tasks, return_exceptions=True)
    assert bound.statistics.batches == {1: Duration(1, 4 * unit_s), 2: Duration(1, 2 * unit_s)}


@simulated()
async def test_failures_and_cancellations_are_counted_by_their_kind(executor: ManualExecutor) -> None:
    """A request whose output is not finite fails alone."""
    metrics = Metrics()
    batcher = created(executor, buckets=[16], metrics=metrics.of("m"))
    running = ask(batcher, b"0")
    await settle()
    not_finite, left, good = [ask(batcher, row) for row in (NAN, b"2", b"1")]
    await settle()
    running.cancel()
    left.cancel()
    await executor.finish_all(good)
    failed = ask(batcher, POISON)
    await settle()
    await executor.finish()
    for task, error in ((not_finite, NonFiniteOutput), (failed, InferenceFailed)):
        with pytest.raises(error):
            await task

    def count(name: str, label: str, value: str) -> float | None:
        return metrics.registry.get_sample_value(f"longdoc_{name}_total", {"model": "m", label: value})

    assert [count("inference_errors", "kind", kind) for kind in ("raised", "non_finite", "crashed")] == [1, 1, 0]
    assert [count("requests_cancelled", "stage", stage) for stage in ("queue", "compute")] == [1, 1]


@simulated(buckets=[16])
async def test_rows_of_a_batch_share_its_measured_time(batcher: Batcher, executor: ManualExecutor) -> None:
    """Four rows took 2 s: one that waits and one that arrives take 1 s, half of the time until the deadline."""
    first = ask(batcher, *[b"row"] * 4, within=math.inf)
    await settle()
    await asyncio.sleep(2)
    await executor.finish_all(first)
    tasks = [ask(batcher, b"row", within=math.inf) for _ in range(2)]
    await settle()
    with pytest.raises(Overloaded):
        await batcher.infer([b"row"], asyncio.get_running_loop().time() + 1.9)
    await executor.finish_all(*tasks, ask(batcher, b"row", within=2.1))


@simulated(compute=lambda rows, _: run(rows, 16)[1:])
async def test_wrong_number_of_outputs_is_a_failure(batcher: Batcher, executor: ManualExecutor) -> None:
    task = ask(batcher, b"1", b"2")
    await settle()
    await executor.finish()
    with pytest.raises(InferenceFailed):
        await task
    await asyncio.sleep(2 * STUCK_S)
    assert (batcher.is_ready, batcher.is_computing) == (True, False)


def crash(*_: object) -> Floats:
    raise SystemExit(1)


@simulated(compute=crash, batch_rows=1)
async def test_crash_fails_everything_and_ends_readiness(batcher: Batcher, executor: ManualExecutor) -> None:
    tasks = [ask(batcher, b"1"), ask(batcher, b"2")]
    await settle()
    assert batcher.is_ready
    await executor.finish()
    for task in (*tasks, ask(batcher, b"3")):
        with pytest.raises(NotReady):
            await task
    assert not batcher.is_ready


@simulated()
async def test_executor_that_was_shut_down_is_a_crash() -> None:
    threads = ThreadPoolExecutor(1)
    threads.shutdown()
    batcher = created(threads)
    with pytest.raises(NotReady):
        await batcher.infer([b"1"], asyncio.get_running_loop().time() + 1)
    assert (batcher.is_ready, batcher.is_computing) == (False, False)


@pytest.mark.parametrize("slots", [1, 2])
async def test_requests_end_if_the_executor_is_shut_down_after_the_batcher_was_closed(
    caplog: pytest.LogCaptureFixture, slots: int
) -> None:
    crashes, threads = list[bool](), ThreadPoolExecutor(slots)
    started, gate = threading.Semaphore(0), threading.Event()

    def wait(rows: Sequence[bytes], bucket: int) -> Floats:
        started.release()
        gate.wait()
        return run(rows, bucket)

    batcher = created(threads, compute=wait, batch_rows=1, slots=slots, on_crash=lambda: crashes.append(True))
    tasks = [ask(batcher, b"%d" % number, within=math.inf) for number in range(8)]
    for _ in range(slots):
        await asyncio.to_thread(started.acquire)
    batcher.close()
    threads.shutdown(wait=False, cancel_futures=True)
    gate.set()
    found = await asyncio.gather(*tasks, return_exceptions=True)
    assert [type(one) for one in found] == [Outcome] * slots + [ShuttingDown] * (8 - slots)
    assert (crashes, caplog.records) == ([], [])
    assert (batcher.is_idle, batcher.is_computing) == (True, False)


@simulated()
async def test_drain_rejects_new_requests_and_waits_for_the_others(batcher: Batcher, executor: ManualExecutor) -> None:
    tasks = [ask(batcher, b"1"), ask(batcher, b"2")]
    await settle()
    batcher.close()
    with pytest.raises(ShuttingDown):
        await batcher.infer([b"3"], 30.0)
    drained = asyncio.create_task(batcher.drain())
    await executor.finish()
    assert not drained.done()
    await executor.finish()
    await settle()
    assert drained.done()
    await asyncio.gather(*tasks)


@simulated(batch_rows=1, queue_rows=1000, short_bytes=0)
async def test_interactive_and_bulk_rows_share_by_weight(batcher: Batcher, executor: ManualExecutor) -> None:
    tasks = [ask(batcher, *[b"bulk row"] * (BULK_ROWS + 8))]
    await settle()
    tasks += [ask(batcher, b"single row") for _ in range(32)]
    await settle()
    await executor.finish_all()
    kinds = [batch[0].decode() for batch in executor.batches]
    singles = ["single row"] * 4
    assert kinds[:11] == ["bulk row", *singles, "bulk row", *singles, "bulk row"]
    assert len(kinds) == BULK_ROWS + 8 + 32
    await asyncio.gather(*tasks)


class Row(bytes):
    """A row that differs by identity from others with the same content."""


class Queued:
    """The rows that should count as queued: those of unfinished requests whose first batch has no slot yet."""

    def __init__(self, executor: ManualExecutor) -> None:
        self._executor = executor
        self._computed = set[int]()
        """Ids of the rows that have left the queue."""

    def check(self, batcher: Batcher, requests: "Sequence[Asked]") -> None:
        """Check the counts of the batcher."""
        self._computed.update(id(row) for batch in self._executor.running for row in batch)
        queued = [row for rows, task in requests if not task.done() for row in rows if id(row) not in self._computed]
        assert (batcher.waiting_rows, batcher.waiting_bytes) == (len(queued), sum(map(len, queued)))


Script = list[tuple[str, int, list[bytes]]]
Asked = tuple[list[bytes], asyncio.Task[Outcome]]
ROWS = st.lists(st.one_of(st.binary(min_size=1, max_size=16), st.sampled_from([POISON, NAN])), min_size=1, max_size=12)
ACTIONS = st.tuples(st.sampled_from(["ask", "bulk", "finish", "finish", "cancel", "wait"]), st.integers(0, 50), ROWS)
FAILING = st.tuples(
    st.sampled_from(["ask", "ask", "ask", "finish", "finish", "cancel", "wait"]),
    st.integers(0, 50),
    st.lists(st.sampled_from([b"good row", b"other row", POISON]), min_size=1, max_size=2),
)
"""Requests that share batches, many of which fail."""


async def play(script: Script, slots: int, batcher: Batcher, executor: ManualExecutor) -> list[Asked]:
    """Play a script, and check the invariants after each action."""
    requests: list[Asked] = []
    queued = Queued(executor)
    for action, number, content in script:
        if action in ("ask", "bulk"):
            rows: list[bytes] = [Row(row) for row in content]
            requests.append((rows, ask(batcher, *rows, within=float(number), bulk=action == "bulk")))
        elif action == "finish" and executor.jobs:
            await executor.finish(number % len(executor.jobs))
        elif action == "cancel" and requests:
            requests[number % len(requests)][1].cancel()
        elif action == "wait":
            await asyncio.sleep(number / 10)
        await settle()
        queued.check(batcher, requests)
        running = [executor.running_lanes.count(lane) for lane in ("foreground", "background")]
        assert max(running) <= slots
        assert batcher.waiting_rows <= max([8, *(len(asked) for asked, _ in requests)])
        assert batcher.waiting_bytes <= max([60, *(sum(map(len, asked)) for asked, _ in requests)])
        assert not batcher.waiting_rows or max(running) >= slots, "rows wait although no lane is full"
    return requests


def check_end(rows: list[bytes], task: asyncio.Task[Outcome]) -> None:
    """Check that a request ended as its rows, its deadline or its cancellation imply."""
    assert task.done()
    if task.cancelled():
        return
    error = task.exception()
    if error is None:
        assert np.array_equal(task.result().outputs, run(rows, 16))
        assert NAN not in rows
    elif isinstance(error, InferenceFailed):
        assert POISON in rows
    elif isinstance(error, NonFiniteOutput):
        assert NAN in rows
    else:
        assert isinstance(error, (Overloaded, DeadlineExceeded))


@settings(max_examples=3 * settings().max_examples)
@given(
    script=st.one_of(st.lists(ACTIONS, max_size=40), st.lists(FAILING, min_size=8, max_size=40)),
    slots=st.integers(1, 3),
)
@simulated(queue_bytes=60, short_bytes=0)
async def test_every_request_ends_exactly_once(
    batcher: Batcher, executor: ManualExecutor, script: Script, slots: int
) -> None:
    requests = await play(script, slots, batcher, executor)
    await executor.finish_all()
    await batcher.drain()
    assert (batcher.waiting_rows, batcher.waiting_bytes, batcher.oldest_age_s()) == (0, 0, 0)
    assert batcher.is_idle
    assert all(len(batch) <= (16 if max(map(len, batch)) <= 4 else 4) for batch in executor.batches)
    for rows, task in requests:
        check_end(rows, task)


@simulated(batch_rows=1)
async def test_batch_dropped_by_a_closing_executor_fails_its_requests(
    batcher: Batcher, executor: ManualExecutor
) -> None:
    task = ask(batcher, b"a", b"b")
    await settle()
    assert [future.cancel() for future, _ in executor.jobs] == [True]
    with pytest.raises(ShuttingDown, match="stopped"):
        await task
    assert (batcher.is_computing, batcher.waiting_rows, batcher.is_idle) == (False, 0, True)


@given(
    script=st.lists(st.tuples(st.sampled_from(["ask", "ask", "finish", "cancel"]), st.integers(0, 9)), max_size=40),
    short_bytes=st.sampled_from([0, 4096]),
)
@simulated(queue_rows=1000)
async def test_rows_of_one_bucket_are_computed_in_order_of_arrival(
    batcher: Batcher, executor: ManualExecutor, script: list[tuple[str, int]], short_bytes: int
) -> None:
    del short_bytes
    tasks = list[asyncio.Task[Outcome]]()
    for action, number in script:
        if action == "ask":
            start, rest = len(tasks).to_bytes(2, "big"), b"." * (8 * (number % 2))
            tasks.append(ask(batcher, *[start + bytes([i]) + rest for i in range(1 + number // 2)]))
        elif action == "finish" and executor.jobs:
            await executor.finish()
        elif action == "cancel" and tasks:
            tasks[number % len(tasks)].cancel()
        await settle()
    await executor.finish_all()
    await asyncio.gather(*tasks, return_exceptions=True)
    for lane, is_long in itertools.product(("foreground", "background"), (False, True)):
        batches = itertools.compress(executor.batches, (its == lane for its in executor.lanes))
        computed = [row for batch in batches for row in batch if (len(row) > 4) is is_long]
        assert computed == sorted(computed)
    assert all(len({len(row) > 4 for row in batch}) == 1 for batch in executor.batches)


@pytest.mark.parametrize(("past", "first"), [*itertools.product((False, True), repeat=2)])
@simulated(batch_rows=1, queue_rows=1000, queue_bytes=10_000, short_bytes=0)
async def test_priority_that_was_alone_gets_only_its_share_afterwards(
    batcher: Batcher, executor: ManualExecutor, past: bool, first: bool
) -> None:
    """Both priorities get their shares at once, whichever was alone before and whichever comes first."""
    for _ in range(200):
        task = ask(batcher, b"past row", within=math.inf, bulk=past)
        await settle()
        await executor.finish_all(task)
    executor.batches.clear()
    tasks = [ask(batcher, b"busy row", within=math.inf, bulk=first)]
    await settle()
    for bulk in (first, not first):
        name = b"bulk row" if bulk else b"interactive row"
        tasks += [ask(batcher, name, within=math.inf, bulk=bulk) for _ in range(30)]
        await settle()
    await executor.finish_all(*tasks)
    assert 3 <= [batch[0] for batch in executor.batches[1:21]].count(b"bulk row") <= 5


@simulated()
async def test_one_slow_batch_does_not_block_later_requests(batcher: Batcher, executor: ManualExecutor) -> None:
    """A slow batch makes the measured cost exceed all deadlines; an idle batcher still computes and measures again."""
    first = ask(batcher, b"1")
    await settle()
    await asyncio.sleep(20)
    await executor.finish()
    await first
    for _ in range(5):
        task = ask(batcher, b"2", within=1.0)
        await settle()
        assert executor.jobs, "the executor is idle, but the row is not computed"
        await executor.finish()
        await task


async def measure(batcher: Batcher, executor: ManualExecutor, seconds: float) -> None:
    """Compute one row of the longest bucket in that time."""
    task = ask(batcher, b"measured row", within=math.inf)
    await settle()
    await asyncio.sleep(seconds)
    await executor.finish()
    await task


@pytest.mark.parametrize("slots", [1, 2])
@simulated(batch_rows=1, queue_rows=100)
async def test_request_that_would_miss_its_deadline_is_rejected_at_once(
    batcher: Batcher, executor: ManualExecutor, slots: int
) -> None:
    await measure(batcher, executor, 2.0)
    tasks = [ask(batcher, b"computed row") for _ in range(slots)]
    await settle()
    tasks += [ask(batcher, b"waiting row %d" % number, within=math.inf) for number in range(10)]
    await settle()
    seconds = 10 * 2.0 / slots
    asked = len(executor.batches)
    with pytest.raises(Overloaded) as caught:
        await batcher.infer([b"late row"], asyncio.get_running_loop().time() + 0.9 * seconds)
    assert caught.value.retry_after_s == pytest.approx(seconds, abs=1)
    assert (batcher.waiting_rows, len(executor.batches)) == (10, asked)
    tasks.append(ask(batcher, b"patient row", within=10 * seconds))
    await settle()
    assert batcher.waiting_rows == 11
    await executor.finish_all(*tasks)


@simulated(batch_rows=1, queue_rows=100)
async def test_thread_drops_rows_that_would_be_late(batcher: Batcher, executor: ManualExecutor) -> None:
    await measure(batcher, executor, 2.0)
    tasks = [ask(batcher, b"first row", within=math.inf), ask(batcher, b"late row 1", b"late row 2", within=3.5)]
    tasks.append(ask(batcher, b"patient row"))
    await asyncio.sleep(2.0)
    executor.compute()
    assert executor.running == [[b"patient row"]], "1.5 seconds are left, two are needed"
    with pytest.raises(DeadlineExceeded, match="in the queue"):
        await tasks.pop(1)
    assert batcher.waiting_rows == 0
    await executor.finish_all(*tasks)


@simulated(slots=2)
async def test_queued_row_that_cannot_meet_its_deadline_is_not_computed(
    batcher: Batcher, executor: ManualExecutor
) -> None:
    """Another batch is running: an idle batcher would try the row in any case."""
    await measure(batcher, executor, 2.0)
    tasks = [ask(batcher, b"other slot", within=math.inf), ask(batcher, b"this slot")]
    await settle()
    too_late, patient = ask(batcher, b"too late row", within=3.5), ask(batcher, b"patient row")
    await asyncio.sleep(2.5)
    now = asyncio.get_running_loop().time()
    await executor.finish(1)
    assert executor.running == [[b"other slot"], [b"patient row"]], "one second is left, two are needed"
    with pytest.raises(DeadlineExceeded, match="in the queue"):
        await too_late
    assert asyncio.get_running_loop().time() == now, "the request fails at once"
    await executor.finish_all(patient, *tasks)


@pytest.mark.parametrize(
    ("rows", "bulk", "lane"),
    [
        ([b"1234"], False, "foreground"), ([b"12", b"34"], False, "foreground"),
        ([b"12", b"345"], False, "background"), ([b"12345"], False, "background"), ([b"1"], True, "background"),
        ([b"1"] * (BULK_ROWS + 1), False, "background"),
    ],
)  # fmt: skip
@simulated(short_bytes=0, queue_rows=100)
async def test_long_and_bulk_requests_are_computed_in_the_background(
    batcher: Batcher, executor: ManualExecutor, rows: list[bytes], bulk: bool, lane: Name
) -> None:
    task = ask(batcher, *rows, bulk=bulk)
    await settle()
    await executor.finish_all()
    await task
    assert set(executor.lanes) == {lane}


@simulated(short_bytes=3)
async def test_single_row_is_short_if_the_model_takes_long_rows_only(
    batcher: Batcher, executor: ManualExecutor
) -> None:
    tasks = [ask(batcher, b"1234"), ask(batcher, b"1234", b"5")]
    await settle()
    assert executor.running_lanes == ["foreground", "background"]
    await executor.finish_all(*tasks)


@given(
    script=st.lists(st.tuples(st.sampled_from(["short", "long", "bulk", "finish"]), st.integers(0, 9)), max_size=60),
    slots=st.integers(1, 3),
)
@simulated(batch_rows=1, queue_rows=1000, queue_bytes=10_000, short_bytes=0)
async def test_foreground_never_waits_for_the_background(
    batcher: Batcher, executor: ManualExecutor, script: list[tuple[str, int]], slots: int
) -> None:
    rows = {"short": b"1", "long": b"long request", "bulk": b"2"}
    kinds: dict[Name, list[str]] = {"foreground": ["short"], "background": ["long", "bulk"]}
    tasks = {name: list[asyncio.Task[Outcome]]() for name in rows}
    for action, number in script:
        if action == "finish" and executor.jobs:
            await executor.finish(number % len(executor.jobs))
        elif action in rows:
            tasks[action].append(ask(batcher, rows[action], within=math.inf, bulk=action == "bulk"))
        await settle()
        for lane, names in kinds.items():
            unfinished = sum(not task.done() for name in names for task in tasks[name])
            running = list(itertools.compress(executor.running, (it == lane for it in executor.running_lanes)))
            assert len(running) >= slots or sum(map(len, running)) == unfinished
    await executor.finish_all(*itertools.chain.from_iterable(tasks.values()))
    assert all(len(set(batch)) == 1 for batch in executor.batches), "a batch mixes lanes or priorities"


@pytest.mark.parametrize("slots", [1, 2, 3])
@simulated(batch_rows=1, queue_rows=1000, queue_bytes=100_000, short_bytes=0)
async def test_neither_priority_starves(batcher: Batcher, executor: ManualExecutor, slots: int) -> None:
    """Both priorities have queued requests all the time."""
    tasks = list[asyncio.Task[Outcome]]()
    for _ in range(200):
        tasks += [ask(batcher, b"%d request" % bulk, within=math.inf, bulk=bulk) for bulk in (False, True)]
        await settle()
        await executor.finish()
    done = executor.batches[slots:]
    bulk = sum(rows[0] == b"1 request" for rows in done)
    assert len(done) / 10 < bulk < len(done) / 3
    await executor.finish_all(*tasks)


@simulated()
async def test_stuck_batch_is_a_crash(executor: ManualExecutor) -> None:
    crashes, clock = list[float](), asyncio.get_running_loop().time
    batcher = created(executor, buckets=[16], batch_rows=1, slots=2, on_crash=lambda: crashes.append(clock()))
    stuck, waiting = [ask(batcher, b"1"), ask(batcher, b"2")], ask(batcher, b"3", within=2 * STUCK_S)
    late = ask(batcher, b"4", within=STUCK_S / 2)
    await asyncio.sleep(STUCK_S - 1)
    assert batcher.is_ready
    for task in (*stuck, late):
        assert isinstance(task.exception(), DeadlineExceeded)
    assert not waiting.done()
    with pytest.raises(NotReady):
        await waiting
    assert not batcher.is_ready
    assert crashes[0] == pytest.approx(STUCK_S, abs=1)
    assert (batcher.waiting_rows, batcher.waiting_bytes) == (0, 0)
    await asyncio.wait_for(batcher.drain(), 1)


@simulated()
async def test_suspended_process_does_not_count_as_a_stuck_batch(batcher: Batcher, executor: ManualExecutor) -> None:
    patient, late = ask(batcher, b"1", within=math.inf), ask(batcher, b"2", within=30)
    await settle()
    for _ in range(3):
        await clock_loop().pause(2 * STUCK_S)
    assert batcher.is_ready
    with pytest.raises(DeadlineExceeded):
        await late
    await executor.finish()
    assert values(await patient) == [ord("1")]


@simulated()
async def test_stuck_batch_is_a_crash_after_a_suspension_too(batcher: Batcher, executor: ManualExecutor) -> None:
    del executor
    stuck = ask(batcher, b"1", within=math.inf)
    await settle()
    await clock_loop().pause(10 * STUCK_S)
    await asyncio.sleep(STUCK_S + 1)
    with pytest.raises(NotReady):
        await stuck


@simulated(buckets=[16], batch_rows=1, slots=2)
async def test_suspension_before_outputs_are_received_raises_the_measured_cost_little(
    batcher: Batcher, executor: ManualExecutor
) -> None:
    tasks = [ask(batcher, b"%d" % number, within=math.inf) for number in range(4)]
    await settle()
    executor.compute()
    executor.compute()  # keeps its slot
    await clock_loop().pause(2 * STUCK_S)
    await executor.finish_all(*tasks)
    assert batcher._cost.row_seconds(16) <= TICK_S


@simulated()
async def test_suspension_does_not_raise_the_measured_cost(batcher: Batcher, executor: ManualExecutor) -> None:
    """Otherwise the batcher would reject the next requests because of their deadlines."""
    during = ask(batcher, b"1", within=math.inf)
    await settle()
    await clock_loop().pause(2 * STUCK_S)
    await executor.finish()
    assert (await during).compute_s <= 2
    after = [ask(batcher, bytes([number])) for number in range(4)]
    await settle()
    await executor.finish_all()
    assert [values(await task) for task in after] == [[0.0], [1.0], [2.0], [3.0]]


@simulated()
async def test_stall_of_the_event_loop_does_not_raise_the_measured_cost(
    batcher: Batcher, executor: ManualExecutor
) -> None:
    """The time of a batch is measured in its thread, not when the event loop takes the results."""
    during = ask(batcher, b"1")
    await settle()
    await asyncio.sleep(0.25)
    await executor.finish(stall_s=0.7)
    assert (await during).compute_s == pytest.approx(0.25)
    after = [ask(batcher, bytes([number]), within=1.5) for number in range(3)]
    await settle()
    await executor.finish_all()
    assert [values(await task) for task in after] == [[0.0], [1.0], [2.0]]
