"""N-grams of documents in the order of the text. Used by `model.tasks.words` and `model.tasks.document_vectors`."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from artifact.arrays import Doubles, Floats
from artifact.documents import pad_rows
from model.nn.stem import ByteHasher
from model.nn.words import WordHasher
from model.progress import progress

Hasher = WordHasher | ByteHasher
"""Finds n-grams in documents."""

BATCH = 64
MIN_OCCURRENCES = 2
"""Minimum number of occurrences of an n-gram that gets a vector."""
MAX_MEANS = 1_000
"""Maximum number of documents whose mean vectors are computed."""
SMALLEST = 1e-12
"""Smallest divisor."""
MAX_NGRAMS = 1_000_000
"""Maximum number of n-grams that get a vector, the most frequent ones: 1 GB for vectors of 256 numbers."""


@dataclass(frozen=True)
class Hashes:
    """Hashes of the n-grams of many documents."""

    values: NDArray[np.int32]
    """Hash of the n-gram of each length that ends at each word, -1 for none; document after document, (M, longest)."""
    starts: NDArray[np.int64]
    """Index of each document's first word, and M at the end, (D + 1,)."""
    lengths: NDArray[np.int32]
    """Length of each document in bytes, (D,)."""


@dataclass(frozen=True)
class Occurrences:
    """Known n-grams of many documents, as ids."""

    values: NDArray[np.int32]
    """Ids of all n-grams, document after document, (M,)."""
    starts: NDArray[np.int64]
    """Index of each document's first n-gram, and M at the end, (D + 1,)."""
    lengths: NDArray[np.int32]
    """Length of each document in bytes, (D,)."""

    def __len__(self) -> int:
        return len(self.lengths)

    def __getitem__(self, i: int) -> NDArray[np.int32]:
        """N-grams of document i."""
        return self.values[self.starts[i] : self.starts[i + 1]]

    def counts(self) -> NDArray[np.int64]:
        """Number of n-grams of each document, (D,)."""
        return np.diff(self.starts)

    def of_documents(self, rows: NDArray[np.int64]) -> "Occurrences":
        """Only some of the documents."""
        parts = [self[i] for i in rows.tolist()]
        starts = np.cumsum([0, *(len(part) for part in parts)], dtype=np.int64)
        return Occurrences(np.concatenate([self.values[:0], *parts]), starts, self.lengths[rows])

    def followed_by(self, other: "Occurrences") -> "Occurrences":
        """The documents of both, in order."""
        return Occurrences(
            np.concatenate((self.values, other.values)),
            np.concatenate((self.starts, other.starts[1:] + self.starts[-1])),
            np.concatenate((self.lengths, other.lengths)),
        )


@dataclass(frozen=True)
class Ngrams:
    """N-grams that get vectors, by ascending hash."""

    hashes: NDArray[np.int32]
    """(R,)."""
    lengths: NDArray[np.int8]
    """Length of each in words, (R,)."""
    counts: NDArray[np.int64]
    """Number of occurrences of each, (R,)."""


