"""Studies of many training runs."""

from collections.abc import Sequence
from concurrent.futures import Future, wait
from pathlib import Path
from typing import Any

import pytest

from benchmarks.lib import record
from benchmarks.lib.record import Data
from benchmarks.papers import lra, study


def test_interrupted_study_is_resumed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    done: list[tuple[Any, ...]] = []

    def train(self: study.Study, scale: str, column: str, row: str, seed: int, data_dir: Path, jobs: int) -> Data:
        assert (data_dir, jobs) == (Path("data"), 1)
        if len(done) == 3:
            raise RuntimeError("interrupted")
        done.append((scale, column, row, seed))
        found = {
            "scale": scale,
            "column": column,
            "row": row,
            "seed": seed,
            "recipe": self.fingerprint(scale, column, row),
        }
        rest = {"validation": 0.5, "examples_per_second": 10.0, "steps": 600, "device": "CPU", "revision": "x"}
        return {**found, "accuracy": 0.5 + seed / 8, **rest}

    monkeypatch.setattr(study.Study, "train", train)
    words = ["--columns", "text", "--rows", "s3", "softmax", "--seeds", "2", "--jobs", "1", "--data-dir", "data"]
    with pytest.raises(RuntimeError, match="interrupted"):
        lra.BENCHMARK.main([*words, "--out", str(tmp_path)])
    assert len(record.read("lra", tmp_path).data["runs"]) == 3
    done.clear()
    lra.BENCHMARK.main([*words, "--out", str(tmp_path)])
    assert done == [("cpu", "text", "softmax", 1)]
    report = (tmp_path / "lra" / "report.md").read_text()
    assert "| s3               | 56.2 ± 8.8 (2) |" in report
    assert "| dba              |                |" in report


def test_runs_that_finish_with_a_failure_are_recorded(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def train(self: study.Study, scale: str, column: str, row: str, seed: int, _data_dir: Path, _jobs: int) -> Data:
        if (row, seed) == ("softmax", 0):
            raise RuntimeError("interrupted")
        recipe = self.fingerprint(scale, column, row)
        place = {"scale": scale, "column": column, "row": row, "seed": seed, "recipe": recipe}
        rest = {"validation": 0.5, "examples_per_second": 10.0, "steps": 600, "device": "CPU", "revision": "x"}
        return {**place, "accuracy": 0.5, **rest}

    def failures_first(pending: Sequence[Future[Data]]) -> list[Future[Data]]:
        wait(pending)
        return sorted(pending, key=lambda run: run.exception() is None)

    monkeypatch.setattr(study.Study, "train", train)
    monkeypatch.setattr(study, "as_completed", failures_first)
    words = ["--columns", "text", "--rows", "s3", "softmax", "--seeds", "2", "--jobs", "2", "--data-dir", "data"]
    with pytest.raises(RuntimeError, match="interrupted"):
        lra.BENCHMARK.main([*words, "--out", str(tmp_path)])
    runs = record.read("lra", tmp_path).data["runs"]
    assert {(run["row"], run["seed"]) for run in runs} == {("s3", 0), ("s3", 1), ("softmax", 1)}
