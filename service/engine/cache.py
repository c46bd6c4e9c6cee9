"""Cache of document vectors, bounded in bytes. Used by the engine."""

from collections import OrderedDict
from collections.abc import Collection

from artifact.matching import Vector
from service.metrics import ModelMetrics

ENTRY_BYTES = 300
"""Measured memory of an entry without the vector's numbers: key, array header, entry of the dictionary."""


class EncodingCache:
    """Least recently used cache of document vectors.

    Args:
        max_bytes: limit of `size`; 0 disables the cache.
        metrics: where hits and misses are counted.

    """

    def __init__(self, max_bytes: int, metrics: ModelMetrics) -> None:
        self._max_bytes = max_bytes
        self._metrics = metrics
        self._vectors: OrderedDict[bytes, Vector] = OrderedDict()
        self.size = 0
        """Bytes of the entries."""

    def find(self, keys: Collection[bytes]) -> dict[bytes, Vector]:
        """Key -> vector, of the keys in the cache; counts hits and misses."""
        found = {key: vector for key in keys if (vector := self._vectors.get(key)) is not None}
        for key in found:
            self._vectors.move_to_end(key)
        self._metrics.cache_requests("hit", len(found))
        self._metrics.cache_requests("miss", len(keys) - len(found))
        return found

    def put(self, key: bytes, vector: Vector) -> None:
        """Store a vector, and evict the least recently used ones beyond the limit."""
        if key in self._vectors:
            return
        self._vectors[key] = vector
        self.size += vector.nbytes + ENTRY_BYTES
        while self.size > self._max_bytes:
            _, oldest = self._vectors.popitem(last=False)
            self.size -= oldest.nbytes + ENTRY_BYTES
