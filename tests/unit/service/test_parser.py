"""The processes that parse large bodies."""

import asyncio
import functools
import gc
import os
import pickle
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import Any

import pytest

from artifact.errors import InvalidInput
from service.errors import NotReady, Overloaded, PayloadTooLarge
from service.metrics import Metrics
from service.parser import AGEING_S, NICENESS, SHORT_BYTES, Parser
from service.settings import Settings
from tests.support import jobs
from tests.support.paths import ROOT
from tests.support.processes import is_running
from tests.support.waiting import PATIENCE_S, wait_until, wait_until_async


@pytest.fixture
def metrics() -> Metrics:
    return Metrics()


@pytest.fixture
async def parser(metrics: Metrics) -> AsyncIterator[Parser]:
    parser = Parser(Settings(), metrics)
    yield parser
    parser.close()


def count(metrics: Metrics, name: str, **labels: str) -> float | None:
    return metrics.registry.get_sample_value(name, labels)


def asking(parser: Parser) -> tuple[list[int], Callable[[int], Coroutine[Any, Any, None]]]:
    """Return a function that lets the parser count the bytes of a body, and the sizes in the order of the answers."""
    order: list[int] = []

    async def ask(size: int) -> None:
        order.append(await parser.run(len, bytes(size)))

    return order, ask


async def test_jobs_run_one_at_a_time_in_one_other_process(parser: Parser, metrics: Metrics) -> None:
    found = await asyncio.gather(*(parser.run(jobs.process, b"") for _ in range(3)))
    assert len(set(found)) == 1
    assert found[0] != os.getpid()
    assert count(metrics, "longdoc_parser_jobs_total") == 3


async def test_result_or_error_of_the_function_is_passed_on(parser: Parser) -> None:
    assert await parser.run(sorted, b"cab") == [97, 98, 99]
    with pytest.raises(ValueError, match="invalid literal"):
        await parser.run(int, b"x")
    assert await parser.run(int, b"7") == 7


async def test_short_bodies_do_not_wait_for_long_ones(parser: Parser) -> None:
    running = asyncio.create_task(parser.run(jobs.wait, bytes(SHORT_BYTES + 1)))
    assert await parser.run(len, bytes(SHORT_BYTES)) == SHORT_BYTES
    assert not running.done()


