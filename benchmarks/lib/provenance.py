"""Provenance of results: hardware and package versions."""

import os
import platform
from collections.abc import Iterable
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from artifact.cores import cpu_count


def hardware() -> dict[str, Any]:
    """Processor, cores available to this process, load average of the last minute."""
    return {"cpu": cpu_name(), "cores": cpu_count(), "load_before": round(os.getloadavg()[0], 1)}


def cpu_name() -> str:
    """Name of the processor, from /proc/cpuinfo if available."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.is_file() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def versions(packages: Iterable[str]) -> dict[str, str]:
    """Versions of Python and of installed packages."""
    return {"python": platform.python_version(), **{name: version(name) for name in packages}}


def today() -> str:
    """Today's date, UTC."""
    return f"{datetime.now(UTC):%Y-%m-%d}"
