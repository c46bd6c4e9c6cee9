"""A run on a few made-up documents, and the report of made-up results."""

import argparse
import json
import lzma
import random
from pathlib import Path

import numpy as np
import pytest

from benchmarks.models import several_labels
from tests.support.commands import run_command
from tests.support.records import expect_in_report, made_up

WORDS = {"tea": "cup of tea", "rail": "train and rail"}


def write_documents(path: Path, train: int, test: int) -> None:
    generator, rows = random.Random(0), []
    for split, count in (("train", train), ("test", test)):
        for number in range(count):
            labels = [label for label in WORDS if generator.random() < 0.5]
            text = " ".join([*(WORDS[label] for label in labels), f"{split} {number}"])
            rows.append({"text": text, "labels": labels, "split": split})
    path.write_bytes(lzma.compress("".join(json.dumps(row) + "\n" for row in rows).encode()))


def test_documents_are_learned_and_get_labels_by_all_models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_documents(tmp_path / several_labels.SETS["cedr"], train=80, test=10)
    monkeypatch.setattr(several_labels, "run_command", run_command)
    monkeypatch.setattr(several_labels, "SEEDS", 1)
    args = argparse.Namespace(sets=["cedr"], data_dir=tmp_path, runs=tmp_path / "runs", out=tmp_path)
    *_, last = several_labels.measure(args)
    assert [(one["model"], one["seed"]) for one in last["results"]] == [
        ("words", None),
        ("characters", None),
        ("ours", 0),
    ]
    truth = last["truth"]["cedr"]["chosen"]
    assert truth.count(";") == 9
    assert [one["chosen"] for one in last["results"]] == [truth] * 3


def test_labels_are_packed_and_unpacked() -> None:
    chosen = np.array([[True, False, True], [False, False, False], [False, True, False]])
    assert several_labels.packed(chosen) == "0 2;;1"
    assert np.array_equal(several_labels.unpacked("0 2;;1", 3), chosen)


def test_report_compares_with_what_validation_chooses(tmp_path: Path) -> None:
    def result(model: str, chosen: str, validation: float, seed: int | None = None) -> dict[str, object]:
        found = {"documents": "cedr", "model": model, "seed": seed, "choice": "C = 3", "chosen": chosen}
        return {**found, "validation": {"micro_f1": validation}, "revision": "abc"}

    results = [
        result("words", "0;0;;1", 0.5),
        result("characters", "0;;;", 0.4),
        result("ours", "0;1;;1", 0.3, 0),
        result("ours", "0;1;0;1", 0.3, 1),
    ]
    truth = {"cedr": {"labels": ["a", "b"], "chosen": "0;1;;1"}}
    rows = [
        "| cedr | micro F1 | 4 | 2 | 92.9 ± 10.1 | 66.7 | 50.0 | words, C = 3 | +26.2 ± ",
        "| cedr | macro F1 | 4 | 2 | 91.7 ± 11.8 | 66.7 | 50.0 | words, C = 3 | +25.0 ± ",
    ]
    expect_in_report(several_labels.BENCHMARK, made_up({"truth": truth, "results": results}), rows, tmp_path)
