"""Random samples of documents, which bound time and memory. Used by the tasks that fit on counts of words."""

import random
from collections.abc import Sequence

import numpy as np


def sample(sizes: Sequence[int], max_documents: int, max_bytes: int) -> list[int]:
    """Ascending indices of documents with these sizes in bytes: all, or a random sample within both limits.

    The sample has at least one document.
    """
    order = list(range(len(sizes)))
    random.Random(0).shuffle(order)
    ends = np.cumsum([sizes[i] for i in order])
    count = max(1, min(max_documents, int(np.searchsorted(ends, max_bytes, side="right"))))
    return sorted(order[:count])
