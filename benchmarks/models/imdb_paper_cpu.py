"""`python -m benchmarks.models.imdb_paper_cpu`: the paper's encoder on IMDb, scaled to one CPU core, three seeds.

Trains the recipe `imdb-paper-cpu` into `runs/imdb_paper_cpu/` (25 minutes per seed on one core). Each result is
recorded when its run ends; a restarted benchmark continues.
"""

import argparse
import functools
import json
from collections.abc import Iterator
from pathlib import Path

from benchmarks.lib.benchmark import Benchmark
from benchmarks.lib.record import Data, Record
from benchmarks.lib.table import mean_and_deviation, table
from benchmarks.models.runs import Case, add_options, evaluate, revisions, trained

NAME = "imdb_paper_cpu"
CASE = Case("imdb-paper-cpu", "imdb-paper-cpu", 3)


def measure(args: argparse.Namespace) -> Iterator[Data]:
    """Train and evaluate the missing runs."""
    return trained(NAME, [CASE], args, results)


def results(folder: Path, data_dir: Path) -> Data:
    """Test accuracy with windows and with the head alone, and the best validation accuracy."""
    found = {(one["metric"], one["condition"]): one for one in evaluate(folder, data_dir)}
    epochs = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return {
        "examples": found["accuracy", "windows"]["examples"],
        "windows": found["accuracy", "windows"]["value"],
        "head": found["accuracy", "head"]["value"],
        "validation": max(epoch["validation_accuracy"] for epoch in epochs),
    }


def report(record: Record) -> str:
    """Report with one row per seed, and the mean."""
    runs = sorted(record.data["runs"], key=lambda run: int(run["seed"]))
    keys = ("windows", "head", "validation")
    rows = [[str(run["seed"]), *(f"{run['results'][key]:.4f}" for key in keys)] for run in runs]
    means = [mean_and_deviation([run["results"][key] for run in runs]) for key in keys]
    return (
        f"Accuracy on all {runs[0]['results']['examples']:,} IMDb test reviews, 512 bytes at a time; training texts "
        "that are also in test are left out.\n\n"
        f"{table(['seed', 'windows', 'head alone', 'best validation'], [*rows, ['mean ± sd', *means]])}\n"
        f"{revisions(runs)}\n"
    )


BENCHMARK = Benchmark(
    program="benchmarks.models.imdb_paper_cpu",
    title="The paper's encoder on IMDb, on a CPU core",
    description=__doc__,
    options=functools.partial(add_options, name=NAME),
    measure=measure,
    report=report,
    packages=("torch", "numpy"),
)

if __name__ == "__main__":
    BENCHMARK.main()
