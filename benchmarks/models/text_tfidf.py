"""`python -m benchmarks.models.text_tfidf [SET...]`: TF-IDF baseline of the classifiers, on the same splits.

TF-IDF of words and bigrams with logistic regression (scikit-learn, extra `train`). The regularisation is chosen on
validation, then the model is fitted on training and validation and evaluated on test once. SET is one of `imdb`,
`20newsgroups`, `20newsgroups-stripped` (default: all); results replace the recorded ones of the same set.
"""

import argparse
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal, get_args

from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import Pipeline, make_pipeline
from tqdm import tqdm

from artifact.provenance import git_revision
from benchmarks.lib.benchmark import Benchmark, add_data_dir
from benchmarks.lib.record import Data, Record, earlier
from benchmarks.lib.table import table
from model.config.data import DocumentsConfig
from model.data.documents import load_documents

NAME = "text_tfidf"
SetName = Literal["imdb", "20newsgroups", "20newsgroups-stripped"]
SETS: tuple[SetName, ...] = get_args(SetName)
STRENGTHS = (3.0, 10.0, 30.0, 100.0, 300.0)
"""Candidate inverse regularisation strengths."""


def options(parser: argparse.ArgumentParser) -> None:
    """Add the command-line options."""
    parser.add_argument("sets", nargs="*", metavar="SET", type=set_name, default=list(SETS))
    add_data_dir(parser)


def set_name(given: str) -> SetName:
    """Parse the name of a data set. Raises: argparse.ArgumentTypeError."""
    for name in SETS:
        if name == given:
            return name
    raise argparse.ArgumentTypeError(f"no {given!r}; there are: {', '.join(SETS)}")


def measure(args: argparse.Namespace) -> Iterator[Data]:
    """Measure each data set."""
    sets: dict[str, Data] = {found["documents"]: found for found in earlier(NAME, args.out).get("sets", [])}
    for name in args.sets:
        sets[name] = measure_set(name, args.data_dir)
        yield {"sets": [sets[known] for known in SETS if known in sets]}


def measure_set(name: SetName, data_dir: Path) -> Data:
    """Choose the regularisation, fit and evaluate."""
    config = DocumentsConfig(name=name)
    data = load_documents(config, data_dir)
    scores = {
        strength: fit(strength, data.train.texts, data.train.labels)(data.validation.texts, data.validation.labels)
        for strength in tqdm(STRENGTHS, desc=name, unit="fit")
    }
    chosen = max(scores, key=lambda strength: scores[strength])
    test = data.test
    started = time.perf_counter()
    accuracy_of = fit(chosen, data.train.texts + data.validation.texts, data.train.labels + data.validation.labels)
    seconds = time.perf_counter() - started
    return {
        "documents": name,
        "revision": git_revision(),
        "strength": chosen,
        "validation": scores[chosen],
        "examples": len(test),
        "accuracy": accuracy_of(test.texts, test.labels),
        "fit_s": seconds,
    }


def fit(strength: float, texts: list[bytes], labels: list[int]) -> Callable[[list[bytes], list[int]], float]:
    """Fit on texts; returns a function that gives the accuracy in [0, 1] on other texts."""
    fitted = pipeline(strength).fit(texts, labels)
    return lambda others, truth: float(fitted.score(others, truth))


def pipeline(strength: float) -> Pipeline:
    """TF-IDF and logistic regression with an inverse regularisation strength; not fitted."""
    vectorizer = TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True, min_df=2)
    return make_pipeline(vectorizer, LogisticRegression(C=strength, max_iter=1000))


def report(record: Record) -> str:
    """Report with one row per data set."""
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
        "out; C is chosen on validation, then the model is fitted on training and validation.\n\n"
        f"{table(['documents', 'C', 'validation %', 'test documents', 'test accuracy %', 'fit, s'], rows)}\n"
        f"Revisions: {', '.join(sorted({row['revision'] for row in record.data['sets']}))}.\n"
    )


BENCHMARK = Benchmark(
    program="benchmarks.models.text_tfidf",
    title="TF-IDF and logistic regression",
    description=__doc__,
    options=options,
    measure=measure,
    report=report,
    packages=("scikit-learn", "numpy"),
)

if __name__ == "__main__":
    BENCHMARK.main()
