"""Parses large bodies in two other processes, so that the event loop stays responsive.

A thread would not help, because JSON parsers hold the GIL. One process parses bodies of up to SHORT_BYTES, the other
longer ones. Each parses one body at a time, shorter ones first: for each MB that a body is longer, others that arrive
up to AGEING_S later may overtake it.

A process starts with its first body, and again after it has ended. From its first job on, it has a lower priority than
the server. A job that exceeds its limit of time or memory ends its process; the bodies that waited are parsed by a new
one. On Linux, the processes end with the server even if it is killed; elsewhere, when they have parsed their bodies.

The main program of a process is `python -m service.parser DESCRIPTOR MEMORY`, with its end of a socket and the number
of bytes that it may allocate. A job is a picklable function with its argument.
"""

import asyncio
import ctypes
import heapq
import itertools
import logging
import math
import os
import pickle
import resource
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from service.errors import NotReady, PayloadTooLarge

if TYPE_CHECKING:  # so that the processes do not import them
    from service.metrics import Metrics
    from service.settings import Settings

log = logging.getLogger(__name__)

T = TypeVar("T")

NICENESS = 10
"""Added to the niceness of the server, so that inference has priority."""
SHORT_BYTES = 2**20
"""Maximum size of bodies that do not wait for longer ones."""
AGEING_S = 4.0
"""Seconds for which a waiting body lets others pass, for each MB that these are shorter."""
JOB_S = 5.0
"""Processor time of a job, in addition to a second for each MB. Parsing takes a tenth of a second for each MB."""
TICK_S = 1.0
"""Interval at which the time of a job is counted."""
HANG_S = 30.0
"""Time after which a job counts as hanging, if the deadline of requests is not longer."""
MEMORY_PER_BYTE = 32
"""Memory of a process for each byte of the largest body; parsing valid bodies takes up to 16."""
DEATH_SIGNAL = 1
"""PR_SET_PDEATHSIG of Linux's `prctl`: the signal that a process gets when its parent ends."""
MB = 2**20
REASONS: Mapping[int | None, str] = {-signal.SIGXCPU: "time", -signal.SIGABRT: "memory"}
"""Exit code of a process -> value of the label `reason`; `other` for all other codes."""


class Parser:
    """The processes that parse large bodies, as seen by the server; used only from the event loop.

    Args:
        settings: limits of bodies and requests.
        metrics: where jobs and the processes that they end are counted.

    """

    def __init__(self, settings: "Settings", metrics: "Metrics") -> None:
        self._metrics = metrics
        memory, hang_s = MEMORY_PER_BYTE * max(MB, settings.max_body_bytes), max(HANG_S, settings.deadline_s)
        self._short, self._long = (_Process(memory, hang_s, metrics) for _ in range(2))
        metrics.parser_age = lambda: max(self._short.oldest_age_s(), self._long.oldest_age_s())

    @property
    def pids(self) -> list[int]:
        """Ids of the processes that run."""
        return [process.pid for process in (self._short, self._long) if process.pid is not None]

    async def run(self, function: Callable[[bytes], T], body: bytes) -> T:
        """Run a function on a body in a process.

        Raises: what the function raises; PayloadTooLarge if it exceeds its limits; NotReady if the process died.
        """
        self._metrics.parser_jobs.inc()
        result: T = await (self._short if len(body) <= SHORT_BYTES else self._long).run(function, body)
        return result

    def close(self) -> None:
        """End the processes; running jobs are lost."""
        self._short.close()
        self._long.close()


@dataclass(eq=False)
class _Job:
    """A function to run on a body."""

    function: Callable[[bytes], object]
    body: bytes
    arrived: float
    outcome: asyncio.Future[Any]
    size: int = field(init=False)
    """Bytes of the body."""
    limit_s: float = field(init=False)
    """Maximum processor time."""

    def __post_init__(self) -> None:
        self.size = len(self.body)
        self.limit_s = JOB_S + self.size / MB


