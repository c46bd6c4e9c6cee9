"""`python -m benchmarks.models.aan_tfidf`: TF-IDF baseline for matching papers, on the same pairs.

Cosine similarity of TF-IDF vectors of words (scikit-learn, extra `train`), fitted on documents outside the test and
validation folds; the threshold is chosen on validation. Evaluated on all test pairs and on the paper-disjoint ones.
"""

import argparse
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray
from sklearn.feature_extraction.text import TfidfVectorizer

from benchmarks.lib.benchmark import Benchmark, add_data_dir
from benchmarks.lib.record import Data, Record
from benchmarks.lib.table import table
from model.config.data import PairsConfig
from model.data.pairs import load_pairs
from model.tasks.link import area_under_roc

MAX_BYTES = 4000
"""Maximum bytes read of each paper."""


def measure(args: argparse.Namespace) -> Iterator[Data]:
    """Fit once; choose the threshold and evaluate for both kinds of pairs."""
    pairs = load_pairs(PairsConfig(name="aan"), args.data_dir)
    texts = [text[:MAX_BYTES].decode(errors="ignore") for text in pairs.texts]
    vectorizer = TfidfVectorizer(sublinear_tf=True, min_df=2, max_df=0.5)
    # Fold 0 belongs to the test pairs, fold 1 to validation.
    vectorizer.fit([text for text, fold in zip(texts, pairs.folds, strict=True) if fold > 1])
    vectors = vectorizer.transform(texts)

    def cosine(pairs: NDArray[np.int64]) -> NDArray[np.float64]:
        """Cosine similarity of each pair; the vectors are normalised."""
        products = vectors[pairs[:, 0]].multiply(vectors[pairs[:, 1]]).sum(axis=1)
        return np.asarray(products, np.float64).ravel()

    sets: list[Data] = []
    for name, validation, test in (
        ("all", pairs.table["val"], pairs.table["test"]),
        ("paper-disjoint", pairs.disjoint("val"), pairs.disjoint("test")),
    ):
        scores = cosine(validation)
        threshold = float(max(np.unique(scores), key=lambda t: float(((scores >= t) == validation[:, 2]).mean())))
        found = cosine(test)
        sets.append(
            {
                "pairs": name,
                "examples": len(test),
                "threshold": threshold,
                "accuracy": float(((found >= threshold) == test[:, 2]).mean()),
                "auc": float(area_under_roc(found, test[:, 2])),
            }
        )
    yield {"sets": sets}


def report(record: Record) -> str:
    """Report with one row per kind of pairs."""
    rows = [
        [row["pairs"], str(row["examples"]), *(f"{row[key]:.4f}" for key in ("threshold", "accuracy", "auc"))]
        for row in record.data["sets"]
    ]
    return (
        f"First {MAX_BYTES:,} bytes of each paper, words, sublinear counts; no pair is trained on.\n\n"
        f"{table(['test pairs', 'n', 'threshold', 'accuracy', 'AUC'], rows)}"
    )


BENCHMARK = Benchmark(
    program="benchmarks.models.aan_tfidf",
    title="TF-IDF cosine on pairs of ACL Anthology papers",
    description=__doc__,
    options=add_data_dir,
    measure=measure,
    report=report,
    packages=("scikit-learn", "numpy"),
)

if __name__ == "__main__":
    BENCHMARK.main()
