"""Links between a model's outputs and its answers: loss, probabilities, calibration and report.

A task has one link: `SOFTMAX` for one label of several, `SIGMOIDS` for any number of labels, `SIGMOID` for a yes or no,
`DEGREE` for a degree from 0 to 1, `IDENTITY` for numbers.
"""

import math
from abc import ABC, abstractmethod
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from artifact import documents
from artifact.arrays import Doubles
from artifact.tasks.labels import ReliabilityBin

Outputs = NDArray[np.float32] | NDArray[np.float64]
Targets = NDArray[Any]


class Scaling(NamedTuple):
    """Calibration of outputs: (scale * output + shift) / temperature."""

    scale: float = 1.0
    shift: float = 0.0
    temperature: float = 1.0


class Link(ABC):
    """What a model's outputs mean. Rows are examples."""

    @abstractmethod
    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Training loss, a mean over the rows."""

    @abstractmethod
    def probabilities(self, outputs: Outputs) -> Outputs:
        """What is answered for outputs."""

    def calibrate(self, outputs: Outputs, targets: Targets) -> Scaling:
        """The scaling that makes the outputs of held-out examples most likely."""
        del outputs, targets
        return Scaling()

    @abstractmethod
    def report(self, outputs: Outputs, targets: Targets) -> dict[str, float]:
        """Metrics of outputs, by name."""


class ClassLink(Link):
    """Labels of a classifier: logits (rows, classes)."""

    BINS = 15
    """Number of bins of the reliability diagram."""

    @abstractmethod
    def cross_entropies(self, outputs: Tensor, targets: Tensor, smoothing: float = 0.0) -> Tensor:
        """Loss of each row in nats, (rows,), with targets that are mixed with uniform ones by `smoothing`."""

    @abstractmethod
    def reliability(self, outputs: Outputs, targets: Targets) -> tuple[ReliabilityBin, ...]:
        """Answers grouped by score into BINS equal bins; empty bins are dropped."""

    def calibrate(self, outputs: Outputs, targets: Targets) -> Scaling:
        """Temperature T that minimises the cross-entropy of the logits divided by T, from 1/20 to 20.

        The labels of n documents are smoothed by 1 / (n + 1), the weight of one more document with uniform
        probabilities. Without this, T would be 1/20 whenever all answers are correct.

        Reference:  Guo et al. 2017, arXiv:1706.04599, sec. 4.2; smoothed labels: Platt 1999, sec. 2.2.
        """
        inputs, target = torch.from_numpy(outputs.astype(np.float64)), torch.from_numpy(targets)
        low, high = -math.log(20), math.log(20)
        smoothing = 1 / (len(targets) + 1)
        for _ in range(60):  # the loss is convex in 1 / T, so bisection on its slope finds the minimum
            middle = torch.tensor((low + high) / 2, dtype=torch.float64, requires_grad=True)
            loss = self.cross_entropies(inputs / middle.exp(), target, smoothing).mean()
            (slope,) = torch.autograd.grad(loss, middle)
            low, high = (middle.item(), high) if slope < 0 else (low, middle.item())
        return Scaling(temperature=math.exp((low + high) / 2))

    def _bins(self, scores: Outputs, right: NDArray[np.bool_]) -> tuple[ReliabilityBin, ...]:
        """Bins of scores (n,) and of whether the answer is right (n,)."""
        place = np.minimum((scores * self.BINS).astype(int), self.BINS - 1)
        return tuple(
            ReliabilityBin(
                score=scores[place == i].mean(), accuracy=right[place == i].mean(), examples=(place == i).sum()
            )
            for i in range(self.BINS)
            if (place == i).any()
        )


class Softmax(ClassLink):
    """One of several labels. Targets are labels (rows,), or in the loss probabilities of classes."""

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Cross-entropy."""
        return nn.functional.cross_entropy(outputs.float(), targets)

    def cross_entropies(self, outputs: Tensor, targets: Tensor, smoothing: float = 0.0) -> Tensor:
        """Cross-entropy of each row."""
        return nn.functional.cross_entropy(outputs, targets, label_smoothing=smoothing, reduction="none")

    def probabilities(self, outputs: Outputs) -> Outputs:
        """Of each class."""
        return documents.softmax(outputs.astype(np.float64))

    def report(self, outputs: Outputs, targets: Targets) -> dict[str, float]:
        """Accuracy; mean F1 over the classes, 0 for a class that is neither predicted nor present."""
        answers, classes = outputs.argmax(1), outputs.shape[1]
        right = np.bincount(targets[answers == targets], minlength=classes)
        either = np.bincount(answers, minlength=classes) + np.bincount(targets, minlength=classes)
        return {
            "accuracy": float((answers == targets).mean()),
            "macro_f1": float((2 * right / np.maximum(either, 1)).mean()),
        }

    def reliability(self, outputs: Outputs, targets: Targets) -> tuple[ReliabilityBin, ...]:
        """Rows grouped by top score."""
        return self.bins(self.probabilities(outputs), targets)

    def bins(self, probabilities: Outputs, targets: Targets) -> tuple[ReliabilityBin, ...]:
        """As `reliability`, of probabilities."""
        return self._bins(probabilities.max(1), probabilities.argmax(1) == targets)


