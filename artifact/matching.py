"""Text matching apart from the model: documents -> rows, vectors of the rows -> vectors of documents."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from artifact.documents import OnOverflow, Span, bytes_used, coverage, cut, pool, take
from artifact.errors import InvalidInput
from artifact.manifest import MatcherManifest

Vector = NDArray[np.float32]


@dataclass(frozen=True)
class Text:
    """A document and its place in the request."""

    place: str
    document: bytes


@dataclass(frozen=True)
class Encoding:
    """What of one document was read."""

    bytes_total: int
    bytes_used: int
    windows: int

    def as_json(self, on_overflow: OnOverflow) -> dict[str, Any]:
        """Coverage as clients get it."""
        return coverage(self.bytes_total, self.bytes_used, self.windows, on_overflow)


@dataclass(frozen=True)
class ScoredPair:
    """The answer for one pair."""

    score: float
    """Probability that its documents belong together."""
    a: Encoding
    b: Encoding

    def as_json(self, on_overflow: OnOverflow) -> dict[str, Any]:
        """The answer as clients get it."""
        return {
            "score": self.score,
            "coverage": {"a": self.a.as_json(on_overflow), "b": self.b.as_json(on_overflow)},
        }


@dataclass(frozen=True)
class Ranking:
    """Documents with their scores with a query, in the order given."""

    query: Encoding
    scores: list[float]
    documents: list[Encoding]

    def best(self, top_n: int | None) -> list[int]:
        """Indices of the best scores; equal ones in the order they came."""
        return sorted(range(len(self.scores)), key=lambda index: -self.scores[index])[:top_n]

    def as_json(self, top_n: int | None, on_overflow: OnOverflow) -> list[dict[str, Any]]:
        """The best documents as clients get them."""
        return [
            {
                "index": index,
                "score": self.scores[index],
                "coverage": self.documents[index].as_json(on_overflow),
            }
            for index in self.best(top_n)
        ]


class Texts:
    """Documents of one request, each distinct one cut into the rows that the model reads.

    Args:
        texts: documents with their places.
        manifest: of the matcher.
        on_overflow: what happens beyond the model's length.

    Raises: InvalidInput naming the document.

    """

    def __init__(self, texts: Sequence[Text], manifest: MatcherManifest, on_overflow: OnOverflow) -> None:
        plans = [_cut(text, manifest, on_overflow) for text in texts]
        self.keys = [
            hashlib.blake2b(text.document, key=on_overflow.encode(), digest_size=32).digest() for text in texts
        ]
        """Of each text; equal texts that are cut alike have equal keys."""
        self.encodings = [
            Encoding(len(text.document), bytes_used(plan), len(plan)) for text, plan in zip(texts, plans, strict=True)
        ]
        """Of each text."""
        self._by_key = {key: (text.document, plan) for key, text, plan in zip(self.keys, texts, plans, strict=True)}

    def rows(self, key: bytes) -> list[bytes]:
        """Rows of one distinct text."""
        document, plan = self._by_key[key]
        return [take(document, spans) for spans in plan]

    def vectors(self, found: dict[bytes, Vector]) -> NDArray[np.float32]:
        """Vectors (texts, dim), from those of the distinct texts by key."""
        return np.stack([found[key] for key in self.keys])


def pooled(rows: Sequence[int], vectors: NDArray[np.float32]) -> list[Vector]:
    """Vector (dim,) of each text.

    Args:
        rows: how many each text has.
        vectors: (sum of rows, dim), of the rows of all texts in order.

    """
    parts = np.split(vectors, np.cumsum(rows)[:-1])
    return [pool(part) for part in parts]


def _cut(text: Text, manifest: MatcherManifest, on_overflow: OnOverflow) -> list[list[Span]]:
    """Cut one document, naming it in the error."""
    size = len(text.document)
    try:
        if 0 < size < manifest.min_length:
            raise InvalidInput(f"the document has {size} bytes; the model needs at least {manifest.min_length}")
        return cut(size, manifest.max_length, manifest.window_overlap, on_overflow)
    except InvalidInput as error:
        raise InvalidInput.at(text.place, str(error)) from None
