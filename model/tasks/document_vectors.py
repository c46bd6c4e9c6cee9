"""Document vectors: vectors of documents and of their word n-grams, learned without a network.

Used by `model.tasks.words`.

The vector of a document predicts which n-grams occur in it. All vectors lie on the unit sphere. The probability that
n-gram h belongs to document d is sigmoid(SHARPNESS cos(u_d, v_h)); each occurrence is a positive example beside
NEGATIVES n-grams that are drawn at random. An occurrence is used with a probability k_h, the keep probability of its
n-gram, which is larger the more the n-gram tells about the classes. Each window of a document counts as a document.

Reference:  Thongtan and Phienthrakul 2019, "Sentiment Classification Using Document Embeddings Trained with Cosine
            Similarity"; keep probabilities from naive Bayes evidence: Bingyu and Arefyev 2022, "The Document Vectors
            Using Cosine Similarity Revisited". Not in the S3Attention paper.
Deviates:   gradients are taken along the sphere, and frequent single words are used less.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic
from numpy.typing import NDArray

from artifact.arrays import Doubles, Floats
from artifact.documents import cut, take
from model.config.models import NgramVectorsConfig
from model.nn.words import WordHasher
from model.progress import progress
from model.tasks.link import memberships
from model.tasks.occurrences import Ngrams, NgramVectors, Occurrences, frequent_ngrams, hash_ngrams, known_ids
from model.training.checkpoint import reading_result, write_arrays

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
"""Learning rate at the start, from which it falls linearly to zero, and its minimum."""
MOST_POSITIVES = 400
"""Mean number of positive examples per document above which occurrences are left out at random: for long documents."""
EPOCHS_PER_CHECKPOINT = 4
AHEAD = 4
"""Number of n-grams by which loading into the cache is ahead of computing."""
CACHE_LINE = 64
"""Bytes."""


def keep_probabilities(of_class: Doubles, sizes: Doubles, ngrams: Ngrams) -> Doubles:
    """Keep probability k_h of each n-gram, (R,).

    Args:
        of_class: number of labelled documents (windows) of each class that contain each n-gram, (R, classes).
        sizes: number of labelled documents of each class, (classes,). Fewer than two classes tell nothing.
        ngrams: the n-grams, with their numbers of occurrences in all documents.

    """
    evidence = np.zeros(len(of_class))
    if len(sizes) > 1:
        rest, others = of_class.sum(1, keepdims=True) - of_class, sizes.sum() - sizes
        evidence = np.abs(np.log((of_class + SMOOTHING) / sizes * others / (rest + SMOOTHING))).max(1)
    keep = np.minimum(1, FLOOR + SLOPE * evidence)
    limit = np.sqrt(FREQUENT / np.maximum(ngrams.counts, FREQUENT))
    found: Doubles = np.where(ngrams.lengths == 1, np.minimum(keep, limit), keep)
    return found


def train_vectors(
    documents: Occurrences,
    ngrams: Ngrams,
    keep: Doubles,
    config: NgramVectorsConfig,
    seed: int,
    path: Path | None = None,
) -> Floats:
    """Learn the vectors of n-grams, (R, dim), each of length 1; the same ones for the same arguments.

    Args:
        documents: ids of the n-grams of each document.
        ngrams: the n-grams.
        keep: keep probability of each n-gram, (R,).
        config: number of epochs and length of a vector.
        seed: seed of the initial vectors and of all drawings.
        path: file to keep the state in every few epochs, and to resume from.

    Raises: UserError if that file is damaged; UserError, OSError if it cannot be written.

    """
    generator, positives = np.random.default_rng(seed), float(ngrams.counts @ keep)
    used = (keep * min(1, MOST_POSITIVES * len(documents) / max(1.0, positives))).astype(np.float32)
    table = _negative_table(ngrams.counts * keep)
    of_documents, vectors = (_unit_vectors(generator, n, config.dim) for n in (len(documents), len(keep)))
    first = 0
    if path is not None and path.is_file():
        with reading_result(path) as file, np.load(file) as stored:
            kept, first = (stored["of_documents"], stored["vectors"]), int(stored["epoch"])
            found, expected = [part.shape for part in kept], [of_documents.shape, vectors.shape]
            if found != expected:
                raise ValueError(f"it holds vectors of shapes {found}, not {expected}")
        of_documents, vectors = kept
    rates = np.maximum(np.linspace(RATE, 0, 1 + config.epochs), LAST_RATE).astype(np.float32)
    with progress(total=config.epochs, initial=first, desc="n-gram vectors", unit="epoch", leave=False) as bar:
        for epoch in range(first, config.epochs):
            generator = np.random.default_rng((seed, epoch))
            order, state = generator.permutation(len(documents)), generator.integers(1, 2**63, dtype=np.uint64)
            loss = _epoch(
                documents.values,
                documents.starts,
                used,
                table,
                order,
                of_documents,
                vectors,
                rates[epoch : epoch + 2],
                state,
            )
            bar.set_postfix(loss=f"{loss:.4f}", refresh=False)
            bar.update()
            if path is not None and (epoch + 1) % EPOCHS_PER_CHECKPOINT == 0:
                write_arrays(path, {"of_documents": of_documents, "vectors": vectors, "epoch": epoch + 1})
    return vectors


@dataclass(frozen=True)
class VectorLearner:
    """Learns vectors of n-grams from labelled and unlabelled documents, window by window."""

    labelled: Occurrences
    """N-grams of the windows of the labelled documents, as indices in `ngrams`."""
    document: NDArray[np.int64]
    """Index of the labelled document of each window."""
    labels: NDArray[np.int64]
    """Targets of the labelled documents, as in `link_of`."""
    unlabelled: Occurrences
    """N-grams of the windows of the unlabelled documents."""
    ngrams: Ngrams
    config: NgramVectorsConfig
    seed: int

    def learn(self, rows: NDArray[np.int64], path: Path | None = None) -> NgramVectors:
        """Learn from the labelled documents `rows` and from all unlabelled ones. `path` as in `train_vectors`."""
        windows = np.flatnonzero(np.isin(self.document, rows))
        labelled = self.labelled.of_documents(windows)
        of_class = _windows_of_classes(labelled, self.labels[self.document[windows]], len(self.ngrams.counts))
        keep = keep_probabilities(*of_class, self.ngrams)
        documents = labelled.followed_by(self.unlabelled)
        return NgramVectors(
            self.ngrams, train_vectors(documents, self.ngrams, keep, self.config, self.seed, path), keep
        )


def vector_learner(
    hasher: WordHasher,
    texts: tuple[Sequence[bytes], Sequence[bytes]],
    labels: NDArray[np.int64],
    length: int,
    overlap: int,
    config: NgramVectorsConfig,
    seed: int,
) -> VectorLearner:
    """Find the n-grams of labelled and unlabelled `texts`, in windows of `length` and `overlap` bytes as in `cut`."""
    windows = [
        [[take(text, spans) for spans in cut(len(text), length, overlap, "windows")] for text in part] for part in texts
    ]
    labelled, unlabelled = (hash_ngrams(hasher, [row for rows in part for row in rows]) for part in windows)
    ngrams = frequent_ngrams((labelled, unlabelled))
    return VectorLearner(
        known_ids(labelled, ngrams.hashes),
        np.repeat(np.arange(len(labels)), [len(rows) for rows in windows[0]]),
        labels,
        known_ids(unlabelled, ngrams.hashes),
        ngrams,
        config,
        seed,
    )


def _windows_of_classes(windows: Occurrences, labels: NDArray[np.int64], count: int) -> tuple[Doubles, Doubles]:
    """Number of windows of each class with each n-gram (count, classes), and of windows of each class (classes,)."""
    from scipy.sparse import csr_matrix

    data = np.ones(len(windows.values), dtype=np.float32)
    # copies, because `sum_duplicates` works in place
    sets = csr_matrix((data, windows.values.copy(), windows.starts.copy()), shape=(len(windows), count))
    sets.sum_duplicates()
    sets.data[:] = 1
    members = memberships(labels)
    members = members[:, members.any(0)]
    return np.asarray(sets.T @ members), members.sum(0)


def _unit_vectors(generator: np.random.Generator, count: int, dim: int) -> Floats:
    """Random vectors on the unit sphere, (count, dim)."""
    vectors = generator.standard_normal((count, dim), dtype=np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors


def _negative_table(weights: Doubles) -> NDArray[np.int32]:
    """About TABLE_SIZE ids of n-grams, each as often as its weight (R,) to the power NEGATIVE_POWER asks for."""
    share = weights**NEGATIVE_POWER
    times = np.ceil(share / share.sum() * TABLE_SIZE).astype(np.int64)
    return np.repeat(np.arange(len(weights), dtype=np.int32), times)


@intrinsic
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


@njit(fastmath=True)
def _random(state: Any) -> Any:
    """The next number below 2^53 of xorshift64 (Marsaglia 2003)."""
    state[0] ^= state[0] << np.uint64(13)
    state[0] ^= state[0] >> np.uint64(7)
    state[0] ^= state[0] << np.uint64(17)
    return state[0] >> np.uint64(11)


@njit(fastmath=True)
def _draw(values: Any, keep: Any, table: Any, state: Any, drawn: Any) -> Any:
    """Fill `drawn` with n-grams of a document, each followed by NEGATIVES other n-grams; returns their number."""
    count = 0
    for value in values:
        if np.float32(_random(state)) * np.float32(2.0**-53) < keep[value]:
            drawn[count] = value
            for k in range(NEGATIVES):
                drawn[count + 1 + k] = table[_random(state) % np.uint64(len(table))]
            count += NEGATIVES + 1
    return count


@njit(fastmath=True)
def _epoch(
    values: Any,
    starts: Any,
    keep: Any,
    table: Any,
    order: Any,
    documents: Any,
    ngrams: Any,
    rates: Any,
    seed: Any,
) -> Any:
    """Update the vectors of documents and n-grams in place, in one pass; returns the mean loss of positive examples.

    `values` and `starts` are those of `Occurrences`, `keep` holds the probabilities with which occurrences are used,
    `table` the n-grams from which negative examples are drawn, `order` the documents, and `rates` the learning rates
    of the first and the last step.

    A step of size s along the gradient within the plane of two unit vectors turns both: u <- (1 - s c) u + s v and
    v <- (1 - s c) v + s u, c = u v, each divided by its length. The lengths before it are measured: steps that push
    similar vectors apart multiply a rounding error of a length.
    """
    state, one, sharpness = np.empty(1, np.uint64), np.float32(1), np.float32(SHARPNESS)
    state[0] = seed
    dim = documents.shape[1]
    address, row = ngrams.ctypes.data, 4 * dim  # bytes of a vector
    longest = 0
    for document in order:
        longest = max(longest, starts[document + 1] - starts[document])
    drawn = np.empty((NEGATIVES + 1) * longest, np.int64)
    loss, positives = 0.0, 0
    for number in range(len(order)):
        document = order[number]
        rate = rates[0] + (rates[1] - rates[0]) * np.float32(number) / np.float32(len(order))
        count = _draw(values[starts[document] : starts[document + 1]], keep, table, state, drawn)
        u = documents[document]
        for k in range(count):
            if k + AHEAD < count:
                for byte in range(0, row, CACHE_LINE):
                    _prefetch(  # type: ignore[call-arg]  # Numba passes its context
                        address + drawn[k + AHEAD] * row + byte
                    )
            v, product, of_u, of_v = ngrams[drawn[k]], np.float32(0), np.float32(0), np.float32(0)
            for j in range(dim):
                product += u[j] * v[j]
                of_u += u[j] * u[j]
                of_v += v[j] * v[j]
            of_u, of_v = one / np.sqrt(of_u), one / np.sqrt(of_v)
            cos = min(max(product * of_u * of_v, -one), one)
            probability = one / (one + np.exp(-sharpness * cos))
            if k % (NEGATIVES + 1) == 0:
                loss -= np.log(probability)
                positives += 1
                step = (one - probability) * sharpness * rate
            else:
                step = -probability * sharpness * rate
            scale = one / np.sqrt(one + step * step * (one - cos * cos))
            own, other = (one - step * cos) * scale, step * scale
            for j in range(dim):
                a, b = of_u * u[j], of_v * v[j]
                u[j] = own * a + other * b
                v[j] = own * b + other * a
    return loss / max(1, positives)
