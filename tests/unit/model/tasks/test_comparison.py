"""Paired differences."""

import math

import numpy as np
import pytest

from model.tasks.classification import accuracy
from model.tasks.comparison import Difference, difference, micro_f1_difference
from model.tasks.link import SOFTMAX

LABELS = np.arange(400) % 2


def answers(right: np.ndarray) -> np.ndarray:
    """Outputs that are right where told."""
    return np.eye(2)[np.where(right, LABELS, 1 - LABELS)]


def test_standard_error_is_that_of_the_paired_difference() -> None:
    generator = np.random.default_rng(1)
    first, second = generator.random(400) < 0.8, generator.random(400) < 0.7
    found = difference(accuracy, answers(first), answers(second), LABELS)
    gains = first.astype(float) - second
    assert found.value == pytest.approx(gains.mean())
    assert found.error == pytest.approx(gains.std() / 20, rel=0.1)
    assert difference(accuracy, answers(first), answers(first), LABELS) == (0, 0)


def test_examples_of_a_group_count_together() -> None:
    first, second = np.arange(400) < 200, np.arange(400) >= 200
    alone = difference(accuracy, answers(first), answers(second), LABELS)
    grouped = difference(accuracy, answers(first), answers(second), LABELS, [str(i // 100) for i in range(400)])
    assert alone.value == grouped.value == 0
    assert grouped.error == pytest.approx(10 * alone.error, rel=0.1)


def test_any_metric_is_compared() -> None:
    def macro_f1(outputs: np.ndarray, labels: np.ndarray) -> float:
        return SOFTMAX.report(outputs, labels)["macro_f1"]

    found = difference(macro_f1, answers(np.ones(400, bool)), answers(LABELS == 0), LABELS)
    assert found.value == pytest.approx(2 / 3, abs=0.01)
    assert 0 < found.error < 0.05


def test_micro_f1_of_labels_is_compared_on_the_same_documents() -> None:
    generator = np.random.default_rng(2)
    truth, changed = generator.random((300, 5)) < 0.3, generator.random((300, 5)) < 0.1
    labels = [truth ^ changed, truth ^ (generator.random((300, 5)) < 0.2)]
    values = [2 * (one & truth).sum() / (one.sum() + truth.sum()) for one in labels]
    found = micro_f1_difference(labels[0], labels[1], truth)
    assert found.value == pytest.approx(values[0] - values[1])
    assert 0.005 < found.error < 0.05
    assert micro_f1_difference(labels[0], labels[0], truth) == (0, 0)
    nothing = np.zeros_like(truth)
    assert micro_f1_difference(nothing, nothing, nothing) == (0, 0)


def test_one_example_has_no_standard_error() -> None:
    found = difference(accuracy, answers(LABELS == 0)[:1], answers(LABELS == 1)[:1], LABELS[:1])
    assert found == (1, math.inf)
    assert str(found) == "+100.0 ± unknown points"


def test_behind_is_more_than_two_standard_errors() -> None:
    assert Difference(-0.05, 0.02).is_behind
    assert not Difference(-0.05, 0.03).is_behind
    assert not Difference(-1.0, math.inf).is_behind
    assert not Difference(0.0, 0.0).is_behind
    assert str(Difference(-0.0123, 0.0456)) == "-1.2 ± 4.6 points"
