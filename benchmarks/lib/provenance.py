"""Provenance of results: hardware and package versions."""

import contextlib
import os
import platform
import re
from collections.abc import Iterable
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from artifact.cores import cpu_count

# Flag of /proc/cpuinfo to the name that reports show, widest first.
VECTOR_INSTRUCTIONS = {"avx512f": "AVX-512", "avx2": "AVX2"}


def hardware() -> dict[str, Any]:
    """Processor, cores available to this process, load average of the last minute."""
    return {"cpu": cpu_name(), "cores": cpu_count(), "load_before": round(os.getloadavg()[0], 1)}


def cpu_name() -> str:
    """Name of the processor and its widest vector instructions, from /proc/cpuinfo if available.

    Virtual machines name processors of several generations alike; whether AVX-512 is there changes times severalfold.
    """
    info = Path("/proc/cpuinfo")
    fields = dict(re.findall(r"^(.+?)\s*: *(.*)$", info.read_text(), re.MULTILINE)) if info.is_file() else {}
    name = fields.get("model name") or platform.processor() or platform.machine()
    flags = fields.get("flags", "").split()
    widest = next((shown for flag, shown in VECTOR_INSTRUCTIONS.items() if flag in flags), None)
    return f"{name} ({widest})" if widest else name


def versions(packages: Iterable[str]) -> dict[str, str]:
    """Versions of Python and of the packages that are installed."""
    found = {"python": platform.python_version()}
    for name in packages:
        with contextlib.suppress(PackageNotFoundError):
            found[name] = version(name)
    return found


def today() -> str:
    """Today's date, UTC."""
    return f"{datetime.now(UTC):%Y-%m-%d}"
