"""Links between a model's outputs and its answers: loss, probabilities, calibration and report.

A task has one link: `SOFTMAX` for one label of several, `SIGMOID` for a yes or no, `IDENTITY` for numbers.
"""

import math
from abc import ABC, abstractmethod
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from artifact import documents
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


class Softmax(Link):
    """One of several labels: logits (rows, classes). Targets are labels, or in the loss probabilities of classes."""

    BINS = 15
    """Number of bins of the reliability diagram."""

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Cross-entropy."""
        return nn.functional.cross_entropy(outputs.float(), targets)

    def probabilities(self, outputs: Outputs) -> Outputs:
        """Of each class."""
        return documents.softmax(outputs.astype(np.float64))

    def calibrate(self, outputs: Outputs, targets: Targets) -> Scaling:
        """Temperature T that minimises the cross-entropy of softmax(logits / T), from 1/20 to 20.

        The labels of n documents are smoothed by 1 / (n + 1), the weight of one more document with uniform
        probabilities. Without this, T would be 1/20 whenever all answers are correct.

        Reference:  Guo et al. 2017, arXiv:1706.04599, sec. 4.2; smoothed labels: Platt 1999, sec. 2.2.
        """
        inputs, target = torch.from_numpy(outputs.astype(np.float64)), torch.from_numpy(targets)
        low, high = -math.log(20), math.log(20)
        smoothing = 1 / (len(targets) + 1)
        for _ in range(60):  # the loss is convex in 1 / T, so bisection on its slope finds the minimum
            middle = torch.tensor((low + high) / 2, dtype=torch.float64, requires_grad=True)
            (slope,) = torch.autograd.grad(
                nn.functional.cross_entropy(inputs / middle.exp(), target, label_smoothing=smoothing), middle
            )
            low, high = (middle.item(), high) if slope < 0 else (low, middle.item())
        return Scaling(temperature=math.exp((low + high) / 2))

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
        """Rows grouped by top score into BINS equal bins; empty bins are dropped."""
        return self.bins(self.probabilities(outputs), targets)

    def bins(self, probabilities: Outputs, targets: Targets) -> tuple[ReliabilityBin, ...]:
        """As `reliability`, of probabilities."""
        scores, right = probabilities.max(1), probabilities.argmax(1) == targets
        place = np.minimum((scores * self.BINS).astype(int), self.BINS - 1)
        return tuple(
            ReliabilityBin(
                score=scores[place == i].mean(), accuracy=right[place == i].mean(), examples=(place == i).sum()
            )
            for i in range(self.BINS)
            if (place == i).any()
        )


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
        positive = int(targets.sum())
        high, low = (positive + 1) / (positive + 2), 1 / (len(targets) - positive + 2)
        target = torch.from_numpy(np.where(targets == 1, high, low))
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


SOFTMAX, SIGMOID, IDENTITY = Softmax(), Sigmoid(), Identity()


def calibration_error(bins: tuple[ReliabilityBin, ...]) -> float:
    """Expected calibration error: mean |score - accuracy| over the bins, weighted by their number of documents.

    Reference:  Guo et al. 2017, arXiv:1706.04599, eq. (5).
    """
    total = sum(part.examples for part in bins)
    return sum(part.examples * abs(part.score - part.accuracy) for part in bins) / total


def area_under_roc(scores: NDArray[np.floating[Any]], labels: NDArray[np.int64]) -> float:
    """Probability that a positive row scores above a negative one; ties count half."""
    _, inverse, counts = np.unique(scores, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    ranks = (ends - (counts - 1) / 2)[inverse]  # mean rank of ties, from 1
    positive = labels == 1
    count = int(positive.sum())
    excess = ranks[positive].sum() - count * (count + 1) / 2
    return float(excess / (count * (len(labels) - count)))
