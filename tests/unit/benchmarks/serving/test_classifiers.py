"""The classifiers of the comparison of alternatives: features, files, and answers over HTTP."""

import pickle
from pathlib import Path

import httpx
import numpy as np
import pytest

from benchmarks.lib.servers import server
from benchmarks.models.text_tfidf import pipeline
from benchmarks.serving.classifiers import MAX_TOKENS, MODEL, VOCABULARY, load_tfidf, load_word_vectors
from benchmarks.serving.classifiers import token_ids as ids_of
from benchmarks.serving.classifiers import word_and_bigram_rows as rows_of

COUNT = 2**21


def test_rows_are_those_of_the_words_then_of_the_pairs_in_order() -> None:
    rows = rows_of("A good film", COUNT)
    assert rows.tolist()[:3] == [int(rows_of(word, COUNT)[0]) for word in ("a", "good", "film")]
    assert len(rows) == 3 + 2
    assert set(rows[3:]).isdisjoint(rows_of("good a", COUNT))
    assert rows[4] == rows_of("good film", COUNT)[2]
    assert rows_of("film good", COUNT)[2] != rows_of("good film", COUNT)[2]


def test_rows_are_in_the_table() -> None:
    rows = rows_of("the film, which was long, is one of the best of its kind" * 9, 7)
    assert (rows.min(), rows.max()) == (0, 6)
    assert len(rows_of("", 7)) == 0


def test_tokens_are_words_and_marks_between_the_first_and_the_last_and_at_most_512() -> None:
    assert len(ids_of("It isn't good.")) == 2 + 6  # it, isn, ', t, good, .
    assert len(ids_of("word " * 1000)) == MAX_TOKENS
    assert ids_of("a b").max() < VOCABULARY


@pytest.fixture
def vectors(tmp_path: Path) -> Path:
    """A folder with vectors that say `good` is positive."""
    table = np.zeros((64, 2), np.float32)
    table[rows_of("good", 64)] = [0, 4]
    np.savez(tmp_path / f"{MODEL}.npz", vectors=table, weight=np.eye(2, dtype=np.float32), bias=np.zeros(2, np.float32))
    return tmp_path


def test_word_vectors_are_averaged(vectors: Path) -> None:
    classify = load_word_vectors(vectors)
    logit = 4 / 3  # one of two words and a pair
    assert classify("Good film")[1] == pytest.approx(1 / (1 + np.exp(-logit)))
    assert classify("").tolist() == [0.5, 0.5]


def test_tfidf_gives_the_probabilities_of_its_pipeline(tmp_path: Path) -> None:
    texts = [b"a good film", b"a bad film"] * 4
    fitted = pipeline(10.0).fit(texts, [1, 0] * 4)
    (tmp_path / f"{MODEL}.pickle").write_bytes(pickle.dumps(fitted))
    scores = load_tfidf(tmp_path)("a good film")
    assert scores.tolist() == fitted.predict_proba(["a good film"])[0].tolist()
    assert scores[1] > 0.5


def test_plain_server_answers(vectors: Path) -> None:
    with server(["-m", "benchmarks.serving.plain_server", "word-vectors", str(vectors)]) as target:
        answer = httpx.post(f"{target.url}/classify", json={"text": "good good"}, trust_env=False)
        assert target.cpu_s() > 0
    assert answer.json()["label"] == "positive"
    assert answer.json()["score"] == pytest.approx(load_word_vectors(vectors)("good good")[1])
