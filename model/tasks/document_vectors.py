"""Document vectors: vectors of documents and of their word n-grams, learned without a network.

Used by `model.tasks.words`.

The vector of a document predicts which n-grams occur in it. All vectors lie on the unit sphere. The probability that
n-gram h belongs to document d is sigmoid(SHARPNESS cos(u_d, v_h)); each occurrence is a positive example beside
NEGATIVES n-grams that are drawn at random. An occurrence is used with a probability k_h, the keep probability of its
n-gram, which is larger the more the n-gram tells about the classes.

Reference:  Thongtan and Phienthrakul 2019, "Sentiment Classification Using Document Embeddings Trained with Cosine
            Similarity"; keep probabilities from naive Bayes evidence: Bingyu and Arefyev 2022, "The Document Vectors
            Using Cosine Similarity Revisited". Not in the S3Attention paper.
Deviates:   gradients are taken along the sphere, and frequent single words are used less.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic
from numpy.typing import NDArray
from tqdm import tqdm

from artifact.arrays import Doubles, Floats

SHARPNESS = 6.0
NEGATIVES = 4
NEGATIVE_POWER = 0.75
"""N-grams are drawn as negative examples with probabilities proportional to (count k_h)^NEGATIVE_POWER."""
TABLE_SIZE = 2**24
"""Number of entries of the table from which negative examples are drawn."""
FLOOR, SLOPE, SMOOTHING = 0.05, 0.6, 3.0
"""Keep probabilities: FLOOR + SLOPE times the naive Bayes evidence, from counts plus SMOOTHING."""
FREQUENT = 3_000
"""Occurrences above which a single word is also kept with at most the root of FREQUENT / count."""
RATE, LAST_RATE = 0.02, 0.0002
"""Learning rate at the start, falling linearly, and at the end."""


@dataclass(frozen=True)
class Occurrences:
    """N-grams of documents, in the order of the text."""

    values: NDArray[np.int32]
    """Ids of the n-grams of all documents, document after document, (M,)."""
    starts: NDArray[np.int64]
    """Index of each document's first n-gram, and M at the end, (documents + 1,)."""

    def __len__(self) -> int:
        return len(self.starts) - 1


def keep_probabilities(
    of_class: Doubles, sizes: Doubles, counts: NDArray[np.int64], lengths: NDArray[np.int64]
) -> Floats:
    """Keep probability k_h of each n-gram, (R,).

    Args:
        of_class: number of labelled documents of each class that contain each n-gram, (R, classes).
        sizes: number of labelled documents of each class, (classes,).
        counts: number of occurrences in all documents, (R,).
        lengths: length of each n-gram in words, (R,).

    """
    rest, others = of_class.sum(1, keepdims=True) - of_class, sizes.sum() - sizes
    evidence = np.abs(np.log((of_class + SMOOTHING) / sizes * others / (rest + SMOOTHING))).max(1)
    keep = np.minimum(1, FLOOR + SLOPE * evidence)
    limit = np.sqrt(FREQUENT / np.maximum(counts, FREQUENT))
    return np.where(lengths == 1, np.minimum(keep, limit), keep).astype(np.float32)


def negative_table(weights: Doubles) -> NDArray[np.int32]:
    """Ids of n-grams, each in proportion to its weight (R,)."""
    share = weights**NEGATIVE_POWER
    times = np.ceil(share / share.sum() * TABLE_SIZE).astype(np.int64)
    return np.repeat(np.arange(len(weights), dtype=np.int32), times)


