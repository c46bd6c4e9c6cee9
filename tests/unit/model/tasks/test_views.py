"""Rounds of the vector view, and the weights of two views."""

from collections.abc import Sequence

import numpy as np
import pytest
import torch
from torch import nn

from model.nn.vectors import VectorClassifier
from model.tasks import views
from model.tasks.occurrences import Occurrences
from model.tasks.views import (
    VectorRound,
    combined,
    cross_entropies,
    fit_weights,
    held_out_logits,
    inputs_of,
    is_better,
    mean_of_windows,
    vector_logits,
)
from tests.support.numerics import randomise
from tests.unit.model.nn.test_vectors import CLASSES, CONFIG, ENCODER, NUM_NGRAMS

CPU = torch.device("cpu")
WINDOWS = [1, 3, 2]


def random_ngrams(count: int, seed: int = 0) -> Occurrences:
    generator = np.random.default_rng(seed)
    sizes = generator.integers(0, 40, count)
    values = generator.integers(1, 31, sizes.sum()).astype(np.int32)
    return Occurrences(values, np.concatenate(([0], np.cumsum(sizes))), np.maximum(1, sizes).astype(np.int32))


def soft_labels(count: int) -> np.ndarray:
    return np.random.default_rng(1).dirichlet(np.ones(CLASSES), count).astype(np.float32)


def a_round(seed: str = "0-1", labels: Sequence[int] = (0, 0, 0)) -> VectorRound:
    """A round on 30 documents; the three of validation have six windows."""
    ngrams, windows = random_ngrams(30), random_ngrams(6, seed=2)
    return VectorRound(ngrams, soft_labels(30), 4, seed, windows, WINDOWS, np.array(labels), "accuracy")


def documents_of(batch: tuple[torch.Tensor, ...]) -> list[tuple[list[int], int, list[float]]]:
    rows, doc_index, lengths, targets = batch
    return [
        (rows[doc_index == i].tolist(), int(lengths[i]), [round(value, 4) for value in targets[i].tolist()])
        for i in range(len(lengths))
    ]


def test_batches_hold_every_document_once_with_its_target_and_drop_the_rest() -> None:
    learner = a_round()
    found = [document for batch in learner.batches(0) for document in documents_of(batch)]
    everything = documents_of((*inputs_of(learner.ngrams, range(30)), torch.from_numpy(learner.targets)))
    assert learner.examples_per_epoch == len(found) == 28
    assert len({str(document) for document in found}) == 28
    assert all(document in everything for document in found)


def test_batches_are_the_same_for_the_same_seed_and_others_for_another() -> None:
    def order(seed: str, epoch: int) -> list[str]:
        return [str(documents_of(batch)) for batch in a_round(seed=seed).batches(epoch)]

    assert order("0-1", 0) == order("0-1", 0)
    assert order("0-1", 0) != order("0-2", 0)
    assert order("0-1", 0) != order("0-1", 1)


@pytest.fixture
def model() -> VectorClassifier:
    model = VectorClassifier(ENCODER, CONFIG, NUM_NGRAMS, CLASSES)
    randomise(model)
    return model.float().eval()


def test_loss_is_the_cross_entropy_with_soft_labels(model: VectorClassifier) -> None:
    learner = a_round()
    batch = next(learner.batches(0))
    rows, doc_index, lengths, targets = batch
    chances = torch.log_softmax(model(rows, doc_index, lengths), dim=1)
    expected = -(targets * chances).sum(1).mean()
    assert learner.loss(model, batch).item() == pytest.approx(expected.item(), rel=1e-5)


