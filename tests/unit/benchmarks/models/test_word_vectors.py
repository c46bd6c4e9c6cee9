"""Training of word and bigram vectors."""

from pathlib import Path

import numpy as np
import pytest

from benchmarks.models.word_vectors import Bags, Settings, accuracy, fit
from benchmarks.serving.classifiers import load_word_vectors, word_and_bigram_rows

SETTINGS = Settings(dim=4, rows=512, epochs=20, learning_rate=0.05)
TEXTS = [text.encode() for text in ("not good at all", "good, not bad", "bad", "good")] * 8
LABELS = [0, 1, 0, 1] * 8


def test_batch_holds_the_rows_of_the_chosen_documents() -> None:
    rows, firsts = Bags([b"one two", b"three", b"four five six"], 512).batch(np.array([2, 1]))
    expected = [word_and_bigram_rows(text, 512) for text in ("four five six", "three")]
    assert rows.tolist() == np.concatenate(expected).tolist()
    assert firsts.tolist() == [0, 5]


def test_training_learns_the_order_of_words_and_the_file_gives_the_same_answers(tmp_path: Path) -> None:
    bags = Bags(TEXTS, SETTINGS.rows)
    model = fit(SETTINGS, bags, LABELS, seed=0)
    assert accuracy(model, bags, LABELS) == 1.0
    model.save(tmp_path)
    classify = load_word_vectors(tmp_path)
    logits = model(*bags.batch(np.arange(4))).softmax(dim=1).tolist()
    for text, expected in zip(TEXTS[:4], logits, strict=True):
        assert classify(text.decode()).tolist() == pytest.approx(expected, abs=1e-5)


def test_seeds_differ_and_repeat() -> None:
    bags = Bags(TEXTS, SETTINGS.rows)
    first, again, other = (fit(SETTINGS, bags, LABELS, seed).head.weight.tolist() for seed in (0, 0, 1))
    assert first == again
    assert first != other
