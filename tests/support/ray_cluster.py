"""Ray clusters on this machine, in the environment of `make test-ray`."""

import contextlib
import subprocess
import time
import urllib.request
from pathlib import Path
from typing import Self

from benchmarks.lib.servers import ROOT, environment, free_port

PYTHON = ROOT / ".venv" / "ray" / "bin" / "python"
"""Interpreter with Ray and the service; `make test-ray` installs it."""
TEST_CLUSTER = {
    "PYTHONPATH": str(ROOT),
    "RAY_AUTH_MODE": "disabled",
    "RAY_USAGE_STATS_ENABLED": "0",
    # The many processes of a cluster start slowly on few cores.
    "RAY_SERVE_PROXY_READY_CHECK_TIMEOUT_S": "60",
    "RAY_SERVE_PROXY_HEALTH_CHECK_TIMEOUT_S": "60",
    # By default, Ray's workers yield to every other process (nice 15), so that they hardly run on a busy machine.
    "RAY_worker_niceness": "0",
}
STOPPED_S = 120
"""Time limit in seconds of the end of a cluster."""
READY_S = 120
"""Time limit in seconds of the first answer of a node."""


def is_ready(url: str) -> bool:
    """Whether the service at a URL is ready."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with contextlib.suppress(OSError), opener.open(f"{url}/v2/health/ready", timeout=5):
        return True
    return False


def wait_until_ready(url: str) -> None:
    """Wait until the service at a URL is ready. Raises: TimeoutError after READY_S."""
    until = time.monotonic() + READY_S
    while not is_ready(url):
        if time.monotonic() > until:
            raise TimeoutError(f"{url} did not become ready within {READY_S} s")
        time.sleep(0.05)


class RayCluster:
    """A cluster with a node, a replica and a proxy for each of `nodes`; `tests.support.ray_nodes` runs it.

    Raises: RuntimeError with its log if it does not start.
    """

    def __init__(self, log: Path, nodes: int) -> None:
        self.urls = [f"http://127.0.0.1:{free_port()}" for _ in range(nodes)]
        """Address of the proxy of each node."""
        ports = [url.rpartition(":")[2] for url in self.urls]
        program = ("-m", "tests.support.ray_nodes")
        with log.open("wb") as stream:
            self.process = subprocess.Popen(
                [str(PYTHON), *program, str(ROOT / "exports"), *ports], env={**environment(), **TEST_CLUSTER},
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=stream, cwd=ROOT, text=True,
            )  # fmt: skip
        self._log = log
        self._wait_for("ready")

    def _wait_for(self, line: str) -> None:
        """Read lines until the expected one. Raises: RuntimeError with the log if the program ends."""
        assert self.process.stdout is not None
        for found in self.process.stdout:
            if found == f"cluster: {line}\n":
                return
        self.process.communicate(timeout=STOPPED_S)
        raise RuntimeError(self._log.read_text())

    def command(self, name: str, index: int) -> None:
        """`kill` a node, which ends all its processes at once, or `add` it again and wait until it is ready."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{name} {index}\n")
        self.process.stdin.flush()
        self._wait_for(name)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.communicate(timeout=STOPPED_S)
