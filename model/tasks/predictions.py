"""What a model predicts for the examples of the test split: what reports draw, and the rows of `predictions.csv`."""

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from artifact.arrays import Doubles, Floats
from model.tasks.link import Outputs

AllOutputs = Callable[[Mapping[str, NDArray[Any]]], Sequence[Floats]]
"""A function that computes the main graph of a model: inputs by name -> all of its outputs, in their order."""


class Stretch(NamedTuple):
    """A part of a document or recording, and what it contributes to the logits."""

    start: int
    """First byte or step."""
    end: int
    contributions: Doubles
    """(classes,)."""


class Rival(NamedTuple):
    """What a baseline predicts for the same examples."""

    name: str
    scores: Outputs
    """In the shape of those of the model."""
    threshold: float = 0.5
    """Of pairs: score from which two documents belong together."""
    has_probabilities: bool = True
    """Of labels: whether the scores are probabilities."""
    thresholds: Doubles | None = None
    """Of any number of labels: score from which each applies, (classes,)."""


class Predictions(ABC):
    """What is predicted for the examples of the test split."""

    @property
    @abstractmethod
    def head(self) -> tuple[str, ...]:
        """Names of the columns of `predictions.csv`."""

    @abstractmethod
    def rows(self) -> Iterator[tuple[object, ...]]:
        """Yield the rows of `predictions.csv`."""


@dataclass(frozen=True)
class LabelPredictions(Predictions):
    """One label of several for n examples, which are documents or recordings."""

    labels: Sequence[str]
    truth: NDArray[np.int64]
    """(n,): index of the label."""
    scores: Outputs
    """(n, classes): probabilities."""
    examples: Sequence[bytes] | Sequence[Doubles]
    """Texts, or recordings (steps, channels)."""
    unit: str
    """What the length of an example counts: bytes or steps."""
    places: Sequence[str] = ()
    """Where each example is from; empty if that is unknown."""
    training: Sequence[int] = ()
    """Number of training examples of each class; empty if that is unknown."""
    rival: Rival | None = None

    @property
    def head(self) -> tuple[str, ...]:
        return ("row", "source", "label", "predicted", *(f"score {label}" for label in self.labels))

    def rows(self) -> Iterator[tuple[object, ...]]:
        predicted = self.scores.argmax(axis=1)
        for row, scores in enumerate(self.scores):
            label, answer = self.labels[self.truth[row]], self.labels[predicted[row]]
            yield (row + 1, _at(self.places, row), label, answer, *(f"{score:.6f}" for score in scores))


@dataclass(frozen=True)
class LabelSetPredictions(Predictions):
    """Any number of labels for n documents."""

    labels: Sequence[str]
    truth: NDArray[np.int64]
    """(n, classes): 1 for each label of a document, otherwise 0."""
    scores: Outputs
    """(n, classes): probability of each label."""
    thresholds: Doubles
    """(classes,): score from which each label applies."""
    examples: Sequence[bytes]
    places: Sequence[str] = ()
    """Where each document is from; empty if that is unknown."""
    training: Sequence[int] = ()
    """Number of training documents of each label; empty if that is unknown."""
    rival: Rival | None = None

    @property
    def answers(self) -> NDArray[np.bool_]:
        """(n, classes): whether each label applies."""
        return self.scores >= self.thresholds

    @property
    def rival_answers(self) -> NDArray[np.bool_] | None:
        """As `answers`, those of the baseline; None without one."""
        if self.rival is None or self.rival.thresholds is None:
            return None
        return self.rival.scores >= self.rival.thresholds

    @property
    def head(self) -> tuple[str, ...]:
        return ("row", "source", "labels", "predicted", *(f"score {label}" for label in self.labels))

    def rows(self) -> Iterator[tuple[object, ...]]:
        for row, (truth, answers, scores) in enumerate(zip(self.truth, self.answers, self.scores, strict=True)):
            sets = (self._list(truth), self._list(answers))
            yield (row + 1, _at(self.places, row), *sets, *(f"{score:.6f}" for score in scores))

    def _list(self, chosen: NDArray[Any]) -> str:
        """The chosen labels as a list in JSON, which is read as training data, too."""
        return json.dumps([self.labels[i] for i in np.flatnonzero(chosen).tolist()], ensure_ascii=False)


@dataclass(frozen=True)
class PairPredictions(Predictions):
    """Whether the two documents of n pairs belong together."""

    truth: NDArray[np.int64] | Doubles
    """(n,): 0 to 1."""
    scores: Outputs
    """(n,): from 0 to 1."""
    pairs: Sequence[tuple[bytes, bytes]]
    places: Sequence[str] = ()
    """Where each pair is from; empty if that is unknown."""
    rival: Rival | None = None

    @property
    def has_degrees(self) -> bool:
        """Whether labels are degrees, which nothing but the score predicts."""
        return not bool(np.isin(self.truth, (0, 1)).all())

    @property
    def head(self) -> tuple[str, ...]:
        predicted = () if self.has_degrees else ("predicted",)
        return ("row", "source", "label", *predicted, "score", *(("score of the baseline",) if self.rival else ()))

    def rows(self) -> Iterator[tuple[object, ...]]:
        has_degrees = self.has_degrees
        for row, score in enumerate(self.scores):
            predicted = () if has_degrees else (int(score >= 0.5),)
            other = (f"{self.rival.scores[row]:.6f}",) if self.rival else ()
            yield (row + 1, _at(self.places, row), f"{self.truth[row]:g}", *predicted, f"{score:.6f}", *other)


@dataclass(frozen=True)
class WindowPredictions(Predictions):
    """Forecasts of W windows of a series that follow one another, in its units."""

    channels: Sequence[str]
    origins: NDArray[np.int64]
    """(W,): row of the series at which each forecast begins, from 0."""
    past: Doubles
    """(W, context, C)."""
    truth: Doubles
    """(W, horizon, C); NaN after the end of the series."""
    forecast: Doubles
    low: Doubles
    high: Doubles
    """Bounds of the 80 % band, as forecast (W, horizon, C)."""
    rivals: Sequence[Rival]
    """Their scores are forecasts (W, horizon, C)."""
    is_one_series: bool = True
    """Whether the channels are of one series; otherwise each is a series of its own."""

    @property
    def head(self) -> tuple[str, ...]:
        return ("origin", "row", "channel", "truth", "forecast", "low", "high", *(rival.name for rival in self.rivals))

    def rows(self) -> Iterator[tuple[object, ...]]:
        columns = (self.truth, self.forecast, self.low, self.high, *(rival.scores for rival in self.rivals))
        for window, origin in enumerate(self.origins.tolist()):
            for step in range(self.truth.shape[1]):
                for place, channel in enumerate(self.channels):
                    values = [column[window, step, place] for column in columns]
                    yield (origin, origin + step, channel, *("" if np.isnan(v) else f"{v:.6g}" for v in values))


def _at(places: Sequence[str], row: int) -> str:
    return places[row] if places else ""
