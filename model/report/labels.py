"""Sections about classifiers."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from artifact.arrays import Doubles
from model.report import figures
from model.report.content import Cell, Example, Note, Part, Picture, Section, Table, decimal, named, whole
from model.tasks.link import SOFTMAX, Outputs, calibration_error
from model.tasks.predictions import LabelPredictions, Stretch

MOST_CLASSES = 100
"""Classes in the table of classes; of more, the most frequent."""
LARGEST_MATRIX = 25
"""Classes in the confusion matrix; with more, the pairs that are most often confused are listed."""
CONFUSED = 30
LENGTHS = 5
"""Groups of equal size by length."""
WORST = 10
"""Examples that are shown."""
MOST_STRETCHES, MOST_BYTES = 4, 1_200
"""Stretches of an example that are shown; bytes of one without stretches."""
MOST_CHANNELS, MOST_STEPS = 6, 1_000
"""Of a recording that is drawn."""
MOST_CHARACTERS = 80
"""Of a label."""

Explain = Callable[[Any], Sequence[Stretch]]
"""Document or recording -> its stretches."""


def sections(found: LabelPredictions, explain: Explain) -> Iterator[Section]:
    """All sections about labels."""
    yield Section("Classes", [*_compared(found), *_classes(found)])
    yield Section("Confusion", list(_confusion(found)))
    yield Section("Reliability", list(_reliability(found)))
    yield Section("Accuracy by length", list(_by_length(found)))
    yield Section("Most wrong", list(_worst(found, explain)))


def short(label: str) -> str:
    """A label, cut if it is long."""
    return label if len(label) <= MOST_CHARACTERS else f"{label[: MOST_CHARACTERS - 1]}…"


def _compared(found: LabelPredictions) -> Iterator[Note]:
    """Accuracy of the model and the baseline, and their paired difference with its standard error."""
    right, count = found.scores.argmax(axis=1) == found.truth, len(found.truth)
    own = 100 * right.mean()
    text = f"{own:.1f} ± {100 * right.std() / np.sqrt(count):.1f} % of {count:,} test examples are classified correctly"
    if found.rival is not None:
        other = found.rival.scores.argmax(axis=1) == found.truth
        difference = right.astype(np.float64) - other
        text += (
            f"; by {found.rival.name}, {100 * other.mean():.1f} %. The difference is {100 * difference.mean():+.1f} ± "
            f"{100 * difference.std() / np.sqrt(count):.1f} points"
        )
    yield Note(f"{text} (± one standard error).")


def _classes(found: LabelPredictions) -> Iterator[Note | Table]:
    """Counts, precision, recall and F1 of each class."""
    own = class_report(found.scores, found.truth)
    other = None if found.rival is None else class_report(found.rival.scores, found.truth)
    counts = np.bincount(found.truth, minlength=len(found.labels))
    predicted = np.bincount(found.scores.argmax(axis=1), minlength=len(found.labels))
    order = np.argsort(-counts, kind="stable")[:MOST_CLASSES]
    never = [short(found.labels[i]) for i in np.flatnonzero((predicted == 0) & (counts > 0))[:MOST_CLASSES]]
    if never:
        yield Note(f"Never predicted: {', '.join(never)}.", is_warning=True)
    heads = ["class", *(["training"] if found.training else []), "test", "predicted", "precision", "recall", "F1"]
    rows = []
    for i in sorted(order.tolist()):
        training = [whole(found.training[i])] if found.training else []
        cells = [*training, whole(counts[i]), whole(predicted[i]), *map(decimal, own[:, i])]
        rows.append(named(short(found.labels[i]), *cells, *([] if other is None else [decimal(other[2, i])])))
    yield Table([*heads, *([] if other is None else ["F1 of the baseline"])], rows)
    if len(found.labels) > MOST_CLASSES:
        yield Note(
            f"The {MOST_CLASSES} most frequent of {len(found.labels):,} classes; predictions.csv has all answers."
        )


def class_report(scores: Outputs, truth: NDArray[np.int64]) -> Doubles:
    """Precision, recall and F1 of each class (3, classes); 0 where a class is not predicted or not present."""
    answers, classes = scores.argmax(axis=1), scores.shape[1]
    right = np.bincount(truth[answers == truth], minlength=classes)
    predicted, present = np.bincount(answers, minlength=classes), np.bincount(truth, minlength=classes)
    f1 = 2 * right / np.maximum(predicted + present, 1)
    return np.stack([right / np.maximum(predicted, 1), right / np.maximum(present, 1), f1])


def _confusion(found: LabelPredictions) -> Iterator[Note | Table]:
    """How often each label gets each answer."""
    answers, classes = found.scores.argmax(axis=1), len(found.labels)
    matrix = np.bincount(found.truth * classes + answers, minlength=classes**2).reshape(classes, classes)
    if classes <= LARGEST_MATRIX:
        shares = matrix / np.maximum(matrix.sum(axis=1, keepdims=True), 1)
        yield Note("Rows are labels, columns answers.")
        yield Table(
            ["", *map(short, found.labels)],
            [
                named(short(label), *(Cell(f"{n:,}", shade=s) for n, s in zip(counts, part, strict=True)))
                for label, counts, part in zip(found.labels, matrix.tolist(), shares.tolist(), strict=True)
            ],
        )
        return
    wrong = matrix * (1 - np.eye(classes, dtype=np.int64))
    order = np.argsort(-wrong, axis=None, kind="stable")[:CONFUSED]
    pairs = [divmod(place, classes) for place in order.tolist() if wrong.flat[place]]
    yield Note(f"The {len(pairs)} pairs of label and answer that are confused most often.")
    yield Table(
        ["label", "answer", "examples", "of the label"],
        [
            named(
                short(found.labels[a]),
                Cell(short(found.labels[b]), is_number=False),
                whole(matrix[a, b]),
                Cell(f"{matrix[a, b] / matrix[a].sum():.0%}"),
            )
            for a, b in pairs
        ],
    )


def _reliability(found: LabelPredictions) -> Iterator[Note | Picture]:
    """Scores as probabilities."""
    bins = SOFTMAX.bins(found.scores, found.truth)
    rival = found.rival
    others = () if rival is None or not rival.has_probabilities else SOFTMAX.bins(rival.scores, found.truth)
    text = f"Expected calibration error: {calibration_error(bins):.4f}"
    text += f"; of the baseline: {calibration_error(others):.4f}." if others else "."
    yield Picture(
        figures.reliability(bins, others),
        f"{text} On the diagonal, a score of 0.8 is right 8 times out of 10.",
    )


def _by_length(found: LabelPredictions) -> Iterator[Picture | Table]:
    """Accuracy of examples of similar length."""
    scores = [found.scores, *([] if found.rival is None else [found.rival.scores])]
    right = [part.argmax(axis=1) == found.truth for part in scores]
    lengths = np.array([len(example) for example in found.examples])
    yield from by_length(lengths, found.unit, "accuracy", [partial(_mean, part) for part in right])


def _mean(right: NDArray[np.bool_], rows: NDArray[np.bool_]) -> float:
    return float(right[rows].mean())


def by_length(
    lengths: NDArray[np.int64], unit: str, metric: str, values: Sequence[Callable[[NDArray[np.bool_]], float]]
) -> Iterator[Picture | Table]:
    """A metric of examples of similar length.

    Args:
        lengths: (n,).
        unit: what they count.
        metric: its name.
        values: of the model and, if there is one, of the baseline: which examples (n,) -> the metric of these.

    """
    edges = np.unique(np.quantile(lengths, np.linspace(0, 1, LENGTHS + 1), method="higher"))
    groups = np.searchsorted(edges[1:-1], lengths, side="right") if len(edges) > 2 else np.zeros(len(lengths), np.int64)
    rows, names, found = [], list[str](), list[list[float]]()
    for group in np.unique(groups):
        chosen = groups == group
        names.append(f"{lengths[chosen].min():,} to {lengths[chosen].max():,}")
        found.append([value(chosen) for value in values])
        rows.append(named(names[-1], whole(chosen.sum()), *map(decimal, found[-1])))
    if len(names) > 1:
        own, *others = zip(*found, strict=True)
        picture = figures.bars(names, own, others[0] if others else (), metric, unit)
        yield Picture(picture, f"{metric[0].upper()}{metric[1:]} by length.")
    yield Table([unit, "examples", metric, *(["baseline"] if len(values) > 1 else [])], rows)


def _worst(found: LabelPredictions, explain: Explain) -> Iterator[Note | Example | Picture]:
    """The examples whose label has the lowest score relative to the answer."""
    rows = np.arange(len(found.truth))
    answers = found.scores.argmax(axis=1)
    margin = found.scores[rows, answers] - found.scores[rows, found.truth]
    order = [row for row in np.argsort(-margin, kind="stable")[:WORST].tolist() if margin[row] > 0]
    if not order:
        yield Note("No test example is classified wrongly.")
        return
    yield Note("The wrong answers with the highest scores: either a weakness of the model, or a wrong label.")
    for row in order:
        label, answer = found.truth[row], answers[row]
        title = (
            f"{found.places[row] if found.places else f'test example {row + 1}'}: label {short(found.labels[label])} "
            f"({found.scores[row, label]:.1%}), answer {short(found.labels[answer])} ({found.scores[row, answer]:.1%})"
        )
        example = found.examples[row]
        sign = np.zeros(len(found.labels))
        sign[answer], sign[label] = 1, -1
        if isinstance(example, bytes):
            yield document(title, example, explain(example), sign)
        else:
            yield _recording(title, example, explain(example), sign)


def _recording(title: str, values: Doubles, stretches: Sequence[Stretch], sign: Doubles) -> Picture:
    """A recording (steps, channels) with its stretches, shaded by how much they speak for a wrong answer.

    Of a long one, the steps around the stretch that speaks most for it. `sign` as that of `document`.
    """
    shares = np.array([part.contributions @ sign for part in stretches])
    middle = sum(stretches[int(shares.argmax())][:2]) // 2 if stretches else 0
    first = max(0, min(middle - MOST_STEPS // 2, len(values) - MOST_STEPS))
    drawn = values[first : first + MOST_STEPS, :MOST_CHANNELS]
    cut = f"; steps {first:,} to {first + len(drawn):,} of {len(values):,}" if len(drawn) < len(values) else ""
    cut += f"; the first {MOST_CHANNELS} channels" if values.shape[1] > MOST_CHANNELS else ""
    shades = shares / max(np.abs(shares).max(initial=0), 1e-12)
    spans = [(part.start, part.end, float(shade)) for part, shade in zip(stretches, shades, strict=True)]
    told = "; blue parts speak for the answer, orange ones against it" if spans else ""
    return Picture(figures.lines(drawn, first, spans), f"{title}{cut}{told}")


def document(title: str, text: bytes, stretches: Sequence[Stretch], sign: Doubles) -> Example:
    """A document, or its stretches that speak most for a wrong answer, in their order.

    `sign` (classes,) is 1 for each label that the answer has and should not have, -1 for one that it should have.
    """
    if not stretches:
        statement = f"The first {MOST_BYTES:,} of {len(text):,} bytes." if len(text) > MOST_BYTES else ""
        return Example(title, [Part(text[:MOST_BYTES].decode(errors="replace"))], statement)
    shares = np.array([part.contributions @ sign for part in stretches])
    shades = shares / max(np.abs(shares).max(), 1e-12)
    kept = sorted(np.argsort(-shares, kind="stable")[:MOST_STRETCHES].tolist())
    parts = [Part(text[stretches[i].start : stretches[i].end].decode(errors="ignore"), float(shades[i])) for i in kept]
    statement = ""
    if len(kept) < len(stretches):
        statement = (
            f"The {len(kept)} of {len(stretches):,} stretches, in {len(text):,} bytes, that speak most for the answer."
        )
    return Example(title, parts, statement)
