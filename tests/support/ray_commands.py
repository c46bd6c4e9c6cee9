"""Programs in the environment of `make test-ray`."""

import os
import subprocess
from pathlib import Path
from typing import Any

from tests.support.paths import ROOT
from tests.support.ray_cluster import PYTHON, TEST_CLUSTER


def start(*arguments: object, address: str = "local", **options: Any) -> subprocess.Popen[str]:
    """Start `python ARGUMENTS`; without an address, Ray starts a cluster of its own."""
    environment = {**os.environ, **TEST_CLUSTER, "RAY_ADDRESS": address}
    return subprocess.Popen([str(PYTHON), *map(str, arguments)], env=environment, text=True, **{"cwd": ROOT, **options})


def title(pid: int) -> str:
    """Name that a process shows, such as that of its task; empty if it has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_text().rstrip("\0")
    except OSError:
        return ""
