"""The process that parses large bodies."""

import asyncio
import os
import pickle
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from multiprocessing.connection import Connection

import pytest

from artifact.errors import InvalidInput
from service.errors import NotReady, Overloaded, PayloadTooLarge
from service.parser import NICENESS, Parser
from tests.support import jobs
from tests.support.paths import ROOT
from tests.support.waiting import PATIENCE_S


@pytest.fixture
async def parser() -> AsyncIterator[Parser]:
    parser = Parser()
    yield parser
    parser.close()


async def test_jobs_run_one_at_a_time_in_one_other_process(parser: Parser) -> None:
    found = await asyncio.gather(*(parser.run(jobs.process, b"") for _ in range(3)))
    assert len(set(found)) == 1
    assert found[0] != os.getpid()


async def test_result_or_error_of_the_function_is_passed_on(parser: Parser) -> None:
    assert await parser.run(sorted, [3, 1, 2], reverse=True) == [3, 2, 1]
    with pytest.raises(ValueError, match="invalid literal"):
        await parser.run(int, "x")
    assert await parser.run(int, "7") == 7


async def test_process_has_a_lower_priority(parser: Parser) -> None:
    child = await parser.run(jobs.process, b"")
    before, after = os.getpriority(os.PRIO_PROCESS, 0), os.getpriority(os.PRIO_PROCESS, child)
    assert after == min(19, before + NICENESS)


async def test_first_job_is_received_at_the_priority_of_the_server(parser: Parser) -> None:
    """Receiving it imports modules, which took 21 s at the lower priority on two cores with six busy processes."""
    before = os.getpriority(os.PRIO_PROCESS, 0)
    assert await parser.run(jobs.echo, jobs.Priority()) == before
    assert await parser.run(jobs.echo, jobs.Priority()) == min(19, before + NICENESS)


async def test_crash_fails_one_job_and_the_next_one_gets_a_new_process(parser: Parser) -> None:
    before = await parser.run(jobs.process, b"")
    with pytest.raises(NotReady, match="ended; send the request again"):
        await parser.run(jobs.die, b"")
    assert await parser.run(jobs.process, b"") != before


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
async def test_signals_to_the_process_group_do_not_stop_the_parser(parser: Parser, number: signal.Signals) -> None:
    child = await parser.run(jobs.process, b"")
    os.kill(child, number)
    assert await parser.run(jobs.process, b"") == child


async def test_closing_the_parser_fails_the_running_job() -> None:
    parser = Parser()
    child = await parser.run(jobs.process, b"")
    waiting = [asyncio.create_task(parser.run(jobs.wait, b"")) for _ in range(2)]
    await asyncio.sleep(0)
    parser.close()
    await asyncio.wait(waiting, timeout=PATIENCE_S)
    assert all(task.done() for task in waiting)
    with pytest.raises(ProcessLookupError):
        os.kill(child, 0)


async def test_no_process_is_started_without_a_job_or_after_close() -> None:
    parser = Parser()
    assert parser.pid is None
    parser.close()
    with pytest.raises((NotReady, RuntimeError)):
        await parser.run(jobs.process, b"")
    assert parser.pid is None


def test_job_that_starts_during_close_starts_no_process() -> None:
    """The thread has taken the job before the parser is closed, and there is no process to stop."""
    parser = Parser()
    parser.close()
    with pytest.raises(NotReady):
        parser._ask((jobs.wait, (b"",), {}))  # as the thread of the parser does
    assert parser.pid is None


@pytest.mark.parametrize("sent", [b"", b"\0\0\1\0half", b"whole"])
def test_process_exits_silently_when_the_server_is_killed(sent: bytes) -> None:
    """The server is killed before a job, while the job is sent, and while it runs."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        command = [sys.executable, "-m", "service.parser", str(theirs.fileno())]
        process = subprocess.Popen(command, cwd=ROOT, pass_fds=[theirs.fileno()], stderr=subprocess.PIPE)
        theirs.close()
        if sent == b"whole":
            with Connection(os.dup(ours.fileno())) as connection:
                connection.send((jobs.process, (b"",), {}))
                assert connection.recv() == (True, process.pid)
                connection.send((jobs.large, (b"",), {}))  # more than the socket buffer holds
        else:
            ours.sendall(sent)
    _, output = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, output) == (0, b"")


@pytest.mark.parametrize(
    "error", [InvalidInput("a: b", [("a", "b")]), PayloadTooLarge("large"), Overloaded("full", retry_after_s=7)]
)
def test_errors_are_pickled_completely(error: Exception) -> None:
    found = pickle.loads(pickle.dumps(error))
    assert (type(found), str(found), vars(found)) == (type(error), str(error), vars(error))