class Sigmoids(ClassLink):
    """Any number of labels: targets are 1 and 0 for each label (rows, classes), or in the loss probabilities."""

    FOLDS = 5
    """Number of folds on which thresholds are judged."""
    FEWEST = 5
    """Number of rows with a label below which it is rare, and shares the threshold of the rare ones."""

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Binary cross-entropy, summed over the labels."""
        return self.cross_entropies(outputs.float(), targets).mean()

    def cross_entropies(self, outputs: Tensor, targets: Tensor, smoothing: float = 0.0) -> Tensor:
        """Binary cross-entropy of each row, summed over the labels."""
        smooth = targets.to(outputs.dtype) * (1 - smoothing) + smoothing / 2
        return nn.functional.binary_cross_entropy_with_logits(outputs, smooth, reduction="none").sum(1)

    def probabilities(self, outputs: Outputs) -> Outputs:
        """Of each label."""
        return documents.sigmoid(outputs.astype(np.float32, copy=False))

    def thresholds(self, scores: Outputs, targets: Targets) -> Doubles:
        """Score from which each label applies, (classes,): the one with the highest F1.

        Labels of fewer than FEWEST rows share the threshold with the highest F1 of all of them together; if no row has
        one, that of all labels. A threshold chosen on a few rows is mostly noise.
        """
        found, is_rare = np.empty(targets.shape[1]), targets.sum(0) < self.FEWEST
        alike = is_rare if targets[:, is_rare].any() else np.ones_like(is_rare)
        found[is_rare] = best_f1_threshold(scores[:, alike].ravel(), targets[:, alike].ravel())
        for label in np.flatnonzero(~is_rare):
            found[label] = best_f1_threshold(scores[:, label], targets[:, label])
        return found

    def chosen(self, outputs: Outputs, targets: Targets, thresholds: Doubles | None = None) -> NDArray[np.bool_]:
        """Labels of each row, (rows, classes).

        Without `thresholds`, those of the rows of each fold are chosen on the other folds.
        """
        scores = self.probabilities(outputs)
        return scores >= (self._held_out_thresholds(scores, targets) if thresholds is None else thresholds)

    def report(self, outputs: Outputs, targets: Targets, thresholds: Doubles | None = None) -> dict[str, float]:
        """Micro and macro F1, and the share of rows with exactly the right labels.

        Micro F1 is that of all labels of all rows together. Macro F1 is the mean over the labels that a row has: the F1
        of others is not defined.

        Without `thresholds`, those of `chosen`.
        """
        chosen, truth = self.chosen(outputs, targets, thresholds), targets == 1
        right, either = (chosen & truth).sum(0), chosen.sum(0) + truth.sum(0)
        present = truth.any(0)
        return {
            "micro_f1": float(2 * right.sum() / max(1, either.sum())),
            "macro_f1": float((2 * right / np.maximum(either, 1))[present].mean()) if present.any() else 0.0,
            "exact_match": float((chosen == truth).all(1).mean()),
        }

    def reliability(self, outputs: Outputs, targets: Targets) -> tuple[ReliabilityBin, ...]:
        """All labels of all rows grouped by score."""
        return self.bins(self.probabilities(outputs), targets)

    def bins(self, probabilities: Outputs, targets: Targets) -> tuple[ReliabilityBin, ...]:
        """As `reliability`, of probabilities."""
        return self._bins(probabilities.ravel(), targets.ravel() == 1)

    def _held_out_thresholds(self, scores: Outputs, targets: Targets) -> Doubles:
        """Thresholds of each row (rows, classes), chosen on the folds without it."""
        fold, found = np.arange(len(scores)) % self.FOLDS, np.zeros(scores.shape)
        for number in range(self.FOLDS):
            is_held_out = fold == number
            found[is_held_out] = self.thresholds(scores[~is_held_out], targets[~is_held_out])
        return found


class Sigmoid(Link):
    """Yes or no: logits (rows,), targets 0 and 1."""

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Binary cross-entropy."""
        return nn.functional.binary_cross_entropy_with_logits(outputs, targets)

    def probabilities(self, outputs: Outputs) -> Outputs:
        """Of yes."""
        return documents.sigmoid(outputs.astype(np.float32, copy=False))

    def calibrate(self, outputs: Outputs, targets: Targets) -> Scaling:
        """Platt scaling: scale and shift that maximise the likelihood of sigmoid(scale * logit + shift).

        The targets (sec. 2.2 of the reference) are slightly inside (0, 1), so that a solution exists even for perfectly
        separated rows.

        Reference:  Platt 1999, "Probabilistic outputs for support vector machines".
        """
        positive = float(targets.sum())
        high, low = (positive + 1) / (positive + 2), 1 / (len(targets) - positive + 2)
        target = torch.from_numpy(low + (high - low) * targets)
        inputs = torch.from_numpy(outputs.astype(np.float64))
        solution = torch.tensor([1.0, 0.0], dtype=torch.float64, requires_grad=True)
        optimiser = torch.optim.LBFGS([solution], max_iter=100, line_search_fn="strong_wolfe")

        def loss() -> Tensor:
            optimiser.zero_grad()
            value = self.loss(solution[0] * inputs + solution[1], target)
            value.backward()
            return value

        optimiser.step(loss)
        return Scaling(*solution.tolist())

    def report(self, outputs: Outputs, targets: Targets) -> dict[str, float]:
        """Accuracy at a score of 0.5, the served threshold, and area under the ROC curve."""
        scores = self.probabilities(outputs)
        return {"accuracy": float(((scores >= 0.5) == targets).mean()), "auc": area_under_roc(scores, targets)}


