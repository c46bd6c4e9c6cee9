"""`python -m benchmarks.models.classification`: accuracy of the classifier: TF-IDF, ablation, long documents.

Trains three seeds of each case into `runs/classification/`, and one without the vector view, whose fit has no random
part: half an hour per run of all rounds on one core, a quarter with the first round or labels alone, a few minutes
without the vector view. Each result is recorded when its run ends; a restarted benchmark continues. The results of
TF-IDF are those of the record `text_tfidf`.
"""

import argparse
import statistics
from collections.abc import Iterator
from pathlib import Path

from benchmarks.lib import chart
from benchmarks.lib.benchmark import Benchmark
from benchmarks.lib.record import Data, Record, read
from benchmarks.lib.table import mean_and_deviation, table
from benchmarks.models.runs import Case, Values, evaluate, options_of, revisions, trained, values_by_case

NAME = "classification"
COMPARED = {
    "imdb": Case("imdb", "imdb-s3", 3),
    "20newsgroups": Case("20newsgroups", "newsgroups", 3),
    "20newsgroups-stripped": Case("20newsgroups-stripped", "newsgroups", 3, ('data.name="20newsgroups-stripped"',)),
}
"""Runs that are compared with TF-IDF, by data set."""
NO_SKELETON = ("model.encoder.options.use_rows=false", "model.encoder.options.use_columns=false")
CONVOLUTION = (*NO_SKELETON, "model.encoder.options.use_fourier=false", "model.encoder.options.kernel_size=9")
"""One convolution over 9 tokens in place of the attention: as many products as S3Attention."""
NO_BLOCK = ("model.encoder.num_layers=0",)
NGRAMS = ("model.vector_view.rounds=[]",)
TOKENS = ("model.encoder.seq_len=256", "model.vector_view.bytes_per_token=4")
"""Twice as many tokens as the served model has."""
VARIANTS = (
    Case("256 tokens: S3Attention", "imdb-s3", 3, TOKENS),
    Case("256 tokens: convolution", "imdb-s3", 3, (*TOKENS, *CONVOLUTION)),
    Case("256 tokens: no block", "imdb-s3", 3, (*TOKENS, *NO_BLOCK)),
    Case("n-gram view alone", "imdb-s3", 3, NGRAMS),
    Case("n-gram view alone, labels only", "imdb-s3", 3, (*NGRAMS, "data.unlabelled=false")),
    Case(
        "n-gram view alone, without vectors",
        "imdb-s3",
        1,
        (*NGRAMS, "data.unlabelled=false", "model.ngram_vectors.epochs=0"),
    ),
)
"""Ablations on IMDb."""
SERVED = "S3Attention, as served"
PUBLISHED = {"imdb": "69.27 ± 0.83"}
"""S3Attention on bytes (Wang et al. 2024, arXiv:2408.08567, Table 1, r = s1 = s2 = 8)."""


def measure(args: argparse.Namespace) -> Iterator[Data]:
    """Train and evaluate the missing runs."""
    return trained(NAME, (*COMPARED.values(), *VARIANTS), args, evaluate)


def report(record: Record) -> str:
    """Report: comparison with TF-IDF, ablation, long documents."""
    found = values_by_case(record.data["runs"])
    compared = {name: found[name] for name in COMPARED if name in found}
    baseline = tfidf()
    wanted = (("accuracy", "windows"), ("accuracy", "head"), ("macro_f1", "windows"), ("ece", "windows"))
    results = [
        [
            name,
            str(len(runs)),
            *(percent(runs, *key) for key in wanted),
            f"{baseline[name]:.2f}",
            PUBLISHED.get(name, ""),
        ]
        for name, runs in compared.items()
    ]
    variants = {SERVED: found.get("imdb", []), **{case.name: found.get(case.name, []) for case in VARIANTS}}
    parts = [
        [
            name,
            str(len(runs)),
            percent(runs, "accuracy", "windows"),
            gain(variants.get(f"{name.partition(': ')[0]}: S3Attention", []), runs),
        ]
        for name, runs in variants.items()
        if runs
    ]
    long = [
        [name, str(len(runs)), *(percent(runs, "accuracy", f"{how}, over 4,096 bytes") for how in ("windows", "head"))]
        for name, runs in compared.items()
    ]
    columns = ["ours", "head alone", "macro F1", "ECE", "TF-IDF + LR", "S3Attention, published"]
    return "\n".join(
        [
            "Accuracy on the whole test split in %, mean ± standard deviation over seeds; texts that are also in test "
            "are left out of training. TF-IDF and logistic regression: `text_tfidf`.",
            "",
            table(["documents", "seeds", *columns], results),
            "## What each part gives, on IMDb",
            "",
            "Gains are differences to the row, seed by seed, of S3Attention with as many tokens. A vector view that "
            "does not lower the cross-entropy on validation by more than a standard error is left out.\n",
            table(["model", "seeds", "accuracy", "gain of S3Attention"], parts),
            "## Documents longer than the model, over 4,096 bytes",
            "",
            table(["documents", "seeds", "windows", "head alone"], long),
            revisions(record.data["runs"]),
        ]
    )


def tfidf() -> dict[str, float]:
    """Data set -> accuracy in % of TF-IDF with logistic regression."""
    return {row["documents"]: 100 * row["accuracy"] for row in read("text_tfidf").data["sets"]}


def gain(model: list[Values], others: list[Values]) -> str:
    """Mean ± standard deviation of the differences in accuracy of the same seeds, in points."""
    pairs = zip(model, others, strict=False)
    differences = [100 * (a["accuracy", "windows"] - b["accuracy", "windows"]) for a, b in pairs]
    return "" if model is others or not differences else mean_and_deviation(differences, ".2f")


def percent(runs: list[Values], metric: str, condition: str) -> str:
    """Mean ± standard deviation in %."""
    return mean_and_deviation([100 * run[metric, condition] for run in runs], ".2f")


def draw(record: Record, path: Path) -> None:
    """Chart of the comparison and the ablation."""
    found, baseline = values_by_case(record.data["runs"]), tfidf()
    means = {name: [100 * run["accuracy", "windows"] for run in runs] for name, runs in found.items()}
    figure, (left, right) = chart.figure((12, 4), 2)
    compared = [name for name in COMPARED if name in means]
    for place, name in enumerate(compared):
        deviation = statistics.stdev(means[name]) if len(means[name]) > 1 else 0.0
        left.bar(place, statistics.mean(means[name]), yerr=deviation, capsize=3, color="C0")
        label = None if place else "TF-IDF + LR"
        left.plot([place - 0.45, place + 0.45], [baseline[name]] * 2, color="black", label=label)
    left.set(ylabel="accuracy, %", xticks=range(len(compared)), ylim=(60, 100))
    left.set_xticklabels(compared)
    if compared:
        left.legend()
    names = [name for name in ("imdb", *(case.name for case in VARIANTS)) if name in means]
    values = [statistics.mean(means[name]) for name in names]
    right.barh(range(len(names)), values, color="C1")
    right.axvline(baseline["imdb"], color="black", label="TF-IDF + LR")
    right.set(xlabel="accuracy on IMDb, %", yticks=range(len(names)))
    right.set_xlim(min([*values, baseline["imdb"]]) - 1, max([*values, baseline["imdb"]]) + 0.5)
    right.set_yticklabels([SERVED if name == "imdb" else name for name in names], fontsize=8)
    right.invert_yaxis()
    right.legend()
    chart.save(figure, path)


BENCHMARK = Benchmark.of("Classification", measure, report, draw, options_of(NAME), ("torch", "numpy"))

if __name__ == "__main__":
    BENCHMARK.main()
