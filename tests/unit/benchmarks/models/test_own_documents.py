"""A draw of a few made-up documents, the sets and the report, from made-up data."""

import argparse
import json
import lzma
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from benchmarks.lib.record import Data
from benchmarks.models import own_documents
from tests.support.commands import run_command
from tests.support.records import expect_in_report, made_up


def write(path: Path, rows: Sequence[dict[str, Any]]) -> None:
    path.write_bytes(lzma.compress("".join(json.dumps(row) + "\n" for row in rows).encode()))


def test_draws_are_learned_and_classified_by_both_models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A test document of a label that no draw has counts as wrong."""
    splits = ["train"] * 26 + ["val"] * 10 + ["test"] * 10 + ["dev"]
    labels = [*(i % 2 for i in range(45)), 2, 2]
    kinds = ("good film", "bad film", "play")
    rows = [
        {"split": split, "label": label, "text": f"{kinds[label]} {i}"}
        for i, (split, label) in enumerate(zip(splits, labels, strict=True))
    ]
    write(tmp_path / "films.jsonl.xz", rows)
    monkeypatch.setattr(own_documents, "run_command", run_command)
    monkeypatch.setattr(own_documents, "SETS", {"films": partial(own_documents.lines, "films.jsonl.xz")})
    monkeypatch.setattr(own_documents, "SIZES", (30, 60))
    monkeypatch.setattr(own_documents, "DRAWS", 1)
    args = argparse.Namespace(sets=["films"], data_dir=tmp_path, runs=tmp_path / "runs", out=tmp_path)
    (found,) = own_documents.measure(args)
    (run,) = found["runs"]
    assert (run["documents"], run["size"], run["draw"]) == ("films", 30, 0)
    assert run["ours"] == run["tfidf"] == "1" * 9 + "0"
    assert run["baseline"].startswith("words")
    rows = [json.loads(line) for line in (tmp_path / "runs/films-30-0/documents.jsonl").read_text().splitlines()]
    assert [[row["split"] for row in rows].count(name) for name in ("train", "validation", "test")] == [30, 3, 9]
    assert len({row["text"] for row in rows}) == 42


def test_documents_of_exactly_one_label_that_is_not_rare_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    labels: Sequence[Sequence[str]] = (["a"], ["a", "b"], [], ["b"], ["a"], ["c"])
    rows = [
        {"split": split, "labels": found, "text": f"{split} {i}"}
        for split in ("train", "test")
        for i, found in enumerate(labels)
    ]
    write(tmp_path / "several.jsonl.xz", rows)
    monkeypatch.setattr(own_documents, "FEWEST_OF_LABEL", 2)
    train, test = own_documents.of_one_label("several.jsonl.xz", tmp_path)
    assert train == [("train 0", "a"), ("train 4", "a")]
    assert test == [("test 0", "a"), ("test 4", "a")]


def run_of(draw: int, ours: str, tfidf: str, *, prefixes: bool) -> Data:
    choice, baseline = {"prefixes": prefixes}, "characters 2-5, sublinear, C=3"
    keys = {"documents": "avito", "size": 300, "draw": draw, "revision": "abc"}
    return {**keys, "choice": choice, "baseline": baseline, "ours": ours, "tfidf": tfidf}


def test_report_adds_the_variances_of_test_documents_and_draws(tmp_path: Path) -> None:
    runs = [run_of(0, "1110", "1000", prefixes=True), run_of(1, "1100", "1000", prefixes=False)]
    lines = [
        "| avito | 300 | 2 | 4 | 62.5 | 25.0 | +37.5 ± 29.8 | 1 | characters 2-5 |",
        "Mean difference of the 1 rows: +37.50 points. Behind by more than two standard errors: none.",
    ]
    expect_in_report(own_documents.BENCHMARK, made_up({"runs": runs}), lines, tmp_path)
    behind = made_up({"runs": [run_of(0, "0001", "1111", prefixes=True)]})
    line = "Behind by more than two standard errors: avito 300."
    expect_in_report(own_documents.BENCHMARK, behind, [line], tmp_path)
