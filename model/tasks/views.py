"""Training of a classifier with two views: rounds of the vector view, and the weights of both views.

Used by `model.tasks.two_views`.
"""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from model.nn.vectors import VectorClassifier
from model.progress import progress
from model.tasks.classification import grouped_batches
from model.tasks.link import Outputs, Targets, link_of
from model.tasks.occurrences import Occurrences
from model.training.learner import Learner, TrainingBatch

BATCH = 32
FOLDS = 5
"""Number of folds of the validation documents on which a combination is judged."""


@dataclass(frozen=True)
class VectorRound(Learner):
    """One round of the vector view's training, on labels and on soft labels of a teacher."""

    ngrams: Occurrences
    """Ids of the n-grams of all documents."""
    targets: NDArray[np.float32]
    """Probabilities (documents, classes): one for the label, or the teacher's."""
    batch_size: int
    seed: str
    """Seed of the order of the documents."""
    windows: Occurrences
    """Ids of the n-grams of the windows of the validation documents."""
    counts: Sequence[int]
    """Number of windows of each validation document."""
    labels: NDArray[np.int64]
    """Targets of the validation documents, as in `link_of`."""
    metric: str
    """Validation metric, a key of the report of the link."""

    unit = "doc"

    @property
    def examples_per_epoch(self) -> int:
        return len(self.ngrams) // self.batch_size * self.batch_size

    def batches(self, epoch: int) -> Iterator[TrainingBatch]:
        """Yield shuffled batches of documents with similar numbers of n-grams; a last, smaller batch is dropped.

        Shape:  yields ids (K,) int64, doc_index (K,) int64, lengths (B,) int64, targets (B, classes) float32.
        """
        generator, sizes = random.Random(f"{self.seed}-{epoch}"), self.ngrams.counts().tolist()
        for chosen in grouped_batches(len(self.ngrams), sizes, self.batch_size, generator):
            yield *inputs_of(self.ngrams, chosen), torch.from_numpy(self.targets[chosen])

    def loss(self, model: nn.Module, batch: TrainingBatch) -> Tensor:
        *inputs, targets = batch
        return link_of(self.labels).loss(model(*inputs), targets)

    def validate(self, model: nn.Module, device: torch.device) -> float:
        assert isinstance(model, VectorClassifier)
        logits = mean_of_windows(vector_logits(model, self.windows, device), self.counts)
        return link_of(self.labels).report(logits, self.labels)[self.metric]


def inputs_of(ngrams: Occurrences, chosen: Sequence[int]) -> tuple[Tensor, Tensor, Tensor]:
    """Inputs of the vector view for some documents: ids (K,), doc_index (K,), lengths (B,)."""
    ids = torch.from_numpy(np.concatenate([ngrams[i] for i in chosen]).astype(np.int64))
    doc_index = torch.repeat_interleave(torch.from_numpy(ngrams.counts()[chosen]))
    return ids, doc_index, torch.from_numpy(ngrams.lengths[chosen].astype(np.int64))


def vector_logits(model: VectorClassifier, ngrams: Occurrences, device: torch.device) -> Outputs:
    """Logits (documents, classes) of the vector view alone; sets evaluation mode."""
    model.eval().to(device)
    order = np.argsort(ngrams.counts(), kind="stable")
    logits = np.zeros((len(ngrams), model.head.out_features), dtype=np.float32)
    with torch.inference_mode():
        for first in progress(range(0, len(order), BATCH), desc="vector view", unit="batch", leave=False):
            chosen = order[first : first + BATCH].tolist()
            inputs = [part.to(device) for part in inputs_of(ngrams, chosen)]
            logits[chosen] = model(*inputs).float().cpu().numpy()
    return logits


def mean_of_windows(logits: Outputs, counts: Sequence[int]) -> Outputs:
    """Mean over the windows of each document: (windows, classes) and the windows of each -> (documents, classes)."""
    return np.stack([part.mean(0) for part in np.split(logits, np.cumsum(counts)[:-1])])


def fit_weights(first: Outputs, second: Outputs | None, labels: Targets) -> tuple[float, float]:
    """Weights a and b of `a first + b second` with the lowest cross-entropy. b >= 0; b = 0 without a second view.

    The labels are smoothed by 1 / (n + 1), as in `ClassLink.calibrate`, which keeps the weights finite.
    """
    views = [torch.from_numpy(view.astype(np.float64)) for view in (first, second) if view is not None]
    link, target, smoothing = link_of(labels), torch.from_numpy(labels), 1 / (len(labels) + 1)
    weights = torch.full((len(views),), 1 / len(views), dtype=torch.float64, requires_grad=True)
    optimiser = torch.optim.LBFGS([weights], max_iter=200, line_search_fn="strong_wolfe")

    def loss() -> Tensor:
        optimiser.zero_grad()
        logits = torch.stack([w * view for w, view in zip(weights, views, strict=True)]).sum(0)
        value = link.cross_entropies(logits, target, smoothing).mean()
        value.backward()
        return value

    optimiser.step(loss)
    if second is None:
        return weights.tolist()[0], 0.0
    a, b = weights.tolist()
    return (a, b) if b > 0 else fit_weights(first, None, labels)


def combined(first: Outputs, second: Outputs | None, weights: tuple[float, float]) -> Outputs:
    """Weighted sum of both views' logits (documents, classes)."""
    logits = weights[0] * first + (0 if second is None else weights[1] * second)
    return logits.astype(np.float32)


def held_out_logits(first: Outputs, second: Outputs | None, labels: Targets) -> Outputs:
    """Combined logits of each document, with weights fitted on the other folds."""
    fold, logits = np.arange(len(labels)) % FOLDS, np.zeros_like(first)
    for f in range(FOLDS):
        rest = fold != f
        weights = fit_weights(first[rest], None if second is None else second[rest], labels[rest])
        logits[~rest] = combined(first[~rest], None if second is None else second[~rest], weights)
    return logits


def cross_entropies(logits: Outputs, labels: Targets) -> NDArray[np.float64]:
    """Cross-entropy of each document in nats."""
    return link_of(labels).cross_entropies(torch.from_numpy(logits).double(), torch.from_numpy(labels)).numpy()


def is_better(losses: NDArray[np.float64], others: NDArray[np.float64]) -> bool:
    """Whether the mean loss is lower than that of `others` by more than a standard error of the difference."""
    gains = others - losses
    return len(gains) > 1 and float(gains.mean()) > float(gains.std(ddof=1)) / len(gains) ** 0.5
