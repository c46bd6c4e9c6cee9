"""`python -m benchmarks.models.text_tfidf`: what somebody would use instead, on the same documents and splits.

TF-IDF of words and bigrams with logistic regression (scikit-learn, extra `bench`). The regularisation is chosen on the
validation documents; then the model is fitted on both and measured on the test split once.
"""

import argparse
import time
from collections.abc import Callable, Iterator
from typing import Literal

from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from tqdm import tqdm

from benchmarks.lib.benchmark import Benchmark, add_data_dir
from benchmarks.lib.record import Data, Record
from benchmarks.lib.table import table
from model.config.run import DocumentsConfig
from model.data.documents import load_test, load_training

SETS: tuple[Literal["imdb", "20newsgroups", "20newsgroups-stripped"], ...] = (
    "imdb",
    "20newsgroups",
    "20newsgroups-stripped",
)
STRENGTHS = (3.0, 10.0, 30.0, 100.0, 300.0)
"""Inverse regularisation strengths tried on validation."""


def measure(args: argparse.Namespace) -> Iterator[Data]:
    """Choose, fit and measure each set of documents."""
    sets: list[Data] = []
    for name in SETS:
        config = DocumentsConfig(name=name)
        data = load_training(config, args.data_dir)
        scores = {
            strength: fit(strength, data.train.texts, data.train.labels)(data.validation.texts, data.validation.labels)
            for strength in tqdm(STRENGTHS, desc=name, unit="fit")
        }
        chosen = max(scores, key=lambda strength: scores[strength])
        test = load_test(config, args.data_dir, data.labels)
        started = time.perf_counter()
        accuracy_of = fit(chosen, data.train.texts + data.validation.texts, data.train.labels + data.validation.labels)
        seconds = time.perf_counter() - started
        sets.append(
            {
                "documents": name,
                "strength": chosen,
                "validation": scores[chosen],
                "examples": len(test),
                "accuracy": accuracy_of(test.texts, test.labels),
                "fit_s": seconds,
            }
        )
    yield {"sets": sets}


def fit(strength: float, texts: list[bytes], labels: list[int]) -> Callable[[list[bytes], list[int]], float]:
    """Fit on texts; returns the accuracy on others, in [0, 1]."""
    vectorizer = TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True, min_df=2)
    classifier = LogisticRegression(C=strength, max_iter=1000).fit(vectorizer.fit_transform(texts), labels)

    def accuracy(others: list[bytes], truth: list[int]) -> float:
        return float(classifier.score(vectorizer.transform(others), truth))

    return accuracy


def report(record: Record) -> str:
    """One row for each set."""
    rows = [
        [
            row["documents"],
            f"{row['strength']:g}",
            f"{100 * row['validation']:.2f}",
            str(row["examples"]),
            f"{100 * row['accuracy']:.2f}",
            f"{row['fit_s']:.0f}",
        ]
        for row in record.data["sets"]
    ]
    return (
        "Words and bigrams in two documents or more, sublinear counts; training texts that are also in test are left "
        "out; C is chosen on validation, then the model is fitted on both.\n\n"
        f"{table(['documents', 'C', 'validation %', 'test documents', 'test accuracy %', 'fit, s'], rows)}"
    )


BENCHMARK = Benchmark(
    program="benchmarks.models.text_tfidf",
    title="TF-IDF and logistic regression",
    description=__doc__,
    options=add_data_dir,
    measure=measure,
    report=report,
    packages=("scikit-learn", "numpy"),
)

if __name__ == "__main__":
    BENCHMARK.main()
