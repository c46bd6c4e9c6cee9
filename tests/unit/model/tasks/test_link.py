"""Links: metrics and calibration, compared with slow computations that follow the definitions."""

import math

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.stats import spearmanr
from sklearn.metrics import accuracy_score, f1_score

from artifact.documents import softmax
from model.tasks.link import (
    DEGREE,
    IDENTITY,
    SIGMOID,
    SIGMOIDS,
    SOFTMAX,
    area_under_roc,
    best_f1_threshold,
    calibration_error,
    memberships,
    rarest,
    spearman,
)

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
    assert SOFTMAX.report(logits, labels)["macro_f1"] == pytest.approx(sum(scores) / len(scores))
    assert SOFTMAX.report(logits, labels)["accuracy"] == pytest.approx(
        np.mean([a == b for a, b in zip(answers, labels, strict=True)])
    )


def test_macro_f1_shows_the_small_class_that_accuracy_hides() -> None:
    logits, labels = np.tile(np.array([1, 0], np.float32), (10, 1)), np.array([0] * 9 + [1])
    assert SOFTMAX.report(logits, labels)["accuracy"] == 0.9
    assert SOFTMAX.report(logits, labels)["macro_f1"] == pytest.approx(0.5 * 18 / 19)


@settings(max_examples=100)
@given(CASES)
def test_reliability_and_calibration_error_follow_their_definition(case: Case) -> None:
    logits, labels = case
    bins: dict[int, list[tuple[float, bool]]] = {}
    for row, label in zip(logits.tolist(), labels.tolist(), strict=True):
        powers = [math.exp(value - max(row)) for value in row]
        score = max(powers) / sum(powers)
        bins.setdefault(min(SOFTMAX.BINS - 1, math.floor(score * SOFTMAX.BINS)), []).append(
            (score, powers.index(max(powers)) == label)
        )
    found = SOFTMAX.reliability(logits, labels)
    assert [part.examples for part in found] == [len(bins[i]) for i in sorted(bins)]
    error = 0.0
    for part, i in zip(found, sorted(bins), strict=True):
        mean, right = (sum(column) / len(bins[i]) for column in zip(*bins[i], strict=True))
        assert (part.score, part.accuracy) == pytest.approx((mean, right))
        error += len(bins[i]) / len(labels) * abs(mean - right)
    assert calibration_error(found) == pytest.approx(error, abs=1e-12)


def test_score_of_one_is_in_the_last_bin() -> None:
    (last,) = SOFTMAX.reliability(np.array([[1000, 0]] * 3, np.float32), np.array([0, 0, 1]))
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
    found = SOFTMAX.calibrate(logits, labels).temperature
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
    assert SOFTMAX.calibrate(scaled, labels).temperature == pytest.approx(scale, rel=0.05)
    tempered = SOFTMAX.reliability((scaled / SOFTMAX.calibrate(scaled, labels).temperature).astype(np.float32), labels)
    assert calibration_error(tempered) < 0.02


def test_temperature_of_all_correct_predictions_is_finite() -> None:
    """Ten correct predictions do not justify certainty: about 1 in 22 is wrong, as with one more random label."""
    labels = np.array([0, 1] * 5)
    logits = np.where(np.eye(2)[labels] == 1, 5, -5).astype(np.float32)
    scores = softmax(logits.astype(np.float64) / SOFTMAX.calibrate(logits, labels).temperature)
    assert scores.max(axis=1) == pytest.approx([21 / 22] * 10, abs=1e-3)


@settings(max_examples=200)
@given(st.lists(st.tuples(st.integers(-3, 3), st.booleans()), min_size=2, max_size=40))
def test_area_under_roc_equals_the_share_of_ordered_pairs(rows: list[tuple[int, bool]]) -> None:
    positive = [score for score, label in rows if label]
    negative = [score for score, label in rows if not label]
    assume(positive and negative)
    ordered = sum(1.0 if p > n else 0.5 if p == n else 0.0 for p in positive for n in negative)
    scores, labels = (np.array(column) for column in zip(*rows, strict=True))
    found = area_under_roc(scores / 7, labels.astype(np.int64))
    assert found == pytest.approx(ordered / (len(positive) * len(negative)), rel=1e-12)


def test_area_under_roc_of_perfect_reversed_and_constant_scores() -> None:
    labels = np.array([0, 1, 0, 1])
    assert area_under_roc(np.array([0.1, 0.8, 0.2, 0.9]), labels) == 1
    assert area_under_roc(np.array([0.9, 0.2, 0.8, 0.1]), labels) == 0
    assert area_under_roc(np.full(4, 0.5), labels) == 0.5


def split_of(logits: NDArray[np.float64], labels: NDArray[np.int64]) -> tuple[float, float]:
    """Return the accuracy of calibrated scores at 0.5, and the difference of their mean from the share of positives."""
    scale, shift, _ = SIGMOID.calibrate(logits.astype(np.float32), labels)
    assert 0 < scale < math.inf
    scores = 0.5 * (1 + np.tanh(0.5 * (scale * logits + shift)))
    return float(((scores >= 0.5) == labels).mean()), float(scores.mean() - labels.mean())


