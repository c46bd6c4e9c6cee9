"""Documents -> labels. Called by `service.routes.classify` and `service.offline.predict`."""

import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from artifact.documents import OnOverflow, Span, bytes_used, combine, cut, softmax, take
from artifact.errors import InvalidInput
from service.batching.batcher import Outcome
from service.engine.engine import ServedClassifier
from service.tasks.timing import Timing


@dataclass(frozen=True)
class Classification:
    """The answer for one document."""

    scores: NDArray[np.float64]
    """(classes,), summing to 1."""
    bytes_total: int
    bytes_used: int
    windows: list[tuple[list[Span], NDArray[np.float64]]]
    """Stretches of the document that made one row, with the row's scores; one entry a row."""


async def classify(
    model: ServedClassifier, documents: Sequence[bytes], *, on_overflow: OnOverflow, deadline: float, bulk: bool = False
) -> tuple[list[Classification], Timing]:
    """Classify documents of any length; the rows of all are one request of the batching engine.

    Args:
        model: a text classifier.
        documents: raw bytes.
        on_overflow: what happens beyond the model's length.
        deadline: on the clock of the event loop.
        bulk: whether it gives way to interactive requests.

    Raises: InvalidInput naming the document; what `Batcher.infer` raises.

    """
    started = time.perf_counter()
    manifest = model.manifest
    plans = [
        _cut(index, document, manifest.max_length, manifest.window_overlap, on_overflow)
        for index, document in enumerate(documents)
    ]
    rows = [take(document, spans) for document, plan in zip(documents, plans, strict=True) for spans in plan]
    decode_s = time.perf_counter() - started
    outcome: Outcome = await model.batcher.infer(rows, deadline, bulk=bulk)
    answers, first = list[Classification](), 0
    rows_scores = softmax(outcome.outputs.astype(np.float64))
    for document, plan in zip(documents, plans, strict=True):
        last = first + len(plan)
        scores = rows_scores[first] if len(plan) == 1 else combine(outcome.outputs[first:last])
        windows = list(zip(plan, rows_scores[first:last], strict=True))
        answers.append(Classification(scores, len(document), bytes_used(plan), windows))
        first = last
    for answer in answers:
        model.metrics.count_document(answer.bytes_total, answer.bytes_used)
    return answers, Timing(decode_s, outcome.queue_s, outcome.compute_s)


def _cut(index: int, document: bytes, max_length: int, overlap: int, on_overflow: OnOverflow) -> list[list[Span]]:
    """Cut one document, naming it in the error."""
    try:
        return cut(len(document), max_length, overlap, on_overflow)
    except InvalidInput as error:
        raise InvalidInput(f"input {index}: {error}", [(f"inputs.{index}", str(error))]) from None
