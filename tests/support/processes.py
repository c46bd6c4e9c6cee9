"""Processes, as Linux lists them."""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path


def children(process: int) -> Iterator[int]:
    """Ids of the processes that a process has started; none if it has ended."""
    for path in Path(f"/proc/{process}/task").glob("*/children"):
        with suppress(FileNotFoundError, ProcessLookupError):  # the thread has just ended
            yield from map(int, path.read_text().split())


def is_running(process: int) -> bool:
    """Whether a process exists and is no zombie, which a container without an init process keeps."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False
