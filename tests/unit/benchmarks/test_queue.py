"""The queue of what needs a GPU: order, what is skipped, stops and failures; and its list of jobs."""

import re
import signal
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from benchmarks import queue
from benchmarks.lib import record
from benchmarks.lib.render import benchmark_of
from benchmarks.queue import JOBS, Job, Queue, parse
from tests.support.paths import ROOT


def job(name: str, *arguments: str, limit_s: int = 3600, data: tuple[str, ...] = ()) -> Job:
    """Return a job of the benchmark for tests."""
    words = ("--name", name, *arguments)
    return Job(name, "", 1, limit_s, "tests.support.queued", (*words, "--parts", "2"), words, data)


def queue_of(out: Path, *arguments: str) -> Queue:
    """Return a queue whose jobs count to 2."""
    return Queue(parse(["--device", "cpu", "--scale", "full", "--out", str(out), *arguments]))


def numbers(out: Path) -> dict[str, list[int]]:
    found: dict[str, list[int]] = record.earlier("queued", out)["numbers"]
    return found


def test_jobs_run_in_order_and_complete_ones_are_skipped(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    jobs = [job("first"), job("second", "--then", "fail"), job("third")]
    once = queue_of(tmp_path)
    once.run(jobs)
    assert once.has_failed
    assert numbers(tmp_path) == {"first": [0, 1], "second": [0], "third": [0, 1]}
    shown = re.sub(r"\d+ s", "N s", capfd.readouterr().out)
    assert "queue: first: 2 parts, about N s; N s left\n" in shown
    assert "queue: first: complete after N s\n" in shown
    assert "queue: second: failed after N s, exit code 1\n" in shown
    assert list(tmp_path.rglob(".*")) == []

    again = queue_of(tmp_path)
    again.run([job("first"), job("second"), job("third")])
    assert not again.has_failed
    assert numbers(tmp_path) == {"first": [0, 1], "second": [0, 1], "third": [0, 1]}
    assert record.earlier("queued", tmp_path)["calls"] == 4
    shown = capfd.readouterr().out
    assert "queue: first: complete\n" in shown
    assert "queue: third: complete\n" in shown


def test_job_that_cannot_be_planned_does_not_stop_the_next(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    found = queue_of(tmp_path)
    found.run([replace(job("first"), program="tests.support.absent"), job("second")])
    assert found.has_failed
    assert numbers(tmp_path) == {"second": [0, 1]}
    assert "queue: first: failed: ModuleNotFoundError: No module named 'tests.support.absent'" in capfd.readouterr().out


class Clock:
    """The queue's clock: it stands still until a file exists, and then shows the end of the time."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.sleep = time.sleep

    def monotonic(self) -> float:
        return 1e6 * self.path.exists()


@pytest.mark.parametrize(("then", "path"), [("wait", "queued/data.json"), ("wait on", "deaf")])
def test_job_is_stopped_when_its_time_ends(
    then: str, path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(queue, "time", Clock(tmp_path / path))
    if then == "wait on":
        monkeypatch.setattr(queue, "GRACE_S", 0.1)
    found = queue_of(tmp_path)
    found.run([job("first", "--then", then), job("second")])
    assert (found.has_failed, found.is_stopped) == (False, False)
    assert numbers(tmp_path) == {"first": [0]}
    shown = capfd.readouterr().out
    assert "queue: first: 1000000 s; missing: 1\n" in shown
    assert "queue: second: not started: 0 s left; missing: 0, 1\n" in shown
    assert list(tmp_path.rglob(".*")) == []


def test_stopped_queue_stops_its_job_and_starts_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = queue_of(tmp_path)

    def sleep_or_stop(_: float) -> None:
        if (tmp_path / "queued" / "data.json").exists():
            found.stop(signal.SIGTERM, None)

    monkeypatch.setattr(queue, "time", SimpleNamespace(monotonic=time.monotonic, sleep=sleep_or_stop))
    found.run([job("first", "--then", "wait"), job("second")])
    assert found.is_stopped
    assert numbers(tmp_path) == {"first": [0]}


def test_job_without_its_data_is_not_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("LONGDOC_DATA", str(tmp_path))
    (tmp_path / "here.xz").touch()
    queue_of(tmp_path).run([job("first", data=("here.xz", "absent.xz")), job("second", data=("here.xz",))])
    assert numbers(tmp_path) == {"second": [0, 1]}
    assert "queue: first: not started: LONGDOC_DATA has no absent.xz\n" in capfd.readouterr().out
    toy = Queue(parse(["--device", "cpu", "--out", str(tmp_path)]))
    toy.run([job("third", data=("absent.xz",))])
    assert numbers(tmp_path)["third"] == [0]


def test_device_that_is_missing_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    if torch.cuda.is_available():
        pytest.skip("this machine has a GPU")
    assert queue.main([]) == 2
    assert "error: --device cuda: no CUDA device is available; --device cpu tries the queue" in capsys.readouterr().err


@pytest.mark.parametrize("toy", [False, True])
@pytest.mark.parametrize("found", JOBS, ids=lambda found: found.name)
def test_benchmarks_accept_their_arguments(found: Job, toy: bool, tmp_path: Path) -> None:
    benchmark = benchmark_of(found.program)
    words = [word.format(device="cpu") for word in (found.toy if toy else found.arguments)]
    assert benchmark.missing is not None
    assert benchmark.missing(benchmark.parse([*words, "--out", str(tmp_path)]))


def test_list_in_the_docs_is_that_of_the_queue() -> None:
    rows = re.findall(
        r"^\| `([a-z-]+)` \| (.*) \| ([\d,]+) \| ?(.*?) ?\|$", (ROOT / "docs/develop/gpu.md").read_text(), re.M
    )
    expected = [
        (found.name, found.content, f"{found.estimate_s:,}", ", ".join(f"`{name}`" for name in found.data))
        for found in JOBS
    ]
    assert rows == expected
