"""`python -m benchmarks.models.bytes`: accuracy of classifiers of byte n-grams on IMDb, by their parts.

Trains into `runs/bytes/`: most of an hour per run of all stages on one core, some minutes for the linear view alone.
Each result is recorded when its run ends; a restarted benchmark continues. The results of words and of TF-IDF are those
of the records `classification` and `text_tfidf`.
"""

import argparse
import statistics
from collections.abc import Iterator
from pathlib import Path

from benchmarks.lib import chart
from benchmarks.lib.benchmark import Benchmark
from benchmarks.lib.record import Data, Record, read
from benchmarks.lib.table import table
from benchmarks.models.classification import NGRAMS, NO_BLOCK, NO_SKELETON, gain, percent, tfidf
from benchmarks.models.runs import Case, evaluate, options_of, revisions, trained, values_by_case

NAME = "bytes"
LABELS = ("data.unlabelled=false",)
SERVED = "S3Attention"
CASES = (
    Case(SERVED, "imdb-bytes", 3),
    Case("no block", "imdb-bytes", 3, NO_BLOCK),
    Case("linear view", "imdb-bytes", 1, NGRAMS),
    Case("linear view, labels alone", "imdb-bytes", 1, (*NGRAMS, *LABELS)),
    Case("S3Attention, labels alone", "imdb-bytes", 1, LABELS),
    Case(
        "convolution",
        "imdb-bytes",
        1,
        (*NO_SKELETON, "model.encoder.options.use_fourier=false", "model.encoder.options.kernel_size=13"),
    ),
    Case("no Fourier convolution", "imdb-bytes", 1, ("model.encoder.options.use_fourier=false",)),
    Case("no skeleton attention", "imdb-bytes", 1, NO_SKELETON),
    Case("softmax", "imdb-bytes", 1, ('model.encoder.attention="softmax"',)),
)
"""Classifiers of bytes. The convolution reads 13 tokens, with about as many products as S3Attention."""


def measure(args: argparse.Namespace) -> Iterator[Data]:
    """Train and evaluate the missing runs."""
    return trained(NAME, CASES, args, evaluate)


def report(record: Record) -> str:
    """Report: accuracy by parts, beside words and TF-IDF."""
    found, words = values_by_case(record.data["runs"]), values_by_case(read("classification").data["runs"])
    named = {
        **{case.name: found[case.name] for case in CASES if case.name in found},
        "words: imdb-s3": words["imdb"],
        "words: n-gram view, labels alone": words["n-gram view alone, labels only"],
    }
    ours = found.get(SERVED, [])
    rows = [
        [
            name,
            str(len(runs)),
            *(percent(runs, *key) for key in (("accuracy", "windows"), ("ece", "windows"))),
            gain(ours, runs),
        ]
        for name, runs in named.items()
    ]
    return "\n".join(
        [
            "Accuracy on the whole test split of IMDb in %, mean ± standard deviation over seeds. The first rows are "
            "classifiers of byte n-grams, also taught by a model of words on 50,000 unlabelled reviews, unless "
            f"they learn from labels alone. TF-IDF and logistic regression (`text_tfidf`): {tfidf()['imdb']:.2f}. "
            "Gains are differences to the row, seed by seed, of S3Attention. A vector view that does not lower the "
            "cross-entropy on validation by more than a standard error is left out.",
            "",
            table(["model", "seeds", "accuracy", "ECE", "gain of S3Attention"], rows),
            revisions(record.data["runs"]),
        ]
    )


def draw(record: Record, path: Path) -> None:
    """Chart of the accuracies."""
    found = values_by_case(record.data["runs"])
    names = [case.name for case in CASES if case.name in found]
    means = [statistics.mean(100 * run["accuracy", "windows"] for run in found[name]) for name in names]
    figure, (axes,) = chart.figure((8, 3))
    axes.barh(range(len(names)), means, color="C0")
    axes.axvline(tfidf()["imdb"], color="black", label="TF-IDF + LR")
    axes.set(xlabel="accuracy on IMDb, %", yticks=range(len(names)), xlim=(88, max(means, default=92) + 0.5))
    axes.set_yticklabels(names)
    axes.invert_yaxis()
    axes.legend()
    chart.save(figure, path)


BENCHMARK = Benchmark.of("Classifiers of bytes", measure, report, draw, options_of(NAME), ("torch", "numpy"))

if __name__ == "__main__":
    BENCHMARK.main()
