"""Cache of document vectors, bounded in bytes. Used by the engine."""

import threading
from collections import OrderedDict
from collections.abc import Collection

from artifact.arrays import Floats
from service.metrics import ModelMetrics

ENTRY_BYTES = 300
"""Measured memory of an entry without the vector's numbers: key, array header, entry of the dictionary."""


class EncodingCache:
    """Least recently used cache of document vectors. Thread-safe.

    Args:
        max_bytes: limit of `size`; 0 disables the cache.
        metrics: where hits and misses are counted.

    """

    def __init__(self, max_bytes: int, metrics: ModelMetrics) -> None:
        self._max_bytes = max_bytes
        self._metrics = metrics
        self._vectors: OrderedDict[bytes, Floats] = OrderedDict()
        self._lock = threading.Lock()
        self.size = 0
        """Bytes of the entries."""

    def find(self, keys: Collection[bytes]) -> dict[bytes, Floats]:
        """Key -> vector, of the keys in the cache; counts hits and misses."""
        with self._lock:
            found = {key: vector for key in keys if (vector := self._vectors.get(key)) is not None}
            for key in found:
                self._vectors.move_to_end(key)
        self._metrics.cache_requests("hit", len(found))
        self._metrics.cache_requests("miss", len(keys) - len(found))
        return found

    def put(self, key: bytes, vector: Floats) -> None:
        """Store a vector, and evict the least recently used ones beyond the limit."""
        with self._lock:
            if key in self._vectors:
                return
            self._vectors[key] = vector
            self.size += vector.nbytes + ENTRY_BYTES
            while self.size > self._max_bytes:
                _, oldest = self._vectors.popitem(last=False)
                self.size -= oldest.nbytes + ENTRY_BYTES
