"""`python -m benchmarks.models.bytes`: accuracy of classifiers of byte n-grams on IMDb, by their parts.

Fits TF-IDF and logistic regression (scikit-learn) on n-grams of bytes, then trains into `runs/bytes/`: most of an hour
per run of all stages on one core, some minutes for the linear view alone. Each result is recorded when it is known; a
restarted benchmark continues. The results of words are those of the records `classification` and `text_tfidf`.
"""

import argparse
import statistics
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sklearn.feature_extraction.text import HashingVectorizer, TfidfTransformer
from sklearn.linear_model import LogisticRegression

from benchmarks.lib import chart
from benchmarks.lib.benchmark import Benchmark
from benchmarks.lib.record import Data, Record, earlier, read
from benchmarks.lib.table import table
from benchmarks.models.classification import NGRAMS, NO_BLOCK, NO_SKELETON, gain, percent, tfidf
from benchmarks.models.runs import (
    Case,
    evaluate,
    options_of,
    recorded_and_missing,
    revisions,
    trained,
    values_by_case,
)
from model.config.data import DocumentsConfig
from model.config.recipes import find_recipe, load_recipe
from model.data.documents import LabelledDocuments, load_documents

NAME = "bytes"
SERVED = "S3Attention"
LABELS = ("data.unlabelled=false",)
NO_FOURIER = ("model.encoder.options.use_fourier=false",)
SINGLE = ("model.ngram_view.sizes=[1]", "model.vector_view.channels=96")
ALONE, BYTES, ONE_EPOCH = ", labels alone", ", single bytes", ", one epoch"
"""Ends of the names of cases: without unlabelled reviews; of single bytes, read by a convolution; trained for a third
of the epochs, because softmax takes several times as long."""
CASES = (
    Case(SERVED, "imdb-bytes", 3),
    Case("no block", "imdb-bytes", 3, NO_BLOCK),
    Case("convolution", "imdb-bytes", 1, (*NO_SKELETON, *NO_FOURIER, "model.encoder.options.kernel_size=13")),
    Case("no Fourier convolution", "imdb-bytes", 1, NO_FOURIER),
    Case("no skeleton attention", "imdb-bytes", 1, NO_SKELETON),
    Case(SERVED + ONE_EPOCH, "imdb-bytes", 1, ("training.epochs=1",)),
    Case("softmax" + ONE_EPOCH, "imdb-bytes", 1, ('model.encoder.attention="softmax"', "training.epochs=1")),
    Case("linear view", "imdb-bytes", 1, NGRAMS),
    Case(SERVED + ALONE, "imdb-bytes", 1, LABELS),
    Case("no block" + ALONE, "imdb-bytes", 1, (*NO_BLOCK, *LABELS)),
    Case("linear view" + ALONE, "imdb-bytes", 1, (*NGRAMS, *LABELS)),
    Case(SERVED + BYTES, "imdb-bytes", 1, SINGLE),
    Case("no block" + BYTES, "imdb-bytes", 1, (*SINGLE, *NO_BLOCK)),
    Case(SERVED + BYTES + ALONE, "imdb-bytes", 1, (*SINGLE, *LABELS)),
)
"""Classifiers of bytes. The convolution reads 13 tokens, with about as many products as S3Attention."""
TOY = Case(
    "toy",
    "imdb-bytes",
    1,
    (
        *LABELS,
        'data.name="synthetic"',
        "data.validation_fraction=0.2",
        "model.ngram_view.max_length=512",
        "model.encoder.seq_len=64",
        "model.vector_view.num_buckets=1024",
        "training.epochs=1",
        "training.batch_size=8",
    ),
)
"""A classifier that is trained within seconds on generated documents."""
TFIDF = "TF-IDF + LR"
NUM_HASHES = 2**20
STRENGTHS = (1.0, 3.0, 10.0, 30.0, 100.0)
"""Values of C of logistic regression, of which the validation reviews choose."""


def options(parser: argparse.ArgumentParser) -> None:
    """Add the command-line options."""
    options_of(NAME)(parser)
    parser.add_argument("--toy", action="store_true", help="try the benchmark on generated documents")


def measure(args: argparse.Namespace) -> Iterator[Data]:
    """Measure TF-IDF; train and evaluate the missing runs."""
    before = earlier(NAME, args.out)
    if not args.toy and "tfidf" not in before:
        before = {"runs": [], **before, "tfidf": tfidf_of_bytes(args.data_dir)}
        yield before
    for found in trained(NAME, cases_of(args), args, evaluate):
        yield {**before, **found}


def missing(args: argparse.Namespace) -> list[str]:
    """The runs that the record lacks."""
    return [f"{case.name} {seed}" for case, seed in recorded_and_missing(NAME, cases_of(args), args)[1]]


