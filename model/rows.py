"""Rows of many documents through one graph, on all cores. Used by the tasks that read text."""

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from service.codec import pad_rows

BATCH = 16

Padded = tuple[NDArray[np.uint8], NDArray[np.int32]]


def in_parallel(run: Callable[[Padded], NDArray[Any]], rows: Sequence[bytes], length: int) -> NDArray[Any]:
    """Outputs (rows, ...) of a graph for rows of at most `length` bytes, in their order."""

    def batch_of(first: int) -> NDArray[Any]:
        return run(pad_rows(rows[first : first + BATCH], length))

    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        starts = range(0, len(rows), BATCH)
        return np.concatenate(list(tqdm(pool.map(batch_of, starts), total=len(starts), unit="batch", leave=False)))
