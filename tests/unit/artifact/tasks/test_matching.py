"""Documents to rows; vectors of rows to vectors of documents; scores to answers."""

from collections.abc import Collection

import numpy as np
import pytest

from artifact.arrays import Floats
from artifact.documents import OnOverflow, TextCoverage
from artifact.errors import InvalidInput
from artifact.tasks import matching
from artifact.tasks.base import Answer, RunModel, advance
from artifact.tasks.matching import LocatedText, Matching, Ranking, ScoredPair, normalized
from tests.support.models import compute, matcher, rows_of

LONG = bytes(range(28))


TEXTS = [LocatedText("a", LONG), LocatedText("b", b"ab"), LocatedText("c", LONG)]
ROWS = [np.array(row, np.float32) for row in ([1, 0], [3, 2], [5, 5])]
"""Vectors of the rows of TEXTS: two of `a`, one of `b`."""


@pytest.fixture
def task() -> Matching:
    found = matcher().task
    assert isinstance(found, Matching)
    return found


class Cache(dict[bytes, Floats]):
    """A cache without a limit."""

    def find(self, keys: Collection[bytes]) -> dict[bytes, Floats]:
        return {key: self[key] for key in keys if key in self}

    def put(self, key: bytes, vector: Floats) -> None:
        self[key] = vector


def test_equal_texts_are_computed_once_and_keep_their_order(task: Matching) -> None:
    assert rows_of(task.encode(TEXTS, "windows")) == [LONG[:16], LONG[12:], b"ab"]
    found = compute(task.encode(TEXTS, "windows"), [ROWS])
    assert found.vectors.tolist() == [[2, 1], [5, 5], [2, 1]]
    assert found.vectors.dtype == np.float32
    assert found.coverages == [TextCoverage(28, 28, 2), TextCoverage(2, 2, 1), TextCoverage(28, 28, 2)]
    assert found.cached is None


def test_text_shorter_than_the_model_needs_is_padded_with_spaces(task: Matching) -> None:
    texts = [LocatedText("a", b"a"), LocatedText("b", b"\xef\xbb\xbfb")]
    assert rows_of(task.encode(texts, "error")) == [b"a ", b"b "]
    found = compute(task.encode(texts, "error"), [ROWS[:2]])
    assert [coverage.as_json("error") for coverage in found.coverages] == 2 * [
        {"bytes_total": 1, "bytes_used": 1, "strategy": "padded", "windows": 1, "known": None}
    ]


def test_cached_texts_are_not_computed(task: Matching) -> None:
    cache = Cache()
    assert compute(task.encode(TEXTS[:1], "windows", cache), [ROWS[:2]]).cached == [False]
    found = compute(task.encode(TEXTS, "windows", cache), [ROWS[2:]])
    assert (found.vectors.tolist(), found.cached) == ([[2, 1], [5, 5], [2, 1]], [True, False, True])
    assert compute(task.encode(TEXTS, "windows", cache), []).vectors.tolist() == found.vectors.tolist()


def test_text_truncated_differently_is_another_text(task: Matching) -> None:
    cache = Cache()
    parts: list[tuple[OnOverflow, list[Floats]]] = [("windows", ROWS[:2]), ("head", ROWS[:1]), ("tail", ROWS[:1])]
    for on_overflow, rows in parts:
        compute(task.encode(TEXTS[:1], on_overflow, cache), [rows])
    assert len(cache) == 3


def test_many_texts_are_computed_in_chunks_and_finished_chunks_are_cached(
    task: Matching, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Chunks have at most 2 rows; a text with more rows is its own chunk."""
    monkeypatch.setattr(matching, "CHUNK_ROWS", 2)
    short = [LocatedText(str(number), bytes([65 + number]) + b"+") for number in range(4)]
    texts = [short[0], LocatedText("long", LONG + 12 * b"."), *short[1:]]
    cache, sizes = Cache(), list[int]()
    for interrupted in (True, False):
        computation = task.encode(texts, "windows", cache)
        step = advance(computation)
        while not isinstance(step, Answer):
            assert isinstance(step, RunModel)
            sizes.append(len(step.rows))
            if interrupted and len(sizes) == 3:
                break
            step = advance(computation, [np.zeros(2, np.float32)] * len(step.rows))
    assert sizes == [1, 3, 2, 2, 1]
    assert len(cache) == 5


def test_normalized_vectors_have_norm_1_or_0() -> None:
    vectors = np.array([[3, 4], [0, 0], [1e-30, 0], [3e38, -3e38]], np.float32)
    found = normalized(vectors)
    assert found.dtype == np.float32
    assert found == pytest.approx(np.array([[0.6, 0.8], [0, 0], [1, 0], [0.5**0.5, -(0.5**0.5)]]), rel=1e-6)


@pytest.mark.parametrize(
    ("document", "message"),
    [
        (b"", "the document is empty; at least 1 byte is needed"),
        (LONG, "the document has 28 bytes; the model reads 16 and on_overflow is 'error'"),
    ],
)
def test_error_names_the_wrong_text(task: Matching, document: bytes, message: str) -> None:
    with pytest.raises(InvalidInput, match=f"^query: {message}$") as caught:
        rows_of(task.encode([LocatedText("first", b"ab"), LocatedText("query", document)], "error"))
    assert caught.value.errors == [("query", message)]


def test_ranking_is_best_first_and_stable() -> None:
    documents = [TextCoverage(size, size, 1) for size in (1, 2, 3, 4)]
    ranking = Ranking(TextCoverage(9, 9, 1), [0.5, 0.9, 0.5, 0.7], documents, None)
    assert ranking.best(None) == [1, 3, 0, 2]
    assert [(entry["index"], entry["score"]) for entry in ranking.as_json(2, "windows")] == [(1, 0.9), (3, 0.7)]
    assert ranking.as_json(1, "windows")[0]["coverage"] == {
        "bytes_total": 2,
        "bytes_used": 2,
        "strategy": "whole",
        "windows": 1,
        "known": None,
    }


def test_ranking_tells_which_documents_were_cached() -> None:
    documents = [TextCoverage(size, size, 1) for size in (1, 2)]
    ranking = Ranking(TextCoverage(9, 9, 1), [0.5, 0.9], documents, [True, False])
    assert [entry["cached"] for entry in ranking.as_json(None, "windows")] == [False, True]
    assert "cached" not in Ranking(TextCoverage(9, 9, 1), [0.5, 0.9], documents, None).as_json(1, "windows")[0]


def test_pair_has_the_coverage_of_both() -> None:
    pair = ScoredPair(0.25, TextCoverage(28, 16, 1), TextCoverage(2, 2, 1))
    assert pair.as_json("head") == {
        "score": 0.25,
        "coverage": {
            "a": {"bytes_total": 28, "bytes_used": 16, "strategy": "head", "windows": 1, "known": None},
            "b": {"bytes_total": 2, "bytes_used": 2, "strategy": "whole", "windows": 1, "known": None},
        },
    }
