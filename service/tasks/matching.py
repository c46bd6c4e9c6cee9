"""Pairs of documents -> scores; a query and documents -> a ranking. Called by `service.routes.matching`.

Each distinct text is encoded once; vectors of texts seen before come from the model's cache.
"""

import hashlib
import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from artifact.documents import OnOverflow, Span, bytes_used, cut, pool, take
from artifact.errors import InvalidInput
from service.engine.engine import ServedMatcher
from service.tasks.timing import Timing

Vectors = NDArray[np.float32]
CHUNK_ROWS = 512
"""Rows encoded before their vectors are kept: a ranking that was too late goes on from there when asked again."""


@dataclass(frozen=True)
class Encoding:
    """What of one document was read."""

    bytes_total: int
    bytes_used: int
    windows: int


@dataclass(frozen=True)
class Text:
    """A document and where it stands in the request."""

    place: str
    document: bytes


async def score(
    model: ServedMatcher, pairs: Sequence[tuple[Text, Text]], *, on_overflow: OnOverflow, deadline: float
) -> tuple[list[float], list[tuple[Encoding, Encoding]], Timing]:
    """Probability that the documents of each pair belong together.

    Raises: InvalidInput naming the document; what `Batcher.infer` raises.
    """
    texts = [text for pair in pairs for text in pair]
    vectors, encodings, timing = await _encode(model, texts, on_overflow, deadline)
    scores = await model.score(vectors[0::2], vectors[1::2], deadline)
    return scores, list(zip(encodings[0::2], encodings[1::2], strict=True)), timing


async def rank(
    model: ServedMatcher, query: Text, documents: Sequence[Text], *, on_overflow: OnOverflow, deadline: float
) -> tuple[list[float], list[Encoding], Encoding, Timing]:
    """Score of each document with the query, in the order given.

    Raises: InvalidInput naming the document; what `Batcher.infer` raises.
    """
    vectors, encodings, timing = await _encode(model, [query, *documents], on_overflow, deadline)
    queries = np.repeat(vectors[:1], len(documents), axis=0)
    return await model.score(queries, vectors[1:], deadline), encodings[1:], encodings[0], timing


async def _encode(
    model: ServedMatcher, texts: Sequence[Text], on_overflow: OnOverflow, deadline: float
) -> tuple[Vectors, list[Encoding], Timing]:
    """Vectors (texts, dim) of documents of any length: the mean of their rows' vectors."""
    started = time.perf_counter()
    manifest = model.manifest
    plans = [
        _cut(text, manifest.min_length, manifest.max_length, manifest.window_overlap, on_overflow) for text in texts
    ]
    keys = [hashlib.blake2b(text.document, key=on_overflow.encode(), digest_size=32).digest() for text in texts]
    found = {key: vector for key in dict.fromkeys(keys) if (vector := model.cache.get(key)) is not None}
    new: dict[bytes, list[bytes]] = {}
    for text, plan, key in zip(texts, plans, keys, strict=True):
        if key not in found and key not in new:
            new[key] = [take(text.document, spans) for spans in plan]
    decode_s = time.perf_counter() - started
    queue_s = compute_s = 0.0
    while new:
        chunk = _first_rows(new, CHUNK_ROWS)
        outcome = await model.batcher.infer([row for rows in chunk.values() for row in rows], deadline)
        queue_s, compute_s = max(queue_s, outcome.queue_s), compute_s + outcome.compute_s
        first = 0
        for key, rows in chunk.items():
            found[key] = pool(outcome.outputs[first : first + len(rows)])
            first += len(rows)
            model.cache.put(key, found[key])
    encodings = [
        Encoding(len(text.document), bytes_used(plan), len(plan)) for text, plan in zip(texts, plans, strict=True)
    ]
    _count(model, encodings)
    return np.stack([found[key] for key in keys]), encodings, Timing(decode_s, queue_s, compute_s)


def _first_rows(new: dict[bytes, list[bytes]], limit: int) -> dict[bytes, list[bytes]]:
    """Take the first texts with at most `limit` rows in all out of `new`; at least one."""
    chunk: dict[bytes, list[bytes]] = {}
    taken = 0
    while new and (not chunk or taken + len(next(iter(new.values()))) <= limit):
        key = next(iter(new))
        chunk[key] = new.pop(key)
        taken += len(chunk[key])
    return chunk


def _cut(text: Text, min_length: int, max_length: int, overlap: int, on_overflow: OnOverflow) -> list[list[Span]]:
    """Cut one document, naming it in the error."""
    try:
        if 0 < len(text.document) < min_length:
            raise InvalidInput(f"the document has {len(text.document)} bytes; the model needs at least {min_length}")
        return cut(len(text.document), max_length, overlap, on_overflow)
    except InvalidInput as error:
        raise InvalidInput(f"{text.place}: {error}", [(text.place, str(error))]) from None


def _count(model: ServedMatcher, encodings: Sequence[Encoding]) -> None:
    """Count documents and what of them was not read."""
    for encoding in encodings:
        model.metrics.count_document(encoding.bytes_total, encoding.bytes_used)
