"""Pre- and postprocessing of text classification: documents -> rows, outputs of the rows -> answers."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from artifact.documents import OnOverflow, Span, bytes_used, combine, coverage, cut, take
from artifact.encodings import as_text
from artifact.errors import InvalidInput
from artifact.manifest import ClassifierManifest


class Options(NamedTuple):
    """Options of a classification request."""

    top_k: int | None = None
    """Number of scores to return, best first; None, or a number above the number of labels, returns all."""
    on_overflow: OnOverflow = "windows"
    """How to read documents longer than the model's max_length."""
    detail: bool = False
    """Whether to return the scores of each window and the contributions of each stretch."""


@dataclass(frozen=True)
class Row:
    """What the model computed for one row of a document."""

    spans: list[Span]
    """Parts of the document in the row."""
    scores: list[float]
    """Of each label, summing to 1."""
    contributions: NDArray[np.float32]
    """(stretches, classes); those of the padding may be included."""


@dataclass(slots=True)
class Classification:
    """Result for one document."""

    scores: list[float]
    """Of each label, summing to 1."""
    bytes_total: int
    bytes_used: int
    plan: list[list[Span]]
    """Parts of the document in each row."""
    outputs: Sequence[NDArray[np.float32]]
    """What the model computed for each row: see `Documents.answers`."""
    documents: "Documents"
    """Documents of the request."""

    @property
    def rows(self) -> list[Row]:
        """The rows in detail."""
        return [
            Row(spans, *self.documents.split(output)) for spans, output in zip(self.plan, self.outputs, strict=True)
        ]

    def as_json(self, labels: Sequence[str], options: Options) -> dict[str, Any]:
        """The JSON object returned to clients, best score first; `labels` are the model's."""
        scores = _ranked(self.scores, labels, options.top_k)
        result: dict[str, Any] = {
            **scores[0],
            "scores": scores,
            "coverage": coverage(self.bytes_total, self.bytes_used, len(self.plan), options.on_overflow),
        }
        if options.detail:
            rows = self.rows
            result["windows"] = [
                {"start": start, "end": end, "scores": _ranked(row.scores, labels, options.top_k)}
                for row in rows
                for start, end in row.spans
            ]
            kept = [score["label"] for score in scores]
            result["stretches"] = [
                {"start": start, "end": end, "contributions": {label: contributions[label] for label in kept}}
                for start, end, contributions in self._stretches(rows, labels)
            ]
        return result

    def _stretches(self, rows: Sequence[Row], labels: Sequence[str]) -> list[tuple[int, int, dict[str, float]]]:
        """Start and end byte of each stretch, and its contribution to the document's logit of each label, by start.

        The document's logits, the mean over its rows, are the sum of the contributions and of the manifest's base.
        Stretches of overlapping windows overlap. In a row of `head_tail`, a stretch that begins in the head and ends in
        the tail includes the bytes between, which the model does not read.
        """
        found = list[tuple[int, int, dict[str, float]]]()
        for row in rows:
            bounds = _bounds(row.spans, self.documents.stretch_bytes)
            shares = row.contributions[: len(bounds)].astype(np.float64) / len(rows)
            found += [
                (start, end, dict(zip(labels, share, strict=True)))
                for (start, end), share in zip(bounds, shares.tolist(), strict=True)
            ]
        return sorted(found, key=lambda stretch: stretch[:2])


class Documents:
    """Documents of one request, split into the rows that the model reads.

    Args:
        documents: raw bytes of each document.
        manifest: manifest of the classifier.
        on_overflow: how to read documents longer than the model's max_length.

    Raises: InvalidInput naming the document.

    """

    def __init__(self, documents: Sequence[bytes], manifest: ClassifierManifest, on_overflow: OnOverflow) -> None:
        self._classes = len(manifest.labels)
        # without contributions, each row is one stretch that contributes its logits
        self._first, self.stretch_bytes = 0, manifest.max_length
        if manifest.stretches is not None:
            self._first, self.stretch_bytes = self._classes, manifest.stretches.length
        if manifest.reads_text:
            documents = [_text(index, document) for index, document in enumerate(documents)]
        self._sizes = [len(document) for document in documents]
        self._plans = [_cut(index, size, manifest, on_overflow) for index, size in enumerate(self._sizes)]
        self.rows = [
            take(document, spans) for document, plan in zip(documents, self._plans, strict=True) for spans in plan
        ]
        """Rows of all documents, in order."""

    def answers(self, outputs: Sequence[NDArray[np.float32]]) -> Iterator[Classification]:
        """Yield the result of each document.

        Args:
            outputs: outputs of the rows, in their order: the logits (classes,), followed by the contributions of the
                row's stretches (stretches * classes,) if the model returns them.

        """
        first = 0
        for size, plan in zip(self._sizes, self._plans, strict=True):
            own = outputs[first : first + len(plan)]
            scores = combine([output[: self._classes] for output in own])
            yield Classification(scores, size, bytes_used(plan), plan, own, self)
            first += len(plan)

    def split(self, output: NDArray[np.float32]) -> tuple[list[float], NDArray[np.float32]]:
        """Scores of a row and contributions of its stretches (stretches, classes), from its output."""
        return combine([output[: self._classes]]), output[self._first :].reshape(-1, self._classes)


def _text(index: int, document: bytes) -> bytes:
    """A document for a model that reads text; the error names the document."""
    try:
        return as_text(document)
    except InvalidInput as error:
        raise _named(index, error) from None


def _named(index: int, error: InvalidInput) -> InvalidInput:
    return InvalidInput(f"input {index}: {error}", [(f"inputs.{index}", str(error))])


def _cut(index: int, size: int, manifest: ClassifierManifest, on_overflow: OnOverflow) -> list[list[Span]]:
    """Split one document into rows; the error names the document."""
    try:
        return cut(size, manifest.max_length, manifest.window_overlap, on_overflow)
    except InvalidInput as error:
        raise _named(index, error) from None


def _bounds(spans: Sequence[Span], length: int) -> list[Span]:
    """Start and end in the document of each stretch of `length` bytes of a row; the last may be shorter."""
    positions = np.concatenate([np.arange(start, end) for start, end in spans])
    starts = positions[::length]
    last = np.append(positions[length - 1 :: length], positions[-1])[: len(starts)]
    return list(zip(starts.tolist(), (last + 1).tolist(), strict=True))


def _ranked(scores: Sequence[float], labels: Sequence[str], top_k: int | None) -> list[dict[str, Any]]:
    """Labels with their scores, best first; at most `top_k`."""
    pairs = sorted(zip(labels, scores, strict=True), key=itemgetter(1), reverse=True)
    return [{"label": label, "score": score} for label, score in pairs[:top_k]]
