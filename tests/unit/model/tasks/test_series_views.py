import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from artifact.arrays import Doubles
from artifact.recordings import Scaling
from model.config.encoder import EncoderConfig
from model.config.models import SeriesClassifierConfig
from model.nn.series_classifier import SeriesEncoder
from model.tasks.link import SOFTMAX
from model.tasks.series_views import (
    PRIOR_WEIGHTS,
    STRENGTHS,
    EncoderLearner,
    Rows,
    augment,
    fit_ridge,
    fit_weight,
    fit_weights,
    folds_of,
)

LENGTH = 16
SCALING = Scaling(np.array([1.0, 0.0]), np.array([2.0, 1.0]), None)


def _recordings(*lengths: int) -> list[Doubles]:
    generator = np.random.default_rng(0)
    return [generator.standard_normal((length, 2)) for length in lengths]


def _rows(*lengths: int) -> Rows:
    return Rows.of(_recordings(*lengths), SCALING, LENGTH, 2)


def test_longer_recordings_have_several_rows() -> None:
    rows = _rows(10, 40, LENGTH)
    assert rows.counts.tolist() == [1, 3, 1]
    assert rows.owners.tolist() == [0, 1, 1, 1, 2]
    assert len(rows) == 5
    assert rows.inputs["lengths"].tolist() == [10, 16, 16, 16, 16]
    logits = np.arange(10.0).reshape(5, 2)
    assert rows.mean(logits).tolist() == [[0, 1], [4, 5], [8, 9]]


