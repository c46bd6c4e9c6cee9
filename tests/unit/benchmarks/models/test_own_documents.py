"""The draws and the report, from made-up data."""

import argparse
import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.models import own_documents
from model.tasks import tfidf
from tests.support.records import expect_in_report, made_up


def test_draw_is_written_trained_and_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [(f"{'good' if i % 2 else 'bad'} film number {i}", "ab"[i % 2]) for i in range(200)]
    found: list[dict[str, Any]] = []

    def run(command: str, *words: str, **_: object) -> None:
        if command == "train":
            file = Path(words[words.index("--data") + 1])
            found.extend(map(json.loads, file.read_text().splitlines()))
        else:
            results = [{"metric": "accuracy", "condition": "windows", "value": 0.75}]
            Path(words[0]).mkdir()
            (Path(words[0]) / "evaluation.json").write_text(json.dumps(results))

    monkeypatch.setattr(own_documents, "run_command", run)
    args = argparse.Namespace(runs=tmp_path, data_dir=tmp_path)
    result = own_documents.measure_draw("films", (rows[:120], rows[120:]), 100, 0, args)
    splits = [row["split"] for row in found]
    assert [splits.count(name) for name in ("train", "validation", "test")] == [100, 10, 80]
    trained = {row["text"] for row in found if row["split"] != "test"}
    assert not trained & {row["text"] for row in found if row["split"] == "test"}
    assert (result["ours"], result["test"]) == (0.75, 80)
    assert result["baselines"] == dict.fromkeys(tfidf.VECTORIZERS, 1.0)


def test_report_compares_with_the_better_baseline_of_each_draw(tmp_path: Path) -> None:
    first, second = tfidf.VECTORIZERS
    runs = [
        {
            "documents": "imdb",
            "size": 300,
            "draw": draw,
            "revision": "abc",
            "test": 2500,
            "ours": 0.8,
            "baselines": {first: 0.7, second: value},
        }
        for draw, value in enumerate((0.78, 0.82))
    ]
    row = "| imdb | 300 | 2 | 80.0 | 70.0 | 80.0 | +0.0 ± 2.0 |"
    expect_in_report(own_documents.BENCHMARK, made_up({"runs": runs}), [row], tmp_path)
