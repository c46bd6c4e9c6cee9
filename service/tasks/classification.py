"""Documents -> labels, through the batcher of a model."""

import time
from collections.abc import Sequence

import orjson

from artifact.classification import Classification, Documents, Options
from artifact.documents import OnOverflow, cut
from artifact.manifest import ClassifierManifest
from service.engine.served import ServedClassifier
from service.offload import count_items, offload
from service.tasks.timing import Timing

NUMBER_BYTES = 24
"""Maximum bytes of a number of 64 bits in JSON."""


def max_detail_bytes(manifest: ClassifierManifest, size: int, options: Options) -> int:
    """Maximum bytes of the windows and stretches in the answer to a document of `size` bytes; 0 without `detail`."""
    if not options.detail:
        return 0
    lengths = sorted((len(orjson.dumps(label)) for label in manifest.labels), reverse=True)[: options.top_k]
    names, numbers = sum(lengths), NUMBER_BYTES * len(lengths)
    stretch_bytes = len('{"start":,"end":,"contributions":{}},') + 2 * NUMBER_BYTES
    stretch_bytes += names + numbers + len(":,") * len(lengths)
    window_bytes = len('{"start":,"end":,"scores":[]},') + 2 * NUMBER_BYTES
    window_bytes += names + numbers + len('{"label":,"score":},') * len(lengths)
    rows, length = 1, min(size, manifest.max_length)
    if options.on_overflow == "windows":
        rows = len(cut(size, manifest.max_length, manifest.window_overlap, "windows"))
    stretches = rows * -(-length // (manifest.stretches.length if manifest.stretches else manifest.max_length))
    windows = rows + 1  # `head_tail` reads two parts in one row
    return windows * window_bytes + stretches * stretch_bytes + len('"windows":[],"stretches":[],')


def count_contributions(manifest: ClassifierManifest, documents: Sequence[bytes], options: Options) -> int:
    """Contributions in a response with `detail`; overlapping windows have up to twice as many."""
    length = manifest.stretches.length if manifest.stretches else manifest.max_length
    labels = len(manifest.labels) if options.top_k is None else min(options.top_k, len(manifest.labels))
    return labels * sum(-(-len(document) // length) for document in documents)


async def classify(
    model: ServedClassifier, documents: Sequence[bytes], *, on_overflow: OnOverflow, deadline: float, bulk: bool = False
) -> tuple[list[Classification], Timing]:
    """Classify documents of any length. The batcher gets the rows of all documents as one request.

    Args:
        model: a text classifier.
        documents: raw bytes.
        on_overflow: how documents longer than the model's length are read.
        deadline: on the clock of the event loop.
        bulk: whether the request is a line of an upload; see `Batcher.infer`.

    Raises: InvalidInput naming the document; as `Batcher.infer`.

    """
    started = time.perf_counter()
    count = count_items(documents)
    request = await offload(count, Documents, documents, model.manifest, on_overflow)
    decode_s = time.perf_counter() - started
    outcome = await model.batcher.infer(request.rows, deadline, bulk=bulk)
    answers = await offload(count, list, request.answers(outcome.outputs))
    model.metrics.count_documents(answers)
    return answers, Timing(decode_s, outcome.queue_s, outcome.compute_s)
