"""Parses large bodies in another process, one at a time, in the order in which they arrive.

A thread would not help, because JSON parsers hold the GIL. The process starts with the first large body, ends when the
server ends, and is started again if it dies. From its first job on, it has a lower priority than the server. Its main
program is `python -m service.parser DESCRIPTOR`; DESCRIPTOR is its end of a socket. A job is a picklable function with
its arguments.
"""

import asyncio
import logging
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection
from typing import Any, ParamSpec, TypeVar

from service.errors import NotReady

log = logging.getLogger(__name__)

P = ParamSpec("P")
T = TypeVar("T")

NICENESS = 10
"""Added to the niceness of the server, so that inference has priority."""


class Parser:
    """The parser process, as seen by the server."""

    def __init__(self) -> None:
        self._executor = ThreadPoolExecutor(1, "parser")
        """Its only thread waits for the process, so that jobs run one at a time."""
        self._lock = threading.Lock()
        self._is_closed = False
        self._process: subprocess.Popen[bytes] | None = None
        self._connection: Connection | None = None

    @property
    def pid(self) -> int | None:
        """Process id; None before the first job."""
        return None if self._process is None else self._process.pid

    async def run(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a function in the process. Raises: what the function raises; NotReady if the process died meanwhile."""
        job = (function, args, kwargs)
        result: T = await asyncio.get_running_loop().run_in_executor(self._executor, self._ask, job)
        return result

    def close(self) -> None:
        """End the process; a running job is lost."""
        with self._lock:
            self._is_closed = True
            if self._process is not None:
                self._process.kill()
        self._executor.shutdown(cancel_futures=True)
        self._end()

    def _ask(self, job: object) -> Any:
        """Send a job and wait for its result."""
        try:
            connection = self._connection or self._start()
            connection.send(job)
            succeeded, outcome = connection.recv()
        except (EOFError, OSError):
            code = self._end()
            if not self._is_closed:
                log.error("the process that parses large bodies ended with code %s", code)
            raise NotReady("the process that parses large bodies ended; send the request again") from None
        if not succeeded:
            raise outcome
        return outcome

    def _start(self) -> Connection:
        """Start the process. Raises: EOFError if the parser is closed."""
        ours, theirs = socket.socketpair()
        with theirs, self._lock:
            if self._is_closed:
                ours.close()
                raise EOFError
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "service.parser", str(theirs.fileno())],
                env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
            )
        self._connection = Connection(ours.detach())
        return self._connection

    def _end(self) -> int | None:
        """Close the socket, which ends the process; returns its exit code."""
        connection, self._connection = self._connection, None
        process, self._process = self._process, None
        if connection is not None:
            connection.close()
        return None if process is None else process.wait()


def main(descriptor: int) -> None:
    """Run jobs until the server closes the socket."""
    # A terminal sends these signals to the whole process group, but the server decides when to stop.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    with Connection(descriptor) as connection:
        job = _receive(connection)
        # Only now: receiving the first job imports the modules that it names, and its client waits for them.
        os.nice(NICENESS)
        while job is not None:
            function, args, kwargs = job
            del job
            try:
                outcome = True, function(*args, **kwargs)
            except Exception as error:
                error.__traceback__ = error.__context__ = None
                outcome = False, error
            try:
                connection.send(outcome)
            except OSError:  # the server was killed
                return
            del function, args, kwargs, outcome  # free their memory before the next job
            job = _receive(connection)


def _receive(connection: Connection) -> tuple[Callable[..., object], tuple[object, ...], dict[str, object]] | None:
    """The next job; None if the server has closed the socket or died."""
    try:
        job: tuple[Callable[..., object], tuple[object, ...], dict[str, object]] = connection.recv()
    except (EOFError, OSError):
        return None
    return job


if __name__ == "__main__":
    main(int(sys.argv[1]))
