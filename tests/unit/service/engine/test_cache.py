import gc
import os
import tracemalloc

import numpy as np
import pytest

from artifact.arrays import Floats
from service.engine.cache import ENTRY_BYTES, EncodingCache
from service.metrics import Metrics

DIM = 8
ENTRY = ENTRY_BYTES + 4 * DIM


def vector(number: int) -> Floats:
    return np.full(DIM, number, np.float32)


def cache_of(entries: float) -> EncodingCache:
    return EncodingCache(int(entries * ENTRY), Metrics().of("m"))


def kept(cache: EncodingCache, count: int) -> list[int]:
    return [int(key) for key in cache.find([b"%d" % i for i in range(count)])]


@pytest.mark.parametrize("entries", [1, 3, 3.9, 10])
def test_size_stays_within_the_limit(entries: float) -> None:
    cache = cache_of(entries)
    for i in range(25):
        cache.put(b"%d" % i, vector(i))
        assert cache.size <= entries * ENTRY
    assert kept(cache, 25) == list(range(25 - int(entries), 25))
    assert cache.size == int(entries) * ENTRY


def test_cached_vector_is_returned_unchanged() -> None:
    cache = cache_of(5)
    for i in range(5):
        cache.put(b"%d" % i, vector(i))
    for i in range(5):
        found = cache.find([b"%d" % i])
        assert found[b"%d" % i].tolist() == vector(i).tolist()


def test_least_recently_used_entry_is_evicted_first() -> None:
    cache = cache_of(3)
    for i in (0, 1, 2):
        cache.put(b"%d" % i, vector(i))
    cache.find([b"0"])
    cache.put(b"3", vector(3))
    cache.put(b"4", vector(4))
    assert kept(cache, 5) == [0, 3, 4]


def test_same_key_again_uses_no_more_memory() -> None:
    cache = cache_of(3)
    for _ in range(5):
        cache.put(b"0", vector(0))
    assert cache.size == ENTRY


@pytest.mark.parametrize("limit", [0, ENTRY - 1])
def test_limit_below_one_entry_disables_the_cache(limit: int) -> None:
    cache = EncodingCache(limit, Metrics().of("m"))
    for i in range(5):
        cache.put(b"%d" % i, vector(i))
    assert kept(cache, 5) == []
    assert cache.size == 0


def test_hits_and_misses_are_counted() -> None:
    metrics = Metrics()
    cache = EncodingCache(10 * ENTRY, metrics.of("m"))
    metrics.of("m").watch_cache(lambda: cache.size)
    cache.find([b"0"])
    cache.put(b"0", vector(0))
    for _ in range(3):
        cache.find([b"0"])

    def sample(result: str) -> float | None:
        labels = {"model": "m", "result": result}
        return metrics.registry.get_sample_value("longdoc_encoding_cache_requests_total", labels)

    assert (sample("miss"), sample("hit")) == (1, 3)
    metrics.sample()
    assert metrics.registry.get_sample_value("longdoc_encoding_cache_bytes", {"model": "m"}) == ENTRY


def test_size_is_the_memory_that_python_allocates() -> None:
    """Measured on a full cache that has evicted as many entries as it keeps; a dictionary grows in powers of two."""
    count = 5000
    cache = cache_of(count)
    gc.collect()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        for i in range(2 * count):
            cache.put(os.urandom(32), vector(i))
        allocated = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert allocated == pytest.approx(cache.size, rel=0.2)
