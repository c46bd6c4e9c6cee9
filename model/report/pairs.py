"""Sections about matchers."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from artifact.arrays import Doubles
from model.report import figures
from model.report.content import Example, Note, Part, Picture, Section, Table, decimal, named, whole
from model.tasks.link import area_under_roc
from model.tasks.predictions import PairPredictions

THRESHOLD = 0.5
"""Score from which a pair is answered with yes."""
MOST_POINTS = 300
"""Points of a ROC curve."""
WORST = 5
"""Pairs of each kind of error that are shown."""
MOST_BYTES = 500
"""Bytes of a text that are shown."""


def sections(found: PairPredictions) -> Iterator[Section]:
    """All sections about pairs."""
    truth = (np.asarray(found.truth) >= THRESHOLD).astype(np.int64)
    yield Section("Ranking", list(_ranking(found, truth)))
    yield Section("Scores by label", list(_scores(found, truth)))
    yield Section("Most wrong", list(_worst(found, truth)))


def _ranking(found: PairPredictions, truth: NDArray[np.int64]) -> Iterator[Picture | Note]:
    """ROC curves."""
    if truth.all() or not truth.any():
        yield Note(f"There is no ROC curve: all labels are on one side of {THRESHOLD}.")
        return
    curves = [(f"model, AUC {area_under_roc(found.scores, truth):.3f}", rates_of(found.scores, truth))]
    caption = "For each threshold, the share of pairs of either label with a score above it."
    if found.rival is not None:
        area = area_under_roc(found.rival.scores, truth)
        curves.append((f"baseline, AUC {area:.3f}", rates_of(found.rival.scores, truth)))
        caption += f" The baseline is {found.rival.name}."
    yield Picture(figures.roc(curves), caption)


def rates_of(scores: NDArray[np.floating], truth: NDArray[np.int64]) -> Doubles:
    """Rates of false and of true positives (2, points) for falling thresholds, from (0, 0) to (1, 1)."""
    order = np.argsort(-scores, kind="stable")
    ends = np.append(np.flatnonzero(np.diff(scores[order])), len(order) - 1)  # equal scores are on one side
    if len(ends) > MOST_POINTS:
        ends = ends[np.linspace(0, len(ends) - 1, MOST_POINTS).astype(np.int64)]
    positive = np.cumsum(truth[order])[ends]
    rates = np.stack([(ends + 1 - positive) / max(1, (truth == 0).sum()), positive / max(1, truth.sum())])
    return np.concatenate([np.zeros((2, 1)), rates], axis=1)


def _scores(found: PairPredictions, truth: NDArray[np.int64]) -> Iterator[Picture | Table]:
    """Histograms, and what follows from the thresholds."""
    parts = [("model", found.scores, THRESHOLD, "score")]
    if found.rival is not None:
        parts.append((found.rival.name, found.rival.scores, found.rival.threshold, "score of the baseline"))
    rows = []
    for name, scores, threshold, label in parts:
        no, yes = (scores[truth == value].astype(np.float64) for value in (0, 1))
        yield Picture(figures.histogram(no, yes, label, threshold), f"Test pairs by {label}.")
        answers = scores >= threshold
        right = int((answers & (truth == 1)).sum())
        accuracy = float((answers == truth).mean())
        precision, recall = right / max(1, int(answers.sum())), right / max(1, int(truth.sum()))
        rows.append(
            named(
                name, decimal(threshold), whole(len(yes)), whole(len(no)), *map(decimal, (accuracy, precision, recall))
            )
        )
    yield Table(["", "threshold", "label 1", "label 0", "accuracy", "precision", "recall"], rows)


def _worst(found: PairPredictions, truth: NDArray[np.int64]) -> Iterator[Note | Example]:
    """Pairs of label 1 with the lowest scores, and of label 0 with the highest."""
    is_wrong = (found.scores >= THRESHOLD) != truth
    if not is_wrong.any():
        yield Note("No test pair is on the wrong side of the threshold.")
    for label, sign in ((1, 1), (0, -1)):
        chosen = np.flatnonzero(is_wrong & (truth == label))
        for row in chosen[np.argsort(sign * found.scores[chosen], kind="stable")][:WORST].tolist():
            place = found.places[row] if found.places else f"test pair {row + 1}"
            texts = found.pairs[row]
            is_cut = any(len(text) > MOST_BYTES for text in texts)
            yield Example(
                f"{place}: label {found.truth[row]:g}, score {found.scores[row]:.3f}",
                [Part(text[:MOST_BYTES].decode(errors="replace")) for text in texts],
                f"The first {MOST_BYTES} bytes of each text." if is_cut else "",
            )
