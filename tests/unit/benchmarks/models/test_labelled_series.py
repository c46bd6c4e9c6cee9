"""Sets, runs and the report, from made-up data."""

import argparse
import gzip
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.models.labelled_series import __main__ as benchmark
from benchmarks.models.labelled_series.report import BOTH, DTW, ROCKET, S3, answers, difference, mean_ranks
from benchmarks.models.labelled_series.sets import packed, read_split, sets_of, unpacked
from model.data.own_recordings import model_keys
from tests.support.records import expect_in_report, made_up
from tests.support.waves import write_ts


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    """The sets BasicMotions and EOG, the latter in two files, and JapaneseVowels."""
    (tmp_path / "series").mkdir()
    for name in ("BasicMotions", "EOGHorizontalSignal", "EOGVerticalSignal"):
        for split, first in (("TRAIN", 0), ("TEST", 100)):
            plain = write_ts(tmp_path / "plain.ts", 6, first)
            (tmp_path / "series" / f"{name}_{split}.ts.gz").write_bytes(gzip.compress(plain.read_bytes()))
    return tmp_path


def test_packed_answers_are_unpacked() -> None:
    correct = np.arange(21) % 3 == 0
    assert (unpacked(packed(correct), 21) == correct).all()


def test_sets_are_composed_of_their_parts(data_dir: Path) -> None:
    assert sets_of(data_dir) == ["BasicMotions", "EOG", "JapaneseVowels", "Pig"]
    part, composed = (read_split(name, "TEST", data_dir) for name in ("EOGVerticalSignal", "EOG"))
    assert composed.channels == ("0-c1", "0-c2", "1-c1", "1-c2")
    assert composed.recordings[3].label == part.recordings[3].label
    assert (composed.recordings[3].values[:, 2:] == part.recordings[3].values).all()


def test_missing_runs_are_measured(data_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def small(*arguments: Any) -> dict[str, object]:
        return model_keys(*arguments) | {
            "training.epochs": 1,
            "training.examples_per_epoch": 16,
            "training.batch_size": 8,
        }

    monkeypatch.setattr(benchmark, "model_keys", small)
    args = argparse.Namespace(
        out=tmp_path, data_dir=data_dir, sets=["BasicMotions"], seeds=1, encoders=["softmax"], device="cpu"
    )
    *_, data = benchmark.measure(args)
    assert [(run["kind"], list(run["correct"])) for run in data["runs"]] == [
        (DTW, [DTW]),
        ("views", [ROCKET, S3, BOTH]),
        ("softmax", ["softmax"]),
    ]
    assert {run["examples"] for run in data["runs"]} == {12}
    assert all(len(correct) == 12 for (correct,) in (found["BasicMotions"] for found in answers(data).values()))


def _run(kind: str, seed: int, correct: dict[str, str], name: str = "BasicMotions") -> dict[str, Any]:
    bits = {classifier: packed(np.array([bit == "1" for bit in text])) for classifier, text in correct.items()}
    return {
        **{"set": name, "kind": kind, "seed": seed, "examples": 4, "classes": 2},
        **{"revision": "abc", "cpu_seconds": 3.0, "correct": bits},
    }


def test_report_has_means_differences_and_ranks(tmp_path: Path) -> None:
    views = ({ROCKET: "1100", S3: "1110", BOTH: "1111"}, {ROCKET: "1100", S3: "1100", BOTH: "1111"})
    runs = [_run("views", seed, found) for seed, found in enumerate(views)]
    runs += [_run(DTW, 0, {DTW: "1000"}), _run("softmax", 0, {"softmax": "1000"})]
    rows = [
        "| BasicMotions | 4 | 25.0 | 50.0 ± 0.0 | 62.5 ± 17.7 | 100.0 ± 0.0 | | +50.0 ± 28.9 |",
        "| 1 | both | 100.00 | 1.00 |",
        "| less S3Attention | | -37.5 |",
    ]
    expect_in_report(benchmark.BENCHMARK, made_up({"runs": runs}), rows, tmp_path)


def test_ranks_are_shared_by_equal_classifiers() -> None:
    correct = [np.array([True, True])], [np.array([True, False])]
    found = {"a": {"x": correct[0]}, "b": {"x": correct[1]}, "c": {"x": correct[1]}}
    assert mean_ranks(found, ["a", "b", "c"], ["x"]) == {"a": 1, "b": 2.5, "c": 2.5}
    mean, error = difference(correct[0], correct[1])
    assert mean == 50
    assert error == pytest.approx(50)
