"""The comparison of alternatives: its documents, turns, transformer and report."""

from pathlib import Path

import torch

from benchmarks.models import alternatives
from benchmarks.models.alternatives import LONG, Turn, long_documents, mix
from benchmarks.models.transformer import Transformer
from tests.support.records import expect_in_report, made_up


def test_mix_has_the_quantiles_of_the_length() -> None:
    texts = ["x" * length for length in range(100)]
    assert sorted(map(len, mix(texts, 4))) == [12, 37, 62, 87]
    assert sorted(map(len, mix(texts, 100))) == list(range(100))


def test_long_documents_have_one_length_and_differ() -> None:
    documents = long_documents([f"Review {i} is café. " * 40 for i in range(30)], 5)
    assert [len(document.encode()) for document in documents] == 5 * [LONG]
    assert len(set(documents)) == 5


def test_turn_classifies_each_document_once_in_its_calls() -> None:
    seen: list[str] = []
    turn = Turn(seen.append, ["a", "b", "c", "d", "e"], 2)
    assert [[number for number, _ in turn()] for _ in range(2)] == [[0, 2, 4], [1, 3]]
    assert seen == ["a", "c", "e", "b", "d"]
    turn()
    assert seen[5:] == ["a", "c", "e"]


def test_transformer_has_as_many_parameters_as_distilbert_and_reads_any_length() -> None:
    model = Transformer()
    assert sum(parameter.numel() for parameter in model.parameters()) == 66_955_010
    with torch.inference_mode():
        assert model(torch.zeros(1, 7, dtype=torch.int64)).shape == (1, 2)


def test_report_shows_measured_and_quoted_rows(tmp_path: Path) -> None:
    served = {
        "documents_per_s": [400.0, 500.0],
        "served_s": [0.001, 0.002, 0.003],
        "memory_mib": 123.4,
        "disk_bytes": 7_200_000,
    }
    alone = {"mix_s": [0.001, 0.002, 0.006], "long_s": [0.004]}
    rows = [
        {"key": "imdb-s3", "accuracies": [0.92, 0.93], "quoted": None, **alone, **served},
        {
            "key": "transformer",
            "accuracies": [],
            "quoted": 0.9282,
            **alone,
            **served,
            "documents_per_s": [2.5],
            "served_s": [0.4],
        },
        {"key": "transformer-int8", "accuracies": [], "quoted": None, **alone, **served},
        {"key": "paper-512", "accuracies": [0.79], "quoted": None, **alone, "disk_bytes": None},
    ]
    chosen = {"dim": 10, "rows": 2**21, "epochs": 3, "learning_rate": 0.01}
    models = {
        "imdb-s3": {"version": 5, "accuracy": 0.925},
        "tfidf": {"strength": 100.0, "validation": 0.91},
        "word-vectors": {"tried": [{**chosen, "validation": 0.91}], "chosen": chosen},
    }
    expect_in_report(
        alternatives.BENCHMARK,
        made_up({"tests": 3, "models": models, "rows": rows}),
        [
            "| `imdb-s3`, as served | 92.50 ± 0.71 | 2 | 2.00 | 3.00 | 4.00 | 2.00 | 450 | 7.2 | 123 |",
            "| DistilBERT's size, float32 | 92.8 | 0 | 2.00 | 3.00 | 4.00 | 400 | 2.5 | 7.2 | 123 |",
            "| DistilBERT's size, int8 | | | 2.00 |",
            "| S3Attention on 512 bytes | 79.00 | 1 | 2.00 | 3.00 | 4.00 | | | | |",
            "right in 92.50 % of the reviews",
        ],
        tmp_path,
    )
