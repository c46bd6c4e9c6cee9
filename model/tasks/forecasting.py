"""Forecasting: windows of a series -> forecasts. Used by the commands through `model.tasks`."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from tqdm import tqdm

from artifact.arrays import Doubles, Floats
from artifact.exports import sha256_of
from artifact.manifest import ArrayFile, Result
from artifact.series import Calibration, calibrate
from artifact.tasks.forecasting import CalibrationSource
from model.config.data import SeriesName
from model.config.run import ForecastingRun
from model.data.series import BATCH, Series, SplitName, data_terms, load_series
from model.errors import UserError
from model.nn.forecaster import PaperForecaster, ResidualForecaster
from model.tasks.base import Batch, ExportGraph, Run, Task, module_runs, write_arrays
from model.tasks.baselines import EXACT, LinearMap, season_of, seasonal_error, seasonal_naive, solve_linear_map
from model.tasks.golden import golden_windows

HORIZONS = (24, 36, 48, 60, 96, 192, 336, 720)
"""Horizons of the published tables. A model is evaluated at those up to its own horizon (`prediction_length`): at the
first four only if its own is below 96, and at its own alone if that is below 24."""
LEVELS = (0.01, 0.025, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.975, 0.99)
"""Quantile levels to store in a calibration."""
BAND = (0.1, 0.9)
"""Levels that bound the 80 % band."""
MIN_HALF_ROWS = 9
"""Minimum number of rows in either half of validation: the errors of m rows bound levels from 1 / (m + 1) to
m / (m + 1), and BAND must lie within."""
HISTORY_ROWS = 6000
"""Maximum number of rows of the history in `Forecasting.calibration`, which ends at the test split; if validation has
more, all of validation."""
RELIABLE = (0.70, 0.90)
"""Range of the 80 % band's test coverage in which its quantiles count as reliable."""
METRICS = ("mse", "mae", "mase")
"""Errors of the model and the baselines."""
BEHIND = 1.001
"""Ratio of the model's MSE to that of a baseline above which the user is warned."""
PUBLISHED: dict[SeriesName, dict[int, tuple[float, float]]] = {
    "ettm2": {96: (0.192, 0.203), 192: (0.255, 0.269), 336: (0.324, 0.325), 720: (0.431, 0.421)},
    "exchange": {96: (0.086, 0.139), 192: (0.188, 0.256), 336: (0.356, 0.426), 720: (0.727, 1.090)},
    "weather": {96: (0.182, 0.217), 192: (0.228, 0.276), 336: (0.295, 0.339), 720: (0.383, 0.403)},
    "ili": {24: (2.431, 2.203), 36: (2.287, 2.272), 48: (2.418, 2.209), 60: (2.425, 2.545)},
}
"""MSE of S3Attention and FEDformer by horizon (Wang et al. 2024, arXiv:2408.08567, Table 2, whose ETTh2 is ETTm2)."""


