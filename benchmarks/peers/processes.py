"""Environments and processes of the peers. Used by `benchmarks.peers.__main__`; needs Linux."""

import contextlib
import ctypes
import http.client
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from urllib.parse import urlsplit

from benchmarks.lib.processes import cpu_s, descendants
from benchmarks.lib.servers import ROOT

HERE = Path(__file__).parent
START_S = 120
"""Timeout in seconds of the first answer after the start."""
END_S = 20
"""Timeout in seconds of the exit of a killed process."""
POLL_S = 0.01
PR_SET_CHILD_SUBREAPER = 36
CONFIGURING = ("BENTOML_", "LONGDOC_", "MLSERVER_", "RAY_", "UVICORN_", "WEB_CONCURRENCY")
"""Prefixes of environment variables that configure a server."""


class PeerFailed(Exception):
    """A peer cannot be installed or started, or gives wrong answers; the message is one line with the reason."""


def adopt_orphans() -> None:
    """Become the reaper of orphaned server processes, so that all are measured and none outlives the benchmark."""
    if ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
        raise OSError("prctl(PR_SET_CHILD_SUBREAPER) failed")


def install(name: str) -> Path:
    """Create the environment of a peer if necessary; returns its `bin` folder.

    Raises: PeerFailed with the last line of pip's output.
    """
    folder, requirements = ROOT / ".venv" / "peers" / name, HERE / f"requirements-{name}.txt"
    installed = folder / "installed.txt"
    if not installed.is_file() or installed.read_bytes() != requirements.read_bytes():
        make = [sys.executable, "-m", "venv", "--clear", str(folder)]
        fill = [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", "--requirement", str(requirements)]
        for command in (make, fill):
            done = subprocess.run(command, capture_output=True, text=True)
            if done.returncode:
                raise PeerFailed(f"not installed: {last_line(done.stderr or done.stdout)}")
        shutil.copy(requirements, installed)
    return folder / "bin"


def last_line(text: str) -> str:
    """Last line of a program's output, usually the error."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:200] if lines else "it said nothing"


class Server:
    """A server: the started process and all its descendants. Only one runs at a time."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str], cores: set[int], log: Path) -> None:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(CONFIGURING)}
        self.log = log
        self.begun = time.monotonic()
        with log.open("wb") as output:
            self.process = subprocess.Popen(
                command,
                cwd=ROOT,
                env={**kept, "PYTHONPATH": str(ROOT), **environment},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,  # Ctrl-C only reaches the benchmark, which stops the server
                preexec_fn=lambda: os.sched_setaffinity(0, cores),
            )

    def wait_for_answer(self, url: str, body: bytes) -> float:
        """Seconds from the start to the first answer with status 200. Raises: PeerFailed."""
        answer = ""
        while (passed := time.monotonic() - self.begun) < START_S:
            if self.process.poll() is not None:
                raise PeerFailed(f"ended with exit code {self.process.returncode}: {last_line(self._said())}")
            try:
                status, content = ask(url, body)
            except (OSError, http.client.HTTPException):
                time.sleep(POLL_S)
                continue
            if status == 200:
                return passed
            answer = f"the last answer was {status} {content[:100]!r}"
            time.sleep(POLL_S)
        raise PeerFailed(f"no answer within {START_S} s: {answer or last_line(self._said())}")

    def _said(self) -> str:
        return self.log.read_text(errors="replace")

    def end(self) -> None:
        """Kill all remaining processes."""
        until = time.monotonic() + END_S
        while (left := descendants(os.getpid())) and time.monotonic() < until:
            for pid in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(POLL_S)
            self.process.poll()
            for pid in left:
                if pid != self.process.pid:  # adopted orphans; Popen waits for the main process
                    with contextlib.suppress(ChildProcessError):
                        os.waitpid(pid, os.WNOHANG)


@contextlib.contextmanager
def running(command: Sequence[str], environment: Mapping[str, str], cores: set[int], log: Path) -> Iterator[Server]:
    """Run a server until the end of the block."""
    server = Server(command, environment, cores, log)
    try:
        yield server
    finally:
        server.end()


def idle_cpu(seconds: float) -> float:
    """CPU usage of the idle server, as a share of one core."""
    begun, before = time.monotonic(), _cpu_s()
    time.sleep(seconds)
    passed, after = time.monotonic() - begun, _cpu_s()
    return sum(after[pid] - before.get(pid, 0.0) for pid in after) / passed


def memory_mib() -> float:
    """Memory of all processes of the server; shared memory is counted once (proportional set size)."""
    total = 0
    for pid in descendants(os.getpid()):
        with contextlib.suppress(OSError):
            lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
            total += next((int(line.split()[1]) for line in lines if line.startswith("Pss:")), 0)
    return total / 1024


def ask(url: str, body: bytes) -> tuple[int, bytes]:
    """Send a JSON request; returns status and body of the response. Raises: OSError, http.client.HTTPException."""
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=30)
    with contextlib.closing(connection):
        connection.request("POST", parts.path, body, {"content-type": "application/json"})
        response = connection.getresponse()
        return response.status, response.read()


def _cpu_s() -> dict[int, float]:
    """CPU time in seconds of each process of the server."""
    found = dict[int, float]()
    for pid in descendants(os.getpid()):
        with contextlib.suppress(OSError):
            found[pid] = cpu_s(pid)
    return found
