"""Pre- and postprocessing of text matching: documents -> rows, vectors of the rows -> vectors of documents."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from artifact.documents import OnOverflow, Span, bytes_used, coverage, cut, pool, take
from artifact.encodings import as_text
from artifact.errors import InvalidInput
from artifact.manifest import MatcherManifest

Vector = NDArray[np.float32]


@dataclass(frozen=True)
class Text:
    """A document and its location in the request."""

    place: str
    document: bytes


@dataclass(frozen=True)
class Coverage:
    """How much of one document was read."""

    bytes_total: int
    bytes_used: int
    windows: int

    def as_json(self, on_overflow: OnOverflow) -> dict[str, Any]:
        """The coverage returned to clients."""
        return coverage(self.bytes_total, self.bytes_used, self.windows, on_overflow)


@dataclass(frozen=True)
class ScoredPair:
    """Result for one pair."""

    score: float
    """Probability that the two documents match."""
    a: Coverage
    b: Coverage

    def as_json(self, on_overflow: OnOverflow) -> dict[str, Any]:
        """The JSON object returned to clients."""
        return {
            "score": self.score,
            "coverage": {"a": self.a.as_json(on_overflow), "b": self.b.as_json(on_overflow)},
        }


@dataclass(frozen=True)
class Ranking:
    """Scores of documents for a query, in the order of the request."""

    query: Coverage
    scores: list[float]
    documents: list[Coverage]
    cached: list[bool] | None = None
    """Whether the vector of each document was known before; None if nothing is cached."""

    def best(self, top_n: int | None) -> list[int]:
        """Indices of the best scores, best first; ties keep the order of the request."""
        return sorted(range(len(self.scores)), key=lambda index: -self.scores[index])[:top_n]

    def as_json(self, top_n: int | None, on_overflow: OnOverflow) -> list[dict[str, Any]]:
        """The JSON array returned to clients, best document first."""
        return [
            {
                "index": index,
                "score": self.scores[index],
                "coverage": self.documents[index].as_json(on_overflow),
                **({} if self.cached is None else {"cached": self.cached[index]}),
            }
            for index in self.best(top_n)
        ]


class Texts:
    """Documents of one request; each distinct document is split into rows once.

    Args:
        texts: documents with their locations.
        manifest: manifest of the matcher.
        on_overflow: how to read documents longer than the model's max_length.

    Raises: InvalidInput naming the document.

    """

    def __init__(self, texts: Sequence[Text], manifest: MatcherManifest, on_overflow: OnOverflow) -> None:
        texts = [_as_text(text) for text in texts]
        plans = [_cut(text, manifest, on_overflow) for text in texts]
        self.keys = [
            hashlib.blake2b(text.document, key=on_overflow.encode(), digest_size=32).digest() for text in texts
        ]
        """Hash of each text and on_overflow; equal texts have equal keys."""
        self.coverages = [
            Coverage(len(text.document), bytes_used(plan), len(plan)) for text, plan in zip(texts, plans, strict=True)
        ]
        """How much of each text was read."""
        self._by_key = {key: (text.document, plan) for key, text, plan in zip(self.keys, texts, plans, strict=True)}

    def rows(self, key: bytes) -> list[bytes]:
        """Rows of the text with this key."""
        document, plan = self._by_key[key]
        return [take(document, spans) for spans in plan]

    def vectors(self, found: dict[bytes, Vector]) -> NDArray[np.float32]:
        """Stack the vectors of all texts (texts, dim), given those of the distinct texts by key."""
        return np.stack([found[key] for key in self.keys])


def pool_each(counts: Sequence[int], vectors: NDArray[np.float32]) -> list[Vector]:
    """Pool the vectors of each text's rows to one vector (dim,) per text.

    Args:
        counts: number of rows of each text.
        vectors: (sum of counts, dim), rows of all texts in order.

    """
    parts = np.split(vectors, np.cumsum(counts)[:-1])
    return [pool(part) for part in parts]


def normalized(vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    """L2-normalise vectors (texts, dim); zero vectors stay zero."""
    lengths = np.linalg.norm(vectors.astype(np.float64), axis=1, keepdims=True)
    return (vectors / np.where(lengths > 0, lengths, 1)).astype(np.float32)


def _as_text(text: Text) -> Text:
    """A text without its byte order mark. Raises: InvalidInput naming it if it is UTF-16 or UTF-32."""
    try:
        return Text(text.place, as_text(text.document))
    except InvalidInput as error:
        raise InvalidInput.at(text.place, str(error)) from None


def _cut(text: Text, manifest: MatcherManifest, on_overflow: OnOverflow) -> list[list[Span]]:
    """Split one document into rows; the error names the document."""
    size = len(text.document)
    try:
        if 0 < size < manifest.min_length:
            raise InvalidInput(f"the document has {size} bytes; the model needs at least {manifest.min_length}")
        return cut(size, manifest.max_length, manifest.window_overlap, on_overflow)
    except InvalidInput as error:
        raise InvalidInput.at(text.place, str(error)) from None
