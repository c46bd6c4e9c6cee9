"""Pre- and postprocessing of text classification: documents -> rows, logits of the rows -> answers."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from artifact.documents import OnOverflow, Span, bytes_used, combine, coverage, cut, softmax, take
from artifact.errors import InvalidInput
from artifact.manifest import ClassifierManifest


@dataclass(frozen=True)
class Options:
    """Options of a classification request."""

    top_k: int | None = None
    """Number of scores to return, best first; None, or a number above the number of labels, returns all."""
    on_overflow: OnOverflow = "windows"
    """How to read documents longer than the model's max_length."""
    detail: bool = False
    """Whether to return the scores of each window."""


@dataclass(frozen=True)
class Classification:
    """Result for one document."""

    scores: NDArray[np.float64]
    """(classes,), summing to 1."""
    bytes_total: int
    bytes_used: int
    windows: list[tuple[list[Span], NDArray[np.float64]]]
    """One entry per row: the spans of the document in the row, and the row's scores."""

    def as_json(self, labels: Sequence[str], options: Options) -> dict[str, Any]:
        """The JSON object returned to clients, best score first; `labels` are the model's."""
        scores = _ranked(self.scores, labels, options.top_k)
        result: dict[str, Any] = {
            **scores[0],
            "scores": scores,
            "coverage": coverage(self.bytes_total, self.bytes_used, len(self.windows), options.on_overflow),
        }
        if options.detail:
            result["windows"] = [
                {"start": start, "end": end, "scores": _ranked(row, labels, options.top_k)}
                for spans, row in self.windows
                for start, end in spans
            ]
        return result


class Documents:
    """Documents of one request, split into the rows that the model reads.

    Args:
        documents: raw bytes of each document.
        manifest: manifest of the classifier.
        on_overflow: how to read documents longer than the model's max_length.

    Raises: InvalidInput naming the document.

    """

    def __init__(self, documents: Sequence[bytes], manifest: ClassifierManifest, on_overflow: OnOverflow) -> None:
        self._sizes = [len(document) for document in documents]
        self._plans = [_cut(index, size, manifest, on_overflow) for index, size in enumerate(self._sizes)]
        self.rows = [
            take(document, spans) for document, plan in zip(documents, self._plans, strict=True) for spans in plan
        ]
        """Rows of all documents, in order."""

    def answers(self, logits: NDArray[np.float32]) -> Iterator[Classification]:
        """Yield the result of each document.

        Shape:  logits (rows, classes), in the order of `rows`.
        """
        scores, first = softmax(logits.astype(np.float64)), 0
        for size, plan in zip(self._sizes, self._plans, strict=True):
            last = first + len(plan)
            whole = scores[first] if len(plan) == 1 else combine(logits[first:last])
            yield Classification(whole, size, bytes_used(plan), list(zip(plan, scores[first:last], strict=True)))
            first = last


def _cut(index: int, size: int, manifest: ClassifierManifest, on_overflow: OnOverflow) -> list[list[Span]]:
    """Split one document into rows; the error names the document."""
    try:
        return cut(size, manifest.max_length, manifest.window_overlap, on_overflow)
    except InvalidInput as error:
        raise InvalidInput(f"input {index}: {error}", [(f"inputs.{index}", str(error))]) from None


def _ranked(scores: NDArray[np.float64], labels: Sequence[str], top_k: int | None) -> list[dict[str, Any]]:
    """Labels with their scores, best first; at most `top_k`."""
    pairs = sorted(zip(labels, scores.tolist(), strict=True), key=lambda pair: -pair[1])
    return [{"label": label, "score": score} for label, score in pairs[:top_k]]
