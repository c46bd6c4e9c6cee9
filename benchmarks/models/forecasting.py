"""`python -m benchmarks.models.forecasting`: the forecasters against the published table, on all test windows.

Trains three seeds of each recipe, with and without its S3Attention block, and one of the paper's own forecaster into
`runs/forecasting/` (about an hour on one core). Each result is recorded when its run ends; a restarted benchmark
continues. The results of repeat-last and the linear map are those of the record `forecasting_baselines`.
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
from model.tasks.forecasting import PUBLISHED

NAME = "forecasting"
STEPS = {"ili": 36}
"""Input length by data set; default 96."""
LITERAL = ("model.kind=paper", "model.patch_length=1", "training.learning_rate=1e-3", "model.encoder.num_layers=2")
"""Overrides that turn a recipe into the paper's forecaster: one step per token, joint channels, extrapolation."""
CASES = [
    *(Case(f"ours, {name}", f"{name}-s3", 3) for name in PUBLISHED),
    *(
        Case(f"literal, {name}", f"{name}-s3", 1, (*LITERAL, f"model.encoder.seq_len={STEPS.get(name, 96)}"))
        for name in PUBLISHED
    ),
    *(Case(f"no block, {name}", f"{name}-s3", 3, ("model.encoder.num_layers=0",)) for name in PUBLISHED),
]
ROWS = [(name, horizon) for name, horizons in PUBLISHED.items() for horizon in horizons]


def measure(args: argparse.Namespace) -> Iterator[Data]:
    """Train and evaluate the missing runs."""
    return trained(NAME, CASES, args, evaluate)


def baselines() -> dict[tuple[str, int], tuple[float, float]]:
    """(Data set, horizon) -> MSE of repeat-last and of the linear map."""
    rows = read("forecasting_baselines").data["rows"]
    return {(row["set"], row["horizon"]): (row["repeat_last"]["mse"], row["linear_map"]["mse"]) for row in rows}


def values(found: dict[str, list[Values]], kind: str, name: str, horizon: int, metric: str) -> list[float]:
    """Values of a metric, one per seed."""
    return [run[metric, f"horizon {horizon}"] for run in found.get(f"{kind}, {name}", [])]


def report(record: Record) -> str:
    """Report with one row per data set and horizon, and in how many rows ours is at or below each other method."""
    found, others, rows, without = values_by_case(record.data["runs"]), baselines(), [], []
    wins = dict.fromkeys(("S3Attention", "FEDformer", "repeat-last", "linear map"), 0)
    for name, horizon in ROWS:
        if not (ours := values(found, "ours", name, horizon, "mse")):
            continue
        compared = dict(zip(wins, (*PUBLISHED[name][horizon], *others[name, horizon]), strict=True))
        for other, value in compared.items():
            wins[other] += round(statistics.mean(ours), 3) <= round(value, 3)
        literal = values(found, "literal", name, horizon, "mse")
        cells = [mean_and_deviation(values(found, "ours", name, horizon, m)) for m in ("mse", "mae", "coverage_80")]
        cells += [mean_and_deviation(literal) if literal else "", *(f"{value:.3f}" for value in compared.values())]
        rows.append([name, str(horizon), *cells])
        if no_block := values(found, "no block", name, horizon, "mse"):
            gains = [before - after for before, after in zip(no_block, ours, strict=False)]
            cells = [*cells[:1], mean_and_deviation(no_block), f"{compared['linear map']:.3f}"]
            without.append([name, str(horizon), *cells, mean_and_deviation(gains)])
    heads = ["set", "horizon", "ours MSE", "ours MAE", "80 % band covers", "literal MSE", *wins]
    counts = ", ".join(f"{other} {count}" for other, count in wins.items())
    return (
        "MSE and MAE on scaled data over all test windows, ours mean ± standard deviation over seeds; input 96, ILI "
        "36; one model per data set, for all its horizons. Splits: ETTm2 12/4/4 months, the others 7:1:2. Recipes were "
        "chosen on the first half of validation, that of Exchange on the end of the training rows (`exchange_shares`). "
        "`literal` is the paper's forecaster, trained by us, one seed; S3Attention and FEDformer are quoted (Wang et "
        "al. 2024, arXiv:2408.08567, Table 2); repeat-last and linear map: `forecasting_baselines`.\n\n"
        f"{table(heads, rows)}\n"
        f"Number of rows, of {len(rows)}, in which ours (mean, 3 decimals) is at or below: {counts}.\n\n"
        "MSE without the S3Attention block, everything else equal; the gain is the difference of the same seeds:\n\n"
        f"{table(['set', 'horizon', 'ours', 'no block', 'linear map', 'gain of the block'], without)}\n"
        f"{revisions(record.data['runs'])}\n"
    )


def draw(record: Record, path: Path) -> None:
    """Chart of MSE relative to the published S3Attention, with standard deviation over seeds; below 1 is better."""
    figure, (axes,) = chart.figure((11, 3.8))
    found = values_by_case(record.data["runs"])
    for offset, kind in ((-0.2, "ours"), (0.2, "literal")):
        ratios = [
            [mse / PUBLISHED[name][horizon][0] for mse in values(found, kind, name, horizon, "mse")]
            for name, horizon in ROWS
        ]
        means = [statistics.mean(each) if each else 0.0 for each in ratios]
        deviations = [statistics.stdev(each) if len(each) > 1 else 0.0 for each in ratios]
        axes.bar([i + offset for i in range(len(ROWS))], means, 0.4, yerr=deviations, capsize=2, label=kind)
    axes.axhline(1, color="black", linewidth=1, label="S3Attention, published")
    axes.set(ylabel="MSE / published MSE", xticks=range(len(ROWS)), ylim=(0, 2))
    axes.set_xticklabels([f"{name}\n{horizon}" for name, horizon in ROWS], fontsize=7)
    axes.legend()
    chart.save(figure, path)


BENCHMARK = Benchmark.of("Forecasting", measure, report, draw, options_of(NAME), ("torch", "numpy"))

if __name__ == "__main__":
    BENCHMARK.main()
