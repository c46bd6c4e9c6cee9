"""The benchmark that adds the logits of two models: with a small model, and the report of made-up results."""

from pathlib import Path
from typing import Any

import pytest

from benchmarks.models import words_and_bytes
from benchmarks.models.words_and_bytes import BENCHMARK
from tests.support.records import expect_in_report, made_up
from tests.unit.model.export.test_export_words import ngram_run


def test_logits_of_both_models_are_added_with_weights_fitted_on_validation(
    tmp_path_factory: pytest.TempPathFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = ngram_run(tmp_path_factory)

    def train(*_: Any, **__: Any) -> Path:
        return run

    monkeypatch.setattr(words_and_bytes, "train", train)
    *_, last = BENCHMARK.measure(BENCHMARK.parse(["--data-dir", str(tmp_path), "--out", str(tmp_path)]))
    words, alike, both = last["results"]
    assert [one["model"] for one in last["results"]] == ["words", "bytes", "words + bytes"]
    assert words["correct"] == alike["correct"] == both["correct"]
    assert both["validation"] == pytest.approx(words["validation"], rel=1e-3)
    assert min(both["weights"]) > 0


def test_report_compares_with_words_review_by_review(tmp_path: Path) -> None:
    shared = {"seed": 0, "revision": "abc", "validation": 0.25, "test": 0.5}
    results = [
        {**shared, "model": "words", "correct": "1000"},
        {**shared, "model": "bytes", "correct": "0100"},
        {**shared, "model": "words + bytes", "correct": "1110", "weights": [0.7, 0.41]},
    ]
    expected = [
        "| words | 1 | 25.00 | | 0.5000 | 0.2500 |",
        "| words + bytes | 1 | 75.00 | +50.0 ± 28.9 | 0.5000 | 0.2500 |",
        "Weights of the logits: 0.70 and 0.41.",
    ]
    expect_in_report(BENCHMARK, made_up({"results": results}), expected, tmp_path)
