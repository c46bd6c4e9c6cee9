"""Cores that the process may use. Used by the service for its slots and by training for its threads."""

import math
import os
from pathlib import Path

CPU_QUOTA = Path("/sys/fs/cgroup/cpu.max")


def cpu_count() -> int:
    """Cores this process may use: its affinity, cut by the quota of its control group (a container's `--cpus`)."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1  # macOS has none
    try:
        quota, period = CPU_QUOTA.read_text().split()
        return max(1, min(cores, math.ceil(int(quota) / int(period))))
    except (OSError, ValueError):  # no such file outside cgroup v2; "max" when there is no quota
        return cores
