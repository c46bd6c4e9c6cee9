"""Documents to rows; logits of rows to scores of documents."""

from collections.abc import Sequence

import numpy as np
import pytest

from artifact.errors import InvalidInput
from artifact.tasks.classification import Classification, ClassifierManifest, Documents, Options, Stretches
from tests.support.models import classifier

LOGITS = list(np.log(np.array([[1, 4], [4, 1], [3, 1]], np.float32)))
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
    assert [row.spans for row in long.rows] == [[(0, 16)], [(12, 28)]]
    assert [row.scores for row in long.rows] == [pytest.approx([0.2, 0.8]), pytest.approx([0.8, 0.2])]
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


def expect_stretches(answer: Classification, labels: Sequence[str], expected: list[tuple[int, int, float]]) -> None:
    """Compare start, end and contribution to `positive`."""
    found = answer.as_json(labels, Options(detail=True))["stretches"]
    assert [(one["start"], one["end"]) for one in found] == [(start, end) for start, end, _ in expected]
    assert [one["contributions"]["positive"] for one in found] == pytest.approx([value for *_, value in expected])


def test_without_contributions_each_row_is_one_stretch(manifest: ClassifierManifest) -> None:
    long, short = Documents([LONG, b"a"], manifest, "windows").answers(LOGITS)
    expect_stretches(long, manifest.labels, [(0, 16, LOGITS[0][1] / 2), (12, 28, LOGITS[1][1] / 2)])
    expect_stretches(short, manifest.labels, [(0, 1, LOGITS[2][1])])
    (joined,) = Documents([LONG], manifest, "head_tail").answers(LOGITS[:1])
    expect_stretches(joined, manifest.labels, [(0, 28, LOGITS[0][1])])


@pytest.fixture
def divided(manifest: ClassifierManifest) -> ClassifierManifest:
    """A manifest of a model that returns the contributions of stretches of 6 bytes."""
    return manifest.model_copy(update={"stretches": Stretches(length=6, base=(0.5, -0.5))})


def output_of(*positive: float) -> np.ndarray:
    """Return the output of a row, given the contributions to `positive`; those to `negative` are the opposite."""
    contributions = np.array([[-value, value] for value in positive], np.float32)
    logits = contributions.sum(axis=0, dtype=np.float32) + np.array([0.5, -0.5], np.float32)
    return np.concatenate((logits, contributions.ravel()))


def test_stretches_of_one_row_end_with_the_document(divided: ClassifierManifest) -> None:
    outputs = [output_of(1.0, 2.0, 3.0), output_of(4.0, 0.0)]
    long, short = Documents([LONG[:16], LONG[:5]], divided, "windows").answers(outputs)
    expect_stretches(long, divided.labels, [(0, 6, 1.0), (6, 12, 2.0), (12, 16, 3.0)])
    expect_stretches(short, divided.labels, [(0, 5, 4.0)])  # the bucket has another stretch, of padding


def test_stretches_of_windows_are_sorted_and_add_up_to_the_mean(divided: ClassifierManifest) -> None:
    rows = [output_of(1.0, 2.0, 3.0), output_of(-4.0, 5.0, 6.0)]
    (answer,) = Documents([LONG], divided, "windows").answers(rows)
    expected = [(0, 6, 0.5), (6, 12, 1.0), (12, 16, 1.5), (12, 18, -2.0), (18, 24, 2.5), (24, 28, 3.0)]
    expect_stretches(answer, divided.labels, expected)
    logit = sum(value for *_, value in expected) - 0.5
    assert answer.scores[1] == pytest.approx(1 / (1 + np.exp(-2 * logit)))


def test_stretch_over_head_and_tail_includes_the_bytes_between(divided: ClassifierManifest) -> None:
    (answer,) = Documents([LONG], divided, "head_tail").answers([output_of(1.0, 2.0, 3.0)])
    expect_stretches(answer, divided.labels, [(0, 6, 1.0), (6, 24, 2.0), (24, 28, 3.0)])
    (answer,) = Documents([LONG], divided, "tail").answers([output_of(1.0, 2.0, 3.0)])
    expect_stretches(answer, divided.labels, [(12, 18, 1.0), (18, 24, 2.0), (24, 28, 3.0)])


def test_stretches_have_the_labels_of_the_scores(divided: ClassifierManifest) -> None:
    (answer,) = Documents([b"a"], divided, "windows").answers([output_of(1.0, 0.0)])
    found = answer.as_json(divided.labels, Options(top_k=1, detail=True))
    assert found["stretches"] == [{"start": 0, "end": 1, "contributions": {"positive": 1.0}}]
    assert "stretches" not in answer.as_json(divided.labels, Options())


@pytest.mark.parametrize(("top_k", "count"), [(None, 2), (1, 1), (2, 2), (99, 2)])
def test_top_k_limits_the_number_of_scores(manifest: ClassifierManifest, top_k: int | None, count: int) -> None:
    (answer,) = Documents([b"+"], manifest, "windows").answers([np.zeros(2, np.float32)])
    assert len(answer.as_json(manifest.labels, Options(top_k))["scores"]) == count
