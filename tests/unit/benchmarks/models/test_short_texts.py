"""The benchmark of short texts: parts of documents, a small model, and the report."""

from pathlib import Path

import numpy as np
import pytest

from benchmarks.models.short_texts import BENCHMARK, part_of
from model.errors import UserError
from tests.support.paths import EXPORTS
from tests.support.records import expect_in_report, made_up
from tests.unit.model.conftest import exported_once
from tests.unit.model.export.test_export_words import ngram_run


def test_parts_are_consecutive_words() -> None:
    generator, text = np.random.default_rng(0), b"one two\nthree  four"
    assert part_of(text, None, generator) == text
    assert part_of(text, 5, generator) == b""
    found = {part_of(text, 2, generator) for _ in range(50)}
    assert found == {b"one two", b"two three", b"three four"}


def test_a_model_reads_its_documents_and_parts_of_them(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = exported_once(ngram_run(tmp_path_factory), tmp_path_factory)
    *_, data = BENCHMARK.measure(BENCHMARK.parse(["--export", str(folder.parent), "--documents", "8"]))
    assert data["model"] == "tiny/1"
    assert [row["words"] for row in data["rows"]][:3] == [None, 1, 2]
    for row in data["rows"][:3]:
        assert row["texts"] == 8
        assert 0 < row["mean_score"] <= row["largest_score"] <= 1
        assert row["accuracy"] * 8 in range(9)


def test_other_models_are_named() -> None:
    with pytest.raises(UserError, match="aan is no classifier"):
        list(BENCHMARK.measure(BENCHMARK.parse(["--export", str(EXPORTS / "aan")])))


def test_report_compares_scores_with_accuracy(tmp_path: Path) -> None:
    rows = [
        {"words": None, "texts": 2, "accuracy": 1.0, "mean_score": 0.75, "largest_score": 1.0},
        {"words": 4, "texts": 2, "accuracy": 0.5, "mean_score": 0.625, "largest_score": 0.75},
    ]
    expected = ["| whole documents | 2 | 100.0 | 75.0 | 100.0 |", "| 4 | 2 | 50.0 | 62.5 | 75.0 |"]
    expect_in_report(BENCHMARK, made_up({"model": "a/3", "rows": rows}), expected, tmp_path)
