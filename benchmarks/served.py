"""Servers for the benchmarks: started, told apart from the load by cores, and stopped. Used by the other modules."""

import contextlib
import os
import platform
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

from benchmarks.inference_paths import cpu_name
from model.training.provenance import git_revision

ROOT = Path(__file__).parents[1]
RESULTS = Path(__file__).parent / "results"
START_S = 60
TEXT = "text/plain"


class Server:
    """A server process and its address."""

    def __init__(self, process: subprocess.Popen[bytes], url: str) -> None:
        self.process = process
        self.url = url

    def rss_mb(self) -> float:
        """Resident memory of the process."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        found = re.search(r"VmRSS:\s+(\d+) kB", status)
        return int(found[1]) / 1024 if found else float("nan")

    def stop(self) -> int:
        """Ask it to stop; its exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(START_S)


@contextlib.contextmanager
def server(command: Sequence[str], cores: set[int] | None = None) -> Iterator[Server]:
    """Run `python ARGUMENTS` until the end of the block; it must log `listening on URL` or `running on URL`."""
    with tempfile.NamedTemporaryFile("w+", suffix=".log") as log:
        process = subprocess.Popen(
            [sys.executable, *command], cwd=ROOT, stdout=log, stderr=log, env=_environment(),
            preexec_fn=(lambda: os.sched_setaffinity(0, cores)) if cores else None,
        )  # fmt: skip
        try:
            yield Server(process, _address(process, Path(log.name)))
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()


def _environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("LONGDOC_")}


def _address(process: subprocess.Popen[bytes], log: Path) -> str:
    until = time.monotonic() + START_S
    while not (found := re.search(r"(?:listening|running) on (http://\S+)", log.read_text(), re.IGNORECASE)):
        if process.poll() is not None or time.monotonic() > until:
            raise RuntimeError(f"the server did not start:\n{log.read_text()[-2000:]}")
        time.sleep(0.05)
    return found[1]


def service(*flags: str, cores: set[int] | None = None) -> contextlib.AbstractContextManager[Server]:
    """Our server with the exports of the repository, on a free port."""
    return server(["-m", "service", "--port", "0", "--device", "cpu", *flags], cores)


def document(length: int) -> bytes:
    """A text of that many bytes."""
    text = b"The film was long, and I liked most of it; the rest was noise. "
    return (text * (1 + length // len(text)))[:length]


def header(title: str, lines: Sequence[str], command: str) -> str:
    """What a reader needs to judge or repeat the figures."""
    packages = ("onnxruntime", "uvicorn", "httptools", "uvloop", "fastapi", "numpy")
    versions = ", ".join(f"{name} {version(name)}" for name in packages)
    cores = len(os.sched_getaffinity(0))
    facts = [
        f"- CPU: {cpu_name()}, {cores} cores, load before the run: {os.getloadavg()[0]:.1f}",
        f"- Python {platform.python_version()}, {versions}",
        f"- revision {git_revision()}, {datetime.now(UTC):%Y-%m-%d}",
        f"- command: `{command}`",
    ]
    return "\n".join([f"# {title}", "", *lines, "", *facts, ""])


def table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """An aligned table: the first column to the left, the others to the right."""
    widths = [max(len(row[i]) for row in [columns, *rows]) for i in range(len(columns))]

    def line(cells: Sequence[str]) -> str:
        first, *rest = (
            cell.ljust(w) if i == 0 else cell.rjust(w) for i, (cell, w) in enumerate(zip(cells, widths, strict=True))
        )
        return "| " + " | ".join([first, *rest]) + " |"

    rule = "| " + " | ".join(["-" * widths[0], *("-" * (w - 1) + ":" for w in widths[1:])]) + " |"
    return "\n".join([line(columns), rule, *map(line, rows)]) + "\n"
