"""Studies of many training runs."""

import argparse
import re
from collections.abc import Iterable
from concurrent.futures import Future, wait
from pathlib import Path
from typing import Any

import pytest

from benchmarks.lib import record
from benchmarks.lib.record import Data
from benchmarks.papers import lra, lra_rates, study
from benchmarks.papers.study import Case, Study
from model.config.recipes import find_recipe, load_recipe
from tests.support.records import made_up

WORDS = ["--columns", "text", "--rows", "s3", "softmax", "--seeds", "2", "--data-dir", "data"]
TOY = ["--scale", "toy", "--columns", "text", "--rows", "dba", "--seeds", "1", "--jobs", "1"]


def result(found: Study, case: Case, accuracy: float = 0.75, **more: Any) -> Data:
    """Return a made-up result of a run."""
    rest = {"validation": 0.5, "examples_per_second": 10.0, "steps": 600, "device": "CPU", "revision": "x"}
    return {**case._asdict(), "recipe": found.fingerprint(*case[:3]), "accuracy": accuracy, **rest, **more}


def test_interrupted_study_is_resumed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    done: list[Case] = []

    def train(self: Study, case: Case, args: argparse.Namespace) -> Data:
        assert (args.data_dir, args.jobs) == (Path("data"), 1)
        if len(done) == 3:
            raise RuntimeError("interrupted")
        done.append(case)
        return result(self, case, 0.75 + case.seed / 8)

    monkeypatch.setattr(Study, "train", train)
    words = [*WORDS, "--jobs", "1", "--out", str(tmp_path), "--runs", str(tmp_path / "runs")]
    with pytest.raises(RuntimeError, match="interrupted"):
        lra.BENCHMARK.main(words)
    assert len(record.read("lra", tmp_path).data["runs"]) == 3
    assert lra.BENCHMARK.missing is not None
    assert lra.BENCHMARK.missing(lra.BENCHMARK.parse(words)) == ["cpu text softmax 1"]
    done.clear()
    lra.BENCHMARK.main(words)
    assert done == [("cpu", "text", "softmax", 1)]
    assert lra.BENCHMARK.missing(lra.BENCHMARK.parse(words)) == []
    report = (tmp_path / "lra" / "report.md").read_text()
    assert "| s3      | 81.2 ± 8.8 (2) |" in report
    assert "| dba " not in report.partition("## Published")[0]  # there is no such run


def test_runs_that_finish_with_a_failure_are_recorded(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def train(self: Study, case: Case, _: argparse.Namespace) -> Data:
        if (case.row, case.seed) == ("softmax", 0):
            raise RuntimeError("interrupted")
        return result(self, case)

    def failures_first(pending: Iterable[Future[Data]]) -> list[Future[Data]]:
        wait(pending)
        return sorted(pending, key=lambda run: run.exception() is None)

    monkeypatch.setattr(Study, "train", train)
    monkeypatch.setattr(study, "as_completed", failures_first)
    with pytest.raises(RuntimeError, match="interrupted"):
        lra.BENCHMARK.main([*WORDS, "--jobs", "2", "--out", str(tmp_path), "--runs", str(tmp_path / "runs")])
    runs = record.read("lra", tmp_path).data["runs"]
    assert {(run["row"], run["seed"]) for run in runs} == {("s3", 0), ("s3", 1), ("softmax", 1)}


def test_folder_of_a_run_is_kept_until_it_is_recorded(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Evaluation fails the first time: the training is not repeated."""
    words = [*TOY, "--out", str(tmp_path), "--runs", str(tmp_path / "runs")]

    def fail(*_: Any, **__: Any) -> float:
        raise RuntimeError("no memory")

    with monkeypatch.context() as patch:
        patch.setattr(study, "accuracy_of", fail)
        with pytest.raises(RuntimeError, match="no memory"):
            lra.BENCHMARK.main(words)
    (folder,) = (tmp_path / "runs").iterdir()
    assert (folder / "lra-text-seed0" / "last.pt").is_file()
    assert re.search(r"^text, dba, seed 0: epoch 3: ", capsys.readouterr().out, re.MULTILINE)
    lra.BENCHMARK.main(words)
    assert "epoch" not in capsys.readouterr().out
    assert list((tmp_path / "runs").iterdir()) == []
    (run,) = record.read("lra", tmp_path).data["runs"]
    assert run["steps"] == 12
    assert [steps for steps, _, _ in run["curve"]] == [4, 8, 12]
    assert run["validation"] == pytest.approx(max(accuracy for _, _, accuracy in run["curve"]), abs=1e-5)
    assert (tmp_path / "lra" / "chart.webp").is_file()


def test_accuracies_near_chance_leave_the_table() -> None:
    """On Text chance is 49.9 %: a tenth of the way to 100 % is 54.9 %."""
    cases = [Case("cpu", "text", row, seed) for row in ("s3", "dba") for seed in range(2)]
    cases.append(Case("cpu", "listops", "s3", 0))
    accuracies = (0.53, 0.57, 0.52, 0.575, 0.2)
    runs = [result(lra.STUDY, case, accuracy) for case, accuracy in zip(cases, accuracies, strict=True)]
    assert lra.STUDY.near_chance(runs) == [("dba", "text"), ("s3", "listops")]
    report = re.sub(" +", " ", lra.STUDY.report(made_up({"runs": runs})))
    assert "| | text |\n| --- | -------------: |\n| s3 | 55.0 ± 2.8 (2) |\n\n" in report
    assert "Left out, because near the most frequent label: dba on text, s3 on listops.\n" in report
    assert "| dba | 10 | |\n| s3 | 10 | 10 |\n" in report  # training examples a second


def test_text_on_a_gpu_has_the_settings_of_table_8() -> None:
    overrides = lra.STUDY.overrides("gpu", "text", lra.PAPER_MODE)
    found = load_recipe(find_recipe("lra-text"), [*overrides, "name=imdb-paper"]).to_dict()
    assert found == load_recipe(find_recipe("imdb-paper")).to_dict()


def test_validation_chooses_the_rate() -> None:
    runs = [
        result(lra_rates.STUDY, Case(scale, "text", row, 0), validation=value)
        for scale, row, value in (("gpu", "1e-4", 0.625), ("gpu", "3e-5", 0.65625), ("toy", "3e-4", 0.75))
    ]
    report = re.sub(" +", " ", lra_rates.STUDY.report(made_up({"runs": runs})))
    assert "## Best validation accuracy, %\n\n" in report
    assert "| 3e-5 | 65.6 (1) |\n| 1e-4 | 62.5 (1) |\n| 3e-4 | |\n" in report
