"""Descendants of a process, from /proc; needs Linux."""

import contextlib
import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from types import FrameType


def descendants(root: int) -> list[int]:
    """Process ids of all descendants of a process."""
    children: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # the process has just exited
            children.setdefault(int(fields(stat)[1]), []).append(int(stat.parent.name))
    found, generation = list[int](), children.get(root, [])
    while generation:
        found += generation
        generation = [child for pid in generation for child in children.get(pid, [])]
    return found


def fields(stat: Path) -> list[str]:
    """Fields of /proc/PID/stat from the state on; the process name before it may contain any character."""
    return stat.read_text().rpartition(")")[2].split()


def cpu_s(pid: int) -> float:
    """Processor time of a process so far in seconds, of the user and of the system."""
    return sum(map(int, fields(Path(f"/proc/{pid}/stat"))[11:13])) / os.sysconf("SC_CLK_TCK")


def main_thread_s(pid: int) -> float:
    """Processor time of the main thread of a process, as `cpu_s`; in the server, it runs the event loop."""
    return sum(map(int, fields(Path(f"/proc/{pid}/task/{pid}/stat"))[11:13])) / os.sysconf("SC_CLK_TCK")


@contextlib.contextmanager
def terminating_descendants() -> Iterator[None]:
    """On SIGTERM in the block, send it to all descendants as well and raise SystemExit, which runs `finally` blocks."""
    if threading.current_thread() is not threading.main_thread():  # only it can set signal handlers
        yield
        return

    def end(number: int, _: FrameType | None) -> None:
        for pid in descendants(os.getpid()):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)
        raise SystemExit(128 + number)

    previous = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)
