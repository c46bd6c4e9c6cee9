"""TF-IDF baselines."""

import numpy as np
import pytest

from model.tasks import tfidf
from model.tasks.classification import accuracy
from model.tasks.link import SIGMOIDS, area_under_roc
from model.tasks.tfidf import best_threshold, fit_classifier, fit_labels, fit_matcher, note, value_of

TEXTS = [f"{word} {word} number" for word in ("tea", "rail") for _ in range(6)]
LABELS = [0] * 6 + [2] * 6
DOCUMENTS = [text.encode() for text in TEXTS]


def test_classifier_is_chosen_on_validation() -> None:
    found = fit_classifier((DOCUMENTS, LABELS), ([b"a tea", b"the rail \xff"], [0, 2]), 3, accuracy)
    assert found is not None
    assert found.value == 1
    assert found.name == "TF-IDF and logistic regression (scikit-learn's defaults, C=1)"
    scores = found.scores([b"tea", b"rail", b""])
    assert scores.shape == (3, 3)
    assert scores.argmax(1)[:2].tolist() == [0, 2]
    assert scores[:, 1].tolist() == [0, 0, 0]
    (other,) = (setting for setting in tfidf.VECTORIZERS if setting != found.setting)
    again = fit_classifier((DOCUMENTS, LABELS), ([b"a tea"], [0]), 3, accuracy, (other,))
    assert again is not None
    assert again.setting == other


def test_few_documents_of_many_classes_give_no_warnings() -> None:
    """Warnings are errors in these tests."""
    documents, labels = [f"tea{i} pot{i}".encode() for i in range(30)], list(range(30))
    found = fit_classifier((documents, labels), (documents, labels), 30, accuracy)
    assert found is not None
    assert found.value == 1


@pytest.mark.parametrize("texts", [[b"1 2 3", b"- ."], [b"x", b"y"]])
def test_texts_without_words_have_no_baseline(texts: list[bytes]) -> None:
    assert fit_classifier((texts, [0, 1]), (texts, [0, 1]), 2, accuracy) is None
    pairs = np.array([[0, 1, 0], [1, 1, 1]])
    assert fit_matcher(texts, pairs, pairs, area_under_roc) is None


def test_matcher_compares_cosines_with_a_threshold() -> None:
    texts = [b"tea pot", b"tea cup", b"rail track", b"rail sleeper"]
    pairs = np.array([[0, 1, 1], [2, 3, 1], [0, 2, 0], [1, 3, 0]])
    found = fit_matcher(texts, pairs, pairs, area_under_roc)
    assert found is not None
    assert found.value == 1
    scores = found.scores(texts, pairs[:, :2])
    assert ((scores >= found.threshold) == pairs[:, 2]).all()
    assert found.scores([b"tea", b"tea"], np.array([[0, 1]])) == pytest.approx([1.0])


@pytest.mark.parametrize(
    ("scores", "labels", "right"),
    [
        ([0.1, 0.2, 0.8, 0.9], [0, 0, 1, 1], 4),
        ([0.5, 0.5, 0.5], [1, 0, 0], 2),
        ([0.5, 0.5, 0.5], [1, 1, 0], 2),
        ([0.9, 0.1, 0.4], [0, 1, 0], 2),
        ([0.3], [1], 1),
    ],
)
def test_threshold_is_the_best_of_all(scores: list[float], labels: list[int], right: int) -> None:
    threshold = best_threshold(np.array(scores), np.array(labels))
    assert sum((score >= threshold) == label for score, label in zip(scores, labels, strict=True)) == right


def test_sample_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tfidf, "MAX_DOCUMENTS", 11)
    found = fit_classifier((DOCUMENTS, LABELS), ([b"a tea"], [0]), 3, accuracy)
    assert found is not None
    assert found.name.endswith(", fitted on 11 of 12 documents)")
    assert value_of(note(found.name, 0.5)) == 0.5


def test_value_is_read_back_from_its_note() -> None:
    assert note("TF-IDF cosine (x)", 0.92104) == "TF-IDF cosine (x): 0.9210"
    assert value_of("TF-IDF cosine (x): 0.9210") == 0.921
    assert value_of("nothing") is None
    assert value_of("S3Attention: 69.27") is None


def test_labels_have_a_classifier_each_and_thresholds_of_validation() -> None:
    texts = [b"tea", b"rail", b"tea rail", b"of the"] * 6
    labels = np.array([[1, 0, 0], [0, 1, 0], [1, 1, 0], [0, 0, 0]] * 6)

    def micro_f1(scores: np.ndarray, targets: np.ndarray) -> float:
        return SIGMOIDS.report(scores, targets)["micro_f1"]

    found = fit_labels((texts, labels), (texts, labels), micro_f1)
    assert found is not None
    assert found.value == 1
    assert found.setting in found.name
    assert found.thresholds is not None
    chosen = SIGMOIDS.probabilities(found.scores([b"a tea", b"rail, tea", b""])) >= found.thresholds
    assert chosen.tolist() == [[True, False, False], [True, True, False], [False, False, False]]
    again = fit_labels((texts, labels), (texts, labels), micro_f1, (found.setting,))
    assert again is not None
    assert again.name == found.name
