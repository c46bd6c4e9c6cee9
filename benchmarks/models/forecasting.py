"""`python -m benchmarks.models.forecasting`: the forecasters against the published table, on all test windows.

Trains three seeds of each recipe, with and without its S3Attention block, and one of the paper's own forecaster into
`runs/forecasting/` (about an hour on one core). Each result is recorded when its run ends; a restarted benchmark
continues. Baselines are the last value, the last season and the least-squares linear map. ILI is also measured on whole
batches of test windows, as the code of the papers does, which leaves up to 31 windows out.
"""

import argparse
import statistics
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray

from artifact.arrays import Floats
from benchmarks.lib import chart
from benchmarks.lib.benchmark import Benchmark
from benchmarks.lib.record import Data, Record, earlier
from benchmarks.lib.table import mean_and_deviation, table
from benchmarks.models.runs import Case, Values, evaluate, options_of, revisions, trained, values_by_case
from model.config.recipes import find_recipe, load_recipe
from model.data.own import DataFiles
from model.runs.load import load_trained
from model.tasks import task_of
from model.tasks.baselines import seasonal_naive
from model.tasks.forecasting import PUBLISHED, ForecastData, ForecastingTask
from model.tasks.graphs import module_functions

NAME = "forecasting"
STEPS = {"ili": 60}
"""Input length by data set; default 96."""
BATCH = 32
"""Windows of a batch of the code of the papers, which drops the last one."""
WHOLE: Literal["ili"] = "ili"
"""Set that is also measured on whole batches; of the others, they are nearly all windows."""
CHUNK = 500
"""Windows that are forecast at once."""
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
BASELINES = ("repeat-last", "seasonal naive", "linear map")
Forecasts = Callable[[NDArray[np.int64]], Floats]
"""First rows of windows (B,) -> forecasts (B, at least horizon, C)."""
HORIZONS: dict[str, list[int]] = {name: list(horizons) for name, horizons in PUBLISHED.items()}
ROWS = [(name, horizon) for name, horizons in PUBLISHED.items() for horizon in horizons]


def measure(args: argparse.Namespace) -> Iterator[Data]:
    """Compute the baselines if the record lacks them; train and evaluate the missing runs."""
    earlier_data = earlier(NAME, args.out)
    if (baselines := earlier_data.get("baselines")) is None:
        tasks = {name: loaded(name, args.data_dir) for name in PUBLISHED}
        baselines = [row for name, data in tasks.items() for row in baseline_errors(name, data)]
        yield {**earlier_data, "baselines": baselines}
    for data in trained(NAME, CASES, args, evaluate_protocols):
        yield {"baselines": baselines, **data}


def loaded(name: str, data_dir: Path) -> ForecastData:
    """The data of a recipe."""
    task = task_of(load_recipe(find_recipe(f"{name}-s3")))
    assert isinstance(task, ForecastingTask)
    return task.load(data_dir)


def baseline_errors(name: str, data: ForecastData) -> Iterator[Data]:
    """MSE and MAE of each baseline, by horizon, on all test windows and on whole batches of them."""
    linear: Forecasts = lambda origins: data.linear.forecast(contexts(data, origins))  # noqa: E731
    naive = {label.partition(" (")[0]: partial(repeated, data, season) for label, season in data.naive.items()}
    forecasters: dict[str, Forecasts] = {**naive, "linear map": linear}
    for label, forecasts in forecasters.items():
        for horizon, whole, (mse, mae) in errors_of(name, data, forecasts):
            yield {"set": name, "horizon": horizon, "whole": whole, "forecaster": label, "mse": mse, "mae": mae}


def contexts(data: ForecastData, origins: NDArray[np.int64]) -> Floats:
    """Steps that a model reads before each origin, (B, context, C)."""
    found: Floats = data.series.values[origins[:, None] + np.arange(-data.context, 0)]
    return found


def repeated(data: ForecastData, season: int, origins: NDArray[np.int64]) -> Floats:
    """The last season before each origin, repeated."""
    return seasonal_naive(data.series.values, origins, data.horizon, season)