async def test_shortest_body_is_parsed_first(parser: Parser, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("service.parser.time.monotonic", lambda: 1000.0)
    order, ask = asking(parser)

    sizes = [300, 20, 1000, 20, 7]
    await asyncio.gather(*map(ask, sizes))
    assert order == sorted(sizes)


async def test_body_that_has_waited_long_passes_shorter_ones(parser: Parser) -> None:
    first = asyncio.create_task(parser.run(jobs.wait, b""))
    await asyncio.sleep(0)
    order, ask = asking(parser)

    with pytest.MonkeyPatch.context() as patch:
        waiting = list[asyncio.Task[None]]()
        for now, size in ((1000.0, SHORT_BYTES), (1000.0 + AGEING_S / 2, 10), (1000.0 + 2 * AGEING_S, 20)):
            patch.setattr("service.parser.time.monotonic", functools.partial(float, now))
            waiting.append(asyncio.create_task(ask(size)))
            await asyncio.sleep(0)
    await wait_until_async(lambda: parser.pids)
    os.kill(parser.pids[0], signal.SIGKILL)
    with pytest.raises(NotReady):
        await first
    await asyncio.gather(*waiting)
    assert order == [10, SHORT_BYTES, 20]


async def test_process_has_a_lower_priority(parser: Parser) -> None:
    child = await parser.run(jobs.process, b"")
    before, after = os.getpriority(os.PRIO_PROCESS, 0), os.getpriority(os.PRIO_PROCESS, child)
    assert after == min(19, before + NICENESS)


async def test_first_job_is_received_at_the_priority_of_the_server() -> None:
    """Receiving it imports modules, which took 21 s at the lower priority on two cores with six busy processes."""
    before = os.getpriority(os.PRIO_PROCESS, 0)
    with started() as (connection, _):
        for expected in (before, min(19, before + NICENESS)):
            connection.send((jobs.echo, jobs.Priority(), 1.0))
            assert pickle.loads(connection.recv_bytes()) == (True, expected)


async def test_crash_fails_one_job_and_the_next_one_gets_a_new_process(parser: Parser, metrics: Metrics) -> None:
    before = await parser.run(jobs.process, b"")
    failed, waiting = (asyncio.create_task(parser.run(job, b"")) for job in (jobs.leave, jobs.process))
    with pytest.raises(NotReady, match="again"):
        await failed
    assert await waiting != before
    assert count(metrics, "longdoc_parser_kills_total", reason="other") == 1


@pytest.mark.parametrize("job", [jobs.spin, jobs.search])
async def test_job_over_its_limit_of_time_ends_the_process(
    parser: Parser, metrics: Metrics, monkeypatch: pytest.MonkeyPatch, job: Callable[[bytes], object]
) -> None:
    """`spin` runs Python code; `search` never leaves a C function."""
    before = await parser.run(jobs.process, b"")
    monkeypatch.setattr("service.parser.JOB_S", 0.01)
    failed, waiting = (asyncio.create_task(parser.run(job, b"")) for job in (job, jobs.process))
    with pytest.raises(PayloadTooLarge, match="too long"):
        await failed
    assert await waiting != before
    assert count(metrics, "longdoc_parser_kills_total", reason="time") == 1


async def test_limits_are_logged_with_the_size_of_a_body_whose_client_has_left(
    parser: Parser, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("service.parser.JOB_S", 0.01)
    left = asyncio.create_task(parser.run(jobs.spin, bytes(1234)))
    await wait_until_async(lambda: parser.pids)
    left.cancel()
    await wait_until_async(lambda: caplog.records)
    assert "a body of 1234 bytes" in caplog.text


async def test_hanging_job_ends_its_process_and_a_pause_of_the_server_counts_as_one_tick(
    metrics: Metrics, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each tick ends at once, as after a pause: the job still gets all of them."""
    loop, waits = asyncio.get_running_loop(), list[float]()
    call_later = loop.call_later

    def at_once(delay: float, callback: Callable[..., object], *args: object) -> asyncio.TimerHandle:
        waits.append(delay)
        return call_later(0, callback, *args)

    monkeypatch.setattr("service.parser.HANG_S", 3.5)
    monkeypatch.setattr(loop, "call_later", at_once)
    parser = Parser(Settings(deadline_s=0.01), metrics)
    with pytest.raises(NotReady):
        await parser.run(jobs.wait, b"")
    monkeypatch.undo()
    assert waits[:4] == [1.0, 1.0, 1.0, 0.5]
    parser.close()


async def test_process_that_cannot_be_started_is_an_error_of_its_job(
    parser: Parser, metrics: Metrics, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("service.parser.sys.executable", "/no/such/program")
        with pytest.raises(NotReady, match="again"):
            await parser.run(len, b"ab")
    assert "cannot be started: No such file" in caplog.text
    assert count(metrics, "longdoc_parser_kills_total", reason="other") == 0
    assert await parser.run(len, b"ab") == 2


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux counts the memory that a process allocates")
@pytest.mark.parametrize("job", [jobs.allocate, jobs.abort, jobs.huge])
async def test_job_over_its_limit_of_memory_ends_the_process(
    parser: Parser, metrics: Metrics, job: Callable[[bytes], object]
) -> None:
    """Python raises MemoryError, also when the result is pickled; code in Rust, such as the JSON parser, aborts."""
    failed, waiting = (asyncio.create_task(parser.run(job, b"7")) for job in (job, int))
    with pytest.raises(PayloadTooLarge, match="memory"):
        await failed
    assert await waiting == 7
    assert count(metrics, "longdoc_parser_kills_total", reason="memory") == 1


async def test_job_whose_client_has_left_is_not_run_and_frees_its_body(parser: Parser) -> None:
    running = asyncio.create_task(parser.run(jobs.wait, b""))
    await asyncio.sleep(0)
    body = bytes(1000)
    before = sys.getrefcount(body)
    left = asyncio.create_task(parser.run(len, body))
    await asyncio.sleep(0)
    left.cancel()
    with pytest.raises(asyncio.CancelledError):
        await left
    del left
    await asyncio.sleep(0)  # let the event loop forget the task
    gc.collect()
    assert sys.getrefcount(body) == before
    assert not running.done()


async def test_age_is_that_of_the_oldest_body(parser: Parser, metrics: Metrics) -> None:
    def age() -> float:
        metrics.sample()
        return count(metrics, "longdoc_parser_oldest_seconds") or 0.0

    assert age() == 0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("service.parser.time.monotonic", lambda: 1000.0)
        jobs_in_progress = [asyncio.create_task(parser.run(jobs.wait, b"")) for _ in range(2)]
        await asyncio.sleep(0)
        patch.setattr("service.parser.time.monotonic", lambda: 1007.0)
        assert age() == 7
    parser.close()
    await asyncio.wait(jobs_in_progress)
    assert age() == 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
async def test_signals_to_the_process_group_do_not_stop_the_parser(parser: Parser, number: signal.Signals) -> None:
    child = await parser.run(jobs.process, b"")
    os.kill(child, number)
    assert await parser.run(jobs.process, b"") == child


async def test_closing_the_parser_fails_the_running_and_waiting_jobs(metrics: Metrics) -> None:
    parser = Parser(Settings(), metrics)
    child = await parser.run(jobs.process, b"")
    waiting = [asyncio.create_task(parser.run(jobs.wait, b"")) for _ in range(2)]
    await asyncio.sleep(0)
    parser.close()
    for task in waiting:
        with pytest.raises(NotReady, match="another server"):
            await task
    with pytest.raises(ProcessLookupError):
        os.kill(child, 0)


async def test_no_process_is_started_without_a_job_or_after_close(metrics: Metrics) -> None:
    parser = Parser(Settings(), metrics)
    job = asyncio.create_task(parser.run(jobs.process, b""))
    await asyncio.sleep(0)  # the thread has not taken the job yet
    assert parser.pids == []
    parser.close()
    for late in (job, parser.run(jobs.process, b"")):
        with pytest.raises(NotReady):
            await late
    assert parser.pids == []


@pytest.mark.parametrize("sent", [b"", b"\0\0\1\0half", b"whole"])
def test_process_exits_silently_when_the_server_is_killed(sent: bytes) -> None:
    """The server is killed before a job, while the job is sent, and while its result is sent."""
    with started() as (connection, process):
        if sent == b"whole":
            connection.send((jobs.process, b"", 1.0))
            assert pickle.loads(connection.recv_bytes()) == (True, process.pid)
            connection.send((jobs.large, b"", 1.0))  # more than the socket buffer holds
        else:
            os.write(connection.fileno(), sent)
        connection.close()
        _, output = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, output) == (0, b"")


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux can end a process with its parent")
def test_process_ends_while_it_parses_when_the_server_is_killed() -> None:
    command = [sys.executable, "-m", "tests.support.orphan"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        child = int(server.stdout.readline())
        server.kill()
    wait_until(lambda: not is_running(child))


@contextmanager
def started() -> Iterator[tuple[Connection, subprocess.Popen[bytes]]]:
    """Start the program; close the server's end of the socket afterwards."""
    ours, theirs = socket.socketpair()
    command = [sys.executable, "-m", "service.parser", str(theirs.fileno()), str(2**27)]
    with subprocess.Popen(command, cwd=ROOT, pass_fds=[theirs.fileno()], stderr=subprocess.PIPE) as process:
        theirs.close()
        with Connection(ours.detach()) as connection:
            yield connection, process


@pytest.mark.parametrize(
    "error", [InvalidInput("a: b", [("a", "b")]), PayloadTooLarge("large"), Overloaded("full", retry_after_s=7)]
)
def test_errors_are_pickled_completely(error: Exception) -> None:
    found = pickle.loads(pickle.dumps(error))
    assert (type(found), str(found), vars(found)) == (type(error), str(error), vars(error))
