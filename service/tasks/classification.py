"""Documents -> labels, through the batcher of a model."""

import time
from collections.abc import Sequence

from artifact.classification import Classification, Documents
from artifact.documents import OnOverflow
from artifact.loading import Floats
from service.aside import aside, pieces
from service.engine.served import ServedClassifier
from service.tasks.timing import Timing


async def classify(
    model: ServedClassifier, documents: Sequence[bytes], *, on_overflow: OnOverflow, deadline: float, bulk: bool = False
) -> tuple[list[Classification], Timing]:
    """Classify documents of any length; the rows of all are one request of the batcher.

    Args:
        model: a text classifier.
        documents: raw bytes.
        on_overflow: what happens beyond the model's length.
        deadline: on the clock of the event loop.
        bulk: whether it gives way to interactive requests.

    Raises: InvalidInput naming the document; what `Batcher.infer` raises.

    """
    started = time.perf_counter()
    count = pieces(documents)
    request = await aside(count, Documents, documents, model.manifest, on_overflow)
    decode_s = time.perf_counter() - started
    outcome = await model.batcher.infer(request.rows, deadline, bulk=bulk)
    answers = await aside(count, _answers, model, request, outcome.outputs)
    return answers, Timing(decode_s, outcome.queue_s, outcome.compute_s)


def _answers(model: ServedClassifier, request: Documents, logits: Floats) -> list[Classification]:
    """Answer for each document, counted."""
    answers = list(request.answers(logits))
    for answer in answers:
        model.metrics.count_document(answer.bytes_total, answer.bytes_used)
    return answers
