"""Vectors of documents seen before, bounded in bytes. Used by the engine."""

from collections import OrderedDict
from collections.abc import Collection

import numpy as np
from numpy.typing import NDArray

from service.metrics import ModelMetrics

Vector = NDArray[np.float32]
ENTRY_BYTES = 300
"""What Python needs for one entry beside the vector's numbers: key, array header, place in the table (measured)."""


class EncodingCache:
    """Least recently used goes first; 0 bytes turn it off."""

    def __init__(self, max_bytes: int, metrics: ModelMetrics) -> None:
        self._max_bytes = max_bytes
        self._metrics = metrics
        self._vectors: OrderedDict[bytes, Vector] = OrderedDict()
        self.size = 0

    def find(self, keys: Collection[bytes]) -> dict[bytes, Vector]:
        """The vectors that are there, by key; counts hits and misses."""
        found = {key: vector for key in keys if (vector := self._vectors.get(key)) is not None}
        for key in found:
            self._vectors.move_to_end(key)
        self._metrics.cache_requests("hit", len(found))
        self._metrics.cache_requests("miss", len(keys) - len(found))
        return found

    def put(self, key: bytes, vector: Vector) -> None:
        """Remember a vector and forget the oldest ones beyond the limit."""
        if key in self._vectors:
            return
        self._vectors[key] = vector
        self.size += vector.nbytes + ENTRY_BYTES
        while self.size > self._max_bytes:
            _, oldest = self._vectors.popitem(last=False)
            self.size -= oldest.nbytes + ENTRY_BYTES