def cases_of(args: argparse.Namespace) -> tuple[Case, ...]:
    """The cases of a command line."""
    return (TOY,) if args.toy else CASES


def tfidf_of_bytes(data_dir: Path) -> Data:
    """TF-IDF of n-grams of 3 to 6 bytes with logistic regression, from labels alone: its C and accuracies."""
    config = load_recipe(find_recipe("imdb-bytes")).data
    assert isinstance(config, DocumentsConfig)
    data = load_documents(config, data_dir)
    settings: dict[str, Any] = {"analyzer": "char", "ngram_range": (3, 6), "n_features": NUM_HASHES, "norm": None}
    vectorizer, scaling = HashingVectorizer(alternate_sign=False, **settings), TfidfTransformer(sublinear_tf=True)

    def counts(part: LabelledDocuments) -> Any:
        return vectorizer.transform([text.decode("latin-1") for text in part.texts])

    x = scaling.fit_transform(counts(data.train))
    validation, test = (scaling.transform(counts(part)) for part in (data.validation, data.test))
    found = list[Data]()
    for strength in STRENGTHS:
        regression = LogisticRegression(C=strength, max_iter=1000).fit(x, data.train.labels)
        held_out, accuracy = (
            regression.score(validation, data.validation.labels),
            regression.score(test, data.test.labels),
        )
        found.append({"strength": strength, "validation": float(held_out), "accuracy": float(accuracy)})
    return max(found, key=lambda one: float(one["validation"]))


def served_like(name: str) -> str:
    """The case with S3Attention that a case is compared with."""
    return SERVED + "".join(end for end in (BYTES, ALONE, ONE_EPOCH) if end in name)


def report(record: Record) -> str:
    """Report: accuracy by parts, beside words and TF-IDF."""
    found, words = values_by_case(record.data["runs"]), values_by_case(read("classification").data["runs"])
    named = {
        **{case.name: found[case.name] for case in (*CASES, TOY) if case.name in found},
        "words: imdb-s3": words["imdb"],
        "words: n-gram view, labels alone": words["n-gram view alone, labels only"],
    }
    rows = [
        [
            name,
            str(len(runs)),
            *(percent(runs, *key) for key in (("accuracy", "windows"), ("ece", "windows"))),
            gain(found.get(served_like(name), []), runs),
        ]
        for name, runs in named.items()
    ]
    note = ""
    if rival := record.data.get("tfidf"):
        rows.append([TFIDF + ALONE, "1", f"{100 * rival['accuracy']:.2f}", "", ""])
        note = (
            f"{TFIDF}: n-grams of 3 to 6 bytes, hashed into {NUM_HASHES:,} columns, and logistic regression with C = "
            f"{rival['strength']:g}, chosen on validation. Of words (`text_tfidf`): {tfidf()['imdb']:.2f}."
        )
    return "\n".join(
        [
            "Accuracy on the whole test split of IMDb in %, mean ± standard deviation over seeds. The first rows are "
            "classifiers of n-grams of 3, 5 and 7 bytes, or of single bytes, read by a convolution. They are also "
            "taught by a model of words on 50,000 unlabelled reviews, unless they learn from labels alone. A vector "
            "view that does not lower the cross-entropy on validation by more than a standard error is left out. Gain: "
            "accuracy of S3Attention trained on the same data minus that of the row, seed by seed.",
            "",
            note,
            "",
            table(["model", "seeds", "accuracy", "ECE", "gain of S3Attention"], rows),
            revisions(record.data["runs"]),
        ]
    )


def draw(record: Record, path: Path) -> None:
    """Chart of the accuracies."""
    found = values_by_case(record.data["runs"])
    names = [case.name for case in (*CASES, TOY) if case.name in found]
    means = [statistics.mean(100 * run["accuracy", "windows"] for run in found[name]) for name in names]
    figure, (axes,) = chart.figure((8, 4))
    axes.barh(range(len(names)), means, color="C0")
    if rival := record.data.get("tfidf"):
        axes.axvline(100 * rival["accuracy"], color="black", label=TFIDF + " of bytes")
        axes.legend()
    axes.set(xlabel="accuracy on IMDb, %", yticks=range(len(names)), xlim=(min(means) - 1, max(means) + 0.5))
    axes.set_yticklabels(names)
    axes.invert_yaxis()
    chart.save(figure, path)


BENCHMARK = Benchmark.of(
    "Classifiers of bytes", measure, report, draw, options, ("torch", "numpy", "scikit-learn"), missing
)

if __name__ == "__main__":
    BENCHMARK.main()
