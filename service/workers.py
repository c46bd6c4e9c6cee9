"""Several processes behind one port: started, watched, stopped together. Called by `__main__`.

The parent holds the socket and nothing else. A worker that crashes is started again; what it had counted stays.
"""

import asyncio
import contextlib
import logging
import multiprocessing
import os
import signal
import socket
import sys
import tempfile
import time
from multiprocessing import resource_tracker
from multiprocessing.context import SpawnProcess
from pathlib import Path

from artifact.errors import BadExport
from service import log as logs
from service.metrics import SHARED, forget_worker, set_worker
from service.server import SIGNALS, bind, serve
from service.settings import Settings

log = logging.getLogger(__name__)

CANNOT_START = 2
"""Exit code of a worker whose exports cannot be served: to start it again would not help."""
REFUSAL = "refusal"
"""File in which such a worker says why."""
FIRST_PAUSE_S = 0.5
"""Time before a crashed worker is started again; it more than doubles with each further crash."""
LONGEST_PAUSE_S = 30.0
STEADY_S = 60.0
"""A worker that has lived this long is started again at once."""


def supervise(settings: Settings) -> int:
    """Serve with several workers until a signal; 0 if all of them drained, 2 if one could not start.

    Raises: OSError if the address is taken; BadExport if a worker could not start.
    """
    with bind(settings.host, settings.port) as listener, tempfile.TemporaryDirectory(prefix="longdoc-") as folder:
        os.environ[SHARED] = folder
        code = asyncio.run(_Supervisor(settings, listener, Path(folder)).run())
        if code == CANNOT_START:
            raise BadExport((Path(folder) / REFUSAL).read_text(), "start")
        return code


def _work(settings: Settings, listener: socket.socket, folder: Path, index: int) -> None:
    """One worker, a process of its own."""
    os.setpgrp()  # Ctrl-C in a terminal reaches the parent alone, which passes it on once
    logs.configure(settings.log_format)
    set_worker(folder, index)
    parent = multiprocessing.parent_process()
    assert parent is not None
    try:
        sys.exit(serve(settings, listener, parent.sentinel))
    except BadExport as error:
        (folder / REFUSAL).write_text(str(error))
        sys.exit(CANNOT_START)


class _Supervisor:
    """Starts workers, and starts them again until a signal comes."""

    def __init__(self, settings: Settings, listener: socket.socket, folder: Path) -> None:
        self._settings = settings
        self._listener = listener
        self._folder = folder
        self._context = multiprocessing.get_context("spawn")
        self._workers: dict[int, SpawnProcess] = {}
        self._stopping = asyncio.Event()

    async def run(self) -> int:
        """Watch every worker until it has ended for good."""
        loop = asyncio.get_running_loop()
        for number in SIGNALS:
            loop.add_signal_handler(number, self._pass_on, number)
        codes = await asyncio.gather(*(self._keep(index) for index in range(self._settings.workers)))
        log.info("all workers have stopped")
        return max(code if code >= 0 else 1 for code in codes)

    def _pass_on(self, number: signal.Signals) -> None:
        """Send a signal to all workers; none is started again, and when the last one stops listening, nobody does."""
        log.info("%s: passed on to %d workers", number.name, len(self._workers))
        self._stopping.set()
        self._listener.close()
        for worker in self._workers.values():
            if worker.pid is not None and worker.is_alive():
                os.kill(worker.pid, number)

    async def _keep(self, index: int) -> int:
        """Start a worker, again and again until it may end; its last exit code."""
        pause_s = 0.0
        is_first = True
        while not self._stopping.is_set():
            started = time.monotonic()
            code = await self._once(index)
            if code == CANNOT_START and is_first:
                self._pass_on(signal.SIGINT)
            if self._stopping.is_set():
                return code
            is_first = False
            was_steady = time.monotonic() - started > STEADY_S
            pause_s = 0.0 if was_steady else min(LONGEST_PAUSE_S, 2 * pause_s + FIRST_PAUSE_S)
            why = f" ({(self._folder / REFUSAL).read_text()})" if code == CANNOT_START else ""
            log.error("worker %d ended with code %d%s; it is started again in %g s", index, code, why, pause_s)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), pause_s)
        return 0

    async def _once(self, index: int) -> int:
        """Run a worker to its end; its exit code, negative for a signal."""
        worker = self._context.Process(
            target=_work, args=(self._settings, self._listener, self._folder, index), name=f"worker-{index}"
        )
        resource_tracker.ensure_running()  # `start` would do it, and it unblocks these signals
        before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)  # inherited: they wait until the worker can drain
        worker.start()
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        self._workers[index] = worker
        has_ended = asyncio.Event()
        loop = asyncio.get_running_loop()
        loop.add_reader(worker.sentinel, has_ended.set)
        await has_ended.wait()
        loop.remove_reader(worker.sentinel)
        worker.join()
        if worker.pid is not None:
            forget_worker(self._folder, worker.pid)
        return worker.exitcode or 0
