"""Training of a classifier with two views: rounds of the vector view, and the weights of both views.

Used by `model.training.views`.
"""

import random
from collections.abc import Iterator, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from tqdm import tqdm

from model.nn.vectors import VectorClassifier
from model.tasks.base import Batch, Learner
from model.tasks.classification import GROUPED_BATCHES, METRICS, Logits
from model.tasks.vectors import Words

BATCH = 32
FOLDS = 5
"""Number of folds of the validation documents on which a combination is judged."""

Labels = NDArray[np.int64]


class VectorRound(Learner):
    """One round of the vector view's training, on labels and on soft labels of a teacher."""

    unit = "doc"

    def __init__(self, words: Words, targets: NDArray[np.float32], batch_size: int, seed: str) -> None:
        """Create a round.

        Args:
            words: ids of the words of all documents, without unknown ones.
            targets: probabilities (documents, classes): one for the label, or the teacher's.
            batch_size: documents per batch.
            seed: seed of the order of the documents.

        """
        self.words, self.targets, self.batch_size, self.seed = words, targets, batch_size, seed
        self.facts = {}

    def validate_on(self, windows: Words, counts: Sequence[int], labels: Labels, metric: str) -> None:
        """Set the validation documents: words of their windows, number of windows of each document, labels, metric."""
        self.windows, self.counts, self.labels, self.metric = windows, counts, labels, metric

    @property
    def examples_per_epoch(self) -> int:
        return len(self.words) // self.batch_size * self.batch_size

    def batches(self, epoch: int) -> Iterator[Batch]:
        """Yield shuffled batches of documents with similar numbers of words; a last, smaller batch is dropped.

        Shape:  yields words (M,) int64, doc_index (M,) int64, lengths (B,) int64, targets (B, classes) float32.
        """
        size, generator = self.batch_size, random.Random(f"{self.seed}-{epoch}")
        order, counts = list(range(len(self.words))), self.words.counts()
        generator.shuffle(order)
        batches = list[list[int]]()
        for first in range(0, len(order), GROUPED_BATCHES * size):
            group = sorted(order[first : first + GROUPED_BATCHES * size], key=lambda i: int(counts[i]))
            batches += [group[i : i + size] for i in range(0, len(group) - size + 1, size)]
        generator.shuffle(batches)
        for chosen in batches:
            yield *inputs_of(self.words, chosen), torch.from_numpy(self.targets[chosen])

    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        *inputs, targets = batch
        return nn.functional.cross_entropy(model(*inputs).float(), targets)

    def validate(self, model: nn.Module, device: torch.device) -> float:
        assert isinstance(model, VectorClassifier)
        logits = mean_of_windows(vector_logits(model, self.windows, device), self.counts)
        return METRICS[self.metric](logits, self.labels)


def inputs_of(words: Words, chosen: Sequence[int]) -> tuple[Tensor, Tensor, Tensor]:
    """Inputs of the vector view for some documents: words (M,), doc_index (M,), lengths (B,)."""
    ids = torch.from_numpy(np.concatenate([words[i] for i in chosen]).astype(np.int64))
    doc_index = torch.repeat_interleave(torch.from_numpy(words.counts()[chosen]))
    return ids, doc_index, torch.from_numpy(words.lengths[chosen].astype(np.int64))


def vector_logits(model: VectorClassifier, words: Words, device: torch.device) -> Logits:
    """Logits (documents, classes) of the vector view alone; sets evaluation mode."""
    model.eval().to(device)
    order = np.argsort(words.counts(), kind="stable")
    logits = np.zeros((len(words), model.head.out_features), dtype=np.float32)
    with torch.inference_mode():
        for first in tqdm(range(0, len(order), BATCH), desc="vector view", unit="batch", leave=False, disable=None):
            chosen = order[first : first + BATCH].tolist()
            inputs = [part.to(device) for part in inputs_of(words, chosen)]
            logits[chosen] = model(*inputs).float().cpu().numpy()
    return logits


def mean_of_windows(logits: Logits, counts: Sequence[int]) -> Logits:
    """Mean over the windows of each document: (windows, classes) and the windows of each -> (documents, classes)."""
    return np.stack([part.mean(0) for part in np.split(logits, np.cumsum(counts)[:-1])])


def combine(first: Logits, second: Logits | None, labels: Labels) -> tuple[float, float]:
    """Weights a and b of `a first + b second` with the lowest cross-entropy; b = 0 without a second view, never below.

    Labels are smoothed by 1 / (n + 1), as in `fit_temperature`, which keeps the weights finite.
    """
    views = [torch.from_numpy(view.astype(np.float64)) for view in (first, second) if view is not None]
    target, smoothing = torch.from_numpy(labels), 1 / (len(labels) + 1)
    weights = torch.full((len(views),), 1 / len(views), dtype=torch.float64, requires_grad=True)
    optimiser = torch.optim.LBFGS([weights], max_iter=200, line_search_fn="strong_wolfe")

    def loss() -> Tensor:
        optimiser.zero_grad()
        logits = torch.stack([w * view for w, view in zip(weights, views, strict=True)]).sum(0)
        value = nn.functional.cross_entropy(logits, target, label_smoothing=smoothing)
        value.backward()
        return value

    optimiser.step(loss)
    if second is None:
        return weights.tolist()[0], 0.0
    a, b = weights.tolist()
    return (a, b) if b > 0 else combine(first, None, labels)


def combined(first: Logits, second: Logits | None, weights: tuple[float, float]) -> Logits:
    """Weighted sum of both views' logits (documents, classes)."""
    logits = weights[0] * first + (0 if second is None else weights[1] * second)
    return logits.astype(np.float32)


def held_out_logits(first: Logits, second: Logits | None, labels: Labels) -> Logits:
    """Combined logits of each document, with weights fitted on the other folds."""
    fold, logits = np.arange(len(labels)) % FOLDS, np.zeros_like(first)
    for f in range(FOLDS):
        rest = fold != f
        weights = combine(first[rest], None if second is None else second[rest], labels[rest])
        logits[~rest] = combined(first[~rest], None if second is None else second[~rest], weights)
    return logits


def cross_entropies(logits: Logits, labels: Labels) -> NDArray[np.float64]:
    """Cross-entropy of each document in nats."""
    found = nn.functional.cross_entropy(torch.from_numpy(logits).double(), torch.from_numpy(labels), reduction="none")
    return found.numpy()


def is_better(losses: NDArray[np.float64], others: NDArray[np.float64]) -> bool:
    """Whether the mean loss is lower than that of `others` by more than a standard error of the difference."""
    gains = others - losses
    return len(gains) > 1 and float(gains.mean()) > float(gains.std(ddof=1)) / len(gains) ** 0.5