def test_logits_of_the_vector_view_are_in_the_order_of_the_documents(
    model: VectorClassifier, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(views, "BATCH", 4)
    ngrams = random_ngrams(11)
    found = vector_logits(model, ngrams, CPU)
    for i in range(11):
        alone = model(*inputs_of(ngrams, [i]))[0].detach().numpy()
        assert found[i] == pytest.approx(alone, rel=1e-4, abs=1e-5)


def test_validation_is_of_means_over_windows(model: VectorClassifier) -> None:
    means = mean_of_windows(vector_logits(model, random_ngrams(6, seed=2), CPU), WINDOWS)
    learner = a_round(labels=[means[0].argmax(), means[1].argmax(), (means[2].argmax() + 1) % CLASSES])
    assert learner.validate(model, CPU) == pytest.approx(2 / 3)


def test_mean_of_windows_by_hand() -> None:
    logits = np.array([[1.0, 2.0], [3.0, 5.0], [5.0, 7.0]], dtype=np.float32)
    assert mean_of_windows(logits, [1, 2]).tolist() == [[1.0, 2.0], [4.0, 6.0]]


def two_views(count: int = 4000, noise: tuple[float, float] = (1.0, 1.0)) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Two views with independent noise of given size around the same evidence, and labels."""
    generator = np.random.default_rng(3)
    labels = generator.integers(0, 2, count)
    views = [(np.eye(2)[labels] * 2 + generator.normal(0, size, (count, 2))).astype(np.float32) for size in noise]
    return views[0], views[1], labels


def test_weights_of_equal_views_are_equal_and_those_of_a_noisier_one_smaller() -> None:
    first, second = fit_weights(*two_views())
    assert first == pytest.approx(second, rel=0.1)
    first, second = fit_weights(*two_views(noise=(1.0, 3.0)))
    assert first / second == pytest.approx(9.0, rel=0.25)  # inverse variances


def test_no_other_weights_have_a_smaller_loss() -> None:
    first, second, labels = two_views(300, (1.0, 2.0))

    def loss(a: float, b: float) -> float:
        logits = torch.from_numpy(a * first.astype(np.float64) + b * second)
        return float(nn.functional.cross_entropy(logits, torch.from_numpy(labels), label_smoothing=1 / 301))

    a, b = fit_weights(first, second, labels)
    alone, none = fit_weights(first, None, labels)
    assert none == 0.0
    for step in (0.01, -0.01):
        assert loss(a + step, b) > loss(a, b)
        assert loss(a, b + step) > loss(a, b)
        assert loss(alone + step, 0.0) > loss(alone, 0.0)


def test_weights_are_finite_when_every_answer_is_right() -> None:
    labels = np.array([0, 1] * 10)
    view = (np.eye(2)[labels] * 10).astype(np.float32)
    assert np.isfinite([*fit_weights(view, view, labels), *fit_weights(view, None, labels)]).all()


def test_view_that_misleads_gets_no_weight() -> None:
    first, second, labels = two_views(500)
    assert fit_weights(first, -second, labels) == fit_weights(first, None, labels)


def test_combined_logits_are_the_weighted_sum() -> None:
    first, second = (
        np.array([[1.0, -2.0], [0.5, 4.0]], dtype=np.float32),
        np.array([[3.0, 1.0], [0.0, -1.0]], dtype=np.float32),
    )
    both, alone = (combined(first, view, (2.0, 0.5)) for view in (second, None))
    assert both.dtype == alone.dtype == np.float32
    assert both.tolist() == [[3.5, -3.5], [1.0, 7.5]]
    assert alone.tolist() == [[2.0, -4.0], [1.0, 8.0]]


def test_held_out_logits_do_not_depend_on_the_documents_own_label() -> None:
    first, second, labels = two_views(50)
    before = held_out_logits(first, second, labels)
    labels[7] = 1 - labels[7]
    after = held_out_logits(first, second, labels)
    assert before[7] == pytest.approx(after[7])
    assert not np.array_equal(before, after)


def test_held_out_logits_are_those_of_weights_fitted_on_the_other_folds() -> None:
    first, second, labels = two_views(52)
    found = held_out_logits(first, second, labels)
    for fold in range(5):
        rest = np.array([i for i in range(52) if i % 5 != fold])
        weights = fit_weights(first[rest], second[rest], labels[rest])
        for i in range(fold, 52, 5):
            assert found[i] == pytest.approx(weights[0] * first[i] + weights[1] * second[i], rel=1e-5)


def test_combined_views_are_better_than_either() -> None:
    first, second, labels = two_views()
    both, one, other = (
        cross_entropies(held_out_logits(view, another, labels), labels)
        for view, another in ((first, second), (first, None), (second, None))
    )
    assert is_better(both, one)
    assert is_better(both, other)


def test_cross_entropies_by_hand() -> None:
    logits = np.log(np.array([[0.5, 0.5], [0.25, 0.75], [0.9, 0.1]])) + 3
    expected = -np.log([0.5, 0.75, 0.1])
    assert cross_entropies(logits, np.array([0, 1, 1])) == pytest.approx(expected, rel=1e-12)
    single = cross_entropies(logits.astype(np.float32), np.array([0, 1, 1]))
    assert single.dtype == np.float64
    assert single == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize(
    ("gains", "expected"),
    [
        ([1.0, 1.0, 1.0], True),
        ([0.0, 0.0, 0.0], False),
        ([-1.0, -1.0, -1.0], False),
        ([2.1, 0.0, 0.0, 0.0], False),  # mean 0.525, standard error 0.525
        ([2.1, 0.1, 0.0, 0.0], True),  # mean 0.55, standard error 0.517
        ([5.0, -4.0, 3.0, -3.9], False),
        ([1.0], False),  # one document has no standard error
    ],
)
def test_better_means_lower_by_more_than_a_standard_error(gains: list[float], expected: bool) -> None:
    losses = np.linspace(0.5, 1.5, len(gains))
    assert is_better(losses, losses + np.array(gains)) is expected
