"""The benchmark of the cost of classifiers of bytes: a graph with random weights, and the report."""

from pathlib import Path

import numpy as np
import pytest

from benchmarks.lib.record import Record
from benchmarks.models import bytes_speed
from benchmarks.models.runs import Case

SMALL = (
    "model.ngram_view.num_ngrams=100",
    "model.ngram_view.max_length=512",
    "model.encoder.seq_len=64",
    "model.vector_view.num_buckets=64",
    "model.encoder.num_layers=1",
)
TEXT = b"one two three, and four films of five " * 40


def test_graph_with_random_weights_knows_frequent_ngrams(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bytes_speed, "KNOWN_BYTES", 1)
    backend = bytes_speed.exported(Case("small", "imdb-bytes", 1, SMALL), TEXT, tmp_path / "small")
    for length in (256, 512):
        inputs = bytes_speed.inputs(TEXT, length)
        assert inputs["bytes"].tobytes() == TEXT[-length:]
        logits, contributions = backend.run(inputs).values()
        assert (logits.shape, contributions.shape) == ((1, 2), (1, length // 256, 2))
        assert np.ptp(logits) > 0


def test_report_has_a_row_for_each_model_and_a_column_for_each_length() -> None:
    rows = [{"model": name, "bytes": n, "seconds": n / 1e6} for name in ("a", "b") for n in bytes_speed.LENGTHS]
    record = Record("bytes_speed", "p", "c", "d", "r", {}, {}, {"rounds": 3}, {"versions": {"a": 2}, "rows": rows})
    report = bytes_speed.report(record)
    assert "median of 3 rounds" in report
    assert "`a` 2 as shipped" in report
    assert [line.split("|")[-2].strip() for line in report.splitlines() if line.startswith(("| a", "| b"))] == [
        "4.10"
    ] * 2
