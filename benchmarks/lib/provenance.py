"""Where figures come from: the machine, the packages and the revision of the code."""

import os
import platform
import subprocess
from collections.abc import Iterable
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

TEXTS = ("benchmarks/results", "docs", "*.md")
"""What may have changed without making a revision `-dirty`: it does not change what is measured."""


def hardware() -> dict[str, Any]:
    """Processor, cores that this process may use, load of the last minute."""
    return {"cpu": cpu_name(), "cores": len(os.sched_getaffinity(0)), "load_before": round(os.getloadavg()[0], 1)}


def cpu_name() -> str:
    """The processor's name, from the kernel where it gives one."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.is_file() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def versions(packages: Iterable[str]) -> dict[str, str]:
    """Of Python and of installed packages."""
    return {"python": platform.python_version(), **{name: version(name) for name in packages}}


def today() -> str:
    """The date, UTC."""
    return f"{datetime.now(UTC):%Y-%m-%d}"


def git_revision() -> str:
    """Revision of the code, with `-dirty` if code has uncommitted changes; `unknown` outside a checkout."""
    try:
        revision = _git("describe", "--always", "--abbrev=12")
        paths = (":/", *(f":(top,exclude){path}" for path in TEXTS))
        is_dirty = _git("status", "--porcelain", "--untracked-files=no", "--", *paths)
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return f"{revision}-dirty" if is_dirty else revision


def _git(*arguments: str) -> str:
    command = ["git", "-C", str(Path(__file__).parent), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
