"""TF-IDF baselines."""

import numpy as np
import pytest
from numpy.typing import NDArray

from model.data import splits
from model.tasks import tfidf
from model.tasks.classification import accuracy
from model.tasks.link import SIGMOIDS, area_under_roc
from model.tasks.tfidf import best_threshold, fit_classifier, fit_labels, fit_matcher, note, value_of

TEXTS = [f"{word} {word} number" for word in ("tea", "rail") for _ in range(6)]
LABELS = [0] * 6 + [2] * 6
DOCUMENTS = [text.encode() for text in TEXTS]


def test_classifier_is_tuned_on_folds_of_the_training_texts() -> None:
    found = fit_classifier((DOCUMENTS, LABELS), ([b"a tea", b"the rail \xff"], [0, 2]), 3, accuracy)
    assert found is not None
    assert found.value == 1
    assert found.name == "TF-IDF and logistic regression (words, sublinear, C=1)"
    scores = found.scores([b"tea", b"rail", b""])
    assert scores.shape == (3, 3)
    assert scores.argmax(1)[:2].tolist() == [0, 2]
    assert scores[:, 1].tolist() == [0, 0, 0]


def test_validation_labels_do_not_change_the_choice() -> None:
    right, wrong = (
        fit_classifier((DOCUMENTS, LABELS), ([b"a tea", b"rail"], truth), 3, accuracy) for truth in ([0, 2], [2, 0])
    )
    assert right is not None
    assert wrong is not None
    assert (right.setting, right.value, wrong.value) == (wrong.setting, 1, 0)


def test_characters_are_chosen_where_words_fail() -> None:
    """Each word occurs once; its ending tells the label."""
    texts = [f"{chr(97 + i % 26)}{chr(97 + i // 26)}x{'ing' if i % 2 else 'ed'}".encode() for i in range(60)]
    labels = [i % 2 for i in range(60)]
    found = fit_classifier((texts, labels), (texts, labels), 2, accuracy)
    assert found is not None
    assert found.setting.startswith("characters 2-5, sublinear, C=")


def test_chosen_setting_is_fitted_again_without_a_search(monkeypatch: pytest.MonkeyPatch) -> None:
    first = fit_classifier((DOCUMENTS, LABELS), ([b"a tea"], [0]), 3, accuracy)
    assert first is not None
    monkeypatch.setattr(tfidf, "_best", lambda *_: pytest.fail("searched"))
    for setting in (first.setting, tfidf.DEFAULTS, "words 1-2, sublinear, C=30"):
        again = fit_classifier((DOCUMENTS, LABELS), ([b"a tea"], [0]), 3, accuracy, (setting,))
        assert again is not None
        assert again.setting.startswith(setting)
        if setting == first.setting:
            assert (again.scores(DOCUMENTS) == first.scores(DOCUMENTS)).all()


def test_texts_of_a_group_are_in_one_fold(monkeypatch: pytest.MonkeyPatch) -> None:
    held_out: list[list[int]] = []

    def noted(labels: NDArray[np.int64], groups: NDArray[np.int64]) -> list[NDArray[np.int64]]:
        found = splits.folds(labels, groups)
        held_out.extend(part.tolist() for part in found)
        return found

    monkeypatch.setattr(tfidf, "folds", noted)
    groups = ["a", "b", "c"] * 4
    assert fit_classifier((DOCUMENTS, LABELS), ([b"a tea"], [0]), 3, accuracy, groups=groups) is not None
    assert len(held_out) == 3
    assert all(len({groups[i] for i in part}) == 1 for part in held_out)


def test_few_documents_of_many_classes_give_no_warnings() -> None:
    """Warnings are errors in these tests."""
    documents, labels = [f"tea{i} pot{i}".encode() for i in range(30)], list(range(30))
    found = fit_classifier((documents, labels), (documents, labels), 30, accuracy)
    assert found is not None
    assert found.value == 1


def test_empty_texts_have_no_baseline() -> None:
    assert fit_classifier(([b" ", b"\n"], [0, 1]), ([b" "], [0]), 2, accuracy) is None
    assert fit_classifier(([b"one", b"two"], [1, 1]), ([b"one"], [1]), 2, accuracy) is None


def test_pairs_without_characters_have_no_baseline() -> None:
    pairs = (np.array([[0, 1], [1, 1]]), np.array([0.0, 1.0]))
    assert fit_matcher([b" ", b"\n"], pairs, pairs, area_under_roc) is None


def test_matcher_compares_cosines_with_a_threshold() -> None:
    texts = [b"tea pot", b"tea cup", b"rail track", b"rail sleeper"]
    pairs, targets = np.array([[0, 1], [2, 3], [0, 2], [1, 3]]), np.array([1.0, 1.0, 0.0, 0.0])
    found = fit_matcher(texts, (pairs, targets), (pairs, targets), area_under_roc)
    assert found is not None
    assert found.value == 1
    assert ((found.scores(texts, pairs) >= found.threshold) == targets).all()
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


def test_balanced_classifier_finds_a_rare_class() -> None:
    texts = [b"common words of many documents"] * 38 + [b"common words of rare documents"] * 2
    labels = [0] * 38 + [1] * 2
    for is_balanced in (False, True):
        setting = ("words, sublinear, C=1",)
        found = fit_classifier((texts, labels), (texts, labels), 2, accuracy, setting, is_balanced=is_balanced)
        assert found is not None
        assert found.scores([texts[-1]]).argmax(1)[0] == is_balanced
        assert found.name.endswith(", balanced)") == is_balanced


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