@dataclass(frozen=True)
class NgramVectors:
    """Vectors of n-grams (model.tasks.document_vectors)."""

    ngrams: Ngrams
    vectors: Floats
    """Vector of each n-gram, of length 1, (R, dim)."""
    keep: Doubles
    """Keep probability of each n-gram, (R,)."""

    def places(self, hashes: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Index of each n-gram with these hashes (H,), and whether it has a vector (H,)."""
        return places(self.ngrams.hashes, hashes)

    def of_ngrams(self, hashes: NDArray[np.int64]) -> "NgramVectors":
        """Only the n-grams with these hashes, ascending."""
        place, has_vector = self.places(hashes)
        kept, ngrams = place[has_vector], self.ngrams
        chosen = Ngrams(ngrams.hashes[kept], ngrams.lengths[kept], ngrams.counts[kept])
        return NgramVectors(chosen, self.vectors[kept], self.keep[kept])


def places(sorted_hashes: NDArray[Any], hashes: NDArray[Any]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Index of each of `hashes` in `sorted_hashes`, and whether it is there; if not, the index means nothing."""
    place = np.searchsorted(sorted_hashes, hashes).clip(max=max(0, len(sorted_hashes) - 1))
    is_there = sorted_hashes[place] == hashes if len(sorted_hashes) else np.zeros(len(hashes), dtype=bool)
    return place, is_there


def rows_at(values: NDArray[Any], place: NDArray[np.int64], is_there: NDArray[np.bool_]) -> NDArray[Any]:
    """Rows of `values` at indices from `places`, zeros for what is not there."""
    found = np.zeros((len(place), *values.shape[1:]), dtype=values.dtype)
    found[is_there] = values[place[is_there]]
    return found


def hashed_batches(hasher: Hasher, texts: Sequence[bytes]) -> Iterator[tuple[list[int], Tensor, Tensor]]:
    """Hash all n-grams of the documents in batches, the shortest documents first.

    Shape:  yields the indices in `texts` of the documents of a batch; hashes (longest, M) int64, -1 for none; and
            doc_index (M,) int64, the place in the batch of each word's document, ascending.
    """
    order = sorted(range(len(texts)), key=lambda i: len(texts[i]))
    device = hasher.device
    size = sum(map(len, texts))
    with progress(total=size, desc="n-grams", unit="B", unit_scale=True, leave=False) as bar:
        for first in range(0, len(order), BATCH):
            chosen = order[first : first + BATCH]
            document, lengths = pad_rows([texts[i] for i in chosen], max(1, len(texts[chosen[-1]])))
            hashes, doc_index, _ = hasher(torch.from_numpy(document).to(device), torch.from_numpy(lengths).to(device))
            yield chosen, hashes, doc_index
            bar.update(int(lengths.sum()))


def hash_ngrams(hasher: WordHasher, texts: Sequence[bytes]) -> Hashes:
    """Hash all n-grams of the documents."""
    found: dict[int, NDArray[np.int32]] = {}
    for chosen, hashes, doc_index in hashed_batches(hasher, texts):
        ends = np.searchsorted(doc_index.cpu().numpy(), np.arange(1, len(chosen)))
        values = hashes.T.to(torch.int32).cpu().numpy()
        found |= dict(zip(chosen, np.split(values, ends), strict=True))
    parts = [found[i] for i in range(len(texts))]
    starts = np.cumsum([0, *(len(part) for part in parts)], dtype=np.int64)
    none = np.zeros((0, hasher.longest), dtype=np.int32)
    return Hashes(np.concatenate([none, *parts]), starts, np.array([len(text) for text in texts], dtype=np.int32))


def frequent_ngrams(parts: Sequence[Hashes]) -> Ngrams:
    """The n-grams that occur at least MIN_OCCURRENCES times, at most MAX_NGRAMS, the most frequent ones."""
    hashes, lengths, counts = [], [], []
    for column in range(parts[0].values.shape[1]):
        values, numbers = np.unique(np.concatenate([part.values[:, column] for part in parts]), return_counts=True)
        is_frequent = (values >= 0) & (numbers >= MIN_OCCURRENCES)
        hashes.append(values[is_frequent])
        counts.append(numbers[is_frequent])
        lengths.append(np.full(int(is_frequent.sum()), 1 + column, dtype=np.int8))
    found, number = np.concatenate(hashes), np.concatenate(counts)
    kept = np.argsort(-number, kind="stable")[:MAX_NGRAMS]
    kept = kept[np.unique(found[kept], return_index=True)[1]]  # ascending; of equal hashes, the most frequent n-gram
    return Ngrams(found[kept], np.concatenate(lengths)[kept], number[kept])


def known_ids(hashes: Hashes, known: NDArray[np.int32], *, first: int = 0) -> Occurrences:
    """N-grams as indices in `known`, ascending hashes (R,), plus `first`; n-grams that are not known are left out."""
    place, is_known = (x.reshape(hashes.values.shape) for x in places(known, hashes.values.ravel()))
    starts = np.concatenate(([0], np.cumsum(is_known.sum(1))))[hashes.starts]
    return Occurrences((place[is_known] + first).astype(np.int32), starts, hashes.lengths)


def principal_vectors(vectors: NgramVectors, hashes: NDArray[np.int64], scales: Doubles, dim: int) -> Floats:
    """The vectors of a view's n-grams times their scales, projected on the `dim` principal components, (R, dim).

    `hashes` (R,) and `scales` (R,) are those of the view. Means and components weigh each n-gram by its number of
    occurrences; the mean square of all numbers, weighed like this, is 1. N-grams without a vector have zeros.
    """
    place, has_vector = vectors.places(hashes)
    weights = rows_at(vectors.ngrams.counts, place, has_vector)
    share, scales = weights / max(1, weights.sum()), scales * has_vector
    v = rows_at(vectors.vectors, place, has_vector).astype(np.float64)
    v = scales[:, None] * (v - (share * scales) @ v / max(float(share @ scales), SMALLEST))
    components = np.linalg.eigh(v.T @ (share[:, None] * v))[1][:, ::-1][:, :dim]
    found = np.zeros((len(v), dim), dtype=np.float32)
    found[:, : components.shape[1]] = v @ components
    return found / np.float32(max(SMALLEST, np.sqrt((share @ found**2).mean())))


def mean_vectors(documents: Occurrences, vectors: Floats) -> Doubles:
    """Mean vector of the n-grams of each document that has some, (D, dim), of the first MAX_MEANS documents.

    Ids begin at 1: row i of `vectors` (R, dim) is the vector of n-gram i + 1.
    """
    found = [vectors[documents[i] - 1].mean(0) for i in range(min(MAX_MEANS, len(documents))) if len(documents[i])]
    return np.array(found, dtype=np.float64).reshape(-1, vectors.shape[1])