def test_platt_recovers_the_scale_and_shift_of_the_labels() -> None:
    generator = np.random.default_rng(0)
    logits = generator.normal(0, 2, 20_000)
    labels = (generator.random(20_000) < 1 / (1 + np.exp(1 - 0.7 * logits))).astype(np.int64)
    scale, shift, _ = SIGMOID.calibrate(logits.astype(np.float32), labels)
    # Standard deviations of the estimate: 0.013 and 0.02, from the inverse of the curvature of the likelihood.
    assert scale == pytest.approx(0.7, abs=5 * 0.013)
    assert shift == pytest.approx(-1, abs=5 * 0.02)
    assert abs(split_of(logits, labels)[1]) < 1e-3


@pytest.mark.parametrize(
    ("negative", "positive"),
    [((-2, 2), (1, 5)), ((7, 11), (10, 14)), ((-4, 1), (0.5, 11)), ((-3, 1), (9, 11)), ((30, 40), (50, 60))],
    ids=["overlapping", "shifted", "skewed", "apart", "large and apart"],
)
def test_platt_moves_the_threshold_to_where_the_labels_change(
    negative: tuple[float, float], positive: tuple[float, float]
) -> None:
    logits = np.concatenate([np.linspace(*negative, 50), np.linspace(*positive, 50)])
    labels = np.repeat([0, 1], 50)
    best = max(((logits >= threshold) == labels).mean() for threshold in logits)
    right, difference = split_of(logits, labels)
    assert right >= best - 0.03
    assert abs(difference) < 0.02


def test_report_of_a_yes_or_no_is_at_the_served_threshold() -> None:
    logits, labels = np.array([-1, 0, 2, -0.5], np.float32), np.array([0, 1, 1, 1])
    assert SIGMOID.probabilities(logits) == pytest.approx(1 / (1 + np.exp(-logits)))
    assert SIGMOID.report(logits, labels) == {"accuracy": 0.75, "auc": 1.0}


def test_numbers_are_their_own_answer() -> None:
    forecast, truth = np.array([[1.0, 2.0]]), np.array([[2.0, 4.0]])
    assert IDENTITY.report(IDENTITY.probabilities(forecast), truth) == {"mse": 2.5, "mae": 1.5}
    assert tuple(IDENTITY.calibrate(forecast, truth)) == (1, 0, 1)


def several(rows: int, classes: int, seed: int, sharpness: float = 2.0) -> Case:
    """Return logits (rows, classes) that favour the labels, and 1 and 0 for each label."""
    generator = np.random.default_rng(seed)
    targets = (generator.random((rows, classes)) < generator.random(classes) / 2).astype(np.int64)
    return (sharpness * (generator.standard_normal((rows, classes)) + 2 * targets - 1)).astype(np.float32), targets


SEVERAL = st.builds(several, st.integers(6, 60), st.integers(2, 5), st.integers(0, 10_000), st.floats(0.1, 5))


@settings(max_examples=100)
@given(SEVERAL)
def test_metrics_of_any_number_of_labels_are_those_of_scikit_learn(case: Case) -> None:
    logits, targets = case
    thresholds = np.linspace(0.3, 0.7, targets.shape[1])
    found = SIGMOIDS.report(logits, targets, thresholds)
    chosen = 1 / (1 + np.exp(-logits.astype(np.float64))) >= thresholds
    present = np.flatnonzero(targets.any(0))
    assert found["exact_match"] == accuracy_score(targets, chosen)
    assert found["micro_f1"] == pytest.approx(f1_score(targets, chosen, average="micro", zero_division=0))
    each = f1_score(targets, chosen, average=None, zero_division=0)
    assert found["macro_f1"] == pytest.approx(each[present].mean() if len(present) else 0)


@settings(max_examples=100)
@given(st.lists(st.tuples(st.sampled_from([0.0, 0.1, 0.25, 0.5, 0.9, 1.0]), st.booleans()), min_size=1, max_size=30))
def test_no_threshold_has_a_higher_f1(rows: list[tuple[float, bool]]) -> None:
    scores, targets = np.array([score for score, _ in rows]), np.array([int(is_true) for _, is_true in rows])

    def f1(threshold: float) -> float:
        chosen = scores >= threshold
        return float(2 * (chosen & (targets == 1)).sum() / max(1, chosen.sum() + targets.sum()))

    best = best_f1_threshold(scores, targets)
    assert 0 <= best <= 1
    if targets.any():
        assert f1(best) == pytest.approx(max(f1(score) for score in scores))
    else:
        assert best == 1


