"""Documents to rows; vectors of rows to vectors of documents; scores to answers."""

import numpy as np
import pytest

from artifact.errors import InvalidInput
from artifact.tasks.matching import Coverage, MatcherManifest, Ranking, ScoredPair, Text, Texts, normalized, pool_each
from tests.support.models import matcher

LONG = bytes(range(28))


@pytest.fixture
def manifest() -> MatcherManifest:
    found = matcher().manifest
    assert isinstance(found, MatcherManifest)
    return found


def test_equal_texts_share_a_key_and_rows(manifest: MatcherManifest) -> None:
    texts = Texts([Text("a", LONG), Text("b", b"ab"), Text("c", LONG)], manifest, "windows")
    assert texts.keys[0] == texts.keys[2] != texts.keys[1]
    assert texts.rows(texts.keys[0]) == [LONG[:16], LONG[12:]]
    assert texts.rows(texts.keys[1]) == [b"ab"]
    assert texts.coverages == [Coverage(28, 28, 2), Coverage(2, 2, 1), Coverage(28, 28, 2)]


def test_text_truncated_differently_has_another_key(manifest: MatcherManifest) -> None:
    keys = {Texts([Text("a", LONG)], manifest, on_overflow).keys[0] for on_overflow in ("windows", "head", "tail")}
    assert len(keys) == 3


def test_vectors_keep_the_order_of_the_texts(manifest: MatcherManifest) -> None:
    texts = Texts([Text("a", b"aa"), Text("b", b"bb"), Text("c", b"aa")], manifest, "windows")
    found = {texts.keys[0]: np.array([1, 2], np.float32), texts.keys[1]: np.array([3, 4], np.float32)}
    assert texts.vectors(found).tolist() == [[1, 2], [3, 4], [1, 2]]


def test_normalized_vectors_have_norm_1_or_0() -> None:
    vectors = np.array([[3, 4], [0, 0], [1e-30, 0], [3e38, -3e38]], np.float32)
    found = normalized(vectors)
    assert found.dtype == np.float32
    assert found == pytest.approx(np.array([[0.6, 0.8], [0, 0], [1, 0], [0.5**0.5, -(0.5**0.5)]]), rel=1e-6)


def test_vector_of_a_text_is_the_mean_of_its_rows() -> None:
    vectors = np.array([[1, 0], [3, 2], [5, 5]], np.float32)
    found = pool_each([2, 1], vectors)
    assert [vector.tolist() for vector in found] == [[2, 1], [5, 5]]
    assert {vector.dtype for vector in found} == {np.dtype(np.float32)}


@pytest.mark.parametrize(
    ("document", "message"),
    [
        (b"", "the document is empty; at least 1 byte is needed"),
        (b"a", "the document has 1 bytes; the model needs at least 2"),
        (LONG, "the document has 28 bytes; the model reads 16 and on_overflow is 'error'"),
    ],
)
def test_error_names_the_wrong_text(manifest: MatcherManifest, document: bytes, message: str) -> None:
    with pytest.raises(InvalidInput, match=f"^query: {message}$") as caught:
        Texts([Text("first", b"ab"), Text("query", document)], manifest, "error")
    assert caught.value.errors == [("query", message)]


def test_ranking_is_best_first_and_stable() -> None:
    documents = [Coverage(size, size, 1) for size in (1, 2, 3, 4)]
    ranking = Ranking(Coverage(9, 9, 1), [0.5, 0.9, 0.5, 0.7], documents)
    assert ranking.best(None) == [1, 3, 0, 2]
    assert [(entry["index"], entry["score"]) for entry in ranking.as_json(2, "windows")] == [(1, 0.9), (3, 0.7)]
    assert ranking.as_json(1, "windows")[0]["coverage"] == {
        "bytes_total": 2,
        "bytes_used": 2,
        "strategy": "whole",
        "windows": 1,
    }


def test_ranking_tells_which_documents_were_cached() -> None:
    documents = [Coverage(size, size, 1) for size in (1, 2)]
    ranking = Ranking(Coverage(9, 9, 1), [0.5, 0.9], documents, [True, False])
    assert [entry["cached"] for entry in ranking.as_json(None, "windows")] == [False, True]
    assert "cached" not in Ranking(Coverage(9, 9, 1), [0.5, 0.9], documents).as_json(1, "windows")[0]


def test_pair_has_the_coverage_of_both() -> None:
    pair = ScoredPair(0.25, Coverage(28, 16, 1), Coverage(2, 2, 1))
    assert pair.as_json("head") == {
        "score": 0.25,
        "coverage": {
            "a": {"bytes_total": 28, "bytes_used": 16, "strategy": "head", "windows": 1},
            "b": {"bytes_total": 2, "bytes_used": 2, "strategy": "whole", "windows": 1},
        },
    }
