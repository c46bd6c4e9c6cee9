"""Text matching: documents -> encodings; pairs of encodings -> scores.

Each distinct text of a request is encoded once; encodings of texts seen before may come from a cache.
"""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple, Self

import numpy as np
from pydantic import Field, model_validator

from artifact.arrays import Array, Floats
from artifact.documents import WORD_FIELDS, OnOverflow, Span, TextCoverage, bytes_used, cut, pool, sigmoid, take
from artifact.encodings import as_text
from artifact.errors import InvalidInput
from artifact.manifest import Graph, TextManifest
from artifact.tasks.base import Answer, Computation, RunHead, RunModel, Task, Tensor, TensorAnswer, VectorCache

CHUNK_ROWS = 512
"""Rows encoded before their vectors are cached: a ranking that missed its deadline can be retried from there."""


JOINT_ROWS = 2
"""`head_rows` of a head that compares words, which takes longer than a call for a few pairs."""


class MatcherManifest(TextManifest):
    """Documents -> encodings, which begin with a vector; pairs of encodings -> scores."""

    task: Literal["text-matching"]
    min_length: int = Field(gt=0)
    """Minimum length of a row in bytes; the model has no features for a shorter one, which is padded with spaces."""
    head: Graph
    """Encodings of two documents -> logit that the documents match."""
    num_words: int = Field(default=0, ge=0)
    """Maximum number of words in a document's encoding, after its vector; the head compares them."""

    @property
    def encoding_size(self) -> int:
        """Length of a document's encoding: its vector, and WORD_FIELDS numbers for each word."""
        return self.outputs[0].shape[1]

    @property
    def dim(self) -> int:
        """Dimension of a document's vector."""
        return self.encoding_size - self.num_words * WORD_FIELDS

    @property
    def graphs(self) -> tuple[Graph, ...]:
        """Graphs of the encoder and the head."""
        return (self, self.head)

    @model_validator(mode="after")
    def _check_head(self) -> Self:
        if len(self.outputs) != 1 or len(self.outputs[0].shape) != 2 or self.outputs[0].shape[1] < 1:
            found = ", ".join(str(spec.shape) for spec in self.outputs)
            raise ValueError(f"a matcher's output has shape (-1, dim), not {found}")
        if self.dim < 1:
            raise ValueError(f"num_words is {self.num_words}; encodings of {self.encoding_size} numbers are too short")
        expected = ((-1, self.encoding_size), (-1, self.encoding_size))
        if (shapes := tuple(spec.shape for spec in self.head.inputs)) != expected:
            raise ValueError(f"the head's inputs have shapes {shapes}; encodings need {expected}")
        if (outputs := tuple(spec.shape for spec in self.head.outputs)) != ((-1, 1),):
            raise ValueError(f"the head's output has shape (-1, 1), not {', '.join(map(str, outputs))}")
        if {file.format for file in self.head.files} != {file.format for file in self.files}:
            raise ValueError("encoder and head must come in the same formats")
        if {file.bucket for file in self.head.files} != {self.encoding_size}:
            raise ValueError(f"the head's bucket must be {self.encoding_size}, the length of an encoding")
        return self


class LocatedText(NamedTuple):
    """A document and its location in the request."""

    place: str
    document: bytes


@dataclass(frozen=True, slots=True)
class ScoredPair:
    """Result for one pair."""

    score: float
    """Probability that the two documents match."""
    a: TextCoverage
    b: TextCoverage

    def as_json(self, on_overflow: OnOverflow) -> dict[str, Any]:
        """The JSON object returned to clients."""
        return {
            "score": self.score,
            "coverage": {"a": self.a.as_json(on_overflow), "b": self.b.as_json(on_overflow)},
        }


@dataclass(frozen=True, slots=True)
class Ranking:
    """Scores of documents for a query, in the order of the request."""

    query: TextCoverage
    scores: list[float]
    documents: Sequence[TextCoverage]
    cached: Sequence[bool] | None
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


class EncodedTexts(NamedTuple):
    """Encodings of the texts of a request."""

    encodings: Floats
    """(texts, encoding_size): vectors, not normalized, and words."""
    vectors: Floats
    """(texts, dim), the first part of the encodings."""
    coverages: Sequence[TextCoverage]
    cached: Sequence[bool] | None
    """Whether the vector of each text was in the cache; None without a cache."""


