"""Text classification apart from the model: documents -> rows, logits of the rows -> answers."""

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
    """What is wanted of a classification."""

    top_k: int | None = None
    """Scores to give, best first; None gives all, as does a number beyond the labels."""
    on_overflow: OnOverflow = "windows"
    """What happens beyond the model's length."""
    detail: bool = False
    """Whether to give the scores of each window."""


@dataclass(frozen=True)
class Classification:
    """The answer for one document."""

    scores: NDArray[np.float64]
    """(classes,), summing to 1."""
    bytes_total: int
    bytes_used: int
    windows: list[tuple[list[Span], NDArray[np.float64]]]
    """Stretches of the document that made one row, with the row's scores; one entry a row."""

    def as_json(self, labels: Sequence[str], options: Options) -> dict[str, Any]:
        """The answer as clients get it, best score first; `labels` are the model's."""
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
    """Documents of one request, cut into the rows that the model reads.

    Args:
        documents: raw bytes.
        manifest: of the classifier.
        on_overflow: what happens beyond the model's length.

    Raises: InvalidInput naming the document.

    """

    def __init__(self, documents: Sequence[bytes], manifest: ClassifierManifest, on_overflow: OnOverflow) -> None:
        self._sizes = [len(document) for document in documents]
        self._plans = [_cut(index, size, manifest, on_overflow) for index, size in enumerate(self._sizes)]
        self.rows = [
            take(document, spans) for document, plan in zip(documents, self._plans, strict=True) for spans in plan
        ]
        """Of all documents, in order."""

    def answers(self, logits: NDArray[np.float32]) -> Iterator[Classification]:
        """Answer for each document.

        Shape:  logits (rows, classes), in the order of `rows`.
        """
        scores, first = softmax(logits.astype(np.float64)), 0
        for size, plan in zip(self._sizes, self._plans, strict=True):
            last = first + len(plan)
            whole = scores[first] if len(plan) == 1 else combine(logits[first:last])
            yield Classification(whole, size, bytes_used(plan), list(zip(plan, scores[first:last], strict=True)))
            first = last


def _cut(index: int, size: int, manifest: ClassifierManifest, on_overflow: OnOverflow) -> list[list[Span]]:
    """Cut one document, naming it in the error."""
    try:
        return cut(size, manifest.max_length, manifest.window_overlap, on_overflow)
    except InvalidInput as error:
        raise InvalidInput(f"input {index}: {error}", [(f"inputs.{index}", str(error))]) from None


def _ranked(scores: NDArray[np.float64], labels: Sequence[str], top_k: int | None) -> list[dict[str, Any]]:
    """Labels with their scores, best first."""
    pairs = sorted(zip(labels, scores.tolist(), strict=True), key=lambda pair: -pair[1])
    return [{"label": label, "score": score} for label, score in pairs[:top_k]]