@intrinsic  # type: ignore[untyped-decorator]
def _prefetch(typing: Any, address: Any) -> Any:
    """Load the cache line of an address ahead of its use: nearly all n-grams are outside of the caches."""
    del typing, address

    def generate(context: Any, builder: ir.IRBuilder, signature: Any, values: Sequence[Any]) -> Any:
        del signature
        pointer, number = ir.IntType(8).as_pointer(), ir.IntType(32)
        function = builder.module.declare_intrinsic(
            "llvm.prefetch", [pointer], ir.FunctionType(ir.VoidType(), [pointer, number, number, number])
        )
        builder.call(function, [builder.inttoptr(values[0], pointer), number(1), number(1), number(1)])
        return context.get_dummy_value()

    return types.void(types.intp), generate


@njit(fastmath=True)  # type: ignore[untyped-decorator]
def _random(state: Any) -> Any:
    """The next number below 2^53 of xorshift64 (Marsaglia 2003)."""
    state[0] ^= state[0] << np.uint64(13)
    state[0] ^= state[0] >> np.uint64(7)
    state[0] ^= state[0] << np.uint64(17)
    return state[0] >> np.uint64(11)


@njit(fastmath=True)  # type: ignore[untyped-decorator]
def _normalise(vectors: Any) -> None:
    """Divide each vector (rows, dim) by its length."""
    one = np.float32(1)
    for i in range(vectors.shape[0]):
        squares = np.float32(0)
        for j in range(vectors.shape[1]):
            squares += vectors[i, j] * vectors[i, j]
        scale = one / np.sqrt(squares)
        for j in range(vectors.shape[1]):
            vectors[i, j] *= scale


@njit(fastmath=True)  # type: ignore[untyped-decorator]
def _epoch(
    values: Any,
    starts: Any,
    keep: Any,
    table: Any,
    order: Any,
    is_fixed: Any,
    documents: Any,
    ngrams: Any,
    rates: Any,
    seed: Any,
) -> Any:
    """Move the vectors of all documents and n-grams once; returns the mean loss of the positive examples.

    A step of size s along the gradient within the plane of two unit vectors turns both: u <- (1 - s c) u + s v and
    v <- (1 - s c) v + s u, c = u v, each divided by its length.
    """
    state, one, sharpness = np.empty(1, np.uint64), np.float32(1), np.float32(SHARPNESS)
    state[0] = seed
    dim, ahead = documents.shape[1], 4
    address, line, row = ngrams.ctypes.data, 64, 4 * documents.shape[1]
    drawn = np.empty((NEGATIVES + 1) * np.diff(starts).max(), np.int64)
    loss, positives = 0.0, 0
    for number in range(len(order)):
        document, count = order[number], 0
        rate = rates[0] + (rates[1] - rates[0]) * np.float32(number) / np.float32(len(order))
        for p in range(starts[document], starts[document + 1]):
            if np.float32(_random(state)) * np.float32(2.0**-53) < keep[values[p]]:
                drawn[count] = values[p]
                for k in range(NEGATIVES):
                    drawn[count + 1 + k] = table[_random(state) % np.uint64(len(table))]
                count += NEGATIVES + 1
        u, is_free = documents[document], not is_fixed[document]
        for k in range(count):
            if k + ahead < count:
                for byte in range(0, row, line):
                    _prefetch(address + drawn[k + ahead] * row + byte)
            v, cos = ngrams[drawn[k]], np.float32(0)
            for j in range(dim):
                cos += u[j] * v[j]
            cos = min(max(cos, -one), one)
            probability = one / (one + np.exp(-sharpness * cos))
            if k % (NEGATIVES + 1) == 0:
                loss -= np.log(probability)
                positives += 1
                step = (one - probability) * sharpness * rate
            else:
                step = -probability * sharpness * rate
            scale = one / np.sqrt(one + step * step * (one - cos * cos))
            own, other = (one - step * cos) * scale, step * scale
            if is_free:
                for j in range(dim):
                    a, b = u[j], v[j]
                    u[j] = own * a + other * b
                    v[j] = own * b + other * a
            else:
                for j in range(dim):
                    u[j] = own * u[j] + other * v[j]
    _normalise(documents)
    _normalise(ngrams)
    return loss / max(1, positives)
