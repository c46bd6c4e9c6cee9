"""Metrics of classifiers, compared with slow computations that follow the definitions."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from artifact.documents import softmax
from model.tasks.classification import BINS, accuracy, calibration_error, fit_temperature, macro_f1, reliability_bins

Case = tuple[np.ndarray, np.ndarray]


def case(documents: int, classes: int, seed: int, sharpness: float = 2.0) -> Case:
    """Return logits (documents, classes) that favour the label, and the labels."""
    generator = np.random.default_rng(seed)
    labels = generator.integers(0, classes, documents)
    logits = generator.standard_normal((documents, classes)) + np.eye(classes)[labels]
    return (sharpness * logits).astype(np.float32), labels


CASES = st.builds(
    case, st.integers(1, 60), st.integers(2, 6), st.integers(0, 10_000), st.sampled_from([0.0, 0.1, 1.0, 5.0, 100.0])
)


@settings(max_examples=100)
@given(CASES)
def test_macro_f1_is_the_mean_of_the_f1_of_each_class(case: Case) -> None:
    logits, labels = case
    answers = [max(range(len(row)), key=lambda i: row[i]) for row in logits.tolist()]
    scores = []
    for name in range(logits.shape[1]):
        right = sum(a == name == b for a, b in zip(answers, labels, strict=True))
        precision = right / answers.count(name) if name in answers else 0.0
        recall = right / labels.tolist().count(name) if name in labels else 0.0
        scores.append(2 * precision * recall / (precision + recall) if right else 0.0)
    assert macro_f1(logits, labels) == pytest.approx(sum(scores) / len(scores))
    assert accuracy(logits, labels) == pytest.approx(np.mean([a == b for a, b in zip(answers, labels, strict=True)]))


def test_macro_f1_shows_the_small_class_that_accuracy_hides() -> None:
    logits, labels = np.tile(np.array([1, 0], np.float32), (10, 1)), np.array([0] * 9 + [1])
    assert accuracy(logits, labels) == 0.9
    assert macro_f1(logits, labels) == pytest.approx(0.5 * 18 / 19)


@settings(max_examples=100)
@given(CASES)
def test_reliability_and_calibration_error_follow_their_definition(case: Case) -> None:
    logits, labels = case
    bins: dict[int, list[tuple[float, bool]]] = {}
    for row, label in zip(logits.tolist(), labels.tolist(), strict=True):
        powers = [math.exp(value - max(row)) for value in row]
        score = max(powers) / sum(powers)
        bins.setdefault(min(BINS - 1, math.floor(score * BINS)), []).append((score, powers.index(max(powers)) == label))
    found = reliability_bins(logits, labels)
    assert [part.examples for part in found] == [len(bins[i]) for i in sorted(bins)]
    error = 0.0
    for part, i in zip(found, sorted(bins), strict=True):
        mean, right = (sum(column) / len(bins[i]) for column in zip(*bins[i], strict=True))
        assert (part.score, part.accuracy) == pytest.approx((mean, right))
        error += len(bins[i]) / len(labels) * abs(mean - right)
    assert calibration_error(found) == pytest.approx(error, abs=1e-12)


def test_score_of_one_is_in_the_last_bin() -> None:
    (last,) = reliability_bins(np.array([[1000, 0]] * 3, np.float32), np.array([0, 0, 1]))
    assert (last.score, last.examples) == (1.0, 3)
    assert last.accuracy == pytest.approx(2 / 3)
    assert calibration_error((last,)) == pytest.approx(1 / 3)


def loss_of(logits: np.ndarray, labels: np.ndarray, t: float) -> float:
    """Cross-entropy of the documents and of one more document with a uniform label."""
    documents = len(logits)
    scaled = logits.astype(np.float64) / t
    scores = scaled - np.logaddexp.reduce(scaled, axis=1, keepdims=True)
    smoothing = 1 / (documents + 1)
    return float(-((1 - smoothing) * scores[np.arange(documents), labels] + smoothing * scores.mean(axis=1)).mean())


@settings(max_examples=30)
@given(CASES)
def test_temperature_is_the_best_of_a_grid(case: Case) -> None:
    logits, labels = case
    grid = np.exp(np.linspace(-math.log(20), math.log(20), 2001))
    losses = [loss_of(logits, labels, t) for t in grid]
    found = fit_temperature(logits, labels)
    assert 0.05 - 1e-9 <= found <= 20 + 1e-9
    assert loss_of(logits, labels, found) <= min(losses) + 1e-9
    if np.ptp(losses) > 1e-3:
        assert abs(math.log(found / grid[int(np.argmin(losses))])) < 0.01


@pytest.mark.parametrize("scale", [0.2, 0.5, 1.0, 3.0, 10.0])
def test_temperature_inverts_the_scale_of_the_logits(scale: float) -> None:
    """Labels are sampled from the softmax of the unscaled logits, which need no temperature."""
    generator = np.random.default_rng(5)
    logits = 2 * generator.standard_normal((20_000, 3))
    labels = (softmax(logits).cumsum(axis=1) < generator.random((20_000, 1))).sum(axis=1).clip(max=2)
    scaled = (scale * logits).astype(np.float32)
    assert fit_temperature(scaled, labels) == pytest.approx(scale, rel=0.05)
    tempered = reliability_bins((scaled / fit_temperature(scaled, labels)).astype(np.float32), labels)
    assert calibration_error(tempered) < 0.02


def test_temperature_of_all_correct_predictions_is_finite() -> None:
    """Ten correct predictions do not justify certainty: about 1 in 22 is wrong, as with one more random label."""
    labels = np.array([0, 1] * 5)
    logits = np.where(np.eye(2)[labels] == 1, 5, -5).astype(np.float32)
    scores = softmax(logits.astype(np.float64) / fit_temperature(logits, labels))
    assert scores.max(axis=1) == pytest.approx([21 / 22] * 10, abs=1e-3)
