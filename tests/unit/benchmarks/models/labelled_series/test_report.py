"""The report, from made-up data."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.models.labelled_series import __main__ as benchmark
from benchmarks.models.labelled_series.report import BOTH, DTW, ROCKET, S3, difference, mean_ranks
from benchmarks.models.labelled_series.sets import packed
from tests.support.records import expect_in_report, made_up


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
    runs += [_run("Skyformer", 0, {"Skyformer": "1111"}, "Pig")]  # in no mean
    runs += [_run("DBA", 0, {"DBA": "1100"}, name) for name in ("BasicMotions", "Pig")]
    rows = [
        "| BasicMotions | 4 | 25.0 | 50.0 ± 0.0 | 62.5 ± 17.7 | 100.0 ± 0.0 | | +50.0 ± 28.9 |",
        "| 1 | both | 100.00 | 1.00 |",
        "| Pig | | | 50.0 | 100.0 |",
        "| mean of 1 | 62.5 ± 17.7 | 25.0 | 50.0 | |",
        "| less S3Attention | | -37.5 | -12.5 | |",
    ]
    expect_in_report(benchmark.BENCHMARK, made_up({"runs": runs}), rows, tmp_path)


def test_ranks_are_shared_by_equal_classifiers() -> None:
    correct = [np.array([True, True])], [np.array([True, False])]
    found = {"a": {"x": correct[0]}, "b": {"x": correct[1]}, "c": {"x": correct[1]}}
    assert mean_ranks(found, ["a", "b", "c"], ["x"]) == {"a": 1, "b": 2.5, "c": 2.5}
    mean, error = difference(correct[0], correct[1])
    assert mean == 50
    assert error == pytest.approx(50)
