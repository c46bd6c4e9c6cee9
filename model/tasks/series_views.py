"""The two views of a classifier of recordings: how each is fitted, and their weights.

Used by `model.tasks.series_classification`.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from artifact.arrays import Doubles, Floats
from artifact.documents import cut
from artifact.recordings import Recording, Scaling, rows_of, unpack_rows
from model.nn.series_classifier import SeriesEncoder
from model.tasks.graphs import Arrays
from model.tasks.link import Outputs
from model.training.learner import Learner, TrainingBatch

STRENGTHS = np.logspace(-1, 5, 13)
"""Strengths of ridge regression that are compared."""
SMOOTHING = 0.1
"""Share of the label that the loss of the encoder spreads over all classes."""
KNOTS = 5
"""Sections of a random time warp."""
WARP, KEPT, SCALE, OFFSET, NOISE = 0.25, 0.9, 0.1, 0.1, 0.05
"""Augmentation: deviation of the speed of a section; smallest share of a recording that is kept; and deviations of the
factor and the offset of a channel and of the noise of a value, in those of the training recordings."""
ROWS = 64
"""Rows of a batch that is computed without gradients."""
PRIOR_WEIGHTS = (3.0, 0.7)
"""Weights of MiniRocket and of the encoder that a model of few recordings begins with."""


@dataclass(frozen=True)
class Rows:
    """Rows of recordings, one for each window."""

    inputs: Arrays
    """Inputs of the graph."""
    counts: NDArray[np.int64]
    """(recordings,): number of rows of each recording."""

    @classmethod
    def of(cls, recordings: Sequence[Doubles], scaling: Scaling, length: int, overlap: int) -> Self:
        """Rows of recordings (steps, channels). Raises: InvalidInput if a channel has no value."""
        rows, counts = list[bytes](), list[int]()
        for values in recordings:
            standardised = scaling.standardise(Recording(values))
            own = rows_of(standardised, cut(len(standardised), length, overlap, "windows"), length)
            rows += own
            counts.append(len(own))
        return cls(dict(unpack_rows(rows, length, scaling.num_columns)), np.array(counts, np.int64))

    def __len__(self) -> int:
        return int(self.counts.sum())

    @cached_property
    def owners(self) -> NDArray[np.int64]:
        """(rows,): recording of each row."""
        return np.repeat(np.arange(len(self.counts)), self.counts)

    def mean(self, logits: Outputs) -> Outputs:
        """Mean over the rows of each recording: (rows, classes) -> (recordings, classes)."""
        return np.stack([part.mean(0) for part in np.split(logits, np.cumsum(self.counts)[:-1])])


class Ridge(NamedTuple):
    """A linear classifier of features: decision values -1 to 1."""

    weights: Floats
    """(features, classes)."""
    bias: Floats
    """(classes,)."""

    def __call__(self, features: Floats) -> Floats:
        """Decision values (rows, classes)."""
        return features @ self.weights + self.bias


def fit_ridge(features: Floats, labels: NDArray[np.int64], num_classes: int) -> Ridge:
    """Ridge regression on targets 1 and -1, with the strength of the least squared error of leave-one-out.

    Shape:      features (rows, features), labels (rows,).
    Reference:  leave-one-out: Rifkin & Lippert 2007, MIT-CSAIL-TR-2007-025, sec. 3; as the classifier of MiniRocket:
                Dempster et al. 2021, arXiv:2012.08791, sec. 3.5.
    """
    targets = np.where(np.arange(num_classes) == labels[:, None], 1.0, -1.0)
    mean, scale = features.mean(0, dtype=np.float64), features.std(0, dtype=np.float64) + 1e-8
    scaled = (features - mean) / scale
    offset = targets.mean(0)
    values, vectors = np.linalg.eigh(scaled @ scaled.T)
    values = values.clip(min=0)
    projected = vectors.T @ (targets - offset)

    def error(strength: float) -> float:
        kept = values / (values + strength)
        leverage = (vectors**2 @ kept + 1 / len(scaled))[:, None]
        residual = (targets - vectors @ (projected * kept[:, None]) - offset) / (1 - leverage).clip(min=1e-6)
        return float(np.square(residual).mean())

    strength = min(STRENGTHS, key=error)
    weights = scaled.T @ (vectors @ (projected / (values + strength)[:, None])) / scale[:, None]
    return Ridge(weights.astype(np.float32), (offset - mean @ weights).astype(np.float32))


def folds_of(labels: NDArray[np.int64], groups: Sequence[str], count: int, seed: int) -> NDArray[np.int64]:
    """Fold of each recording, from 0 on: those of a class are spread evenly, and whole groups if there are any.

    There are not more folds than groups; a single group is not kept together.
    """
    generator, folds = np.random.default_rng(seed), np.zeros(len(labels), np.int64)
    if len(names := sorted(set(groups))) > 1:
        places = generator.permutation(len(names)) % min(count, len(names))
        fold_of = dict(zip(names, places.tolist(), strict=True))
        return np.array([fold_of[group] for group in groups])
    first = 0
    for label in np.unique(labels):
        chosen = generator.permutation(np.flatnonzero(labels == label))
        folds[chosen] = (first + np.arange(len(chosen))) % count
        first += len(chosen)
    return folds


@dataclass(frozen=True)
class EncoderLearner(Learner):
    """Rows that train the encoder of a classifier of recordings."""

    rows: Rows
    labels: NDArray[np.int64]
    """(recordings,)."""
    chosen: NDArray[np.int64]
    """Recordings to learn from."""
    batch_size: int
    drawn: int
    """Rows drawn in each epoch."""
    seed: str
    """Seed of the recipe and name of the training run, from which batches and augmentation follow."""

    unit = "series"

    @property
    def examples_per_epoch(self) -> int:
        return self.drawn // self.batch_size * self.batch_size

    def initialise(self, model: SeriesEncoder) -> None:
        """Scale the differences between steps to a deviation of 1 over the recordings."""
        rows = self._rows()
        series, lengths = (torch.from_numpy(self.rows.inputs[name][rows]) for name in ("series", "lengths"))
        differences = model.stem.inputs(series, lengths).chunk(2, dim=2)[1]
        model.stem.difference_scale.copy_(differences.std((0, 1)) + 1e-6)

    def _rows(self) -> NDArray[np.int64]:
        """Rows to learn from."""
        return np.flatnonzero(np.isin(self.rows.owners, self.chosen))

    def batches(self, epoch: int) -> Iterator[TrainingBatch]:
        """Yield augmented batches: series (B, N, C), lengths (B,), labels (B,). Every row is drawn as often."""
        rows, seed = self._rows(), int.from_bytes(self.seed.encode(), "little")
        generator = np.random.default_rng((seed, epoch))
        random = torch.Generator().manual_seed(int(generator.integers(2**62)))
        order = np.empty(0, np.int64)
        for _ in range(self.examples_per_epoch // self.batch_size):
            while len(order) < self.batch_size:
                order = np.concatenate((order, generator.permutation(rows)))
            batch, order = order[: self.batch_size], order[self.batch_size :]
            series, lengths = (torch.from_numpy(self.rows.inputs[name][batch]) for name in ("series", "lengths"))
            yield augment(series, lengths, random), lengths, torch.from_numpy(self.labels[self.rows.owners[batch]])

    def loss(self, model: nn.Module, batch: TrainingBatch) -> Tensor:
        """Cross-entropy with smoothed labels."""
        series, lengths, labels = batch
        return nn.functional.cross_entropy(model(series, lengths).float(), labels, label_smoothing=SMOOTHING)


def augment(series: Tensor, lengths: Tensor, generator: torch.Generator) -> Tensor:
    """Change the speed, the size and the offset of recordings at random, cut off their ends, and add noise.

    Shape:  series (B, N, C), zero beyond the lengths (B,); returns the same.
    """
    batch, steps, channels = series.shape

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator)

    speed = (1 + WARP * normal(batch, KNOTS)).clamp(min=0.25)
    ends = torch.cat((torch.zeros(batch, 1), speed.cumsum(1)), 1)
    ends = ends / ends[:, -1:]  # (B, KNOTS + 1): place from 0 to 1 at equal times
    share = KEPT + (1 - KEPT) * torch.rand(batch, 1, generator=generator)
    start = (1 - share) * torch.rand(batch, 1, generator=generator)
    last = (lengths[:, None] - 1).clamp(min=1)
    times = (torch.arange(steps) / last).clamp(max=1) * KNOTS  # (B, N)
    places = (start + share * _between(ends.unsqueeze(2), times).squeeze(2)) * (lengths[:, None] - 1)
    warped = _between(series, places)
    changed = warped * (1 + SCALE * normal(batch, 1, channels)) + OFFSET * normal(batch, 1, channels)
    changed = changed + NOISE * normal(batch, steps, channels)
    return changed * (torch.arange(steps) < lengths[:, None]).unsqueeze(2)


def _between(values: Tensor, places: Tensor) -> Tensor:
    """Linear interpolation of values (B, N, C) at places (B, M) from 0 to N - 1: (B, M, C)."""
    below = places.long().clamp(max=max(0, values.shape[1] - 2))
    share = (places - below).unsqueeze(2)
    index = below.unsqueeze(2).expand(-1, -1, values.shape[2])
    above = (index + 1).clamp(max=values.shape[1] - 1)
    return values.gather(1, index) * (1 - share) + values.gather(1, above) * share


def encoder_logits(model: nn.Module, rows: Rows, device: torch.device) -> Outputs:
    """Logits (rows, classes) of the encoder; sets evaluation mode."""
    model.eval()
    found = []
    with torch.inference_mode():
        for first in range(0, len(rows), ROWS):
            inputs = (torch.from_numpy(rows.inputs[name][first : first + ROWS]) for name in ("series", "lengths"))
            found.append(model(*(part.to(device) for part in inputs)).float().cpu().numpy())
    return np.concatenate(found)


def fit_weights(rocket: Outputs, encoder: Outputs, labels: NDArray[np.int64]) -> tuple[float, float]:
    """Weights of the views with the lowest cross-entropy on held-out recordings.

    The logarithms of the weights have a normal prior around those of PRIOR_WEIGHTS with a deviation of 1, so that a
    dozen recordings, which either view may classify without an error, leave them near these.

    Shape:  both (recordings, classes), labels (recordings,).
    """
    first, second = _likeliest((rocket, encoder), labels)
    return first, second


def fit_weight(rocket: Outputs, labels: NDArray[np.int64]) -> float:
    """Weight of MiniRocket alone, as `fit_weights`."""
    return _likeliest((rocket,), labels)[0]


def _likeliest(views: Sequence[Outputs], labels: NDArray[np.int64]) -> list[float]:
    """Weights of views, the first of them MiniRocket."""
    logits, target = [torch.from_numpy(view.astype(np.float64)) for view in views], torch.from_numpy(labels)
    prior = torch.tensor(PRIOR_WEIGHTS[: len(views)], dtype=torch.float64).log()
    logarithms = prior.clone().requires_grad_()
    optimiser = torch.optim.LBFGS([logarithms], max_iter=200, line_search_fn="strong_wolfe")

    def loss() -> Tensor:
        optimiser.zero_grad()
        summed = torch.stack([weight * view for weight, view in zip(logarithms.exp(), logits, strict=True)]).sum(0)
        value = nn.functional.cross_entropy(summed, target, reduction="sum") + (logarithms - prior).square().sum() / 2
        value.backward()
        return value

    optimiser.step(loss)
    return logarithms.exp().tolist()