class _Process:
    """One process and the jobs that wait for it.

    Args:
        memory: bytes that the process may allocate.
        hang_s: time after which a job counts as hanging.
        metrics: where processes that a job has ended are counted.

    """

    def __init__(self, memory: int, hang_s: float, metrics: "Metrics") -> None:
        self._memory = memory
        self._hang_s = hang_s
        self._metrics = metrics
        self._executor = ThreadPoolExecutor(1, "parser")
        """Its only thread starts the process and waits for it."""
        self._lock = threading.Lock()
        self._is_closed = False
        self._process: subprocess.Popen[bytes] | None = None
        self._connection: Connection | None = None
        self._waiting: list[tuple[float, int, _Job]] = []
        """Heap of (arrival + AGEING_S for each MB, number, job): the smallest is run next."""
        self._numbers = itertools.count()
        self._running: _Job | None = None
        self._timer: asyncio.TimerHandle
        """Counts the time of the running job."""
        self._working: asyncio.Task[None] | None = None

    @property
    def pid(self) -> int | None:
        """Process id; None if no process runs."""
        return None if self._process is None else self._process.pid

    def oldest_age_s(self) -> float:
        """Age of the oldest job that waits or runs."""
        jobs = [job for *_, job in self._waiting if not job.outcome.done()]
        if self._running is not None:
            jobs.append(self._running)
        return max((time.monotonic() - job.arrived for job in jobs), default=0.0)

    async def run(self, function: Callable[[bytes], object], body: bytes) -> Any:
        """Run a function on a body when the process is free. Raises: as `Parser.run`."""
        if self._is_closed:
            raise self._closed()
        job = _Job(function, body, time.monotonic(), asyncio.get_running_loop().create_future())
        heapq.heappush(self._waiting, (job.arrived + AGEING_S * job.size / MB, next(self._numbers), job))
        if self._working is None or self._working.done():
            self._working = asyncio.create_task(self._run_waiting())
        try:
            return await job.outcome
        finally:
            job.body = b""  # if the client has left, the job is still in the heap

    def close(self) -> None:
        """End the process; a running job is lost."""
        with self._lock:
            self._is_closed = True
            self._kill()
        self._executor.shutdown(cancel_futures=True)
        self._end()

    async def _run_waiting(self) -> None:
        """Run the jobs that wait, in their order."""
        loop = asyncio.get_running_loop()
        while self._waiting:
            *_, job = heapq.heappop(self._waiting)
            if job.outcome.done():  # its client has left
                continue
            self._running = job
            self._watch(self._hang_s)
            try:
                succeeded, result = await loop.run_in_executor(self._executor, self._ask, job)
            except Exception as error:  # the job cannot be sent, or the executor is closed
                succeeded, result = False, self._closed() if self._is_closed else error
            finally:
                self._timer.cancel()
                self._running = None
            if job.outcome.done():
                continue
            if succeeded:
                job.outcome.set_result(result)
            else:
                job.outcome.set_exception(result)

    def _watch(self, left_s: float) -> None:
        """Kill the process when its job has run for `left_s`. A pause of the whole server counts as one tick."""
        if left_s <= 0:
            self._kill()
        tick_s = min(TICK_S, left_s)
        self._timer = asyncio.get_running_loop().call_later(max(0.0, tick_s), self._watch, left_s - tick_s)

    def _ask(self, job: _Job) -> tuple[bool, Any]:
        """Send a job and wait for its outcome: whether the function returned, and its result or error."""
        if self._connection is None and (error := self._start()) is not None:
            return False, error
        assert self._connection is not None
        try:
            self._connection.send((job.function, job.body, job.limit_s))
            outcome: tuple[bool, Any] = pickle.loads(self._connection.recv_bytes())
        except (EOFError, OSError):
            code = self._end()
            return False, self._closed() if self._is_closed else self._ended(code, job)
        return outcome

    def _ended(self, code: int | None, job: _Job) -> Exception:
        """Count and log that a job has ended the process; returns the error of the job."""
        reason = REASONS.get(code, "other")
        self._metrics.parser_kills.labels(reason).inc()
        if reason == "time":
            log.error("parsing a body of %d bytes took more than %.0f s of processor time", job.size, job.limit_s)
            return PayloadTooLarge("the body takes too long to parse")
        if reason == "memory":
            log.error("parsing a body of %d bytes needed more than %d bytes", job.size, self._memory)
            return PayloadTooLarge("the body needs too much memory to parse")
        log.error("the process that parses large bodies ended with code %s", code)
        return NotReady("the process that parses large bodies ended; send the request again")

    @staticmethod
    def _closed() -> NotReady:
        """The error of jobs after `close`."""
        return NotReady("the server is shutting down; send the request to another server")

    def _start(self) -> Exception | None:
        """Start the process; returns why it cannot be started."""
        with self._lock:
            if self._is_closed:
                return self._closed()
            try:
                ours, theirs = socket.socketpair()
                with theirs:
                    self._connection = Connection(ours.detach())
                    self._process = subprocess.Popen(
                        [sys.executable, "-P", "-m", "service.parser", str(theirs.fileno()), str(self._memory)],
                        env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
                        pass_fds=[theirs.fileno()],
                        stdin=subprocess.DEVNULL,
                    )
            except OSError as error:
                log.error("the process that parses large bodies cannot be started: %s", error.strerror)
                self._end()
                return NotReady("large bodies cannot be parsed now; send the request again")
        return None

    def _kill(self) -> None:
        """Kill the process, if one runs."""
        if (process := self._process) is not None:
            process.kill()

    def _end(self) -> int | None:
        """Close the socket, which ends the process; returns its exit code."""
        connection, self._connection = self._connection, None
        process, self._process = self._process, None
        if connection is not None:
            connection.close()
        return None if process is None else process.wait()


