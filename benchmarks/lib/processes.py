"""Processes of a server, from /proc; needs Linux."""

import contextlib
from pathlib import Path


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
