"""Makes the classifiers that `benchmarks.models.alternatives` compares with the shipped one, on IMDb.

TF-IDF and the word vectors are trained here; the settings of the word vectors are chosen on validation, those of TF-IDF
were chosen by `benchmarks.models.text_tfidf`, on validation as well. The transformers have random weights.
"""

import functools
import json
import pickle
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import numpy as np
import torch
from tqdm import tqdm

import artifact
from benchmarks.lib import record
from benchmarks.lib.record import Data
from benchmarks.models import text_tfidf, transformer, word_vectors
from benchmarks.models.word_vectors import Bags, Settings
from benchmarks.serving.classifiers import MODEL
from model.config.data import DocumentsConfig
from model.data.documents import Documents, DocumentSet, load_test, load_training

CONFIG, LABELS = DocumentsConfig(name="imdb"), ["negative", "positive"]
SHIPPED = Path("exports/imdb-s3")
CANDIDATES = (
    Settings(epochs=2, learning_rate=0.01),
    Settings(epochs=3, learning_rate=0.01),
    Settings(epochs=5, learning_rate=0.01),
    Settings(epochs=2, learning_rate=0.03),
    Settings(dim=50, epochs=2, learning_rate=0.01),
)
"""Settings of the word vectors, of which validation chooses."""
SEEDS = 3


class Reviews:
    """The reviews of IMDb, read when they are needed."""

    def __init__(self, data_dir: Path) -> None:
        self._data_dir = data_dir

    @functools.cached_property
    def training(self) -> DocumentSet:
        """Training and validation reviews, without texts of the test split."""
        return load_training(CONFIG, self._data_dir)

    @functools.cached_property
    def all_training(self) -> Documents:
        """Training and validation reviews together."""
        parts = self.training
        return Documents(parts.train.texts + parts.validation.texts, parts.train.labels + parts.validation.labels)

    @functools.cached_property
    def test(self) -> Documents:
        """Test reviews."""
        return load_test(CONFIG, self._data_dir, LABELS)


def make(reviews: Reviews, runs: Path) -> dict[str, Data]:
    """Make the classifiers that `runs` lacks; returns the results of each."""
    torch.set_num_threads(1)
    shipped = artifact.load(SHIPPED, device="cpu").manifest.version
    makers: dict[str, tuple[str, Callable[[Reviews, Path], Data]]] = {
        "imdb-s3": (f"imdb-s3-{shipped}", evaluate_shipped),
        "tfidf": ("tfidf", fit_tfidf),
        "word-vectors": ("word-vectors", fit_word_vectors),
        "transformer": ("transformer", make_transformers),
    }
    return {key: _made(maker, reviews, runs / folder) for key, (folder, maker) in makers.items()}


def _made(maker: Callable[[Reviews, Path], Data], reviews: Reviews, folder: Path) -> Data:
    """Results of a maker, stored beside what it made."""
    stored = folder / "results.json"
    if not stored.is_file():
        folder.mkdir(parents=True, exist_ok=True)
        stored.write_text(json.dumps(maker(reviews, folder)))
    results: Data = json.loads(stored.read_text())
    return results


def evaluate_shipped(reviews: Reviews, folder: Path) -> Data:
    """Test accuracy of the export itself, as the service reads documents."""
    del folder
    model, test = artifact.load(SHIPPED, device="cpu"), reviews.test
    right = 0
    for first in tqdm(range(0, len(test), 500), desc="imdb-s3", unit="batch"):
        found = model.classify(test.texts[first : first + 500])
        right += sum(
            answer["label"] == LABELS[label]
            for answer, label in zip(found, test.labels[first : first + 500], strict=True)
        )
    return {"version": model.manifest.version, "accuracy": right / len(test)}


def fit_tfidf(reviews: Reviews, folder: Path) -> Data:
    """Fit TF-IDF and logistic regression on training and validation; accuracy on test."""
    (chosen,) = (one for one in record.read(text_tfidf.NAME).data["sets"] if one["documents"] == "imdb")
    fitted = text_tfidf.pipeline(chosen["strength"])
    fitted.fit(reviews.all_training.texts, reviews.all_training.labels)
    (folder / f"{MODEL}.pickle").write_bytes(pickle.dumps(fitted))
    accuracy = float(fitted.score(reviews.test.texts, reviews.test.labels))
    return {"strength": chosen["strength"], "validation": chosen["validation"], "accuracies": [accuracy]}


def fit_word_vectors(reviews: Reviews, folder: Path) -> Data:
    """Choose settings on validation, then train on training and validation, once for each seed; accuracies on test."""
    train, validation = reviews.training.train, reviews.training.validation
    rows = CANDIDATES[0].rows
    bags, held_out = Bags(train.texts, rows), Bags(validation.texts, rows)
    tried = []
    for settings in CANDIDATES:
        model = word_vectors.fit(settings, bags, train.labels, seed=0)
        tried.append(
            {**asdict(settings), "validation": word_vectors.accuracy(model, held_out, validation.labels)},
        )
    chosen = CANDIDATES[int(np.argmax([one["validation"] for one in tried]))]
    bags, test = Bags(reviews.all_training.texts, rows), Bags(reviews.test.texts, rows)
    accuracies = []
    for seed in range(SEEDS):
        model = word_vectors.fit(chosen, bags, reviews.all_training.labels, seed)
        accuracies.append(word_vectors.accuracy(model, test, reviews.test.labels))
        if seed == 0:
            model.save(folder)
    return {"tried": tried, "chosen": asdict(chosen), "accuracies": accuracies}


def make_transformers(reviews: Reviews, folder: Path) -> Data:
    """Export the transformer in float32 and in int8."""
    del reviews
    transformer.export(folder)
    transformer.quantise(folder, folder / "int8")
    return {}
