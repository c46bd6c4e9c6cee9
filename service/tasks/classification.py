"""Documents -> labels, through the batcher of a model."""

import time
from collections.abc import Sequence

from artifact.classification import Classification, Documents
from artifact.documents import OnOverflow
from artifact.loading import Floats
from service.engine.served import ServedClassifier
from service.offload import count_items, offload
from service.tasks.timing import Timing


async def classify(
    model: ServedClassifier, documents: Sequence[bytes], *, on_overflow: OnOverflow, deadline: float, bulk: bool = False
) -> tuple[list[Classification], Timing]:
    """Classify documents of any length. The batcher gets the rows of all documents as one request.

    Args:
        model: a text classifier.
        documents: raw bytes.
        on_overflow: how documents longer than the model's length are read.
        deadline: on the clock of the event loop.
        bulk: whether the request is a bulk request, with a lower weight than interactive ones.

    Raises: InvalidInput naming the document; as `Batcher.infer`.

    """
    started = time.perf_counter()
    count = count_items(documents)
    request = await offload(count, Documents, documents, model.manifest, on_overflow)
    decode_s = time.perf_counter() - started
    outcome = await model.batcher.infer(request.rows, deadline, bulk=bulk)
    answers = await offload(count, _answers, model, request, outcome.outputs)
    return answers, Timing(decode_s, outcome.queue_s, outcome.compute_s)


def _answers(model: ServedClassifier, request: Documents, outputs: Sequence[Floats]) -> list[Classification]:
    """Create the answer for each document; count the documents in the metrics."""
    answers = list(request.answers(outputs))
    for answer in answers:
        model.metrics.count_document(answer.bytes_total, answer.bytes_used)
    return answers
