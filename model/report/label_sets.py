"""Sections about classifiers of any number of labels."""

from collections.abc import Iterator
from functools import partial

import numpy as np
from numpy.typing import NDArray

from artifact.arrays import Doubles
from model.report import figures
from model.report.content import Example, Note, Picture, Section, Table, decimal, named, whole
from model.report.labels import MOST_CLASSES, WORST, Explain, by_length, document, short
from model.tasks.link import SIGMOIDS, calibration_error
from model.tasks.predictions import LabelSetPredictions

MOST_LABELS = 10
"""Labels of a document that are named."""


def sections(found: LabelSetPredictions, explain: Explain) -> Iterator[Section]:
    """All sections about any number of labels."""
    yield Section("Labels", list(_labels(found)))
    yield Section("Reliability", [_reliability(found)])
    yield Section("F1 by length", list(_by_length(found)))
    yield Section("Most wrong", list(_worst(found, explain)))


def _labels(found: LabelSetPredictions) -> Iterator[Note | Table]:
    """Counts, threshold, precision, recall and F1 of each label."""
    truth, answers = found.truth == 1, found.answers
    right = (answers == truth).all(axis=1)
    yield Note(
        f"{right.sum():,} of {len(truth):,} test documents have exactly their labels. A document has "
        f"{truth.sum(1).mean():.2f} labels and gets {answers.sum(1).mean():.2f}; {(~answers.any(1)).sum():,} get none, "
        f"{(~truth.any(1)).sum():,} have none."
    )
    never = [short(found.labels[i]) for i in np.flatnonzero(~answers.any(0) & truth.any(0))[:MOST_CLASSES]]
    if never:
        yield Note(f"Never predicted: {', '.join(never)}.", is_warning=True)
    own = set_report(answers, truth)
    others = [] if found.rival_answers is None else [set_report(found.rival_answers, truth)[2]]
    counts, predicted = truth.sum(0), answers.sum(0)
    rows = []
    for i in sorted(np.argsort(-counts, kind="stable")[:MOST_CLASSES].tolist()):
        cells = [*([whole(found.training[i])] if found.training else []), whole(counts[i]), whole(predicted[i])]
        values = (found.thresholds[i], *own[:, i], *(other[i] for other in others))
        rows.append(named(short(found.labels[i]), *cells, *map(decimal, values)))
    heads = ["label", *(["training"] if found.training else []), "test", "predicted", "threshold"]
    yield Table([*heads, "precision", "recall", "F1", *(["F1 of the baseline"] if others else [])], rows)
    if len(found.labels) > MOST_CLASSES:
        yield Note(f"The {MOST_CLASSES} most frequent of {len(found.labels):,} labels; predictions.csv has all.")


def set_report(answers: NDArray[np.bool_], truth: NDArray[np.bool_]) -> Doubles:
    """Precision, recall and F1 of each label (3, classes); 0 where a label is not predicted or not present.

    Shape:  answers and truth (n, classes).
    """
    right, predicted, present = (answers & truth).sum(0), answers.sum(0), truth.sum(0)
    f1 = 2 * right / np.maximum(predicted + present, 1)
    return np.stack([right / np.maximum(predicted, 1), right / np.maximum(present, 1), f1])


def _micro_f1(answers: NDArray[np.bool_], truth: NDArray[np.bool_], rows: NDArray[np.bool_]) -> float:
    """F1 of all labels of the chosen documents together; 0 if there are none."""
    answers, truth = answers[rows], truth[rows]
    return float(2 * (answers & truth).sum() / max(1, answers.sum() + truth.sum()))


def _reliability(found: LabelSetPredictions) -> Picture:
    """Scores as probabilities, of all labels of all documents."""
    bins = SIGMOIDS.bins(found.scores, found.truth)
    others = () if found.rival is None else SIGMOIDS.bins(found.rival.scores, found.truth)
    text = f"Expected calibration error: {calibration_error(bins):.4f}"
    text += f"; of the baseline: {calibration_error(others):.4f}." if others else "."
    return Picture(
        figures.reliability(bins, others, "a label"),
        f"{text} All labels of all documents. On the diagonal, a score of 0.8 is right 8 times out of 10.",
    )


def _by_length(found: LabelSetPredictions) -> Iterator[Picture | Table]:
    """Micro F1 of documents of similar length."""
    truth = found.truth == 1
    answers = [part for part in (found.answers, found.rival_answers) if part is not None]
    lengths = np.array([len(text) for text in found.examples])
    yield from by_length(lengths, "bytes", "micro F1", [partial(_micro_f1, part, truth) for part in answers])


def _worst(found: LabelSetPredictions, explain: Explain) -> Iterator[Note | Example]:
    """The documents of which a wrong answer about a label is farthest from the threshold."""
    wrong = found.answers != (found.truth == 1)
    distance = np.where(wrong, np.abs(found.scores - found.thresholds), -1.0)
    order = [row for row in np.argsort(-distance.max(axis=1), kind="stable")[:WORST].tolist() if wrong[row].any()]
    if not order:
        yield Note("Every test document has exactly its labels.")
        return
    yield Note(
        "The wrong answers about a label that are farthest from its threshold: either a weakness of the model, or a "
        "wrong label."
    )
    for row in order:
        label = int(distance[row].argmax())
        is_given = bool(found.answers[row, label])
        title = (
            f"{found.places[row] if found.places else f'test document {row + 1}'}: {short(found.labels[label])} is "
            f"{'wrong' if is_given else 'missing'} ({found.scores[row, label]:.1%}, threshold "
            f"{found.thresholds[label]:.1%}); labels: {_named(found, found.truth[row] == 1)}; "
            f"answer: {_named(found, found.answers[row])}"
        )
        sign = np.zeros(len(found.labels))
        sign[label] = 1 if is_given else -1
        yield document(title, found.examples[row], explain(found.examples[row]), sign)


def _named(found: LabelSetPredictions, chosen: NDArray[np.bool_]) -> str:
    """The chosen labels of a document."""
    places = np.flatnonzero(chosen)
    more = f" and {len(places) - MOST_LABELS} more" if len(places) > MOST_LABELS else ""
    return ", ".join(short(found.labels[i]) for i in places[:MOST_LABELS]) + more or "none"