class Degree(Sigmoid):
    """To which degree: targets from 0 to 1."""

    def report(self, outputs: Outputs, targets: Targets) -> dict[str, float]:
        """Rank correlation, linear correlation and mean absolute error of the scores."""
        scores = self.probabilities(outputs).astype(np.float64)
        return {
            "spearman": spearman(scores, targets),
            "pearson": correlation(scores, targets),
            "mae": float(np.abs(scores - targets).mean()),
        }


class Identity(Link):
    """Numbers: outputs and targets have the same shape."""

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Squared error of each step (B, O, C) -> (O,), a mean over rows and channels."""
        return (outputs.float() - targets).square().mean(dim=(0, 2))

    def probabilities(self, outputs: Outputs) -> Outputs:
        """The numbers themselves."""
        return outputs

    def report(self, outputs: Outputs, targets: Targets) -> dict[str, float]:
        """Mean squared and mean absolute error."""
        size = np.abs(targets - outputs, dtype=np.float64)
        return {"mse": float((size**2).mean()), "mae": float(size.mean())}


SOFTMAX, SIGMOIDS, SIGMOID, DEGREE, IDENTITY = Softmax(), Sigmoids(), Sigmoid(), Degree(), Identity()


def link_of(targets: Targets | Tensor) -> Softmax | Sigmoids:
    """The link of a classifier: SOFTMAX for labels (rows,), SIGMOIDS for 1 and 0 for each label (rows, classes)."""
    return SOFTMAX if targets.ndim == 1 else SIGMOIDS


def memberships(targets: Targets) -> Doubles:
    """1 for each class of a row, (rows, classes), from targets as in `link_of`.

    With any number of labels, rows without one are a class of their own, the last one, if there are any.
    """
    if targets.ndim == 1:
        return np.eye(int(targets.max(initial=-1)) + 1)[targets]
    none = 1 - targets.max(axis=1, keepdims=True, initial=0)
    return np.concatenate([targets, none] if none.any() else [targets], axis=1).astype(np.float64)


def rarest(targets: Targets) -> NDArray[np.int64]:
    """The rarest label of each row, (rows,), from 1 and 0 for each label (rows, classes); `classes` without a label."""
    sizes = np.where(targets == 1, targets.sum(0), len(targets) + 1)
    found: NDArray[np.int64] = np.where(targets.any(1), sizes.argmin(1), targets.shape[1])
    return found


def best_f1_threshold(scores: Outputs, targets: Targets) -> float:
    """Threshold of scores (n,) from which rows are positive, with the highest F1; above all scores without a positive.

    It lies in the middle between two scores.
    """
    order = np.argsort(-scores, kind="stable")
    ranked, truth = scores[order].astype(np.float64), targets[order]
    if not truth.any():
        return 1.0
    f1 = 2 * np.cumsum(truth) / (np.arange(1, len(truth) + 1) + truth.sum())
    f1[:-1][ranked[1:] == ranked[:-1]] = -1  # equal scores are on one side
    best = int(f1.argmax())
    return float(ranked[best] + ranked[best + 1]) / 2 if best + 1 < len(ranked) else float(ranked[best]) / 2


def calibration_error(bins: tuple[ReliabilityBin, ...]) -> float:
    """Expected calibration error: mean |score - accuracy| over the bins, weighted by their number of documents.

    Reference:  Guo et al. 2017, arXiv:1706.04599, eq. (5).
    """
    total = sum(part.examples for part in bins)
    return sum(part.examples * abs(part.score - part.accuracy) for part in bins) / total


def area_under_roc(scores: NDArray[np.floating[Any]], labels: Targets) -> float:
    """Probability that a positive row scores above a negative one; ties count half. 1/2 if all rows have one label."""
    ranks, positive = ranks_of(scores), labels == 1
    count = int(positive.sum())
    if count in (0, len(labels)):
        return 0.5
    excess = ranks[positive].sum() - count * (count + 1) / 2
    return float(excess / (count * (len(labels) - count)))


def spearman(scores: NDArray[np.floating[Any]], targets: Targets) -> float:
    """Correlation of the ranks; ties have their mean rank."""
    return correlation(ranks_of(scores), ranks_of(targets))


def correlation(first: NDArray[np.floating[Any]], second: NDArray[np.floating[Any]]) -> float:
    """Pearson's correlation; 0 if one of the two is constant."""
    a, b = first - first.mean(), second - second.mean()
    size = math.sqrt(float((a**2).sum() * (b**2).sum()))
    return float((a * b).sum()) / size if size else 0.0


def ranks_of(values: NDArray[Any]) -> Doubles:
    """Rank of each value, from 1; ties have their mean rank."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    ranks: Doubles = (np.cumsum(counts) - (counts - 1) / 2)[inverse]
    return ranks
