"""Several processes behind one port: started, watched, stopped together. Called by `__main__`.

The parent holds the socket and nothing else. A worker that crashes is started again; what it had counted stays. While
none lives, nobody listens: who connects is refused at once. When they do not come back, the parent ends too.
"""

import asyncio
import contextlib
import fcntl
import logging
import multiprocessing
import os
import shutil
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Collection, Iterator
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, Pipe
from multiprocessing.context import SpawnProcess
from pathlib import Path

from artifact.errors import BadExport
from artifact.files import open_regular
from artifact.loading import find_exports
from service import log as logs
from service.metrics import SHARED, forget_worker, set_worker
from service.server import SIGNALS, bind, obeyed_signals, serve
from service.settings import Settings

log = logging.getLogger(__name__)

CANNOT_START = 2
"""Exit code of a worker whose exports cannot be served, or that has no room on the disk; it sends why."""
FIRST_PAUSE_S = 0.5
"""Time before a crashed worker is started again; it more than doubles with each further crash."""
LONGEST_PAUSE_S = 30.0
STEADY_S = 60.0
"""A worker that has lived this long is started again at once."""
ATTEMPTS = 8
"""Failed starts in a row, of every worker, after which the parent gives up; with the pauses, a minute and a half."""
KILLED_S = 10.0
"""Time after the longest drain until a worker that still runs is killed."""
FOLDER = "longdoc-workers-"
"""Beginning of the name of a folder that workers share."""
LOCK = "lock"
"""File in it that is locked while the parent lives."""


def supervise(settings: Settings) -> int:
    """Serve with several workers until a signal; 0 if all of them drained.

    Raises: OSError if the address is taken; BadExport if a worker could not start, or none comes back.
    """
    served = {folder.parent.name for folder in find_exports(settings.exports)}
    with bind(settings.host, settings.port) as listener, _shared_folder() as folder:
        os.environ[SHARED] = str(folder)
        supervisor = _Supervisor(settings, listener, folder, served)
        code = asyncio.run(supervisor.run())
        if code == CANNOT_START:
            raise BadExport(supervisor.why, "start")
        return code


@contextlib.contextmanager
def _shared_folder() -> Iterator[Path]:
    """A folder of the workers, gone after the block; those of parents that were killed are removed before."""
    for lock in Path(tempfile.gettempdir()).glob(f"{FOLDER}*/{LOCK}"):
        with contextlib.suppress(OSError), open_regular(lock) as stream:  # locked, or another user's
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(lock.parent)
    with tempfile.TemporaryDirectory(prefix=FOLDER) as name, (Path(name) / "new").open("wb") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        (Path(name) / "new").rename(Path(name) / LOCK)  # which nobody can find unlocked
        yield Path(name)


def _work(
    settings: Settings,
    listener: socket.socket,
    folder: Path,
    index: int,
    served: Collection[str] | None,
    why: Connection,
) -> None:
    """One worker, a process of its own."""
    os.setpgrp()  # Ctrl-C in a terminal reaches the parent alone, which passes it on once
    logs.configure(settings.log_format)
    parent = multiprocessing.parent_process()
    assert parent is not None
    try:
        set_worker(folder, index)
        sys.exit(serve(settings, listener, parent.sentinel, served))
    except (BadExport, OSError) as error:
        why.send(str(error))
        sys.exit(CANNOT_START)


