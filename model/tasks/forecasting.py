"""Windows of a series -> their continuation. Used by the commands through `model.tasks`."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from tqdm import tqdm

from artifact.manifest import ArrayFile, CalibrationSource, Result, sha256_of
from artifact.series import Calibration, calibrate
from model.config.data import SeriesName
from model.config.run import ForecastingRun
from model.data.series import Floats, Series, SplitName, data_terms, infer_frequency, load_series
from model.errors import UserError
from model.nn.forecaster import PaperForecaster, ResidualForecaster
from model.tasks.base import Batch, GraphSource, Run, Task, module_runs
from model.tasks.baselines import LinearMap, solve_linear_map
from model.tasks.golden import golden_windows

HORIZONS = (24, 36, 48, 60, 96, 192, 336, 720)
"""Those of the published tables; a model is measured at each that it reaches, of the first four only below 96."""
LEVELS = (0.01, 0.025, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.975, 0.99)
BAND = (0.1, 0.9)
SMALLEST_HALF = 9
"""Errors without which the levels of BAND cannot be bounded."""
HISTORY_ROWS = 6000
"""Rows before the test split whose errors may calibrate; at least all of validation."""
RELIABLE = (0.70, 0.90)
"""Coverage of the 80 % band on test beyond which its quantiles are not to be relied on."""
FIGURES = ("mse", "mae", "coverage_80", "last", "linear")
"""What is summed over the test windows: ours, then the squared errors of the baselines."""
BATCH = 128
PUBLISHED: dict[SeriesName, dict[int, tuple[float, float]]] = {
    "ettm2": {96: (0.192, 0.203), 192: (0.255, 0.269), 336: (0.324, 0.325), 720: (0.431, 0.421)},
    "exchange": {96: (0.086, 0.139), 192: (0.188, 0.256), 336: (0.356, 0.426), 720: (0.727, 1.090)},
    "weather": {96: (0.182, 0.217), 192: (0.228, 0.276), 336: (0.295, 0.339), 720: (0.383, 0.403)},
    "ili": {24: (2.431, 2.203), 36: (2.287, 2.272), 48: (2.418, 2.209), 60: (2.425, 2.545)},
}
"""MSE of S3Attention and FEDformer by horizon (Wang et al. 2024, arXiv:2408.08567, Table 2, whose ETTh2 is ETTm2)."""


class Forecasting(Task[ForecastingRun]):
    """One model for every horizon up to its longest; the first half of validation chooses its epoch."""

    metric = "mse_to_linear"
    is_error = True
    starts_useful = True
    unit = "window"
    series: Series
    linear: LinearMap
    shipped: Calibration | None = None
    """That of the export which is measured; otherwise it is computed."""
    step_mse: NDArray[np.float64]
    """(prediction,): of the linear map, on the first half of validation."""

    def __init__(self, config: ForecastingRun) -> None:
        super().__init__(config)
        self.context, self.horizon = config.model.context_length, config.model.prediction_length

    def load(self, data_dir: Path) -> None:
        known = getattr(self, "facts", None)
        self.series = load_series(self.config.data, data_dir, known and (known["mean"], known["scale"]))
        series = self.series
        if known is not None and list(known["channels"]) != list(series.channels):
            raise UserError(
                f"the data have the channels {', '.join(series.channels)}; the model was trained on "
                f"{', '.join(known['channels'])}"
            )
        windows = self._training_windows()
        series.windows("test", self.context, _horizons(self.horizon)[0])  # raises where there is none
        start, middle, end = *self.validation_half(0), self.validation_half(1)[1]
        if min(middle - start, end - middle) < SMALLEST_HALF:
            raise UserError(
                f"validation has {end - start} rows; {2 * SMALLEST_HALF} are needed, to choose an epoch and to "
                "calibrate: get more data, or raise data.validation_fraction"
            )
        self.facts = {
            "channels": list(series.channels),
            "mean": series.mean.tolist(),
            "scale": series.scale.tolist(),
            "frequency": self._frequency(data_dir),
        }
        self.linear = solve_linear_map(windows, self.context)
        self.step_mse = self._step_mse(_linear_run(self.linear), *self.validation_half(0))
        trained = _linear_run(self.linear)
        sample = windows[:: max(1, len(windows) // 2000)].transpose(0, 2, 1)
        squared = (trained({"series": sample[:, : self.context]}) - sample[:, self.context :]) ** 2
        inverse = 1 / squared.mean(axis=(0, 2), dtype=np.float64)
        self.weights = torch.from_numpy((inverse / inverse.mean()).astype(np.float32))

    def _frequency(self, data_dir: Path) -> str:
        """Step of the series. Raises: UserError naming the file."""
        try:
            return infer_frequency(self.series.timestamps)
        except UserError as error:
            raise UserError(
                f"{data_dir if self.config.data.name == 'csv' else self.config.data.name}: {error}"
            ) from None

    def _training_windows(self) -> Floats:
        """Windows (W, C, context + prediction) of the training rows. Raises: UserError if they make no batch."""
        windows = self.series.windows("train", self.context, self.horizon)
        if len(windows) < self.config.training.batch_size:
            raise UserError(
                f"{len(windows)} training windows of {self.context} + {self.horizon} rows are fewer than one batch, "
                f"{self.config.training.batch_size}"
            )
        return windows

    def validation_half(self, half: int) -> tuple[int, int]:
        """Rows of the first or second half of validation: the first chooses the epoch, the second calibrates."""
        start, end, _ = self.series.boundaries
        middle = (start + end) // 2
        return (start, middle) if half == 0 else (middle, end)

    def describe(self) -> str:
        series, facts = self.series, self.facts
        ends = series.boundaries
        return (
            f"{len(series.values)} rows of {len(series.channels)} channels, step {facts['frequency']}; training to row "
            f"{ends[0]}, validation to {ends[1]}, test to {ends[2]}; {self.context} steps in, {self.horizon} out"
        )

    def build(self) -> nn.Module:
        kind = PaperForecaster if self.config.model.kind == "paper" else ResidualForecaster
        return kind(self.config.model, len(self.facts["channels"]))

    def initialise(self, model: nn.Module, device: torch.device) -> None:
        del device
        if isinstance(model, ResidualForecaster):
            model.set_linear(torch.from_numpy(self.linear.weight.T), torch.from_numpy(self.linear.bias))

    @property
    def _train_windows(self) -> int:
        return self.series.boundaries[0] - self.context - self.horizon + 1

    @property
    def examples_per_epoch(self) -> int:
        size = self.config.training.batch_size
        wanted = min(self.config.training.examples_per_epoch or self._train_windows, self._train_windows)
        return wanted // size * size

    def batches(self, epoch: int) -> Iterator[Batch]:
        """Shape:  yields context (B, N, C), truth (B, O, C), both scaled."""
        windows = self.series.windows("train", self.context, self.horizon)
        order = np.random.default_rng([self.config.seed, epoch]).permutation(len(windows))
        size = self.config.training.batch_size
        for first in range(0, self.examples_per_epoch, size):
            rows = torch.from_numpy(windows[order[first : first + size]].transpose(0, 2, 1))
            yield rows[:, : self.context].contiguous(), rows[:, self.context :]

    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        """Squared error, each step over that of the linear map, so that near steps count as much as far ones."""
        context, truth = batch
        squared = (model(context).float() - truth).square().mean(dim=(0, 2))  # (O,)
        return torch.mean(squared * self.weights.to(squared.device))

    def validate(self, model: nn.Module, device: torch.device) -> float:
        run = module_runs(self.graphs(model), device)[0]
        return float((self._step_mse(run, *self.validation_half(0)) / self.step_mse).mean())

    def graphs(self, model: nn.Module) -> Sequence[GraphSource]:
        golden = golden_windows(self.context, len(self.facts["channels"]))
        return [GraphSource("model", model, golden, "forecast", (self.context,))]

    def measure(self, runs: Sequence[Run], data_dir: Path) -> tuple[Result, ...]:
        """MSE, MAE and coverage of the 80 % band on scaled data over all test windows, by horizon.

        Horizons longer than the test split are left out. Repeat-last and the linear map go through the same windows, to
        be compared with.
        """
        if not hasattr(self, "series"):
            self.load(data_dir)
        calibration = self.shipped or self.calibration(runs[0])[0]
        low, high = (calibration.error(level, self.horizon) for level in BAND)
        known = _horizons(self.horizon)
        windows = self._windows_with_truth("test", known[0])
        counts = {horizon: count for horizon in known if (count := len(windows) + known[0] - horizon) > 0}
        sums = {horizon: np.zeros(len(FIGURES)) for horizon in counts}
        first = 0
        for part, forecast in self._forecasts(runs[0], windows):
            context, truth = part[:, : self.context], part[:, self.context :]
            linear = _linear_run(self.linear)({"series": context})
            for horizon in counts:
                valid = slice(0, max(0, counts[horizon] - first)), slice(0, horizon)
                error = truth[valid] - forecast[valid]
                sums[horizon] += (
                    np.square(error, dtype=np.float64).sum(),
                    np.abs(error).sum(dtype=np.float64),
                    ((low[:horizon] <= error) & (error <= high[:horizon])).sum(),
                    np.square(truth[valid] - context[valid[0], -1:], dtype=np.float64).sum(),
                    np.square(truth[valid] - linear[valid], dtype=np.float64).sum(),
                )
            first += len(part)
        channels = windows.shape[2]
        return tuple(
            result
            for horizon in counts
            for result in self._results(
                horizon, counts[horizon], sums[horizon] / (counts[horizon] * horizon * channels)
            )
        )

    def _results(self, horizon: int, windows: int, means: NDArray[np.float64]) -> list[Result]:
        """The figures of one horizon; `means` are those of FIGURES."""
        values = dict(zip(FIGURES, means.tolist(), strict=True))
        published = PUBLISHED.get(self.config.data.name, {}).get(horizon)
        compared = f"repeat-last {values['last']:.3f}, linear map {values['linear']:.3f}"
        if published is not None:
            compared += f"; S3Attention {published[0]:.3f}, FEDformer {published[1]:.3f} (paper, Table 2)"
        notes = {"mse": compared, "mae": "nothing", "coverage_80": "0.8"}
        return [
            Result(
                metric=metric,
                value=round(values[metric], 6),
                split="test",
                examples=windows,
                condition=f"horizon {horizon}",
                seeds=(self.config.seed,),
                compared_with=note,
            )
            for metric, note in notes.items()
        ]

    def _windows_with_truth(self, split: SplitName, shortest: int) -> Floats:
        """Every window of a split whose first `shortest` steps have happened, NaN after the split's end.

        Shape:  returns (windows, context + prediction, C), a view.
        """
        rows = self.series.windows(split, self.context, shortest)
        values = np.concatenate([rows[0].T, rows[1:, :, -1]])  # the split with its context
        missing = np.full((self.horizon - shortest, values.shape[1]), np.nan, np.float32)
        padded = np.concatenate([values, missing])
        windows = np.lib.stride_tricks.sliding_window_view(padded, self.context + self.horizon, axis=0)
        return windows.transpose(0, 2, 1)

    def manifest(self, runs: Sequence[Run], results: Sequence[Result], data_dir: Path, folder: Path) -> dict[str, Any]:
        if not hasattr(self, "series"):
            self.load(data_dir)
        calibration, source = self.calibration(runs[0])
        path = folder / "calibration.npz"
        np.savez_compressed(path, allow_pickle=False, levels=calibration.levels, errors=calibration.errors)
        return {
            **self.facts,
            "context_length": self.context,
            "horizon": self.horizon,
            "min_observations": max(2, self.context // 4),
            "calibration": ArrayFile(path=path.name, sha256=sha256_of(path)).model_dump(),
            "calibration_source": source,
            "calibration_examples": calibration.count,
            "quantiles_reliable": quantiles_are_reliable(results),
        }

    def calibration(self, run: Run) -> tuple[Calibration, CalibrationSource]:
        """Quantiles of the errors on the second half of validation, which chose no epoch, or on a longer history.

        Half a validation split holds one regime of a series that drifts. The history ends with it too but begins
        earlier, in rows that chose the epoch or were trained on, whose errors are a little too small. Which of the two
        is taken is decided on the second half alone: by which of first half and history before it the 80 % band covers
        it better.
        """
        start, middle, end = *self.validation_half(0), self.validation_half(1)[1]
        first = max(self.context + self.horizon, min(start, end - HISTORY_ROWS))
        error = self.series.values[first:end, None] - self.by_target(run, first, end)  # (rows, O, C)
        recent = error[middle - first :]
        distance = {}
        for source, rows in (
            ("validation", error[start - first : middle - first]),
            ("history", error[: middle - first]),
        ):
            low, high = (calibrate(rows, BAND).error(level, self.horizon) for level in BAND)
            distance[source] = abs(float(((low <= recent) & (recent <= high)).mean()) - (BAND[1] - BAND[0]))
        if distance["validation"] <= distance["history"]:
            return calibrate(recent, LEVELS), "validation"
        return calibrate(error, LEVELS), "history"

    def terms(self) -> tuple[str, bool]:
        return data_terms(self.config.data.name), False

    def _step_mse(self, run: Run, start: int, end: int) -> NDArray[np.float64]:
        """Mean squared error (prediction,) of the forecasts for rows start to end."""
        error = self.by_target(run, start, end) - self.series.values[start:end, None]
        step_mse: NDArray[np.float64] = np.square(error, dtype=np.float64).mean(axis=(0, 2))
        return step_mse

    def by_target(self, run: Run, start: int, end: int) -> Floats:
        """What was forecast for each row, at every distance.

        Windows may begin before `start`: so every distance gets the same number of targets, which whole windows within
        half a validation split would not.

        Shape:  returns (end - start, O, C).
        """
        values, horizon = self.series.values, self.horizon
        first = max(0, start - horizon - self.context + 1)
        windows = np.lib.stride_tricks.sliding_window_view(values[first : end - 1], self.context, axis=0)
        found = np.zeros((end - start, horizon, values.shape[1]), np.float32)
        is_missing = np.ones((end - start, horizon), np.bool_)
        origin = first + self.context  # row that the first forecast step is for
        for part, forecast in self._forecasts(run, windows.transpose(0, 2, 1)):
            for number in range(len(part)):
                low, high = max(start, origin), min(end, origin + horizon)
                steps = np.arange(low, high)
                found[steps - start, steps - origin] = forecast[number, steps - origin]
                is_missing[steps - start, steps - origin] = False
                origin += 1
        if is_missing.any():
            raise UserError(
                f"validation begins at row {start}; {self.context} + {horizon} rows are needed before it to calibrate"
            )
        return found

    def _forecasts(self, run: Run, windows: Floats) -> Iterator[tuple[Floats, Floats]]:
        """Windows (B, at least N, C) in parts, with their forecasts (B, O, C)."""
        for first in tqdm(range(0, len(windows), BATCH), unit="batch", leave=False):
            part = windows[first : first + BATCH]
            yield part, run({"series": np.ascontiguousarray(part[:, : self.context])})


def quantiles_are_reliable(results: Sequence[Result]) -> bool:
    """Whether the 80 % band covers within RELIABLE at every horizon that was measured."""
    coverage = [result.value for result in results if result.metric == "coverage_80"]
    return all(RELIABLE[0] <= value <= RELIABLE[1] for value in coverage)


def _horizons(longest: int) -> list[int]:
    """Horizons to measure a model at."""
    known = [horizon for horizon in HORIZONS if horizon <= longest and (horizon >= 96 or longest < 96)]
    return known or [longest]


def _linear_run(linear: LinearMap) -> Run:
    """The linear map as a graph."""

    def run(inputs: Any) -> Floats:
        series = inputs["series"].astype(np.float64)
        last = series[:, -1:]
        forecast: Floats = (
            last + np.einsum("bnc,no->boc", series - last, linear.weight) + linear.bias[:, None]
        ).astype(np.float32)
        return forecast

    return run
