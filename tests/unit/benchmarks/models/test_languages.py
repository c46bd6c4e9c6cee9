"""A run on a few made-up reviews, and the report of made-up results."""

import argparse
import json
import lzma
import random
import string
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


def test_documents_of_a_set_are_learned_and_classified_by_all_models(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_reviews(tmp_path / languages.SETS["avito"], train=24, val=8, test=10)
    monkeypatch.setattr(languages, "run_command", run_command)
    monkeypatch.setattr(languages, "MODELS", {name: (options, 1) for name, (options, _) in languages.MODELS.items()})
    args = argparse.Namespace(sets=["avito"], data_dir=tmp_path, runs=tmp_path / "runs", out=tmp_path)
    *_, last = languages.measure(args)
    found = [(one["documents"], one["model"], one["validation"], one["correct"]) for one in last["results"]]
    assert found == [("avito", model, 1.0, "1" * 10) for model in ("TF-IDF", "bytes", "words")]


def test_a_set_without_validation_documents_gives_a_tenth_of_training(tmp_path: Path) -> None:
    write_reviews(tmp_path / "reviews.jsonl.xz", train=40, test=10)
    splits = languages.read_splits(tmp_path / "reviews.jsonl.xz")
    assert {split: len(rows) for split, rows in splits.items()} == {"train": 36, "validation": 4, "test": 10}
    assert not set(splits["train"]) & set(splits["validation"])


def test_a_tenth_of_the_letters_of_misspelt_posts_are_changed() -> None:
    text = "Stray cats, 12 of them; Ärger " * 1_000
    found = languages.misspelt(text, languages.CHANGED, random.Random(0))
    changed = [(before, after) for before, after in zip(text, found, strict=True) if before != after]
    assert all(before.isascii() and before.isalpha() and after in string.ascii_lowercase for before, after in changed)
    assert len(changed) / sum(one.isascii() and one.isalpha() for one in text) == pytest.approx(0.1, abs=0.01)
    assert languages.misspelt(text, 0.0, random.Random(0)) == text


def test_report_compares_the_mean_of_the_seeds_with_tfidf_document_by_document(tmp_path: Path) -> None:
    results = [
        {"documents": "avito", "model": model, "choice": "words 1-2, C = 3", "correct": digits, "revision": "abc"}
        for model, digits in (("TF-IDF", "1000"), ("words", "1110"), ("words", "1100"))
    ]
    row = "| avito | words | 4 | 2 | 62.5 ± 17.7 | 25.0 | +37.5 ± 23.9 | words 1-2, C = 3 |"
    expect_in_report(languages.BENCHMARK, made_up({"results": results}), [row], tmp_path)
