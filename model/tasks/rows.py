"""Runs a graph over the rows of many documents, on all cores. Used by the tasks that read text."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from numpy.typing import NDArray

from artifact.cores import cpu_count
from artifact.documents import cut, pad_rows, take
from model.progress import progress
from model.tasks.graphs import GraphFunction

BATCH = 16
"""Maximum number of rows in a batch."""

Padded = tuple[NDArray[np.uint8], NDArray[np.int32]]


def run_on_windows(
    run: GraphFunction, texts: Sequence[bytes], length: int, overlap: int, buckets: Sequence[int]
) -> list[NDArray[np.float32]]:
    """Outputs (windows, ...) of a graph for each document, one per window; the first window is the document's head.

    Args:
        run: graph with inputs bytes and lengths.
        texts: documents.
        length: maximum length of a window in bytes.
        overlap: minimum overlap of neighbouring windows in bytes.
        buckets: lengths that the graph supports, ascending; the last is at least `length`.

    """
    cuts = [cut(len(text), length, overlap, "windows") for text in texts]
    rows = [take(text, spans) for text, windows in zip(texts, cuts, strict=True) for spans in windows]
    outputs = run_on_rows(lambda part: run(dict(zip(("bytes", "lengths"), part, strict=True))), rows, buckets)
    return np.split(outputs, np.cumsum([len(windows) for windows in cuts])[:-1])


def run_on_rows(run: Callable[[Padded], NDArray[Any]], rows: Sequence[bytes], buckets: Sequence[int]) -> NDArray[Any]:
    """Outputs (rows, ...) of a graph, in the order of the rows. Rows are batched by bucket.

    `buckets` are the lengths that the graph supports, ascending; no row is longer than the last.
    """

    def outputs_of(batch: tuple[NDArray[np.int64], int]) -> NDArray[Any]:
        chosen, bucket = batch
        return run(pad_rows([rows[i] for i in chosen], bucket))

    bucket_index = np.searchsorted(buckets, [len(row) for row in rows])
    batches = [
        (chosen[first : first + BATCH], bucket)
        for number, bucket in enumerate(buckets)
        for chosen in (np.flatnonzero(bucket_index == number),)
        for first in range(0, len(chosen), BATCH)
    ]
    with ThreadPoolExecutor(cpu_count()) as pool:
        outputs = np.concatenate(
            list(progress(pool.map(outputs_of, batches), total=len(batches), unit="batch", leave=False))
        )
    ordered = np.empty_like(outputs)
    ordered[np.concatenate([chosen for chosen, _ in batches])] = outputs
    return ordered
