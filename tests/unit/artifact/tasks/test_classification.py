"""Documents to rows; logits of rows to scores of documents."""

import numpy as np
import orjson
import pytest

from artifact.documents import OnOverflow
from artifact.errors import InvalidInput
from artifact.exports import read_manifest, version_folder
from artifact.manifest import TensorSpec
from artifact.tasks.classification import (
    Classification,
    ClassifiedDocument,
    ClassifierManifest,
    Stretches,
)
from artifact.tasks.labels import ResultOptions
from tests.support.models import classifier, compute, rows_of
from tests.support.paths import EXPORTS

LOGITS = list(np.log(np.array([[1, 4], [4, 1], [3, 1]], np.float32)))
"""Logits of the scores 0.2 and 0.8, then 0.8 and 0.2, then 0.75 and 0.25."""
LONG = bytes(range(28))


@pytest.fixture
def task() -> Classification:
    found = classifier().task
    assert isinstance(found, Classification)
    return found


def test_rows_keep_the_order_of_the_documents(task: Classification) -> None:
    assert rows_of(task.classify([LONG, b"a"], "windows")) == [LONG[:16], LONG[12:], b"a"]
    assert rows_of(task.classify([b"a", LONG], "tail")) == [b"a", LONG[12:]]


def test_scores_of_a_document_come_from_its_rows(task: Classification) -> None:
    long, short = compute(task.classify([LONG, b"a"], "windows"), [LOGITS])
    assert long.scores == pytest.approx([0.5, 0.5])
    assert [row.spans for row in long.rows] == [[(0, 16)], [(12, 28)]]
    assert [row.scores for row in long.rows] == [pytest.approx([0.2, 0.8]), pytest.approx([0.8, 0.2])]
    assert short.scores == pytest.approx([0.75, 0.25])
    assert [(answer.coverage.bytes_total, answer.coverage.bytes_used) for answer in (long, short)] == [(28, 28), (1, 1)]


def test_error_names_the_wrong_document(task: Classification) -> None:
    with pytest.raises(InvalidInput, match="input 1: the document has 28 bytes; the model reads 16") as caught:
        rows_of(task.classify([b"a", LONG], "error"))
    assert [place for place, _ in caught.value.errors] == ["inputs.1"]


def test_scores_are_sorted_best_first(task: Classification) -> None:
    (answer,) = compute(task.classify([b"a"], "windows"), [LOGITS[:1]])
    found = answer.as_json(ResultOptions())
    assert [score["label"] for score in found["scores"]] == ["positive", "negative"]
    assert [score["score"] for score in found["scores"]] == pytest.approx([0.8, 0.2])
    assert (found["label"], found["score"]) == ("positive", found["scores"][0]["score"])
    assert found["coverage"] == {"bytes_total": 1, "bytes_used": 1, "strategy": "whole", "windows": 1, "known": None}
    assert "windows" not in found


def test_answer_has_the_requested_fields(task: Classification) -> None:
    (answer,) = compute(task.classify([LONG], "head_tail"), [LOGITS[:1]])
    found = answer.as_json(ResultOptions(top_k=1, on_overflow="head_tail", detail=True))
    assert len(found["scores"]) == 1
    assert found["coverage"] == {
        "bytes_total": 28,
        "bytes_used": 16,
        "strategy": "head_tail",
        "windows": 1,
        "known": None,
    }
    assert [(window["start"], window["end"], window["scores"]) for window in found["windows"]] == [
        (0, 8, found["scores"]),
        (20, 28, found["scores"]),
    ]


def expect_stretches(answer: ClassifiedDocument, expected: list[tuple[int, int, float]]) -> None:
    """Compare start, end and contribution to `positive`."""
    found = answer.as_json(ResultOptions(detail=True))["stretches"]
    assert [(one["start"], one["end"]) for one in found] == [(start, end) for start, end, _ in expected]
    assert [one["contributions"]["positive"] for one in found] == pytest.approx([value for *_, value in expected])


