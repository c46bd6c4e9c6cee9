"""Memory of a process, from `/proc` (Linux only)."""

import multiprocessing
import re
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Literal, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


def in_own_process(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Call a module-level function in a new process, which does not inherit this one's memory."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        return pool.submit(function, *args, **kwargs).result()


def forget_peak() -> int:
    """Reset the peak of the resident memory; returns the current value in bytes."""
    Path("/proc/self/clear_refs").write_text("5")
    return resident()


def resident(pid: int | Literal["self"] = "self", key: str = "VmRSS") -> int:
    """Resident memory of a process in bytes."""
    found = re.search(rf"{key}:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    assert found is not None
    return 1024 * int(found[1])