def _least_squares(
    features: NDArray[np.float64], targets: NDArray[np.float64], strength: float
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Weights and bias of ridge regression on scaled features, by its normal equations."""
    mean, scale = features.mean(0), features.std(0) + 1e-8
    scaled = (features - mean) / scale
    offset = targets.mean(0)
    weights = (
        np.linalg.solve(scaled.T @ scaled + strength * np.eye(scaled.shape[1]), scaled.T @ (targets - offset))
        / scale[:, None]
    )
    return weights, offset - mean @ weights


def test_ridge_equals_the_normal_equations_with_the_best_strength_of_leave_one_out() -> None:
    generator = np.random.default_rng(0)
    features, labels = generator.standard_normal((30, 8)), np.arange(30) % 3
    features[:, 0] += labels
    targets = np.where(np.arange(3) == labels[:, None], 1.0, -1.0)

    def error(strength: float) -> float:
        """Mean squared error of leave-one-out with the scaling of all rows, computed by leaving each out."""
        scaled = (features - features.mean(0)) / (features.std(0) + 1e-8)
        found = []
        for row in range(30):
            others = np.arange(30) != row
            design = np.column_stack([scaled[others], np.ones(29)])
            penalty = np.diag([strength] * 8 + [0])
            weights = np.linalg.solve(design.T @ design + penalty, design.T @ targets[others])
            found.append(np.append(scaled[row], 1) @ weights - targets[row])
        return float(np.square(found).mean())

    best = min(STRENGTHS, key=error)
    weights, bias = _least_squares(features, targets, best)
    found = fit_ridge(features.astype(np.float32), labels, 3)
    assert found.weights == pytest.approx(weights, abs=1e-4)
    assert found.bias == pytest.approx(bias, abs=1e-4)


def test_folds_share_each_class_evenly() -> None:
    labels = np.repeat([0, 1, 2], [7, 12, 2])
    folds = folds_of(labels, [], 3, seed=0)
    for label in range(3):
        counts = np.bincount(folds[labels == label], minlength=3)
        assert counts.max() - counts.min() <= 1
    assert np.bincount(folds).tolist() == [7, 7, 7]


def test_folds_keep_groups_together() -> None:
    labels, groups = np.arange(24) % 2, [f"person {i // 4}" for i in range(24)]
    folds = folds_of(labels, groups, 3, seed=0)
    assert all(len(set(folds[first : first + 4])) == 1 for first in range(0, 24, 4))
    assert sorted(np.bincount(folds)) == [8, 8, 8]


def test_there_are_not_more_folds_than_groups() -> None:
    labels, groups = np.arange(8) % 2, ["a"] * 4 + ["b"] * 4
    assert sorted(set(folds_of(labels, groups, 3, seed=0))) == [0, 1]
    assert sorted(set(folds_of(labels, ["a"] * 8, 3, seed=0))) == [0, 1, 2]


@pytest.mark.parametrize("steps", [2, LENGTH])
def test_augmented_recordings_keep_their_lengths(steps: int) -> None:
    series, lengths = torch.ones(3, LENGTH, 2), torch.tensor([LENGTH, steps, 1])
    series = series * (torch.arange(LENGTH) < lengths[:, None]).unsqueeze(2)
    found = augment(series, lengths, torch.Generator().manual_seed(0))
    assert found.shape == series.shape
    assert found.isfinite().all()
    assert torch.equal(found != 0, series != 0)


def test_augmentation_warps_time_but_keeps_its_order() -> None:
    """A rising line stays one; its ends are cut, and its speed changes."""
    line = torch.linspace(0, 100, 200).reshape(1, 200, 1).repeat(8, 1, 1)
    found = augment(line, torch.full((8,), 200), torch.Generator().manual_seed(0))
    assert (found[:, 20:] - found[:, :-20] > 0).all()  # noise and scale are small beside it
    assert not torch.allclose(found[0], found[1], atol=3)


def test_weights_of_views_that_make_no_errors_stay_near_the_prior() -> None:
    labels = np.arange(12) % 2
    perfect = np.where(np.arange(2) == labels[:, None], 1.0, -1.0)
    weights = fit_weights(perfect, perfect, labels)
    assert all(0.5 < found / prior < 5 for found, prior in zip(weights, PRIOR_WEIGHTS, strict=True))
    assert 0.5 < fit_weight(perfect, labels) / PRIOR_WEIGHTS[0] < 5


def test_weights_of_many_recordings_follow_the_better_view() -> None:
    generator, labels = np.random.default_rng(0), np.arange(3_000) % 3
    signal = np.where(np.arange(3) == labels[:, None], 1.0, -1.0)
    good, noise = signal + generator.standard_normal((3_000, 3)), generator.standard_normal((3_000, 3))
    weights = fit_weights(noise, good, labels)
    assert weights[0] < 0.2 < weights[1]
    swapped = fit_weights(good, noise, labels)
    assert swapped[1] < 0.2 < swapped[0]


def _learner(chosen: NDArray[np.int64]) -> EncoderLearner:
    rows = _rows(10, 40, LENGTH, 12)
    return EncoderLearner(rows, np.array([0, 1, 0, 1]), chosen, batch_size=2, drawn=9, seed="0-fold 1")


def test_batches_draw_the_chosen_recordings_alone_and_are_repeatable() -> None:
    learner = _learner(np.array([1, 2]))
    assert learner.examples_per_epoch == 8
    batches = list(learner.batches(0))
    assert len(batches) == 4
    assert {int(label) for *_, labels in batches for label in labels} == {0, 1}
    assert all((lengths == LENGTH).all() for _, lengths, _ in batches)  # recordings 0 and 3 are shorter
    again = list(learner.batches(0))
    assert all(
        torch.equal(a, b) for one, same in zip(batches, again, strict=True) for a, b in zip(one, same, strict=True)
    )
    assert not torch.equal(batches[0][0], next(iter(learner.batches(1)))[0])


def test_an_encoder_begins_with_differences_of_equal_scale() -> None:
    options = {"num_segments": 4, "num_rows": 4, "num_columns": 4}
    encoder = EncoderConfig.model_validate({"seq_len": LENGTH, "dim": 16, "options": options})
    config = SeriesClassifierConfig(length=LENGTH, features_per_kernel=2, encoder=encoder)
    torch.manual_seed(0)
    model, learner = SeriesEncoder(config, 2, 2), _learner(np.array([0, 1]))
    learner.initialise(model)
    differences = model.stem.inputs(
        *(torch.from_numpy(learner.rows.inputs[name][:4]) for name in ("series", "lengths"))
    ).chunk(2, dim=2)[1]
    assert model.stem.difference_scale.numpy() == pytest.approx(differences.std((0, 1)).numpy() + 1e-6, rel=1e-5)


def test_the_loss_is_smoothed_cross_entropy() -> None:
    learner, logits = _learner(np.arange(4)), torch.tensor([[2.0, -1.0], [0.0, 3.0]])
    labels = torch.tensor([0, 0])
    found = learner.loss(lambda *_: logits, (logits, labels, labels))  # type: ignore[arg-type]
    log = np.log(SOFTMAX.probabilities(logits.numpy()))
    assert float(found) == pytest.approx(-(0.95 * log[:, 0] + 0.05 * log[:, 1]).mean(), rel=1e-6)
