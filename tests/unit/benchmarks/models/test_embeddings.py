"""The benchmark of embeddings: a few made-up posts and papers, the votes of neighbours, and the report."""

import json
import lzma
import random
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from artifact.exports import version_folder
from artifact.loading import load_export
from benchmarks.models.embeddings import BENCHMARK, chosen, embedded, nearest, voted
from model.data.newsgroups import POSTS
from model.data.pairs import DOCUMENTS, PAIRS
from model.errors import UserError
from tests.support.paths import EXPORTS
from tests.support.records import expect_in_report, made_up

MATCHER = version_folder(EXPORTS / "aan")


def write(path: Path, rows: Iterable[dict[str, Any]]) -> None:
    path.write_bytes(lzma.compress("".join(json.dumps(row) + "\n" for row in rows).encode()))


def test_posts_are_labelled_with_each_kind_of_vectors(tmp_path: Path) -> None:
    generator = random.Random(0)
    words = ["".join(generator.choices("abcdefghijklmnop", k=6)) for _ in range(800)]

    def text(topic: int) -> str:
        return " ".join(generator.choices(words[400 * topic : 400 * topic + 400], k=200))

    splits = ["train"] * 100 + ["test"] * 6
    posts = ({"split": split, "label": i % 2, "text": f"From: a\n\n{text(i % 2)}"} for i, split in enumerate(splits))
    write(tmp_path / POSTS.file, posts)
    write(tmp_path / DOCUMENTS, ({"id": str(i), "text": text(i % 2), "fold": 0} for i in range(100)))
    splits = ["train"] * 98 + ["val", "test"]
    pairs = ({"split": split, "id_a": str(i), "id_b": str(99 - i), "label": i % 2} for i, split in enumerate(splits))
    write(tmp_path / PAIRS, pairs)
    arguments = ["--data-dir", str(tmp_path), "--export", str(MATCHER)]
    *_, data = BENCHMARK.measure(BENCHMARK.parse(arguments))
    assert data["model"] == f"aan/{MATCHER.name}"
    kinds = ["matcher", "TF-IDF of posts, SVD", "TF-IDF of papers, SVD", "TF-IDF of posts"]
    expected = [(kind, label) for kind in kinds for label in ("nearest posts", "logistic regression")]
    assert [(row["vectors"], row["label"]) for row in data["rows"]] == expected
    numbers = [
        row["numbers"] for row in data["rows"][:6]
    ]  # of fewer texts or n-grams, there are fewer singular vectors
    assert numbers[0] == numbers[1] == max(numbers)
    assert [row["correct"] for row in data["rows"][2:]] == ["1" * 6] * 6


def test_other_models_are_named() -> None:
    with pytest.raises(UserError, match="un-debate is no matcher"):
        list(BENCHMARK.measure(BENCHMARK.parse(["--export", str(EXPORTS / "un-debate")])))


def test_vectors_have_a_length_of_one_and_do_not_depend_on_other_texts() -> None:
    loaded = load_export(MATCHER, device="cpu")
    texts = [b"A parser of trees", b"word " * 1_500, b"Speech"]
    vectors = embedded(loaded, texts)
    assert np.linalg.norm(vectors, axis=1) == pytest.approx(np.ones(3), abs=1e-5)
    assert np.allclose(vectors[2:], embedded(loaded, texts[2:]))


def test_the_label_with_the_largest_sum_of_cosines_wins() -> None:
    cosines = np.array([[0.9, 0.5, 0.3], [0.9, 0.5, 0.5]])
    assert voted(cosines, np.array([[2, 0, 0], [2, 0, 0]])).tolist() == [2, 0]


def test_neighbours_are_the_training_posts_of_the_largest_cosine() -> None:
    train = np.array([[1.0, 0.0], [0.0, 1.0], [0.6, 0.8]])
    validation, test = np.array([[0.8, 0.6]]), np.array([[1.0, 0.0], [0.0, 1.0]])
    found = {
        count: (held_out.tolist(), tested.tolist())
        for count, held_out, tested in nearest([train, validation, test], np.array([1, 0, 0]))
    }
    assert found[1] == ([0], [1, 0])
    assert found[3] == ([0], [1, 0])


def test_validation_chooses_and_the_first_of_equal_candidates() -> None:
    truth = np.array([0, 1])
    choices = [(1, np.array([0, 0]), truth), (5, np.array([0, 1]), 1 - truth), (9, np.array([0, 1]), truth)]
    assert chosen(iter(choices), truth, truth) == {"choice": 5, "validation": 1.0, "correct": "00"}


def test_report_compares_with_svd_of_the_posts(tmp_path: Path) -> None:
    def row(vectors: str, label: str, correct: str, choice: float) -> dict[str, object]:
        found = {"vectors": vectors, "numbers": 64, "label": label, "choice": choice}
        return {**found, "validation": 0.5, "correct": correct}

    rows = [
        row("matcher", "nearest posts", "1000", 5),
        row("matcher", "logistic regression", "1100", 100.0),
        row("TF-IDF of posts, SVD", "nearest posts", "1100", 1),
        row("TF-IDF of posts, SVD", "logistic regression", "1100", 10.0),
    ]
    expected = [
        "| matcher | nearest posts | 64 | k = 5 | 50.0 | 25.0 ± 25.0 | -25.0 ± 25.0 |",
        "| matcher | logistic regression | 64 | C = 100 | 50.0 | 50.0 ± 28.9 | +0.0 ± 0.0 |",
        "| TF-IDF of posts, SVD | nearest posts | 64 | k = 1 | 50.0 | 50.0 ± 28.9 | |",
    ]
    expect_in_report(BENCHMARK, made_up({"model": "aan/6", "rows": rows}), expected, tmp_path)
