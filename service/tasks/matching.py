"""Documents -> vectors; pairs of them -> scores; a query and documents -> a ranking, through the batcher of a model.

Each distinct text is encoded once; vectors of texts seen before come from the model's cache.
"""

import time
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from artifact.arrays import Floats
from artifact.documents import OnOverflow
from artifact.matching import Coverage, Ranking, ScoredPair, Text, Texts, pool_each
from service.engine.served import ServedMatcher
from service.offload import count_items, offload
from service.tasks.timing import Timing

CHUNK_ROWS = 512
"""Rows encoded before their vectors are cached: a ranking that missed its deadline can be retried from there."""


class Encodings(NamedTuple):
    """Vectors of texts, with what is known about each text."""

    vectors: Floats
    """(texts, dim)"""
    coverages: list[Coverage]
    cached: list[bool]
    """Whether the vector was in the cache."""
    timing: Timing


async def score(
    model: ServedMatcher, pairs: Sequence[tuple[Text, Text]], *, on_overflow: OnOverflow, deadline: float
) -> tuple[list[ScoredPair], Timing]:
    """Probability that the documents of each pair belong together.

    Raises: InvalidInput naming the document; as `Batcher.infer`.
    """
    texts = [text for pair in pairs for text in pair]
    vectors, coverages, _, timing = await encode(model, texts, on_overflow=on_overflow, deadline=deadline)
    scores = await model.score(vectors[0::2], vectors[1::2], deadline)
    return list(map(ScoredPair, scores, coverages[0::2], coverages[1::2])), timing


async def rank(
    model: ServedMatcher, query: Text, documents: Sequence[Text], *, on_overflow: OnOverflow, deadline: float
) -> tuple[Ranking, Timing]:
    """Score of each document with the query, in the order of `documents`.

    Raises: InvalidInput naming the document; as `Batcher.infer`.
    """
    texts = [query, *documents]
    vectors, coverages, cached, timing = await encode(model, texts, on_overflow=on_overflow, deadline=deadline)
    queries = np.repeat(vectors[:1], len(documents), axis=0)
    scores = await model.score(queries, vectors[1:], deadline)
    return Ranking(coverages[0], scores, coverages[1:], cached[1:]), timing


async def encode(model: ServedMatcher, texts: Sequence[Text], *, on_overflow: OnOverflow, deadline: float) -> Encodings:
    """Vectors of documents of any length: the mean of their rows' vectors.

    Raises: InvalidInput naming the document; as `Batcher.infer`.
    """
    started = time.perf_counter()
    count = count_items(text.document for text in texts)
    request = await offload(count, Texts, texts, model.manifest, on_overflow)
    distinct = dict.fromkeys(request.keys)
    found = model.cache.find(distinct)
    cached = [key in found for key in request.keys]
    new = await offload(count, lambda: {key: request.rows(key) for key in distinct if key not in found})
    decode_s = time.perf_counter() - started
    queue_s = compute_s = 0.0
    while new:
        chunk = _take_texts(new, CHUNK_ROWS)
        outcome = await model.batcher.infer([row for rows in chunk.values() for row in rows], deadline)
        queue_s, compute_s = max(queue_s, outcome.queue_s), compute_s + outcome.compute_s
        vectors = pool_each([len(rows) for rows in chunk.values()], np.stack(outcome.outputs))
        for key, vector in zip(chunk, vectors, strict=True):
            found[key] = vector
            model.cache.put(key, vector)
    model.metrics.count_documents(request.coverages)
    return Encodings(request.vectors(found), request.coverages, cached, Timing(decode_s, queue_s, compute_s))


def _take_texts(new: dict[bytes, list[bytes]], limit: int) -> dict[bytes, list[bytes]]:
    """Remove the first texts from `new` and return them: together at most `limit` rows, but at least one text."""
    chunk: dict[bytes, list[bytes]] = {}
    taken = 0
    while new and (not chunk or taken + len(next(iter(new.values()))) <= limit):
        key = next(iter(new))
        chunk[key] = new.pop(key)
        taken += len(chunk[key])
    return chunk
