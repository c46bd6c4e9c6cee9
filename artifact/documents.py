"""Pre- and postprocessing of documents: splitting into rows, padding, aggregation of the rows' outputs.

The service and `model` both use it, so that training and serving see the same rows.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from artifact.errors import InvalidInput

OnOverflow = Literal["windows", "head", "tail", "head_tail", "error"]

WORD_FIELDS = 3
"""Numbers of a word in the encoding of a document: its key, a multiple of 2^-24 above 0 and up to 1, of its first
characters or of the word; its id in the vocabulary times ID_UNIT, 0 for an unknown word; and the key of the whole word,
negative unless the word is in the first bytes of a window, its opening. Keys ascend. No number is above 1: larger ones
would loosen the tolerance with which two encodings are compared."""
ID_UNIT = 2.0**-18

Span = tuple[int, int]
"""(start, end) byte offsets of a part of a document."""


def cut(total: int, max_length: int, overlap: int, on_overflow: OnOverflow) -> list[list[Span]]:
    """Split a document into rows; each row is a list of spans, concatenated in order.

    `windows` covers every byte with evenly spaced rows of max_length that overlap by at least `overlap` bytes.

    Args:
        total: length of the document in bytes.
        max_length: maximum number of bytes per row.
        overlap: minimum overlap of neighbouring windows in bytes.
        on_overflow: how to read a document longer than max_length.

    Raises: InvalidInput if the document is empty, or longer than max_length and on_overflow is `error`.

    """
    if total == 0:
        raise InvalidInput("the document is empty; at least 1 byte is needed")
    if total <= max_length:
        return [[(0, total)]]
    if on_overflow == "error":
        raise InvalidInput(f"the document has {total} bytes; the model reads {max_length} and on_overflow is 'error'")
    if on_overflow == "head":
        return [[(0, max_length)]]
    if on_overflow == "tail":
        return [[(total - max_length, total)]]
    if on_overflow == "head_tail":
        head = (max_length + 1) // 2
        return [[(0, head), (total - (max_length - head), total)]]
    count = 1 + -(-(total - max_length) // (max_length - overlap))
    starts = [i * (total - max_length) // (count - 1) for i in range(count)]
    return [[(start, start + max_length)] for start in starts]


def take(document: bytes, spans: Sequence[Span]) -> bytes:
    """Concatenate the given spans of a document into one row."""
    return b"".join([document[start:end] for start, end in spans])


def bytes_used(rows: Sequence[Sequence[Span]]) -> int:
    """Count the distinct bytes that the rows of `cut` cover; spans are sorted by start."""
    used = reached = 0
    for row in rows:
        for start, end in row:
            used += max(0, end - max(start, reached))
            reached = max(reached, end)
    return used


class WordCounts(NamedTuple):
    """Words of the rows that a model of words has read; those in the overlap of two windows count twice."""

    known: int
    """Number of words at which an n-gram of the model's vocabulary ends."""
    total: int
    """Number of all words."""

    @property
    def share(self) -> float:
        """Share of the words that is known, from 0 to 1; 0 without any word."""
        return self.known / max(1, self.total)

    @classmethod
    def sum(cls, counts: Iterable["WordCounts"]) -> "WordCounts":
        """Sum of the counts of several rows or documents."""
        pairs = list(counts)
        return cls(sum(pair.known for pair in pairs), sum(pair.total for pair in pairs))