class Forecasting(Task[ForecastingRun]):
    """One model for all horizons up to its longest; the first half of validation selects the epoch."""

    metric = "mse_to_linear"
    """MSE divided by that of the linear map, both at least EXACT**2, as a mean over the steps."""
    is_error = True
    validates_initial_model = True
    unit = "window"
    series: Series
    linear: LinearMap
    shipped: Calibration | None = None
    """Calibration of the evaluated export; None computes it."""
    step_mse: NDArray[np.float64]
    """(prediction,): MSE of the linear map per step, at least EXACT**2, on the first half of validation."""
    season: int
    """Steps of the seasonal naive baseline; 1 if the series has no season."""
    seasonal_error: Doubles
    """(C,): error of the seasonal naive forecast in training, the unit of MASE."""

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
        series.windows("test", self.context, _horizons(self.horizon)[0])  # raises UserError if there are none
        start, middle, end = *series.validation_half(0), series.validation_half(1)[1]
        if min(middle - start, end - middle) < MIN_HALF_ROWS:
            raise UserError(
                f"validation has {end - start} rows; {2 * MIN_HALF_ROWS} are needed, to choose an epoch and to "
                "calibrate: get more data, or raise data.validation_fraction"
            )
        self.facts = {
            "channels": list(series.channels),
            "mean": series.mean.tolist(),
            "scale": series.scale.tolist(),
            "frequency": series.frequency,
        }
        season, trained = season_of(series.frequency), series.values[:start]
        self.season = season if season + self.horizon <= len(trained) else 1
        self.seasonal_error = seasonal_error(trained, self.season)
        self.linear = solve_linear_map(windows, self.context)
        self.step_mse = self._step_mse(_linear_run(self.linear), series.validation_half(0))
        sample = windows[:: max(1, len(windows) // 2000)].transpose(0, 2, 1)
        squared = (self.linear.forecast(sample[:, : self.context]) - sample[:, self.context :]) ** 2
        inverse = 1 / np.maximum(squared.mean(axis=(0, 2), dtype=np.float64), EXACT**2)
        self.weights = torch.from_numpy((inverse / inverse.mean()).astype(np.float32))

    def _training_windows(self) -> Floats:
        """Windows (W, C, context + prediction) of the training rows. Raises: UserError if they fill no batch."""
        windows = self.series.windows("train", self.context, self.horizon)
        if len(windows) < self.config.training.batch_size:
            raise UserError(
                f"{len(windows)} training windows of {self.context} + {self.horizon} rows are fewer than one batch, "
                f"{self.config.training.batch_size}"
            )
        return windows

    def describe(self) -> str:
        series, facts = self.series, self.facts
        ends = series.boundaries
        summary = (
            f"{len(series.values)} rows of {len(series.channels)} channels, step {facts['frequency']}; training to row "
            f"{ends[0]}, validation to {ends[1]}, test to {ends[2]}; {self.context} steps in, {self.horizon} out"
        )
        return "; ".join((*series.notes, summary))

    def build(self) -> nn.Module:
        kind = PaperForecaster if self.config.model.kind == "paper" else ResidualForecaster
        return kind(self.config.model, len(self.facts["channels"]))

    def initialise(self, model: nn.Module, device: torch.device) -> None:
        del device
        if isinstance(model, ResidualForecaster):
            model.set_linear(torch.from_numpy(self.linear.weight.T), torch.from_numpy(self.linear.bias))

    @property
    def _num_training_windows(self) -> int:
        return self.series.boundaries[0] - self.context - self.horizon + 1

    @property
    def examples_per_epoch(self) -> int:
        size = self.config.training.batch_size
        available = self._num_training_windows
        return min(self.config.training.examples_per_epoch or available, available) // size * size

    def batches(self, epoch: int) -> Iterator[Batch]:
        """Yield training batches of one epoch.

        Shape:  context (B, N, C), truth (B, O, C), both scaled.
        """
        windows = self.series.windows("train", self.context, self.horizon)
        order = np.random.default_rng([self.config.seed, epoch]).permutation(len(windows))
        size = self.config.training.batch_size
        for first in range(0, self.examples_per_epoch, size):
            rows = torch.from_numpy(windows[order[first : first + size]].transpose(0, 2, 1))
            yield rows[:, : self.context].contiguous(), rows[:, self.context :]

    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        """Squared error of each step divided by the linear map's, so that all steps have equal weight."""
        context, truth = batch
        squared = (model(context).float() - truth).square().mean(dim=(0, 2))  # (O,)
        return torch.mean(squared * self.weights.to(squared.device))

    def validate(self, model: nn.Module, device: torch.device) -> float:
        run = module_runs(self.graphs(model), device)[0]
        return float((self._step_mse(run, self.series.validation_half(0)) / self.step_mse).mean())

    def compare(self, model: nn.Module, device: torch.device) -> str:
        """Errors of the model and the baselines on the second half of validation, which selected no epoch."""
        start, end = self.series.validation_half(1)
        truth, steps = self.series.values[start:end, None], np.arange(self.horizon)
        errors = {"model": truth - self.by_target(module_runs(self.graphs(model), device)[0], start, end)}
        errors["linear map"] = truth - self.by_target(_linear_run(self.linear), start, end)
        for name, season in self._naive().items():
            rows = np.arange(start, end)[:, None] - season * (steps // season + 1)
            errors[name] = truth - self.series.values[rows]
        means = {name: self._metrics(error).mean(axis=(0, 1)) for name, error in errors.items()}
        width = max(map(len, means))
        lines = ["Errors on the second half of validation, which selected no epoch:"]
        lines.append(f"{'':<{width}}" + "".join(f"  {metric.upper():>8}" for metric in METRICS))
        lines += [f"{name:<{width}}" + "".join(f"  {value:>8.4f}" for value in row) for name, row in means.items()]
        mse = {name: float(row[0]) for name, row in means.items()}
        return "\n".join((*lines, *_warnings(mse.pop("model"), mse, "the second half of validation")))

    def _naive(self) -> dict[str, int]:
        """Names of the naive baselines -> number of steps that they repeat."""
        seasonal = {f"seasonal naive ({self.season} steps)": self.season} if self.season > 1 else {}
        return {"repeat-last": 1, **seasonal}

    def _metrics(self, error: Floats) -> Doubles:
        """METRICS (B, O, 3) of errors (B, O, C), means over channels."""
        size = np.abs(error, dtype=np.float64)
        return np.stack([(size**2).mean(axis=2), size.mean(axis=2), (size / self.seasonal_error).mean(axis=2)], axis=2)

    def graphs(self, model: nn.Module) -> Sequence[ExportGraph]:
        golden = golden_windows(self.context, len(self.facts["channels"]))
        return [ExportGraph("model", model, golden, ("forecast",), (self.context,))]

    def measure(self, runs: Sequence[Run], data_dir: Path) -> tuple[Result, ...]:
        """MSE, MAE, MASE and coverage of the 80 % band on scaled data over all test windows, by horizon.

        Horizons longer than the test split are left out. The baselines are evaluated on the same windows; prints a
        warning for each that has a lower MSE than the model.
        """
        if not hasattr(self, "series"):
            self.load(data_dir)
        calibration = self.shipped or self.calibration(runs[0])[0]
        low, high = (calibration.error(level, self.horizon) for level in BAND)
        known = _horizons(self.horizon)
        windows = self._windows_with_truth("test", known[0])
        counts = {horizon: count for horizon in known if (count := len(windows) + known[0] - horizon) > 0}
        naive = self._naive()
        sums = {horizon: np.zeros((2 + len(naive), len(METRICS))) for horizon in counts}
        covered = dict.fromkeys(counts, 0.0)
        first = 0
        for part, forecast in self._forecasts(runs[0], windows):
            context, truth = part[:, : self.context], part[:, self.context :]
            origins = self.series.boundaries[1] + np.arange(first, first + len(part))
            forecasts = [
                forecast,
                *(seasonal_naive(self.series.values, origins, self.horizon, n) for n in naive.values()),
            ]
            forecasts.append(self.linear.forecast(context))
            values = np.stack([self._metrics(truth - other).cumsum(axis=1) for other in forecasts])  # (F, B, O, 3)
            error = truth - forecast
            hits = ((low <= error) & (error <= high)).mean(axis=2).cumsum(axis=1)  # (B, O)
            for horizon in counts:
                whole = max(0, counts[horizon] - first)  # windows whose horizon is within the split
                sums[horizon] += values[:, :whole, horizon - 1].sum(axis=1)
                covered[horizon] += float(hits[:whole, horizon - 1].sum())
            first += len(part)
        results = list[Result]()
        for horizon, count in counts.items():
            model, *others = (sums[horizon] / (count * horizon)).tolist()
            baselines = dict(zip((*naive, "linear map"), others, strict=True))
            results += self._results(horizon, count, (*model, covered[horizon] / (count * horizon)), baselines)
            for line in _warnings(
                model[0], {name: row[0] for name, row in baselines.items()}, f"test, horizon {horizon}"
            ):
                print(line)
        return tuple(results)

    def _results(
        self, horizon: int, windows: int, values: Sequence[float], baselines: dict[str, list[float]]
    ) -> list[Result]:
        """Results of one horizon: METRICS and coverage of the model, METRICS of the baselines."""
        notes = [
            ", ".join(f"{name} {row[place]:.3f}" for name, row in baselines.items()) for place in range(len(METRICS))
        ]
        published = PUBLISHED.get(self.config.data.name, {}).get(horizon)
        if published is not None:
            notes[0] += f"; S3Attention {published[0]:.3f}, FEDformer {published[1]:.3f} (paper, Table 2)"
        return [
            Result(
                metric=metric,
                value=round(value, 6),
                split="test",
                examples=windows,
                condition=f"horizon {horizon}",
                seeds=(self.config.seed,),
                compared_with=note,
            )
            for metric, value, note in zip((*METRICS, "coverage_80"), values, (*notes, "0.8"), strict=True)
        ]

    def _windows_with_truth(self, split: SplitName, shortest: int) -> Floats:
        """Windows of a split whose first `shortest` steps are known; NaN after the end of the split.

        Shape:  returns (windows, context + prediction, C), a view.
        """
        rows = self.series.windows(split, self.context, shortest)
        values = np.concatenate([rows[0].T, rows[1:, :, -1]])  # the split, preceded by its context
        missing = np.full((self.horizon - shortest, values.shape[1]), np.nan, np.float32)
        padded = np.concatenate([values, missing])
        windows = np.lib.stride_tricks.sliding_window_view(padded, self.context + self.horizon, axis=0)
        return windows.transpose(0, 2, 1)

    def manifest(self, runs: Sequence[Run], results: Sequence[Result], data_dir: Path, folder: Path) -> dict[str, Any]:
        if not hasattr(self, "series"):
            self.load(data_dir)
        calibration, source = self.calibration(runs[0])
        path = folder / "calibration.npz"
        write_arrays(path, {"levels": calibration.levels, "errors": calibration.errors})
        return {
            **self.facts,
            "layout": self._layout(),
            "context_length": self.context,
            "horizon": self.horizon,
            "min_observations": max(2, self.context // 4),
            "calibration": ArrayFile(path=path.name, sha256=sha256_of(path)).model_dump(),
            "calibration_source": source,
            "calibration_examples": calibration.count,
            "quantiles_reliable": quantiles_are_reliable(results),
        }

    def _layout(self) -> dict[str, Any]:
        """What `predict` needs to read a table like that of the training data; the manifest has the rest."""
        layout = self.config.data.layout
        return asdict(replace(layout, channels=(), frequency="", encoding=""))

    def calibration(self, run: Run) -> tuple[Calibration, CalibrationSource]:
        """Error quantiles on the second half of validation, which did not select the epoch, or on a longer history.

        If a series drifts, half a validation split covers only one regime. The history starts earlier and also ends
        with that half, but includes rows that selected the epoch or were trained on, whose errors are slightly too
        small. To choose, the 80 % band is calibrated once on the first half and once on the history before the second
        half; the one whose coverage of the second half is closer to 80 % wins.
        """
        start, middle, end = *self.series.validation_half(0), self.series.validation_half(1)[1]
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

    def _step_mse(self, run: Run, rows: tuple[int, int]) -> NDArray[np.float64]:
        """MSE (prediction,) by step ahead of forecasts of the rows from `rows[0]` to `rows[1]`, at least EXACT**2."""
        error = self.by_target(run, *rows) - self.series.values[slice(*rows), None]
        step_mse: NDArray[np.float64] = np.square(error, dtype=np.float64).mean(axis=(0, 2))
        return np.maximum(step_mse, EXACT**2)

    def by_target(self, run: Run, start: int, end: int) -> Floats:
        """Forecasts (end - start, O, C) of each row, by number of steps ahead."""
        return self.series.by_target(lambda rows: run({"series": rows}), self.context, self.horizon, (start, end))

    def _forecasts(self, run: Run, windows: Floats) -> Iterator[tuple[Floats, Floats]]:
        """Yield windows (B, at least N, C) in chunks, with their forecasts (B, O, C)."""
        for first in tqdm(range(0, len(windows), BATCH), unit="batch", leave=False, disable=None):
            part = windows[first : first + BATCH]
            yield part, run({"series": np.ascontiguousarray(part[:, : self.context])})


def quantiles_are_reliable(results: Sequence[Result]) -> bool:
    """Whether the coverage of the 80 % band is within RELIABLE at every evaluated horizon."""
    coverage = [result.value for result in results if result.metric == "coverage_80"]
    return all(RELIABLE[0] <= value <= RELIABLE[1] for value in coverage)


def _horizons(longest: int) -> list[int]:
    """Horizons at which to evaluate a model."""
    known = [horizon for horizon in HORIZONS if horizon <= longest and (horizon >= 96 or longest < 96)]
    return known or [longest]


def _linear_run(linear: LinearMap) -> Run:
    """The linear map as a `Run`."""
    return lambda inputs: linear.forecast(inputs["series"])


def _warnings(mse: float, baselines: dict[str, float], place: str) -> list[str]:
    """A line for each baseline with a lower MSE than the model."""
    return [
        f"warning: the model is behind {name} on {place}: MSE {mse:.4f}, {name} {other:.4f}"
        for name, other in baselines.items()
        if mse > max(BEHIND * other, EXACT**2)
    ]