class _Supervisor:
    """Starts workers, and starts them again until a signal comes.

    Args:
        settings: of the server.
        listener: bound to its address.
        folder: which the workers share.
        served: names of the exports at the start.

    """

    def __init__(self, settings: Settings, listener: socket.socket, folder: Path, served: Collection[str]) -> None:
        self._settings = settings
        self._listener = listener
        self._folder = folder
        self._served = served
        self._context = multiprocessing.get_context("spawn")
        self._workers: dict[int, SpawnProcess] = {}
        """Those that live."""
        self._failures: dict[int, int] = {}
        """Starts in a row that did not last, by worker."""
        self._stopping = asyncio.Event()
        self.why = ""
        """Of the last worker that could not start, and in the end of them all."""

    async def run(self) -> int:
        """Watch every worker until it has ended for good."""
        loop = asyncio.get_running_loop()
        for number in obeyed_signals():
            loop.add_signal_handler(number, self._pass_on, number)
        try:
            codes = await asyncio.gather(*(self._keep(index) for index in range(self._settings.workers)))
        finally:
            self._listener.close()
        log.info("all workers have stopped")
        return max(code if code >= 0 else 1 for code in codes)

    def _pass_on(self, number: signal.Signals) -> None:
        """Send a signal to all workers; none is started again, and when the last one stops listening, nobody does."""
        if self._stopping.is_set() and number == signal.SIGHUP:  # its terminal and its shell may both send it
            return
        log.info("%s: passed on to %d workers", number.name, len(self._workers))
        if not self._stopping.is_set():
            drain_s = self._settings.drain_delay_s + 2 * self._settings.drain_timeout_s
            asyncio.get_running_loop().call_later(drain_s + KILLED_S, self._send, signal.SIGKILL)
        self._stopping.set()
        self._listener.close()
        self._send(number)

    def _send(self, number: signal.Signals) -> None:
        for worker in self._workers.values():
            if worker.pid is not None and worker.is_alive():
                os.kill(worker.pid, number)

    async def _keep(self, index: int) -> int:
        """Start a worker, again and again until it may end; its last exit code."""
        pause_s = 0.0
        while not self._stopping.is_set():
            started = time.monotonic()
            code = await self._once(index)
            if code == CANNOT_START and index not in self._failures:
                self._pass_on(signal.SIGINT)
            if self._stopping.is_set():
                return code
            was_steady = time.monotonic() - started > STEADY_S
            self._failures[index] = 0 if was_steady else self._failures.get(index, 0) + 1
            pause_s = 0.0 if was_steady else min(LONGEST_PAUSE_S, 2 * pause_s + FIRST_PAUSE_S)
            what = f"worker {index} ended with code {code}" + (f" ({self.why})" if code == CANNOT_START else "")
            if not self._workers and not self._renew(what):
                return CANNOT_START
            log.error("%s; it is started again in %g s", what, pause_s)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), pause_s)
        return 0

    def _renew(self, last: str) -> bool:
        """No worker lives: refuse who has connected and who comes, until one listens again; whether one may."""
        host, port = self._listener.getsockname()[:2]
        self._listener.close()
        failures = min(self._failures.get(index, 0) for index in range(self._settings.workers))
        if failures >= ATTEMPTS:
            self.why = f"no worker lives, after {failures} starts of each that did not last; {last}"
            self._stopping.set()
            return False
        self._listener = bind(host, port)
        return True

    async def _once(self, index: int) -> int:
        """Run a worker to its end; its exit code, negative for a signal."""
        served = self._served if index in self._failures else None
        reader, writer = Pipe(duplex=False)
        worker = self._context.Process(
            target=_work,
            args=(self._settings, self._listener, self._folder, index, served, writer),
            name=f"worker-{index}",
        )
        resource_tracker.ensure_running()  # `start` would do it, and it unblocks these signals
        before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)  # inherited: they wait until the worker can drain
        worker.start()
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        writer.close()
        self._workers[index] = worker
        has_ended = asyncio.Event()
        loop = asyncio.get_running_loop()
        loop.add_reader(worker.sentinel, has_ended.set)
        await has_ended.wait()
        loop.remove_reader(worker.sentinel)
        worker.join()
        del self._workers[index]
        with reader, contextlib.suppress(EOFError, OSError):  # it has said nothing, or not to its end
            self.why = reader.recv()
        forget_worker(self._folder, index)
        return worker.exitcode or 0
