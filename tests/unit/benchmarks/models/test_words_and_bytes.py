"""The benchmark that adds the logits of two models: with a small model, and the report of made-up results."""

from pathlib import Path

import pytest

from benchmarks.models import words_and_bytes
from benchmarks.models.words_and_bytes import BENCHMARK
from tests.support.records import expect_in_report, made_up
from tests.unit.model.conftest import exported_once
from tests.unit.model.export.test_export_words import ngram_run


def test_logits_of_both_models_are_added_with_weights_fitted_on_validation(
    tmp_path_factory: pytest.TempPathFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = ngram_run(tmp_path_factory)
    monkeypatch.setattr(words_and_bytes, "train", lambda *_, **__: run)
    export = exported_once(run, tmp_path_factory).parent
    (measured,) = BENCHMARK.measure(BENCHMARK.parse(["--data-dir", str(tmp_path), "--export", str(export)]))
    words, of_bytes, both = measured["results"].values()
    assert words["correct"] == of_bytes["correct"] == both["correct"]
    assert words["test"] == pytest.approx(of_bytes["test"], rel=1e-4)
    assert measured["words"] == "tiny/1"
    assert min(measured["weights"]) > 0


def test_report_compares_with_words_review_by_review(tmp_path: Path) -> None:
    shared = {"validation": 0.25, "test": 0.5}
    results = {
        "words": {**shared, "correct": "1000"},
        "bytes": {**shared, "correct": "0100"},
        "words + bytes": {**shared, "correct": "1110"},
    }
    expected = [
        "| words | 25.00 | | 0.5000 | 0.2500 |",
        "| words + bytes | 75.00 | +50.0 ± 28.9 | 0.5000 | 0.2500 |",
        "Weights of the logits: 0.70 and 0.41.",
    ]
    measured = made_up({"words": "imdb-s3/8", "weights": [0.7, 0.41], "results": results})
    expect_in_report(BENCHMARK, measured, expected, tmp_path)
