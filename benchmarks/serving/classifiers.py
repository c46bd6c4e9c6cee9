"""Classifiers that a user might pick instead of the shipped one, from files in a folder.

Used by `benchmarks.models.alternatives`, which makes the files, and by `benchmarks.serving.plain_server`.
"""

import pickle
import re
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
from numpy.typing import NDArray

from artifact.documents import softmax

TOKEN = re.compile(r"\w+|[^\w\s]")
MODEL = "model"
"""Name of a model's file, without its suffix."""
HASH_FACTOR = np.uint64(0x9E3779B97F4A7C15)
VOCABULARY = 30_522
"""Number of WordPiece tokens of BERT and DistilBERT, uncased."""
MAX_TOKENS = 512
FIRST, LAST = 101, 102
"""Ids of the first and the last token, [CLS] and [SEP]."""

Classify = Callable[[str], NDArray[np.float64]]
"""Text -> probabilities of the classes (classes,)."""


def load_tfidf(folder: Path) -> Classify:
    """Load a pickled pipeline of scikit-learn: TF-IDF, then logistic regression."""
    pipeline = pickle.loads((folder / f"{MODEL}.pickle").read_bytes())

    def classify(text: str) -> NDArray[np.float64]:
        scores: NDArray[np.float64] = pipeline.predict_proba([text])[0]
        return scores

    return classify


def load_word_vectors(folder: Path) -> Classify:
    """Load vectors of hashed words and bigrams, whose mean a linear layer classifies."""
    with np.load(folder / f"{MODEL}.npz") as arrays:
        vectors, weight, bias = (arrays[name] for name in ("vectors", "weight", "bias"))

    def classify(text: str) -> NDArray[np.float64]:
        rows = word_and_bigram_rows(text, len(vectors))
        mean = vectors[rows].mean(axis=0) if len(rows) else np.zeros(vectors.shape[1], np.float32)
        return softmax((weight @ mean + bias).astype(np.float64))

    return classify


def word_and_bigram_rows(text: str, count: int) -> NDArray[np.int64]:
    """Rows of a text's words, then of its pairs of neighbouring words, in a table of `count` vectors.

    Words are lower-cased; punctuation marks are words, too.
    """
    hashes = np.array([zlib.crc32(word.encode()) for word in TOKEN.findall(text.lower())], np.uint64)
    pairs = (hashes[:-1] * HASH_FACTOR + hashes[1:]) >> np.uint64(16)
    return (np.concatenate([hashes, pairs]) % np.uint64(count)).astype(np.int64)


def load_transformer(folder: Path) -> Classify:
    """Load a graph of token ids (1, T) -> logits (1, classes), on one thread."""
    session = transformer_session(folder / f"{MODEL}.onnx")

    def classify(text: str) -> NDArray[np.float64]:
        logits = session.run(None, {"tokens": token_ids(text)[None]})[0]
        return softmax(logits[0].astype(np.float64))

    return classify


def transformer_session(path: Path) -> Any:
    """ONNX Runtime with its defaults, on one thread."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def token_ids(text: str) -> NDArray[np.int64]:
    """Ids as a transformer of random weights needs them: one for each word and punctuation mark, 512 at most.

    WordPiece would also split words that it does not know, so that there would be as many tokens or more.
    """
    words = TOKEN.findall(text.lower())[: MAX_TOKENS - 2]
    return np.array([FIRST, *(zlib.crc32(word.encode()) % VOCABULARY for word in words), LAST], np.int64)


LOADERS: dict[str, Callable[[Path], Classify]] = {
    "tfidf": load_tfidf,
    "word-vectors": load_word_vectors,
    "transformer": load_transformer,
}
"""How to load each kind of classifier."""
