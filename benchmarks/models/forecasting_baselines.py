"""`python -m benchmarks.models.forecasting_baselines`: baselines of the forecasters, on all test windows.

Repeat-last and a linear map solved by least squares, with the published results of S3Attention and FEDformer (Wang et
al. 2024, arXiv:2408.08567, Table 2, whose `ETTh2` is ETTm2). Nothing is tuned.
"""

import argparse
from collections.abc import Iterator
from pathlib import Path

from tqdm import tqdm

from benchmarks.lib import chart
from benchmarks.lib.benchmark import Benchmark, add_data_dir
from benchmarks.lib.record import Data, Record
from benchmarks.lib.table import table
from model.config.data import SeriesConfig, SeriesName
from model.data.series import load_series
from model.tasks.baselines import errors, solve_linear_map
from model.tasks.forecasting import PUBLISHED

CONTEXT = {"ettm2": 96, "exchange": 96, "weather": 96, "ili": 36}
KINDS = {"repeat_last": "repeat-last", "linear_map": "linear map"}


def measure(args: argparse.Namespace) -> Iterator[Data]:
    """Every data set and horizon of the published table."""
    cases = [(name, horizon) for name, horizons in PUBLISHED.items() for horizon in horizons]
    yield {"rows": [measure_row(name, horizon, args.data_dir) for name, horizon in tqdm(cases, unit="row")]}


def measure_row(name: SeriesName, horizon: int, data_dir: Path) -> Data:
    """Fit on train, evaluate on test."""
    series, context = load_series(SeriesConfig(name=name), data_dir), CONTEXT[name]
    linear = solve_linear_map(series.windows("train", context, horizon), context)
    test = series.windows("test", context, horizon)
    found = {
        kind: dict(zip(("mse", "mae"), map(float, errors(test, context, solved)), strict=True))
        for kind, solved in (("repeat_last", None), ("linear_map", linear))
    }
    return {"set": name, "context": context, "horizon": horizon, "windows": len(test), **found}


def published(row: Data) -> tuple[float, float]:
    """Published MSE of S3Attention and FEDformer."""
    name: SeriesName = row["set"]
    return PUBLISHED[name][row["horizon"]]


def report(record: Record) -> str:
    """Report with one row per data set and horizon."""
    rows = [
        [
            *(str(row[key]) for key in ("set", "horizon", "windows")),
            *(f"{row[kind][metric]:.3f}" for kind in KINDS for metric in ("mse", "mae")),
            *(f"{value:.3f}" for value in published(row)),
        ]
        for row in record.data["rows"]
    ]
    heads = ["set", "horizon", "windows", "repeat-last MSE", "MAE", "linear MSE", "MAE", "published S3", "FEDformer"]
    return (
        "MSE and MAE on scaled data over all test windows. Splits: ETTm2 12/4/4 months, the others 7:1:2; input 96, "
        f"ILI 36. Nothing is random or tuned.\n\n{table(heads, rows)}"
    )


def draw(record: Record, path: Path) -> None:
    """Chart of MSE relative to the published S3Attention; below 1 is better."""
    figure, (axes,) = chart.figure((10, 3.6))
    rows = record.data["rows"]
    for offset, (kind, label) in zip((-0.2, 0.2), KINDS.items(), strict=True):
        ratios = [row[kind]["mse"] / published(row)[0] for row in rows]
        axes.bar([i + offset for i in range(len(rows))], ratios, 0.4, label=label)
    axes.axhline(1, color="black", linewidth=1, label="S3Attention, published")
    axes.set(ylabel="MSE / published MSE", xticks=range(len(rows)))
    axes.set_xticklabels([f"{row['set']}\n{row['horizon']}" for row in rows], fontsize=7)
    axes.legend()
    chart.save(figure, path)


BENCHMARK = Benchmark(
    program="benchmarks.models.forecasting_baselines",
    title="Baselines of forecasting",
    description=__doc__,
    options=add_data_dir,
    measure=measure,
    report=report,
    chart=draw,
)

if __name__ == "__main__":
    BENCHMARK.main()