def errors_of(name: str, data: ForecastData, forecasts: Forecasts) -> Iterator[tuple[int, bool, tuple[float, float]]]:
    """(Horizon, whether of whole batches only, (MSE, MAE)) of a forecaster on the test windows."""
    start, end = data.series.boundaries[1:]
    for horizon in HORIZONS[name]:
        origins = np.arange(start, end - horizon + 1)
        parts = [origins[first : first + CHUNK] for first in range(0, len(origins), CHUNK)]
        sizes = [
            np.abs(forecasts(part)[:, :horizon] - data.series.values[part[:, None] + np.arange(horizon)])
            for part in parts
        ]
        size = np.concatenate(sizes).astype(np.float64).reshape(len(origins), -1)
        for whole in (False, True):
            kept = size[: len(size) // BATCH * BATCH] if whole else size
            yield horizon, whole, (float(np.square(kept).mean()), float(kept.mean()))


def evaluate_protocols(folder: Path, data_dir: Path) -> list[Data]:
    """Results of `evaluate`; of ILI, also on whole batches."""
    results = evaluate(folder, data_dir)
    run = load_trained(folder, DataFiles(data_dir=data_dir))
    if run.task.config.data.name != WHOLE:
        return results
    (function,) = module_functions(run.finished.graphs, torch.device("cpu"))
    forecasts: Forecasts = lambda origins: function({"series": contexts(run.data, origins)})  # noqa: E731
    for horizon, whole, (mse, mae) in errors_of(WHOLE, run.data, forecasts):
        if whole:
            condition = f"horizon {horizon}, whole batches"
            results += [{"metric": m, "condition": condition, "value": v} for m, v in (("mse", mse), ("mae", mae))]
    return results


def mse_of_baselines(record: Record, *, whole: bool = False) -> dict[tuple[str, int], dict[str, float]]:
    """(Data set, horizon) -> MSE of each baseline."""
    found: dict[tuple[str, int], dict[str, float]] = {}
    for row in record.data["baselines"]:
        if row["whole"] == whole:
            found.setdefault((row["set"], row["horizon"]), {})[row["forecaster"]] = row["mse"]
    return found


def values(found: dict[str, list[Values]], kind: str, name: str, horizon: int, metric: str) -> list[float]:
    """Values of a metric, one per seed."""
    return [run[metric, f"horizon {horizon}"] for run in found.get(f"{kind}, {name}", [])]


def report(record: Record) -> str:
    """Report with one row per data set and horizon, and in how many rows ours is at or below each other method."""
    found, others, rows, without = values_by_case(record.data["runs"]), mse_of_baselines(record), [], []
    wins = dict.fromkeys(("S3Attention", "FEDformer", *BASELINES), 0)
    for name, horizon in ROWS:
        if not (ours := values(found, "ours", name, horizon, "mse")):
            continue
        compared = dict(zip(wins, PUBLISHED[name][horizon], strict=False)) | others[name, horizon]
        for other, value in compared.items():
            wins[other] += round(statistics.mean(ours), 3) <= round(value, 3)
        literal = values(found, "literal", name, horizon, "mse")
        cells = [mean_and_deviation(values(found, "ours", name, horizon, m)) for m in ("mse", "mae", "coverage_80")]
        cells += [
            mean_and_deviation(literal) if literal else "",
            *(f"{compared[other]:.3f}" if other in compared else "" for other in wins),
        ]
        rows.append([name, str(horizon), *cells])
        if no_block := values(found, "no block", name, horizon, "mse"):
            gains = [before - after for before, after in zip(no_block, ours, strict=False)]
            cells = [*cells[:1], mean_and_deviation(no_block), f"{compared['linear map']:.3f}"]
            without.append([name, str(horizon), *cells, mean_and_deviation(gains)])
    heads = ["set", "horizon", "ours MSE", "ours MAE", "80 % band covers", "literal MSE", *wins]
    counts = ", ".join(f"{other} {count}" for other, count in wins.items())
    return (
        "MSE and MAE on scaled data over all test windows, ours mean ± standard deviation over seeds; input 96, ILI "
        "60; one model per data set, for all its horizons. Splits: ETTm2 12/4/4 months, the others 7:1:2. Recipes were "
        "chosen on the first half of validation, that of Exchange on the end of the training rows (`exchange_shares`). "
        "`literal` is the paper's forecaster, trained by us, one seed; S3Attention and FEDformer are quoted (Wang et "
        "al. 2024, arXiv:2408.08567, Table 2). The linear map is solved once, for the longest horizon.\n\n"
        f"{table(heads, rows)}\n"
        f"Number of rows, of {len(rows)}, in which ours (mean, 3 decimals) is at or below: {counts}.\n\n"
        "MSE without the S3Attention block, everything else equal; the gain is the difference of the same seeds:\n\n"
        f"{table(['set', 'horizon', 'ours', 'no block', 'linear map', 'gain of the block'], without)}\n"
        f"## Whole batches\n\nMSE on whole batches of {BATCH} test windows, as the code of the papers measures:\n\n"
        f"{table(['set', 'horizon', 'ours', *BASELINES], whole_batches(record, found))}\n"
        f"{revisions(record.data['runs'])}\n"
    )


def whole_batches(record: Record, found: dict[str, list[Values]]) -> list[list[str]]:
    """Rows of the table of whole batches."""
    others, rows = mse_of_baselines(record, whole=True), []
    for horizon in HORIZONS[WHOLE]:
        ours = [run["mse", f"horizon {horizon}, whole batches"] for run in found.get(f"ours, {WHOLE}", [])]
        cells = [f"{others[WHOLE, horizon][name]:.3f}" for name in BASELINES]
        rows.append([WHOLE, str(horizon), mean_and_deviation(ours) if ours else "", *cells])
    return rows


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
