"""Server processes for benchmarks: start on given cores, get the URL, stop."""

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.lib.memory import resident

ROOT = Path(__file__).parents[2]
PACKAGES = ("onnxruntime", "uvicorn", "httptools", "uvloop", "fastapi", "numpy")
"""Packages whose versions affect the results."""
TIMEOUT_S = 60
"""Time limit in seconds of a server's start, and of its exit."""
TEXT = "text/plain"


class Server:
    """A running server process and its address."""

    def __init__(self, process: subprocess.Popen[bytes], url: str) -> None:
        self.process = process
        self.url = url

    def rss_mib(self) -> float:
        """Resident memory of the process in MiB."""
        return resident(self.process.pid) / 2**20

    def stop(self) -> int:
        """Send SIGTERM; returns the exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(TIMEOUT_S)


@contextlib.contextmanager
def server(command: Sequence[str], cores: set[int] | None = None) -> Iterator[Server]:
    """Run `python COMMAND` until the end of the block; it must log `listening on URL` or `running on URL`."""
    with tempfile.NamedTemporaryFile("w+", suffix=".log") as log:
        process = subprocess.Popen(
            [sys.executable, *command], cwd=ROOT, stdout=log, stderr=log, env=environment(),
            preexec_fn=(lambda: os.sched_setaffinity(0, cores)) if cores else None,
        )  # fmt: skip
        try:
            yield Server(process, _address(process, Path(log.name)))
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()


def environment() -> dict[str, str]:
    """Environment of a server: that of this process without settings of the service."""
    return {name: value for name, value in os.environ.items() if not name.startswith("LONGDOC_")}


def _address(process: subprocess.Popen[bytes], log: Path) -> str:
    until = time.monotonic() + TIMEOUT_S
    while not (found := re.search(r"(?:listening|running) on (http://\S+)", log.read_text(), re.IGNORECASE)):
        if process.poll() is not None or time.monotonic() > until:
            raise RuntimeError(f"the server did not start:\n{log.read_text()[-2000:]}")
        time.sleep(0.01)
    return found[1]


def service(*flags: str, cores: set[int] | None = None) -> contextlib.AbstractContextManager[Server]:
    """Run the service with the repository's exports on a free port."""
    return server(["-m", "service", "--port", "0", "--device", "cpu", *flags], cores)


def free_port() -> int:
    """A port of the loopback interface that no process listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def document(length: int) -> bytes:
    """An English text of `length` bytes."""
    text = b"The film was long, and I liked most of it; the rest was noise. "
    return (text * (1 + length // len(text)))[:length]
