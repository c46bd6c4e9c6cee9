"""Runs on a small set."""

import argparse
from pathlib import Path
from typing import Any

import pytest

from benchmarks.models.labelled_series import __main__ as benchmark
from benchmarks.models.labelled_series.report import BOTH, DTW, ROCKET, S3, answers
from model.data.own_recordings import model_keys


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
