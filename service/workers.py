"""Several worker processes on one port: start, watch and stop them. Run by `__main__`.

Each worker listens with a socket of its own (SO_REUSEPORT), and the kernel spreads new connections over them. With one
socket for all, the worker that wakes up first would accept most of the connections that come together, and keep them.
The parent holds the address, but does not listen: while no worker is running, connections are refused at once. A worker
that crashes is restarted, and its metrics counters continue. If no worker can be restarted, the parent exits.
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
from service import log as logs
from service.engine.folder import list_exports
from service.multiprocess import remove_gauges, set_worker
from service.server import SIGNALS, bind, cannot_listen, obeyed_signals, serve
from service.settings import Settings

log = logging.getLogger(__name__)

CANNOT_START = 2
"""Exit code of a worker whose exports cannot be served, or whose disk is full; the worker sends the reason."""
FIRST_PAUSE_S = 0.5
"""Pause before a crashed worker is restarted; it more than doubles with each further crash."""
LONGEST_PAUSE_S = 30.0
"""Maximum of that pause."""
STEADY_S = 60.0
"""A worker that crashes after it has run this long is restarted without a pause and does not count as failed."""
ATTEMPTS = 8
"""The parent exits once every worker has failed this many times in a row: after about 90 s, because of the pauses."""
KILL_DELAY_S = 10.0
"""A worker is killed if it still runs this long after the longest possible drain."""
FOLDER = "longdoc-workers-"
"""Prefix of the folder that workers share."""
LOCK = "lock"
"""File in that folder, locked while the parent is running."""


def supervise(settings: Settings) -> int:
    """Serve with several workers until a signal; return the exit code, 0 if all of them have drained.

    Raises: OSError if the address is in use; BadExport if a worker cannot start, or if none can be restarted.
    """
    names = set(list_exports(settings).exports)
    with bind(settings.host, settings.port) as first:  # a shared socket would not fail if another server listens
        address, port = first.getsockname()[:2]
    with _claim(address, port), bind(settings.host, port, shared=True), _shared_folder() as folder:
        supervisor = _Supervisor(settings, port, folder, names)
        code = asyncio.run(supervisor.run())
        if code == CANNOT_START:
            raise BadExport(supervisor.why, "start")
        return code


def _claim(address: str, port: int) -> socket.socket:
    """Claim an address, as numbers. Without it, two servers that start at the same time would share the port unnoticed.

    The name is of the network namespace, as the port is. Only Linux has such names.

    Raises: OSError that names the address.
    """
    claim = socket.socket(socket.AF_UNIX)
    if sys.platform == "linux":
        try:
            claim.bind(f"\0longdoc-serve {address} {port}")
        except OSError as error:
            claim.close()
            raise cannot_listen(address, port, error) from None
    return claim


@contextlib.contextmanager
def _shared_folder() -> Iterator[Path]:
    """Create a temporary folder for the workers; remove the folders of parents that were killed."""
    for lock in Path(tempfile.gettempdir()).glob(f"{FOLDER}*/{LOCK}"):
        # OSError: the parent of this folder is still running, or the folder belongs to another user.
        with contextlib.suppress(OSError), open_regular(lock) as stream:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(lock.parent)
    with tempfile.TemporaryDirectory(prefix=FOLDER) as name, (Path(name) / "new").open("wb") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        (Path(name) / "new").rename(Path(name) / LOCK)  # atomic: no other parent sees it unlocked
        yield Path(name)


def _work(
    settings: Settings,
    port: int,
    folder: Path,
    index: int,
    required: Collection[str] | None,
    writer: Connection,
) -> None:
    """Run a worker, in its own process; if it cannot start, send the reason through the pipe `writer`."""
    os.setpgrp()  # Ctrl-C in a terminal then reaches the parent only, which forwards it
    logs.configure(settings.log_format)
    parent = multiprocessing.parent_process()
    assert parent is not None
    try:
        set_worker(folder, index)
        sys.exit(serve(settings, bind(settings.host, port, shared=True), parent.sentinel, required, folder))
    except (BadExport, OSError) as error:
        writer.send(str(error))
        sys.exit(CANNOT_START)


class _Supervisor:
    """Starts workers, and restarts them until a signal.

    Args:
        settings: the settings of the server.
        port: the port of the workers.
        folder: folder that the workers share.
        names: names of the models in the folder of exports at the start. A worker serves what it finds at its first
            start, but has to serve these models when it is restarted.

    """

    def __init__(self, settings: Settings, port: int, folder: Path, names: Collection[str]) -> None:
        self._settings = settings
        self._port = port
        self._folder = folder
        self._names = names
        self._context = multiprocessing.get_context("spawn")
        self._workers: dict[int, SpawnProcess] = {}
        """Running workers, by index."""
        self._failures: dict[int, int] = {}
        """Index of a worker -> failures in a row; a run shorter than STEADY_S is a failure."""
        self._stopping = asyncio.Event()
        self.why = ""
        """Why the last worker could not start, or why the parent exits."""

    async def run(self) -> int:
        """Keep every worker running until a signal; return the highest exit code."""
        loop = asyncio.get_running_loop()
        for number in obeyed_signals():
            loop.add_signal_handler(number, self._forward, number)
        codes = await asyncio.gather(*(self._keep(index) for index in range(self._settings.workers)))
        log.info("all workers have stopped")
        return max(code if code >= 0 else 1 for code in codes)

    def _forward(self, number: signal.Signals) -> None:
        """Send a signal to all workers, and do not restart any."""
        if self._stopping.is_set() and number == signal.SIGHUP:  # a terminal and its shell may each send one
            return
        log.info("%s: forwarded to %d workers", number.name, len(self._workers))
        if not self._stopping.is_set():
            # `drain_timeout_s` applies twice: to uvicorn's shutdown, then to the engine's drain.
            drain_s = self._settings.drain_delay_s + 2 * self._settings.drain_timeout_s
            asyncio.get_running_loop().call_later(drain_s + KILL_DELAY_S, self._send, signal.SIGKILL)
        self._stopping.set()
        self._send(number)

    def _send(self, number: signal.Signals) -> None:
        for worker in self._workers.values():
            if worker.pid is not None and worker.is_alive():
                os.kill(worker.pid, number)

    async def _keep(self, index: int) -> int:
        """Start a worker, and restart it until a signal; return its last exit code."""
        pause_s = 0.0
        while not self._stopping.is_set():
            started = time.monotonic()
            code = await self._run_worker(index)
            if self._stopping.is_set():
                return code
            if code == CANNOT_START and index not in self._failures:  # at its first start: a wrong setting or export
                self._forward(signal.SIGINT)
                return code
            was_steady = time.monotonic() - started > STEADY_S
            self._failures[index] = 0 if was_steady else self._failures_of(index) + 1
            pause_s = 0.0 if was_steady else min(LONGEST_PAUSE_S, 2 * pause_s + FIRST_PAUSE_S)
            what = f"worker {index} ended with code {code}" + (f" ({self.why})" if code == CANNOT_START else "")
            if not self._workers and min(map(self._failures_of, range(self._settings.workers))) >= ATTEMPTS:
                self.why = f"no worker is running: each has failed {ATTEMPTS} times in a row; {what}"
                self._stopping.set()
                return CANNOT_START
            log.error("%s; restarting it in %g s", what, pause_s)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), pause_s)
        return 0

    def _failures_of(self, index: int) -> int:
        """Failures in a row of a worker."""
        return self._failures.get(index, 0)

    async def _run_worker(self, index: int) -> int:
        """Run a worker until it ends; return its exit code, negative for a signal."""
        required = self._names if index in self._failures else None
        reader, writer = Pipe(duplex=False)
        worker = self._context.Process(
            target=_work,
            args=(self._settings, self._port, self._folder, index, required, writer),
            name=f"worker-{index}",
        )
        resource_tracker.ensure_running()  # before signals are blocked: it would unblock them
        before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)  # inherited; the worker unblocks them
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
        with reader, contextlib.suppress(EOFError, OSError):  # the worker sent no reason, or only a part of it
            self.why = reader.recv()
        remove_gauges(self._folder, index)
        return worker.exitcode or 0
