"""Words and word vectors of documents, for the vector view of a classifier. Used by `model.tasks.words`."""

import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from tqdm import tqdm

from artifact.documents import pad_rows
from model.config.models import VectorsConfig
from model.nn.words import WordHasher

BATCH = 64


@dataclass(frozen=True)
class Words:
    """Words of many documents, as hashes or as ids of a vocabulary."""

    values: NDArray[np.int32]
    """All words, document after document, (M,)."""
    starts: NDArray[np.int64]
    """Index of each document's first word, and M at the end, (D + 1,)."""
    lengths: NDArray[np.int32]
    """Length of each document in bytes, (D,)."""

    def __len__(self) -> int:
        return len(self.lengths)

    def __getitem__(self, i: int) -> NDArray[np.int32]:
        """Words of document i."""
        return self.values[self.starts[i] : self.starts[i + 1]]

    def counts(self) -> NDArray[np.int64]:
        """Number of words of each document, (D,)."""
        return np.diff(self.starts)

    def followed_by(self, other: "Words") -> "Words":
        """The documents of both, in order."""
        return Words(
            np.concatenate((self.values, other.values)),
            np.concatenate((self.starts, other.starts[1:] + self.starts[-1])),
            np.concatenate((self.lengths, other.lengths)),
        )


def hash_words(hasher: WordHasher, texts: Sequence[bytes]) -> Words:
    """Hash every word of the documents."""
    order = sorted(range(len(texts)), key=lambda i: len(texts[i]))
    found: dict[int, NDArray[np.int32]] = {}
    device = hasher.positions.device
    size = sum(map(len, texts))
    with tqdm(total=size, desc="words", unit="B", unit_scale=True, leave=False, disable=None) as bar:
        for first in range(0, len(order), BATCH):
            chosen = order[first : first + BATCH]
            document, lengths = pad_rows([texts[i] for i in chosen], max(1, len(texts[chosen[-1]])))
            hashes, doc_index, _ = hasher(torch.from_numpy(document).to(device), torch.from_numpy(lengths).to(device))
            ends = np.searchsorted(doc_index.cpu().numpy(), np.arange(1, len(chosen)))
            found |= dict(zip(chosen, np.split(hashes[0].cpu().numpy().astype(np.int32), ends), strict=True))
            bar.update(int(lengths.sum()))
    values = [found[i] for i in range(len(texts))]
    return _joined(values, np.array([len(text) for text in texts], dtype=np.int32))


def choose_words(parts: Sequence[Words], ignored: Words, count: int) -> NDArray[np.int64]:
    """Hashes of the most frequent words except the `ignored`, at most `count`, the most frequent first."""
    hashes, numbers = np.unique(np.concatenate([part.values for part in parts]), return_counts=True)
    numbers[np.isin(hashes, ignored.values)] = 0
    order = np.argsort(-numbers, kind="stable")[:count]
    return hashes[order[numbers[order] > 0]].astype(np.int64)


def known_ids(words: Words, vocabulary: NDArray[np.int64]) -> Words:
    """Words as ids 1 ... len(vocabulary) instead of hashes; unknown words are left out."""
    order = np.argsort(vocabulary)
    place = np.searchsorted(vocabulary[order], words.values).clip(max=len(vocabulary) - 1)
    is_known = vocabulary[order][place] == words.values
    starts = np.concatenate(([0], np.cumsum(is_known))).astype(np.int64)[words.starts]
    return Words((order[place[is_known]] + 1).astype(np.int32), starts, words.lengths)


def train_vectors(
    parts: Sequence[Words], count: int, dim: int, config: VectorsConfig, seed: int
) -> NDArray[np.float32]:
    """Train word2vec (CBOW) on ids of words; returns vectors (1 + count, dim) of mean square 1, row 0 zero.

    One thread, so that a seed gives the same vectors again.

    Reference:  Mikolov et al. 2013, arXiv:1310.4546 (negative sampling, subsampling), by gensim.
    """
    # Importing gensim takes seconds, which other commands need not wait for.
    from gensim.models import Word2Vec
    from gensim.models.callbacks import CallbackAny2Vec

    names = np.array([str(i) for i in range(1 + count)], dtype=object)

    class Sentences:
        def __iter__(self) -> Iterator[list[str]]:
            for part in parts:
                for i in range(len(part)):
                    yield names[part[i]].tolist()

    class Bar(CallbackAny2Vec):  # type: ignore[misc]  # gensim has no types
        def __init__(self) -> None:
            self.bar = tqdm(total=config.epochs, desc="vectors", unit="epoch", leave=False, disable=None)

        def on_epoch_end(self, model: Word2Vec) -> None:
            del model
            self.bar.update()

        def on_train_end(self, model: Word2Vec) -> None:
            del model
            self.bar.close()

    trained = Word2Vec(
        Sentences(),
        sg=0,
        vector_size=dim,
        window=config.window,
        negative=config.negatives,
        sample=config.subsampling,
        epochs=config.epochs,
        min_count=1,
        workers=1,
        seed=seed,
        hashfxn=lambda text: zlib.crc32(text.encode()),
        callbacks=[Bar()],
    )
    vectors = np.zeros((1 + count, dim), dtype=np.float32)
    for word, place in trained.wv.key_to_index.items():
        vectors[int(word)] = trained.wv.vectors[place]
    vectors /= np.sqrt(np.mean(vectors[1:] ** 2))
    return vectors


def _joined(values: Sequence[NDArray[np.int32]], lengths: NDArray[np.int32]) -> Words:
    starts = np.cumsum([0, *(len(part) for part in values)], dtype=np.int64)
    return Words(np.concatenate([np.zeros(0, dtype=np.int32), *values]), starts, lengths)
