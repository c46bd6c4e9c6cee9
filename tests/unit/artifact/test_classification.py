"""Documents to rows; logits of rows to scores of documents."""

import numpy as np
import pytest

from artifact.classification import Documents, Options
from artifact.errors import InvalidInput
from artifact.manifest import ClassifierManifest
from tests.support.models import classifier

LOGITS = np.log(np.array([[1, 4], [4, 1], [3, 1]], np.float32))
"""Logits of the scores 0.2 and 0.8, then 0.8 and 0.2, then 0.75 and 0.25."""
LONG = bytes(range(28))


@pytest.fixture
def manifest() -> ClassifierManifest:
    found = classifier().manifest
    assert isinstance(found, ClassifierManifest)
    return found


def test_rows_keep_the_order_of_the_documents(manifest: ClassifierManifest) -> None:
    assert Documents([LONG, b"a"], manifest, "windows").rows == [LONG[:16], LONG[12:], b"a"]
    assert Documents([b"a", LONG], manifest, "tail").rows == [b"a", LONG[12:]]


def test_scores_of_a_document_come_from_its_rows(manifest: ClassifierManifest) -> None:
    long, short = Documents([LONG, b"a"], manifest, "windows").answers(LOGITS)
    assert long.scores == pytest.approx([0.5, 0.5])
    assert [spans for spans, _ in long.windows] == [[(0, 16)], [(12, 28)]]
    assert [row.tolist() for _, row in long.windows] == [pytest.approx([0.2, 0.8]), pytest.approx([0.8, 0.2])]
    assert short.scores == pytest.approx([0.75, 0.25])
    assert [(answer.bytes_total, answer.bytes_used) for answer in (long, short)] == [(28, 28), (1, 1)]


def test_error_names_the_wrong_document(manifest: ClassifierManifest) -> None:
    with pytest.raises(InvalidInput, match="input 1: the document has 28 bytes; the model reads 16") as caught:
        Documents([b"a", LONG], manifest, "error")
    assert [place for place, _ in caught.value.errors] == ["inputs.1"]


def test_scores_are_sorted_best_first(manifest: ClassifierManifest) -> None:
    (answer,) = Documents([b"a"], manifest, "windows").answers(LOGITS[:1])
    found = answer.as_json(manifest.labels, Options())
    assert [score["label"] for score in found["scores"]] == ["positive", "negative"]
    assert [score["score"] for score in found["scores"]] == pytest.approx([0.8, 0.2])
    assert (found["label"], found["score"]) == ("positive", found["scores"][0]["score"])
    assert found["coverage"] == {"bytes_total": 1, "bytes_used": 1, "strategy": "whole", "windows": 1}
    assert "windows" not in found


def test_answer_has_the_requested_fields(manifest: ClassifierManifest) -> None:
    (answer,) = Documents([LONG], manifest, "head_tail").answers(LOGITS[:1])
    found = answer.as_json(manifest.labels, Options(top_k=1, on_overflow="head_tail", detail=True))
    assert len(found["scores"]) == 1
    assert found["coverage"] == {"bytes_total": 28, "bytes_used": 16, "strategy": "head_tail", "windows": 1}
    assert [(window["start"], window["end"], window["scores"]) for window in found["windows"]] == [
        (0, 8, found["scores"]),
        (20, 28, found["scores"]),
    ]


@pytest.mark.parametrize(("top_k", "count"), [(None, 2), (1, 1), (2, 2), (99, 2)])
def test_top_k_limits_the_number_of_scores(manifest: ClassifierManifest, top_k: int | None, count: int) -> None:
    (answer,) = Documents([b"+"], manifest, "windows").answers(np.zeros((1, 2), np.float32))
    assert len(answer.as_json(manifest.labels, Options(top_k))["scores"]) == count
