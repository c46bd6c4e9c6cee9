"""Metrics that the replicas of an application on one node share, as the workers of a plain server do.

The parent of workers sees which ones have ended; replicas have no such parent. Instead, each replica locks a file, and
the kernel releases the lock when the process ends, however it ends. A new replica takes the lowest number whose file is
not locked, and continues the counters of the replica that had it before.
"""

import contextlib
import fcntl
import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from service.multiprocess import remove_gauges, set_worker

PREFIX = "replica-"
"""Name of the file that a replica locks, without its number."""


class SharedMetrics:
    """The number of this process among the replicas that share a folder; create it before `Metrics`.

    Args:
        folder: the folder of the application and the node, on a local disk; created if it does not exist. Pass it to
            `Metrics`, too.

    Raises: OSError if the folder cannot be used or its disk is full.

    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        with self._all_locked():
            index, self._lock = next(
                (index, lock) for index in itertools.count() if (lock := _lock(folder / f"{PREFIX}{index}"))
            )
            remove_gauges(folder, index)
            set_worker(folder, index)

    def remove_ended(self) -> None:
        """Remove the gauges of the replicas that have ended; their counters stay."""
        with self._all_locked():
            for path in self.folder.glob(f"{PREFIX}*"):
                if lock := _lock(path):
                    with lock:
                        remove_gauges(self.folder, int(path.name.removeprefix(PREFIX)))

    @contextlib.contextmanager
    def _all_locked(self) -> Iterator[None]:
        """Keep other replicas from taking a number, or removing gauges, until the end of the block."""
        with (self.folder / "lock").open("ab") as stream:
            fcntl.flock(stream, fcntl.LOCK_EX)
            yield


def _lock(path: Path) -> BinaryIO | None:
    """Lock a file; returns it, or None if a process holds its lock, this one included. Closing it releases the lock."""
    stream = path.open("ab")
    try:
        fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        stream.close()
        return None
    return stream