class Matching(Task):
    """A matcher of texts."""

    name: ClassVar[str] = "text-matching"
    kind: ClassVar[str] = "matcher"
    manifest_type = MatcherManifest
    operations: ClassVar[tuple[str, ...]] = ("score", "rank")
    has_head = True
    public = frozenset({"min_length", "max_length", "window_overlap"})

    manifest: MatcherManifest

    def __init__(self, manifest: MatcherManifest) -> None:
        super().__init__(manifest)
        if manifest.num_words:
            self.head_rows = JOINT_ROWS

    def encode(
        self, texts: Sequence[LocatedText], on_overflow: OnOverflow, cache: VectorCache | None = None
    ) -> Computation[EncodedTexts]:
        """Encodings of documents of any length: the mean of their rows' vectors, and their rows' words.

        A document shorter than the model's min_length is padded with spaces.

        Args:
            texts: documents with their locations.
            on_overflow: how to read documents longer than the model's max_length.
            cache: encodings of texts that were encoded before.

        Raises: InvalidInput naming the document.

        """
        parts = [self._cut(text, on_overflow) for text in texts]
        keys = [hashlib.blake2b(text, key=on_overflow.encode(), digest_size=32).digest() for text, _ in parts]
        distinct = dict(zip(keys, parts, strict=True))
        found = {} if cache is None else cache.find(distinct.keys())
        cached = None if cache is None else [key in found for key in keys]
        shortest = self.manifest.min_length
        new = {
            key: [take(text, spans).ljust(shortest) for spans in plan]
            for key, (text, plan) in distinct.items()
            if key not in found
        }
        for chunk in _chunks(new):
            outputs = yield RunModel([row for rows in chunk.values() for row in rows])
            ends = np.cumsum([len(rows) for rows in chunk.values()])
            for key, rows_of in zip(chunk, np.split(np.stack(outputs), ends[:-1]), strict=True):
                found[key] = pool(rows_of, self.manifest.num_words)
                if cache is not None:
                    cache.put(key, found[key])
        coverages = [
            TextCoverage(len(text), bytes_used(plan), len(plan), is_padded=len(text) < shortest) for text, plan in parts
        ]
        encodings = np.stack([found[key] for key in keys])
        return Answer(EncodedTexts(encodings, encodings[:, : self.manifest.dim], coverages, cached), coverages)

    def score(
        self,
        pairs: Sequence[tuple[LocatedText, LocatedText]],
        on_overflow: OnOverflow,
        cache: VectorCache | None = None,
    ) -> Computation[list[ScoredPair]]:
        """Probability that the documents of each pair belong together; arguments as in `encode`."""
        answer = yield from self.encode([text for pair in pairs for text in pair], on_overflow, cache)
        encodings, _, coverages, _ = answer.value
        (logits,) = yield RunHead(encodings[0::2], encodings[1::2])
        scored = map(ScoredPair, sigmoid(logits).tolist(), coverages[0::2], coverages[1::2])
        return Answer(list(scored), answer.coverages)

    def rank(
        self,
        query: LocatedText,
        documents: Sequence[LocatedText],
        on_overflow: OnOverflow,
        cache: VectorCache | None = None,
    ) -> Computation[Ranking]:
        """Score of each document with the query, in the order of `documents`; arguments as in `encode`."""
        answer = yield from self.encode([query, *documents], on_overflow, cache)
        encodings, _, coverages, cached = answer.value
        (logits,) = yield RunHead(np.repeat(encodings[:1], len(documents), axis=0), encodings[1:])
        scores: list[float] = sigmoid(logits).tolist()
        known = None if cached is None else cached[1:]
        return Answer(Ranking(coverages[0], scores, coverages[1:], known), answer.coverages)

    @property
    def tensors(self) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
        """Two texts in, their score out."""
        return (Tensor("a", "BYTES", (-1, 1)), Tensor("b", "BYTES", (-1, 1))), (Tensor("score", "FP32", (-1,)),)

    @property
    def parameters(self) -> dict[str, str | list[str]]:
        """Nothing: a score needs no names."""
        return {}

    def infer(
        self, inputs: Mapping[str, Any], on_overflow: OnOverflow, cache: VectorCache | None = None
    ) -> Computation[TensorAnswer]:
        """Score the pairs of elements of `a` and `b`."""
        a, b = inputs["a"], inputs["b"]
        if len(a) != len(b):
            raise InvalidInput.at("b", f"{len(b)} elements; {len(a)} are needed, as many as in a")
        pairs = [
            (LocatedText(f"a.{index}", one), LocatedText(f"b.{index}", other))
            for index, (one, other) in enumerate(zip(a, b, strict=True))
        ]
        answer = yield from self.score(pairs, on_overflow, cache)
        scores: Array = np.array([pair.score for pair in answer.value], "<f4")
        read = [coverage for pair in answer.value for coverage in (pair.a, pair.b)]
        return Answer(TensorAnswer({"score": scores}, TextCoverage.sums(read)), read)

    def _cut(self, text: LocatedText, on_overflow: OnOverflow) -> tuple[bytes, list[list[Span]]]:
        """A document without its byte order mark, and its rows. Raises: InvalidInput naming it."""
        manifest = self.manifest
        try:
            document = as_text(text.document)
            return document, cut(len(document), manifest.max_length, manifest.window_overlap, on_overflow)
        except InvalidInput as error:
            raise InvalidInput.at(text.place, str(error)) from None


def normalized(vectors: Floats) -> Floats:
    """L2-normalise vectors (texts, dim); zero vectors stay zero."""
    lengths = np.linalg.norm(vectors.astype(np.float64), axis=1, keepdims=True)
    return (vectors / np.where(lengths > 0, lengths, 1)).astype(np.float32)


def _chunks(rows_of: Mapping[bytes, list[bytes]]) -> Iterator[dict[bytes, list[bytes]]]:
    """Yield the texts in parts of at most CHUNK_ROWS rows, but at least one text."""
    chunk, taken = dict[bytes, list[bytes]](), 0
    for key, rows in rows_of.items():
        if chunk and taken + len(rows) > CHUNK_ROWS:
            yield chunk
            chunk, taken = {}, 0
        chunk[key] = rows
        taken += len(rows)
    if chunk:
        yield chunk