@dataclass(frozen=True, slots=True)
class TextCoverage:
    """How much of a document was read, and how much of that the model knows."""

    bytes_total: int
    bytes_used: int
    windows: int
    words: WordCounts | None = None
    """None if the model does not count words."""
    is_padded: bool = False
    """Whether spaces were appended, because the document is shorter than the model needs."""

    @property
    def known(self) -> float | None:
        """Share of the document's words that the model knows; None if it does not count words."""
        return None if self.words is None else self.words.share

    def as_json(self, on_overflow: OnOverflow) -> dict[str, Any]:
        """The JSON object returned to clients."""
        is_cut = self.windows > 1 or self.bytes_used < self.bytes_total
        return {
            "bytes_total": self.bytes_total,
            "bytes_used": self.bytes_used,
            "strategy": on_overflow if is_cut else "padded" if self.is_padded else "whole",
            "windows": self.windows,
            "known": self.known,
        }

    @staticmethod
    def sums(coverages: Sequence["TextCoverage"]) -> dict[str, int | float]:
        """Sums over the documents of a request; `known`, the share of all their words, if the model counts words."""
        sums: dict[str, int | float] = {
            "bytes_total": sum(one.bytes_total for one in coverages),
            "bytes_used": sum(one.bytes_used for one in coverages),
            "documents_cut": sum(one.bytes_used < one.bytes_total for one in coverages),
        }
        if (known := TextCoverage.share_known(coverages)) is not None:
            sums["known"] = known
        return sums

    @staticmethod
    def share_known(coverages: Sequence["TextCoverage"]) -> float | None:
        """Share of the words of all documents that the model knows; None if it does not count words."""
        counted = [one.words for one in coverages if one.words is not None]
        return WordCounts.sum(counted).share if counted else None


def pad_rows(rows: Sequence[bytes], length: int) -> tuple[NDArray[np.uint8], NDArray[np.int32]]:
    """Zero-pad rows to one batch.

    Shape:  returns bytes (B, length) uint8 and lengths (B,) int32.
    """
    batch = np.zeros((len(rows), length), np.uint8)
    for target, row in zip(batch, rows, strict=True):
        target[: len(row)] = np.frombuffer(row, np.uint8)
    return batch, np.fromiter(map(len, rows), np.int32, len(rows))


def combine(rows: Sequence[NDArray[np.float32]], *, has_one_label: bool = True) -> list[float]:
    """Scores of a document: the softmax of the mean of its rows' logits, or of any number of labels the sigmoid.

    Shape:  each row (classes,).
    """
    mean = rows[0] if len(rows) == 1 else np.stack(rows).mean(axis=0, dtype=np.float64)
    logits: list[float] = mean.tolist()
    if not has_one_label:
        return [0.5 * (1 + math.tanh(0.5 * logit)) for logit in logits]
    # numpy takes several times as long for the few labels of a document
    highest = max(logits)
    powers = [math.exp(logit - highest) for logit in logits]
    total = math.fsum(powers)
    return [power / total for power in powers]


def pool(rows: NDArray[np.float32], num_words: int = 0) -> NDArray[np.float32]:
    """Encoding of a document from those of its rows: the mean of their vectors, followed by their words.

    Shape:  rows (rows, dim + num_words * WORD_FIELDS); returns (dim + num_words * WORD_FIELDS,).
    """
    if len(rows) == 1:
        return rows.reshape(-1)
    dim = rows.shape[1] - num_words * WORD_FIELDS
    mean: NDArray[np.float32] = rows[:, :dim].mean(axis=0, dtype=np.float64).astype(np.float32)
    return np.concatenate((mean, _merged(rows[:, dim:].reshape(-1, WORD_FIELDS), num_words).ravel()))


def _merged(words: NDArray[np.float32], count: int) -> NDArray[np.float32]:
    """The distinct words with the smallest keys, as of one row: (W, WORD_FIELDS) -> (count, WORD_FIELDS).

    Zeros follow the last word. Of several words with the same key, those in the opening of their row come first, then
    the smallest key of the whole word.
    """
    words = words[words[:, 0] > 0]
    words = words[np.lexsort((np.abs(words[:, 2]), words[:, 2] <= 0, words[:, 0]))]
    _, first = np.unique(words[:, 0], return_index=True)
    merged = np.zeros((count, WORD_FIELDS), np.float32)
    kept = words[first[:count]]
    merged[: len(kept)] = kept
    return merged


def softmax(logits: NDArray[np.float64]) -> NDArray[np.float64]:
    """Softmax over the last axis."""
    e = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)  # type: ignore[no-any-return]  # numpy's stubs return Any here


def sigmoid(logits: NDArray[np.float32]) -> NDArray[np.float64]:
    """Numerically stable sigmoid: logits -> probabilities."""
    return 0.5 * (1 + np.tanh(0.5 * logits.astype(np.float64)))