def test_without_contributions_each_row_is_one_stretch(task: Classification) -> None:
    long, short = compute(task.classify([LONG, b"a"], "windows"), [LOGITS])
    expect_stretches(long, [(0, 16, LOGITS[0][1] / 2), (12, 28, LOGITS[1][1] / 2)])
    expect_stretches(short, [(0, 1, LOGITS[2][1])])
    (joined,) = compute(task.classify([LONG], "head_tail"), [LOGITS[:1]])
    expect_stretches(joined, [(0, 28, LOGITS[0][1])])


@pytest.fixture
def tagger() -> Classification:
    """A model that gives any number of labels."""
    found = classifier(thresholds=(0.3, 0.7)).task
    assert isinstance(found, Classification)
    return found


def test_labels_are_those_that_reach_their_thresholds(tagger: Classification) -> None:
    outputs = [np.log(np.array(odds, np.float32)) for odds in ([1, 4], [1, 1], [1 / 4, 1 / 4])]
    both, first, none = (
        answer.as_json(ResultOptions()) for answer in compute(tagger.classify([b"a"] * 3, "windows"), [outputs])
    )
    assert [score["threshold"] for score in both["scores"]] == [0.7, 0.3]
    assert [score["score"] for score in both["scores"]] == pytest.approx([0.8, 0.5])
    assert (both["label"], both["score"], both["labels"]) == (
        "positive",
        both["scores"][0]["score"],
        ["positive", "negative"],
    )
    assert (first["labels"], none["labels"], none["label"]) == (["negative"], [], "negative")


def test_labels_of_a_long_document_come_from_the_mean_of_its_rows_and_are_not_cut(tagger: Classification) -> None:
    rows = [np.log(np.array(odds, np.float32)) for odds in ([1, 16], [1, 1])]
    (answer,) = compute(tagger.classify([LONG], "windows"), [rows])
    found = answer.as_json(ResultOptions(top_k=1, detail=True))
    assert [score["label"] for score in found["scores"]] == ["positive"]
    assert found["score"] == pytest.approx(0.8)
    assert found["labels"] == ["positive", "negative"]
    assert [set(stretch["contributions"]) for stretch in found["stretches"]] == [{"positive"}] * 2
    assert [window["scores"][0]["threshold"] for window in found["windows"]] == [0.7, 0.3]


def test_size_of_the_details_is_not_underestimated_with_thresholds(tagger: Classification) -> None:
    options = ResultOptions(detail=True)
    (answer,) = compute(tagger.classify([LONG], "windows"), [LOGITS[:2]])
    found = answer.as_json(options)
    details = orjson.dumps({"windows": found["windows"], "stretches": found["stretches"]})
    assert len(details) <= tagger.max_detail_bytes(len(LONG), options)


def test_tensors_hold_the_chosen_labels_as_json(tagger: Classification) -> None:
    names = [tensor.name for tensor in tagger.tensors[1]]
    assert names == ["scores", "label", "labels"]
    assert tagger.parameters == {"labels": ["negative", "positive"], "thresholds": ["0.3", "0.7"]}
    answer = compute(tagger.infer({"text": [b"a", b"b"]}, "windows"), [[np.zeros(2, np.float32)] * 2])
    assert answer.outputs["labels"].tolist() == ['["negative"]'] * 2
    assert answer.outputs["scores"].tolist() == [[0.5, 0.5]] * 2


