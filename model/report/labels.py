"""Sections about classifiers."""

from collections.abc import Callable, Iterator, Sequence

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

Explain = Callable[[bytes], Sequence[Stretch]]


def sections(found: LabelPredictions, explain: Explain) -> Iterator[Section]:
    """All sections about labels."""
    yield Section("Classes", [*_compared(found), *_classes(found)])
    yield Section("Confusion", list(_confusion(found)))
    yield Section("Reliability", list(_reliability(found)))
    yield Section("Accuracy by length", list(_by_length(found)))
    yield Section("Most wrong", list(_worst(found, explain)))


def _short(label: str) -> str:
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
    never = [_short(found.labels[i]) for i in np.flatnonzero((predicted == 0) & (counts > 0))[:MOST_CLASSES]]
    if never:
        yield Note(f"Never predicted: {', '.join(never)}.", is_warning=True)
    heads = ["class", *(["training"] if found.training else []), "test", "predicted", "precision", "recall", "F1"]
    rows = []
    for i in sorted(order.tolist()):
        training = [whole(found.training[i])] if found.training else []
        cells = [*training, whole(counts[i]), whole(predicted[i]), *map(decimal, own[:, i])]
        rows.append(named(_short(found.labels[i]), *cells, *([] if other is None else [decimal(other[2, i])])))
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
            ["", *map(_short, found.labels)],
            [
                named(_short(label), *(Cell(f"{n:,}", shade=s) for n, s in zip(counts, part, strict=True)))
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
                _short(found.labels[a]),
                Cell(_short(found.labels[b]), is_number=False),
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


def _by_length(found: LabelPredictions) -> Iterator[Note | Picture | Table]:
    """Accuracy of examples of similar length."""
    lengths = np.array([len(example) for example in found.examples])
    right = found.scores.argmax(axis=1) == found.truth
    other = None if found.rival is None else found.rival.scores.argmax(axis=1) == found.truth
    edges = np.unique(np.quantile(lengths, np.linspace(0, 1, LENGTHS + 1), method="higher"))
    groups = np.searchsorted(edges[1:-1], lengths, side="right") if len(edges) > 2 else np.zeros(len(lengths), np.int64)
    rows, names, values, others = [], list[str](), list[float](), list[float]()
    for group in np.unique(groups):
        chosen = groups == group
        name = f"{lengths[chosen].min():,} to {lengths[chosen].max():,}"
        names.append(name)
        values.append(float(right[chosen].mean()))
        cells = [whole(chosen.sum()), decimal(values[-1])]
        if other is not None:
            others.append(float(other[chosen].mean()))
            cells.append(decimal(others[-1]))
        rows.append(named(name, *cells))
    if len(names) > 1:
        yield Picture(figures.bars(names, values, others, "accuracy", found.unit), "Accuracy by length.")
    yield Table([found.unit, "examples", "accuracy", *([] if other is None else ["baseline"])], rows)


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
            f"{found.places[row] if found.places else f'test example {row + 1}'}: label {_short(found.labels[label])} "
            f"({found.scores[row, label]:.1%}), answer {_short(found.labels[answer])} ({found.scores[row, answer]:.1%})"
        )
        example = found.examples[row]
        if isinstance(example, bytes):
            yield _document(title, example, explain(example), label, answer)
        else:
            drawn = example[:MOST_STEPS, :MOST_CHANNELS]
            cut = f"; the first {len(drawn):,} of {len(example):,} steps" if len(drawn) < len(example) else ""
            cut += f"; the first {MOST_CHANNELS} channels" if example.shape[1] > MOST_CHANNELS else ""
            yield Picture(figures.lines(drawn), f"{title}{cut}")


def _document(title: str, text: bytes, stretches: Sequence[Stretch], label: int, answer: int) -> Example:
    """A document, or its stretches that speak most for the answer instead of the label, in their order."""
    if not stretches:
        statement = f"The first {MOST_BYTES:,} of {len(text):,} bytes." if len(text) > MOST_BYTES else ""
        return Example(title, [Part(text[:MOST_BYTES].decode(errors="replace"))], statement)
    shares = np.array([part.contributions[answer] - part.contributions[label] for part in stretches])
    shades = shares / max(np.abs(shares).max(), 1e-12)
    kept = sorted(np.argsort(-shares, kind="stable")[:MOST_STRETCHES].tolist())
    parts = [Part(text[stretches[i].start : stretches[i].end].decode(errors="ignore"), float(shades[i])) for i in kept]
    statement = ""
    if len(kept) < len(stretches):
        statement = (
            f"The {len(kept)} of {len(stretches):,} stretches, in {len(text):,} bytes, that speak most for the answer."
        )
    return Example(title, parts, statement)
