"""Complement naive Bayes, and its scale beside a regression."""

import numpy as np
import pytest
from scipy.sparse import csr_matrix
from sklearn.naive_bayes import ComplementNB

from model.tasks.naive_bayes import SMOOTHING, naive_bayes, scale_of


def documents(classes: int) -> tuple[np.ndarray, np.ndarray]:
    """Return features of 40 documents, some of them zero, and their labels."""
    generator = np.random.default_rng(classes)
    x = generator.random((40, 25)) * (generator.random((40, 25)) < 0.4)
    return x, np.arange(40) % classes


@pytest.mark.parametrize("classes", [2, 3, 7])
def test_weights_equal_those_of_scikit_learn(classes: int) -> None:
    x, labels = documents(classes)
    expected = ComplementNB(alpha=SMOOTHING, norm=True).fit(x, labels).feature_log_prob_.T
    found = naive_bayes(csr_matrix(x), np.eye(classes)[labels])
    assert found == pytest.approx(expected - expected.mean(1, keepdims=True), abs=1e-12)


def test_weight_of_a_document_counts_like_copies_of_it() -> None:
    x, labels = documents(3)
    times = 1 + np.arange(40) % 3
    rows = np.repeat(np.arange(40), times)
    weighted = naive_bayes(csr_matrix(x), np.eye(3)[labels] * times[:, None])
    assert weighted == pytest.approx(naive_bayes(csr_matrix(x[rows]), np.eye(3)[labels[rows]]), abs=1e-12)


def test_a_single_feature_tells_nothing() -> None:
    assert naive_bayes(csr_matrix([[1.0], [2.0]]), np.eye(2)).tolist() == [[0.0, 0.0]]


@pytest.mark.parametrize("classes", [2, 5])
def test_scaled_logits_deviate_as_much_as_those_of_the_regression(classes: int) -> None:
    x, labels = documents(classes)
    generator = np.random.default_rng(0)
    weights, bias = generator.normal(size=(25, classes)), generator.normal(size=classes)
    bayes = naive_bayes(csr_matrix(x), np.eye(classes)[labels])
    regression, scaled = x @ weights + bias, scale_of(csr_matrix(x), weights, bias, bayes) * (x @ bayes)
    deviations = [(logits - logits.mean(1, keepdims=True)).std() for logits in (regression, scaled)]
    assert deviations[0] == pytest.approx(deviations[1])


def test_naive_bayes_that_tells_nothing_has_scale_zero() -> None:
    x = csr_matrix(np.ones((4, 3)))
    assert scale_of(x, np.ones((3, 2)), np.array([1.0, 0.0]), np.zeros((3, 2))) == 0.0
