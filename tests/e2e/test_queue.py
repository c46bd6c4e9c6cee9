"""The queue of what needs a GPU, as a program on a CPU: stopped in the middle of each kind of job, and continued."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from benchmarks.queue import JOBS
from model.training import checkpoint
from tests.support.paths import ROOT
from tests.support.waiting import wait_until

ATTEMPTS = 5
"""Times that a job is stopped until the signal arrives before its end."""


def start(folder: Path, log: Path, *jobs: str, variables: Mapping[str, str] | None = None) -> subprocess.Popen[bytes]:
    """Start the queue at toy scale; its output goes to a file."""
    command = [sys.executable, "-m", "benchmarks.queue", "--device", "cpu", "--out", str(folder / "results")]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", **(variables or {})}
    with log.open("wb") as output:
        return subprocess.Popen(
            [*command, "--runs", str(folder / "runs"), *jobs], cwd=ROOT, env=environment, stdout=output, stderr=output
        )


def recorded(folder: Path, name: str) -> dict[str, list[object] | dict[str, object]]:
    """Data of a record, empty if there is none."""
    path = folder / "results" / name / "data.json"
    found: dict[str, list[object] | dict[str, object]] = json.loads(path.read_text())["data"] if path.exists() else {}
    return found


HELD = {"PYTHONPATH": os.pathsep.join((str(ROOT / "tests/support/held"), str(ROOT)))}
"""Variable that holds a job of kind speed between its two parts."""


def content(folder: Path) -> dict[Path, bytes]:
    """Content of each file of the records."""
    return {path: path.read_bytes() for path in (folder / "results").rglob("*") if path.is_file()}


def checkpoints(folder: Path) -> list[Path]:
    return list((folder / "runs").rglob("last.pt"))


KINDS: dict[str, Callable[[Path], int]] = {
    "serving": lambda folder: len(recorded(folder, "gpu").get("models", [])),
    "text": lambda folder: len(checkpoints(folder)),
    "speed": lambda folder: len(recorded(folder, "attention_speed_gpu").get("inference_s", [])),
}
"""Job of each kind -> how much is on the disk in its middle: one of two exports, a checkpoint, one of two lengths."""


def stop_in_the_middle(job: str, folder: Path) -> str:
    """Start the queue with one job, stop it by SIGTERM in its middle and return what it has printed."""
    log = folder / f"{job}.log"
    process = start(folder, log, job, variables=HELD if job == "speed" else None)
    try:
        wait_until(lambda: KINDS[job](folder) or process.poll() is not None, log.read_text)
        process.send_signal(signal.SIGTERM)
        assert process.wait() in (0, 128 + signal.SIGTERM), log.read_text()
    finally:
        process.kill()
        process.wait()
    return log.read_text()


@pytest.mark.parametrize("job", KINDS)
def test_stopped_job_goes_on(job: str, tmp_path: Path) -> None:
    for attempt in range(ATTEMPTS):  # a fast job may end before it gets the signal
        folder = tmp_path / str(attempt)
        folder.mkdir()
        shown = stop_in_the_middle(job, folder)
        if "missing: " in shown:
            break
    assert re.search(rf"^queue: {job}: \d+ s; missing: ", shown, re.MULTILINE), shown
    assert [path for path in folder.rglob("*") if path.name.startswith(".") or path.suffix == ".partial"] == []
    first = KINDS[job](folder)
    assert first == 1
    epochs = [checkpoint.load(path)[1].epoch for path in checkpoints(folder)]

    process = start(folder, log := folder / "again.log", job)
    assert process.wait() == 0, log.read_text()
    again = log.read_text()
    assert re.search(rf"^queue: {job}: complete after ", again, re.MULTILINE)
    for epoch in epochs:  # those before are not trained again
        trained = [int(number) for number in re.findall(r": epoch (\d+): training loss", again)]
        assert trained == list(range(epoch + 1, 4))
    assert checkpoints(folder) == []


@pytest.mark.slow
def test_whole_queue_runs_on_a_cpu_and_is_done_once(tmp_path: Path) -> None:
    process = start(tmp_path, log := tmp_path / "first.log")
    assert process.wait() == 0, log.read_text()
    shown = log.read_text()
    assert re.findall(r"^queue: (\S+): complete after", shown, re.MULTILINE) == [job.name for job in JOBS]
    before = content(tmp_path)
    assert {path.parent.name for path in before} == {"gpu", "lra", "lra_rates", "attention_speed_gpu", "bytes"}
    assert {path.name for path in before} == {"data.json", "report.md", "chart.webp"}

    process = start(tmp_path, log := tmp_path / "second.log")
    assert process.wait() == 0
    assert log.read_text() == "".join(f"queue: {job.name}: complete\n" for job in JOBS)
    assert content(tmp_path) == before


def test_make_gpu_runs_the_queue() -> None:
    """With time for nothing: it tells what is missing."""
    command = ["make", "--silent", "gpu", "DEVICE=cpu", "BUDGET=0", f"DEV={Path(sys.executable).parent}"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    started = [
        line for line in done.stdout.splitlines() if not re.match(r"queue: \S+: (not started: 0 s left|complete)", line)
    ]
    assert started == []
    assert len(done.stdout.splitlines()) == len(JOBS)