@pytest.mark.parametrize(
    ("thresholds", "message"), [((0.5,), "2 labels do not fit 1 thresholds"), ((0.5, 1.5), "less than or equal to 1")]
)
def test_thresholds_must_fit_the_labels(thresholds: tuple[float, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        classifier(thresholds=thresholds)


@pytest.fixture
def divided(task: Classification) -> Classification:
    """A model that returns the contributions of stretches of 6 bytes."""
    return Classification(task.manifest.model_copy(update={"stretches": Stretches(length=6, base=(0.5, -0.5))}))


def output_of(*positive: float) -> np.ndarray:
    """Return the output of a row, given the contributions to `positive`; those to `negative` are the opposite."""
    contributions = np.array([[-value, value] for value in positive], np.float32)
    logits = contributions.sum(axis=0, dtype=np.float32) + np.array([0.5, -0.5], np.float32)
    return np.concatenate((logits, contributions.ravel()))


def test_stretches_of_one_row_end_with_the_document(divided: Classification) -> None:
    outputs = [output_of(1.0, 2.0, 3.0), output_of(4.0, 0.0)]
    long, short = compute(divided.classify([LONG[:16], LONG[:5]], "windows"), [outputs])
    expect_stretches(long, [(0, 6, 1.0), (6, 12, 2.0), (12, 16, 3.0)])
    expect_stretches(short, [(0, 5, 4.0)])  # the bucket has another stretch, of padding


def test_stretches_of_windows_are_sorted_and_add_up_to_the_mean(divided: Classification) -> None:
    rows = [output_of(1.0, 2.0, 3.0), output_of(-4.0, 5.0, 6.0)]
    (answer,) = compute(divided.classify([LONG], "windows"), [rows])
    expected = [(0, 6, 0.5), (6, 12, 1.0), (12, 16, 1.5), (12, 18, -2.0), (18, 24, 2.5), (24, 28, 3.0)]
    expect_stretches(answer, expected)
    logit = sum(value for *_, value in expected) - 0.5
    assert answer.scores[1] == pytest.approx(1 / (1 + np.exp(-2 * logit)))


def test_stretch_over_head_and_tail_includes_the_bytes_between(divided: Classification) -> None:
    (answer,) = compute(divided.classify([LONG], "head_tail"), [[output_of(1.0, 2.0, 3.0)]])
    expect_stretches(answer, [(0, 6, 1.0), (6, 24, 2.0), (24, 28, 3.0)])
    (answer,) = compute(divided.classify([LONG], "tail"), [[output_of(1.0, 2.0, 3.0)]])
    expect_stretches(answer, [(12, 18, 1.0), (18, 24, 2.0), (24, 28, 3.0)])


def test_stretches_have_the_labels_of_the_scores(divided: Classification) -> None:
    (answer,) = compute(divided.classify([b"a"], "windows"), [[output_of(1.0, 0.0)]])
    found = answer.as_json(ResultOptions(top_k=1, detail=True))
    assert found["stretches"] == [{"start": 0, "end": 1, "contributions": {"positive": 1.0}}]
    assert "stretches" not in answer.as_json(ResultOptions())


@pytest.fixture
def counting(divided: Classification) -> Classification:
    """A model that also counts known words."""
    outputs = [
        *divided.manifest.outputs,
        TensorSpec(name="contributions", datatype="FP32", shape=(-1, -1, 2)),
        TensorSpec(name="known", datatype="FP32", shape=(-1, 2)),
    ]
    raw = divided.manifest.model_dump() | {"outputs": outputs}
    return Classification(ClassifierManifest.model_validate(raw))


def counted_output(known: int, words: int, *positive: float) -> np.ndarray:
    """Return the output of a row, given its numbers of known words and of all words, and its contributions."""
    return np.concatenate((output_of(*positive), np.array([known, words], np.float32)))


@pytest.mark.parametrize(("count", "counts_words"), [(1, False), (2, False), (3, True)])
def test_third_output_counts_words(counting: Classification, count: int, *, counts_words: bool) -> None:
    raw = counting.manifest.model_dump()
    manifest = ClassifierManifest.model_validate(
        raw | {"outputs": raw["outputs"][:count], "stretches": raw["stretches"] if count > 1 else None}
    )
    assert manifest.counts_words == counts_words


def test_known_words_of_all_rows_count(counting: Classification) -> None:
    """Also if the rows of a batch have different numbers of stretches."""
    outputs = [counted_output(3, 4, 1.0, 2.0, 3.0), counted_output(1, 6, -4.0, 5.0, 6.0), counted_output(2, 2, 4.0)]
    long, short = compute(counting.classify([LONG, b"a"], "windows"), [outputs])
    assert (long.coverage.known, short.coverage.known) == (0.4, 1.0)
    assert long.as_json(ResultOptions())["coverage"]["known"] == 0.4
    expect_stretches(short, [(0, 1, 4.0)])
    expected = [(0, 6, 0.5), (6, 12, 1.0), (12, 16, 1.5), (12, 18, -2.0), (18, 24, 2.5), (24, 28, 3.0)]
    expect_stretches(long, expected)


def test_documents_without_words_have_no_known_ones(counting: Classification) -> None:
    (answer,) = compute(counting.classify([b" "], "windows"), [[counted_output(0, 0, 0.0)]])
    assert answer.coverage.known == 0.0


def test_parameters_of_tensors_tell_the_share_over_all_documents(
    counting: Classification, divided: Classification
) -> None:
    outputs = [counted_output(0, 1, 0.0), counted_output(3, 4, 0.0)]
    found = compute(counting.infer({"text": [b"a", b"b"]}, "windows"), [outputs])
    assert found.parameters == {"bytes_total": 2, "bytes_used": 2, "documents_cut": 0, "known": 0.6}
    found = compute(divided.infer({"text": [b"a"]}, "windows"), [[output_of(0.0)]])
    assert found.parameters == {"bytes_total": 1, "bytes_used": 1, "documents_cut": 0}


@pytest.mark.parametrize(("top_k", "count"), [(None, 2), (1, 1), (2, 2), (99, 2)])
def test_top_k_limits_the_number_of_scores(task: Classification, top_k: int | None, count: int) -> None:
    (answer,) = compute(task.classify([b"+"], "windows"), [[np.zeros(2, np.float32)]])
    assert len(answer.as_json(ResultOptions(top_k))["scores"]) == count


@pytest.fixture(scope="module", params=["un-debate", "imdb-s3"])
def shipped(request: pytest.FixtureRequest) -> Classification:
    """A model with stretches, and one without."""
    found = read_manifest(version_folder(EXPORTS / request.param))
    assert isinstance(found, ClassifierManifest)
    return Classification(found)


@pytest.mark.parametrize("top_k", [None, 1])
@pytest.mark.parametrize("on_overflow", ["windows", "head", "tail", "head_tail"])
@pytest.mark.parametrize("size", [1, 256, 257, 4096, 5000, 65_536, 100_000, 200_000])
def test_details_have_at_most_the_predicted_bytes(
    shipped: Classification, top_k: int | None, on_overflow: OnOverflow, size: int
) -> None:
    manifest = shipped.manifest
    rows = len(rows_of(shipped.classify([bytes(size)], on_overflow)))
    stretches = 0 if manifest.stretches is None else manifest.max_length // manifest.stretches.length
    shape = (rows, len(manifest.labels) * (1 + stretches) + (2 if manifest.counts_words else 0))
    outputs = np.random.default_rng(0).normal(scale=1e-6, size=shape).astype(np.float32)
    (answer,) = compute(shipped.classify([bytes(size)], on_overflow), [[*outputs]])
    plain, detailed = (
        len(orjson.dumps(answer.as_json(ResultOptions(top_k, on_overflow, detail=detail)))) for detail in (False, True)
    )
    most = shipped.max_detail_bytes(size, ResultOptions(top_k, on_overflow, detail=True))
    assert detailed - plain <= most
    assert most <= 2 * (detailed - plain) + 500
    assert shipped.max_detail_bytes(size, ResultOptions(top_k, on_overflow)) == 0
