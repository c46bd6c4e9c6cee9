"""`python -m benchmarks.models.conformal_drift [MODEL...]`: coverage of the error bands when a series drifts.

MODEL is an export or a run of a forecaster (default: `exports/exchange exports/ili`). The test split is not used.
Calibrates the 80 % band on the first half of validation, or on the history that ends with it, and measures its coverage
of the second half: with plain errors, and with errors relative to the deviation, the differences or the range of the
window (locally weighted split conformal: Lei et al. 2018, arXiv:1604.04173, sec. 5.2).
"""

import argparse
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from artifact.series import calibrate
from benchmarks.lib.benchmark import Benchmark, add_data_dir
from benchmarks.lib.record import Data, Record
from benchmarks.lib.table import table
from benchmarks.models.ready import load
from model.tasks.forecasting import BAND, HISTORY_ROWS, Forecasting

Floats = NDArray[np.float32]

SCALES: dict[str, Callable[[Floats], Floats]] = {
    "plain": lambda window: np.ones_like(window[0]),
    "deviation": lambda window: np.sqrt(window.var(axis=0) + np.float32(0.01)),
    "differences": lambda window: np.sqrt(np.square(np.diff(window, axis=0)).mean(axis=0) + np.float32(1e-4)),
    "range": lambda window: np.ptp(window, axis=0) + np.float32(0.05),
}
"""Normalisers of the errors: scaled window (steps, channels) -> (channels,)."""


def options(parser: argparse.ArgumentParser) -> None:
    """Add the command-line options."""
    models = [Path("exports/exchange"), Path("exports/ili")]
    parser.add_argument("models", nargs="*", type=Path, metavar="MODEL", default=models)
    add_data_dir(parser)


def measure(args: argparse.Namespace) -> Iterator[Data]:
    """Measure each model."""
    models: list[Data] = []
    for folder in args.models:
        models.append({"model": str(folder), "coverage": coverages(folder, args.data_dir)})
        yield {"models": models}


def coverages(folder: Path, data_dir: Path) -> dict[str, float]:
    """Coverage of the second half of validation for each of SCALES, and for plain errors with the history."""
    task, (run,) = load(folder, data_dir)
    assert isinstance(task, Forecasting)
    task.load(data_dir)
    (start, middle), (_, end) = task.series.validation_half(0), task.series.validation_half(1)
    first = max(task.context + task.horizon, min(start, end - HISTORY_ROWS))
    error = task.series.values[first:end, None] - task.by_target(run, first, end)
    found = {}
    for name, scale in SCALES.items():
        scaled = error[start - first :] / spreads(task, start, end, scale)
        found[name] = coverage(scaled[: middle - start], scaled[middle - start :])
    return {**found, "history": coverage(error[: middle - first], error[middle - first :])}


def spreads(task: Forecasting, start: int, end: int, scale: Callable[[Floats], Floats]) -> Floats:
    """Normaliser of every forecast of rows `start` to `end`: (end - start, horizon, channels)."""
    values = task.series.values
    found = np.empty((end - start, task.horizon, values.shape[1]), np.float32)
    for origin in range(start - task.horizon + 1, end):
        steps = np.arange(max(start, origin), min(end, origin + task.horizon))
        found[steps - start, steps - origin] = scale(values[origin - task.context : origin])
    return found


def coverage(calibrated: Floats, measured: Floats) -> float:
    """Share of `measured` errors inside the band calibrated on `calibrated`, both (rows, horizon, channels)."""
    calibration = calibrate(calibrated, BAND)
    low, high = (calibration.error(level, measured.shape[1]) for level in BAND)
    return float(((low <= measured) & (measured <= high)).mean())


def report(record: Record) -> str:
    """Report with one row per model."""
    heads = [*SCALES, "history"]
    rows = [[f"`{one['model']}`", *(f"{one['coverage'][head]:.3f}" for head in heads)] for one in record.data["models"]]
    return (
        "Of the second half of validation, calibrated on the first half (errors plain or in units of the window's own "
        f"spread), or on the history that ends with the first half (plain).\n\n{table(['model', *heads], rows)}"
    )


BENCHMARK = Benchmark(
    program="benchmarks.models.conformal_drift",
    title="Coverage of the 80 % band under drift",
    description=__doc__,
    options=options,
    measure=measure,
    report=report,
    packages=("onnxruntime", "torch", "numpy"),
)

if __name__ == "__main__":
    BENCHMARK.main()