def test_rare_labels_share_a_threshold() -> None:
    generator = np.random.default_rng(0)
    targets = np.zeros((100, 4), np.int64)
    targets[:30, 0], targets[:4, 1], targets[10:12, 2] = 1, 1, 1
    scores = np.clip(0.5 * targets + generator.random((100, 4)) / 2, 0, 1)
    often, *rare = SIGMOIDS.thresholds(scores, targets)
    assert often == best_f1_threshold(scores[:, 0], targets[:, 0])
    assert rare == [best_f1_threshold(scores[:, 1:].ravel(), targets[:, 1:].ravel())] * 3
    targets[:, 1:] = 0
    assert SIGMOIDS.thresholds(scores, targets)[1] == best_f1_threshold(scores.ravel(), targets.ravel())


def test_thresholds_of_a_row_are_chosen_without_it() -> None:
    logits, targets = several(40, 3, 0)
    other = targets.copy()
    other[::5] = 1 - other[::5]  # the rows of one fold
    fold = np.arange(40) % 5 == 0
    first, second = (SIGMOIDS._held_out_thresholds(SIGMOIDS.probabilities(logits), part) for part in (targets, other))
    assert np.array_equal(first[fold], second[fold])
    assert not np.array_equal(first[~fold], second[~fold])


@settings(max_examples=20, deadline=None)
@given(SEVERAL, st.floats(0.2, 5))
def test_temperature_of_any_number_of_labels_has_the_lowest_loss(case: Case, factor: float) -> None:
    logits, targets = case
    best = SIGMOIDS.calibrate(logits, targets).temperature

    def loss(temperature: float) -> float:
        smoothing = 1 / (len(targets) + 1)
        outputs = torch.from_numpy(logits.astype(np.float64) / temperature)
        return float(SIGMOIDS.cross_entropies(outputs, torch.from_numpy(targets), smoothing).mean())

    assume(1 / 19 < best < 19)
    assert loss(best) <= loss(best * factor) + 1e-9


def test_loss_of_any_number_of_labels_by_hand() -> None:
    logits, targets = torch.tensor([[0.0, 2.0], [1.0, -1.0]]), torch.tensor([[1, 0], [1, 1]])
    rows = [math.log(2) + math.log(1 + math.e**2), math.log(1 + math.e**-1) + math.log(1 + math.e)]
    assert SIGMOIDS.cross_entropies(logits, targets).tolist() == pytest.approx(rows)
    assert float(SIGMOIDS.loss(logits, targets)) == pytest.approx(sum(rows) / 2)


def test_reliability_of_any_number_of_labels_counts_each_label_of_each_row() -> None:
    logits, targets = several(30, 4, 1)
    bins = SIGMOIDS.reliability(logits, targets)
    assert sum(part.examples for part in bins) == 120
    assert sum(part.examples * part.accuracy for part in bins) == pytest.approx(targets.sum())


def test_memberships_have_a_class_of_rows_without_a_label() -> None:
    assert memberships(np.array([0, 2])).tolist() == [[1, 0, 0], [0, 0, 1]]
    assert memberships(np.array([[1, 1], [0, 1]])).tolist() == [[1, 1], [0, 1]]
    assert memberships(np.array([[1, 1], [0, 0]])).tolist() == [[1, 1, 0], [0, 0, 1]]


def test_rarest_label_of_a_row() -> None:
    assert rarest(np.array([[1, 1, 0], [1, 0, 0], [0, 0, 0], [0, 0, 1]])).tolist() == [1, 0, 3, 2]


def test_rank_correlation_has_mean_ranks_for_ties() -> None:
    generator = np.random.default_rng(0)
    scores, targets = generator.integers(5, size=40).astype(float), generator.integers(4, size=40) / 3
    assert spearman(scores, targets) == pytest.approx(spearmanr(scores, targets).statistic)
    assert spearman(np.ones(3), np.array([0.0, 0.5, 1.0])) == 0


def test_degrees_are_reported_by_their_correlations() -> None:
    logits, degrees = np.array([-2.0, 0.0, 3.0]), np.array([0.1, 0.4, 0.9])
    scores = 1 / (1 + np.exp(-logits))
    found = DEGREE.report(logits, degrees)
    assert found["spearman"] == 1
    assert found["pearson"] == pytest.approx(np.corrcoef(scores, degrees)[0, 1], abs=1e-6)
    assert found["mae"] == pytest.approx(np.abs(scores - degrees).mean(), abs=1e-6)


def test_calibration_of_degrees_finds_scale_and_shift() -> None:
    logits = np.linspace(-3, 3, 20_000)
    scaling = DEGREE.calibrate(logits, 1 / (1 + np.exp(-(2 * logits - 1))))
    assert (scaling.scale, scaling.shift) == pytest.approx((2, -1), abs=0.02)


def test_area_is_one_half_if_all_rows_have_one_label() -> None:
    assert area_under_roc(np.array([0.1, 0.9]), np.array([1, 1])) == 0.5
    assert area_under_roc(np.array([0.1, 0.9]), np.array([0, 0])) == 0.5
