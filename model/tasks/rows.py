"""Rows of many documents through one graph, on all cores. Used by the tasks that read text."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from artifact.cores import cpu_count
from artifact.documents import pad_rows

BATCH = 16

Padded = tuple[NDArray[np.uint8], NDArray[np.int32]]


def in_parallel(run: Callable[[Padded], NDArray[Any]], rows: Sequence[bytes], buckets: Sequence[int]) -> NDArray[Any]:
    """Outputs (rows, ...) of a graph, in the order of the rows; those of one length bucket are computed together.

    `buckets` are the lengths that the graph computes, ascending; no row is longer than the last.
    """

    def outputs_of(batch: tuple[NDArray[np.int64], int]) -> NDArray[Any]:
        chosen, bucket = batch
        return run(pad_rows([rows[i] for i in chosen], bucket))

    of = np.searchsorted(buckets, [len(row) for row in rows])
    batches = [
        (chosen[first : first + BATCH], bucket)
        for number, bucket in enumerate(buckets)
        for chosen in (np.flatnonzero(of == number),)
        for first in range(0, len(chosen), BATCH)
    ]
    with ThreadPoolExecutor(cpu_count()) as pool:
        outputs = np.concatenate(
            list(tqdm(pool.map(outputs_of, batches), total=len(batches), unit="batch", leave=False))
        )
    ordered = np.empty_like(outputs)
    ordered[np.concatenate([chosen for chosen, _ in batches])] = outputs
    return ordered