def main(descriptor: int, memory: int) -> None:
    """Run jobs until the server closes the socket.

    Args:
        descriptor: this end of the socket.
        memory: bytes that jobs may allocate.

    """
    # A terminal sends these signals to the whole process group, but the server decides when to stop.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(DEATH_SIGNAL, signal.SIGKILL)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # a core dump would contain documents
    with Connection(descriptor) as connection:
        job = _receive(connection)
        # Only now: receiving the first job imports the modules that it names, and its client waits for them.
        os.nice(NICENESS)
        _limit_memory(memory)
        while job is not None:
            outcome = _run(*job)
            del job
            try:
                connection.send_bytes(outcome)
            except OSError:  # the server was killed
                return
            del outcome  # free its memory before the next job
            job = _receive(connection)


def _receive(connection: Connection) -> tuple[Callable[[bytes], object], bytes, float] | None:
    """The next job with its limit in seconds; None if the server has closed the socket or died."""
    try:
        job: tuple[Callable[[bytes], object], bytes, float] = connection.recv()
    except (EOFError, OSError):
        return None
    except MemoryError:
        os.abort()
    return job


def _run(function: Callable[[bytes], object], body: bytes, limit_s: float) -> bytes:
    """The pickled outcome of a job: whether the function returned, and its result or error.

    Without memory, the process ends as it does in code in Rust.
    """
    _limit(resource.RLIMIT_CPU, math.ceil(time.process_time() + limit_s))
    try:
        return pickle.dumps((True, function(body)))
    except (MemoryError, SystemError):  # orjson raises SystemError
        os.abort()
    except Exception as error:
        error.__traceback__ = error.__context__ = None
        return pickle.dumps((False, error))


def _limit_memory(memory: int) -> None:
    """Limit what this process allocates from now on; only on Linux, which counts it."""
    if sys.platform == "linux":
        status = Path("/proc/self/status").read_text()
        used = next(int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("VmData:"))
        _limit(resource.RLIMIT_DATA, used + memory)


def _limit(what: int, value: int) -> None:
    """Set a soft limit of the operating system for this process; the hard limit stays."""
    _, most = resource.getrlimit(what)
    resource.setrlimit(what, (value if most == resource.RLIM_INFINITY else min(value, most), most))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
