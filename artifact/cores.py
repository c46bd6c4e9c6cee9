"""CPU cores available to the process, which set the number of slots of the service and of threads in training."""

import math
import os
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

GROUPS = Path("/sys/fs/cgroup")
"""Mount point of control groups; a container sees its own group here."""
MEMBERSHIP = Path("/proc/self/cgroup")
"""File that names the process's control groups."""


def cpu_count() -> int:
    """Number of cores the process may use: its CPU affinity, limited by cgroup quotas (`--cpus`, `CPUQuota=`)."""
    has_affinity = hasattr(os, "sched_getaffinity")  # not on macOS
    cores = len(os.sched_getaffinity(0)) if has_affinity else os.cpu_count() or 1
    return max(1, min([cores, *_quotas()]))


def _quotas() -> Iterator[int]:
    """Yield the quota, in cores rounded up, of each enclosing control group that sets one."""
    for group in _groups():
        try:
            quota, period = _quota(group)
            if quota > 0:  # version 1 has -1 for no quota
                yield math.ceil(quota / period)
        except (OSError, ValueError, ZeroDivisionError):  # the root group has no such file; "max" means no quota
            continue


def _quota(group: Path) -> tuple[int, int]:
    """Quota and period of a control group in microseconds. Raises: OSError, ValueError."""
    if (group / "cpu.max").exists():
        quota, period = (group / "cpu.max").read_text().split()
    else:
        quota, period = ((group / f"cpu.cfs_{name}_us").read_text() for name in ("quota", "period"))
    return int(quota), int(period)


def _groups() -> Iterator[Path]:
    """Folders of the process's control groups and of those that enclose them, of version 2 and version 1."""
    try:
        lines = MEMBERSHIP.read_text().splitlines()
    except OSError:  # not on Linux
        return
    for line in lines:
        match line.split(":", 2):
            case "0", "", own:  # version 2: "0::/group"
                root = GROUPS
            case _, controllers, own if "cpu" in controllers.split(","):  # version 1: "4:cpu,cpuacct:/group"
                root = GROUPS / "cpu"  # a link to the folder of all these controllers
            case _:
                continue
        group = PurePosixPath(own.lstrip("/"))
        yield from (root / folder for folder in (group, *group.parents))
