"""`python -m benchmarks.models.views`: what a second view, and S3Attention in it, add to the classifier of reviews.

Trains into `runs/views/` (more than an hour per run on one core; less for cases that only run the first round).
Each result is recorded when its run ends; a restarted benchmark continues.
"""

import argparse
import functools
import statistics
from collections.abc import Iterator
from pathlib import Path

from benchmarks.lib import chart
from benchmarks.lib.benchmark import Benchmark
from benchmarks.lib.record import Data, Record
from benchmarks.lib.table import mean_and_deviation, table
from benchmarks.models.runs import Case, add_options, evaluate, revisions, trained, values_by_case

NAME = "views"
RECIPE = "imdb-s3"
WITHOUT_SKELETON = ("model.encoder.options.use_rows=false", "model.encoder.options.use_columns=false")
CONVOLUTION = (*WITHOUT_SKELETON, "model.encoder.options.use_fourier=false", "model.encoder.options.kernel_size=9")
"""One convolution over 9 tokens in place of the attention: as many products as S3Attention."""
FIRST_ROUND = ("model.vector_view.rounds=[{}]",)
CASES = (
    Case("all rounds: S3Attention", RECIPE, 3),
    Case("all rounds: convolution", RECIPE, 3, CONVOLUTION),
    Case("all rounds: no block", RECIPE, 3, ("model.encoder.num_layers=0",)),
    Case("first round: S3Attention", RECIPE, 3, FIRST_ROUND),
    Case("first round: without smoother", RECIPE, 3, (*FIRST_ROUND, "model.encoder.options.use_smoother=false")),
    Case(
        "first round: without Fourier convolution", RECIPE, 3, (*FIRST_ROUND, "model.encoder.options.use_fourier=false")
    ),
    Case("first round: without skeleton attention", RECIPE, 3, (*FIRST_ROUND, *WITHOUT_SKELETON)),
    Case("first round: convolution", RECIPE, 3, (*FIRST_ROUND, *CONVOLUTION)),
    Case("first round: no block", RECIPE, 3, (*FIRST_ROUND, "model.encoder.num_layers=0")),
    Case("labels alone: S3Attention", RECIPE, 3, (*FIRST_ROUND, "data.unlabelled=false")),
    Case("n-gram view alone", RECIPE, 3, ("model.vector_view.rounds=[]", "data.unlabelled=false")),
)


def measure(args: argparse.Namespace) -> Iterator[Data]:
    """Train and evaluate the missing runs."""
    return trained(NAME, CASES, args, evaluate)


def accuracies(record: Record) -> dict[str, list[float]]:
    """Case -> accuracy in % of each seed."""
    found = values_by_case(record.data["runs"])
    return {
        case.name: [100 * run["accuracy", "windows"] for run in found[case.name]]
        for case in CASES
        if case.name in found
    }


def report(record: Record) -> str:
    """Report with one row per case."""
    rows = [[name, str(len(values)), mean_and_deviation(values, ".2f")] for name, values in accuracies(record).items()]
    return (
        "Accuracy on the whole IMDb test split in %, mean ± standard deviation over seeds. All choices were made on "
        "validation; texts that are also in test are left out of training and of the unlabelled reviews.\n\n"
        f"{table(['model', 'seeds', 'accuracy'], rows)}\n{revisions(record.data['runs'])}\n"
    )


def draw(record: Record, path: Path) -> None:
    """Chart with one bar per case."""
    found = accuracies(record)
    figure, (axes,) = chart.figure((8, 1 + 0.35 * len(found)), 1)
    for place, values in enumerate(found.values()):
        deviation = statistics.stdev(values) if len(values) > 1 else 0.0
        axes.barh(place, statistics.mean(values), xerr=deviation, capsize=3, color="C0")
    axes.set(xlabel="accuracy, %", yticks=range(len(found)))
    axes.set_yticklabels(list(found), fontsize=8)
    axes.set_xlim(min(map(min, found.values())) - 0.5, max(map(max, found.values())) + 0.5)
    axes.invert_yaxis()
    chart.save(figure, path)


BENCHMARK = Benchmark(
    program="benchmarks.models.views",
    title="A second view, and what S3Attention adds to it",
    description=__doc__,
    options=functools.partial(add_options, name=NAME),
    measure=measure,
    report=report,
    chart=draw,
    packages=("torch", "numpy", "gensim"),
)

if __name__ == "__main__":
    BENCHMARK.main()
