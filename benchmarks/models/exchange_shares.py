"""`python -m benchmarks.models.exchange_shares`: selects `linear_share` of the forecaster for Exchange.

Uses training rows only, neither validation nor test: `exchange-s3` is trained on the first 60 % of the training rows
(42 % of all rows) with each share, and compared on the other 40 % (28 % of all rows, the first half of this run's
validation split). A share of 0 repeats the last value. Each result is recorded when its run ends; a restarted
benchmark continues.
"""

import argparse
import functools
import json
from collections.abc import Iterator
from pathlib import Path

import torch

from benchmarks.lib.benchmark import Benchmark
from benchmarks.lib.record import Data, Record
from benchmarks.lib.table import table
from benchmarks.models.runs import Case, add_options, revisions, trained
from model.tasks import task_of
from model.tasks.forecasting import Forecasting
from model.training import checkpoint

NAME = "exchange_shares"
SHARES = (0.0, 0.25, 0.5, 0.75, 1.0)
SPLIT = ("data.train_fraction=0.42", "data.validation_fraction=0.56")
CASES = [Case(f"{share:.2f}", "exchange-s3", 1, (*SPLIT, f"model.linear_share={share}")) for share in SHARES]
"""Cases, named by their share."""


def measure(args: argparse.Namespace) -> Iterator[Data]:
    """Train and evaluate the missing runs."""
    return trained(NAME, CASES, args, results)


def results(folder: Path, data_dir: Path) -> Data:
    """Error relative to the linear map, before training and after each epoch."""
    config, _, _, _ = checkpoint.load(folder / "last.pt")
    task = task_of(config)
    assert isinstance(task, Forecasting)
    task.load(data_dir)
    torch.manual_seed(config.seed)
    model = task.build()
    task.initialise(model, torch.device("cpu"))
    start, end = task.series.validation_half(0)
    epochs = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return {
        "rows": end - start,
        "horizon": task.horizon,
        "start": task.validate(model.eval(), torch.device("cpu")),
        "epochs": [epoch["validation_mse_to_linear"] for epoch in epochs],
    }


def report(record: Record) -> str:
    """Report with one row per share."""
    runs = sorted(record.data["runs"], key=lambda run: float(run["case"]))
    first = runs[0]["results"]
    heads = [f"epoch {number}" for number in range(1, 1 + len(first["epochs"]))]
    rows = [
        [run["case"], *(f"{value:.4f}" for value in (run["results"]["start"], *run["results"]["epochs"]))]
        for run in runs
    ]
    return (
        f"MSE relative to the linear map, on the last 40 % of the training rows ({first['rows']:,} days), trained on "
        f"the first 60 %; mean over {first['horizon']} steps, seed 0. `start`: the linear map with its share, before "
        "training; epochs: with the correction by attention.\n\n"
        f"{table(['linear_share', 'start', *heads], rows, left=0)}\n"
        f"{revisions(runs)}\n"
    )


BENCHMARK = Benchmark(
    program="benchmarks.models.exchange_shares",
    title="Which share of the linear map Exchange keeps",
    description=__doc__,
    options=functools.partial(add_options, name=NAME),
    measure=measure,
    report=report,
    packages=("torch", "numpy"),
)

if __name__ == "__main__":
    BENCHMARK.main()
