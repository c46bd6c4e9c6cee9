"""A run on a few made-up reviews, and the report of made-up results."""

import argparse
import json
import lzma
from pathlib import Path

import pytest

from benchmarks.models import languages
from tests.support.commands import run_command
from tests.support.records import expect_in_report, made_up

WORDS = {"bad": "很差 мало", "good": "很好 много"}
"""What reviews of a label say."""


def write_reviews(path: Path, **counts: int) -> None:
    """Write reviews of two labels, so many of each split."""
    rows = [
        {"split": split, "label_name": (label := ("bad", "good")[i % 2]), "text": f"{WORDS[label]} {split} {i}"}
        for split, count in counts.items()
        for i in range(count)
    ]
    path.write_bytes(lzma.compress("".join(json.dumps(row) + "\n" for row in rows).encode()))


def test_documents_of_a_set_are_learned_and_classified_by_both_models(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_reviews(tmp_path / languages.SETS["avito"], train=24, val=8, test=10)
    monkeypatch.setattr(languages, "run_command", run_command)
    monkeypatch.setattr(languages, "SEEDS", 1)
    args = argparse.Namespace(sets=["avito"], data_dir=tmp_path, runs=tmp_path / "runs", out=tmp_path)
    *_, last = languages.measure(args)
    found = [(one["documents"], one["seed"], one["validation"], one["correct"]) for one in last["results"]]
    assert found == [("avito", None, 1.0, "1" * 10), ("avito", 0, 1.0, "1" * 10)]


def test_a_set_without_validation_documents_gives_a_tenth_of_training(tmp_path: Path) -> None:
    write_reviews(tmp_path / "reviews.jsonl.xz", train=40, test=10)
    splits = languages.read_splits(tmp_path / "reviews.jsonl.xz")
    assert {split: len(rows) for split, rows in splits.items()} == {"train": 36, "validation": 4, "test": 10}
    assert not set(splits["train"]) & set(splits["validation"])


def test_report_compares_the_mean_of_the_seeds_with_tfidf_document_by_document(tmp_path: Path) -> None:
    results = [
        {"documents": "avito", "seed": seed, "choice": "words 1-2, C = 3", "correct": digits, "revision": "abc"}
        for seed, digits in ((None, "1000"), (0, "1110"), (1, "1100"))
    ]
    row = "| avito | 4 | 2 | 62.5 ± 17.7 | 25.0 | +37.5 ± 23.9 | words 1-2, C = 3 |"
    expect_in_report(languages.BENCHMARK, made_up({"results": results}), [row], tmp_path)
