"""`python -m benchmarks.conformal_drift RUN...`: how error bands hold when a series drifts, without the test split.

Calibrates the 80 % band of trained forecasters on the first half of validation, or on the history that ends with it,
and measures how much of the second half it covers: plain, and with errors in units of the window's own deviation,
differences or range (locally weighted split conformal: Lei et al. 2018, arXiv:1604.04173, sec. 5.2). Writes
`conformal_drift.md` into `benchmarks/results/`.
"""

import argparse
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from artifact.series import calibrate
from model.config.run import ForecastingRun
from model.tasks.base import module_runs
from model.tasks.forecasting import BAND, HISTORY_ROWS, Forecasting
from model.training import checkpoint
from model.training.provenance import git_revision

Floats = NDArray[np.float32]

SCALES: dict[str, Callable[[Floats], Floats]] = {
    "plain": lambda window: np.ones_like(window[0]),
    "deviation": lambda window: np.sqrt(window.var(axis=0) + np.float32(0.01)),
    "differences": lambda window: np.sqrt(np.square(np.diff(window, axis=0)).mean(axis=0) + np.float32(1e-4)),
    "range": lambda window: np.ptp(window, axis=0) + np.float32(0.05),
}
"""What errors are divided by: scaled window (N, C) -> (C,)."""


def main() -> None:
    """Measure every run; print and write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", type=Path)
    parser.add_argument("--data-dir", default=os.environ.get("LONGDOC_DATA", "data"), type=Path)
    parser.add_argument("--out", default=Path(__file__).parent / "results", type=Path)
    args = parser.parse_args()
    heads = [f"{head:>12}" for head in (*SCALES, "history")]
    lines = [f"| run            | {' | '.join(heads)} |", f"| -------------- |{' -----------: |' * len(heads)}"]
    for folder in args.runs:
        cells = [f"{value:>12.3f}" for value in coverages(folder, args.data_dir)]
        lines.append(f"| {folder.name:<14} | {' | '.join(cells)} |")
    table = "\n".join(lines)
    text = (
        "# Coverage of the 80 % band under drift\n\nOf the second half of validation, calibrated on the first half "
        "(errors plain or in units of the window's own spread), or on the history that ends with the first half "
        f"(plain).\n\n{table}\n\n- revision {git_revision()}\n"
        f"- command: `python -m benchmarks.conformal_drift {' '.join(map(str, args.runs))}`\n"
    )
    print(text)
    args.out.mkdir(parents=True, exist_ok=True)
    (args.out / "conformal_drift.md").write_text(text)


def coverages(folder: Path, data_dir: Path) -> list[float]:
    """Share of the second half of validation in the band: one value for each of SCALES, then with the history."""
    config, _, _, state = checkpoint.load(folder / "best.pt")
    assert isinstance(config, ForecastingRun)
    task = Forecasting(config)
    task.load(data_dir)
    model = task.build()
    checkpoint.load_weights(model, state, folder / "best.pt")
    (run,) = module_runs(task.graphs(model), torch.device("cpu"))
    (start, middle), (_, end) = task.validation_half(0), task.validation_half(1)
    first = max(task.context + task.horizon, min(start, end - HISTORY_ROWS))
    error = task.series.values[first:end, None] - task.by_target(run, first, end)
    found = []
    for scale in SCALES.values():
        units = spreads(task, start, end, scale)
        scaled = error[start - first :] / units
        found.append(coverage(scaled[: middle - start], scaled[middle - start :]))
    return [*found, coverage(error[: middle - first], error[middle - first :])]


def spreads(task: Forecasting, start: int, end: int, scale: Callable[[Floats], Floats]) -> Floats:
    """Spread of the window behind every forecast of rows start to end, (end - start, O, C)."""
    values = task.series.values
    found = np.empty((end - start, task.horizon, values.shape[1]), np.float32)
    for origin in range(start - task.horizon + 1, end):
        steps = np.arange(max(start, origin), min(end, origin + task.horizon))
        found[steps - start, steps - origin] = scale(values[origin - task.context : origin])
    return found


def coverage(calibrated: Floats, measured: Floats) -> float:
    """Share of errors within the band of others, both (rows, O, C)."""
    calibration = calibrate(calibrated, BAND)
    low, high = (calibration.error(level, measured.shape[1]) for level in BAND)
    return float(((low <= measured) & (measured <= high)).mean())


if __name__ == "__main__":
    main()
