"""Forecasting: windows of a series -> forecasts. Used by the commands through `model.tasks`."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor, nn

from artifact.arrays import Doubles, Floats
from artifact.manifest import ExportManifest, Result
from artifact.series import Calibration, calibrate
from artifact.tasks.forecasting import CalibrationSource, ForecasterManifest
from model.config.data import SeriesName
from model.config.run import ForecastingRun
from model.data.own import DataFiles
from model.data.series import BATCH, OwnSeries, ScaledSeries, SplitName, data_terms, load_series, read_own_series
from model.errors import UserError
from model.nn.forecaster import PaperForecaster, ResidualForecaster
from model.progress import progress
from model.tasks.base import Finished, Measurement, TrainingTask
from model.tasks.baselines import EXACT, LinearMap, season_of, seasonal_error, seasonal_naive, solve_linear_map
from model.tasks.graphs import Arrays, ExportGraph, GraphFunction, golden_windows, module_functions
from model.tasks.link import IDENTITY
from model.tasks.predictions import Rival, WindowPredictions
from model.tasks.zero_shot import origins, zero_shot
from model.training.learner import TaskLearner, TrainingBatch
from model.training.stages import Stage, gradient_stages

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
"""Maximum number of rows of the history in `calibrated`, which ends at the test split; if validation has more, all of
validation."""
RELIABLE = (0.70, 0.90)
"""Range of the 80 % band's test coverage in which its quantiles count as reliable."""
METRICS = ("mse", "mae", "mase")
"""Errors of the model and the baselines."""
CALIBRATION = "calibration"
"""Key of a fact of an export: its calibration."""
BEHIND = 1.001
"""Ratio of the model's MSE to that of a baseline above which the user is warned."""
PUBLISHED: dict[SeriesName, dict[int, tuple[float, float]]] = {
    "ettm2": {96: (0.192, 0.203), 192: (0.255, 0.269), 336: (0.324, 0.325), 720: (0.431, 0.421)},
    "exchange": {96: (0.086, 0.139), 192: (0.188, 0.256), 336: (0.356, 0.426), 720: (0.727, 1.090)},
    "weather": {96: (0.182, 0.217), 192: (0.228, 0.276), 336: (0.295, 0.339), 720: (0.383, 0.403)},
    "ili": {24: (2.431, 2.203), 36: (2.287, 2.272), 48: (2.418, 2.209), 60: (2.425, 2.545)},
}
"""MSE of S3Attention and FEDformer by horizon (Wang et al. 2024, arXiv:2408.08567, Table 2, whose ETTh2 is ETTm2)."""


SHARES = (0.0, 0.25, 0.5, 0.75, 1.0)
"""Shares of the linear map that are compared."""


@dataclass(frozen=True)
class Start:
    """A mixture of the least-squares map and a naive baseline."""

    map: LinearMap
    share: float
    """Of the least-squares map."""
    rest: str
    """Name of the naive baseline."""


@dataclass(frozen=True)
class ForecastData:
    """A series and what follows from it."""

    series: ScaledSeries
    context: int
    """N: steps that the model reads."""
    horizon: int
    """O: steps that it forecasts."""
    linear: LinearMap
    """Least squares."""
    start: Start
    """What the linear map of the model starts from."""
    step_mse: Doubles
    """(O,): MSE of the linear map per step, at least EXACT**2, on the first half of validation."""
    season: int
    """Steps of the seasonal naive baseline; 1 if the series has no season."""
    seasonal_error: Doubles
    """(C,): error of the seasonal naive forecast in training, the unit of MASE."""

    @property
    def naive(self) -> dict[str, int]:
        """Names of the naive baselines -> number of steps that they repeat."""
        seasonal = {f"seasonal naive ({self.season} steps)": self.season} if self.season > 1 else {}
        return {"repeat-last": 1, **seasonal}

    def metrics(self, error: Floats) -> Doubles:
        """METRICS (B, O, 3) of errors (B, O, C), means over channels."""
        size = np.abs(error, dtype=np.float64)
        return np.stack([(size**2).mean(axis=2), size.mean(axis=2), (size / self.seasonal_error).mean(axis=2)], axis=2)

    def by_target(self, function: GraphFunction, start: int, end: int) -> Floats:
        """Forecasts (end - start, O, C) of each row, by number of steps ahead."""
        return self.series.by_target(lambda rows: function({"series": rows}), self.context, self.horizon, (start, end))

    def mse_by_step(self, function: GraphFunction, rows: tuple[int, int]) -> Doubles:
        """MSE (O,) by step ahead of forecasts of the rows from `rows[0]` to `rows[1]`, at least EXACT**2."""
        error = self.by_target(function, *rows) - self.series.values[slice(*rows), None]
        step_mse: Doubles = np.square(error, dtype=np.float64).mean(axis=(0, 2))
        return np.maximum(step_mse, EXACT**2)


@dataclass(frozen=True)
class ForecastingTask(TrainingTask[ForecastingRun, OwnSeries | Path, ForecastData]):
    """One model for all horizons up to its longest; the first half of validation selects the epoch."""

    unit = "window"

    @property
    def metric(self) -> str:
        """MSE divided by that of the linear map, both at least EXACT**2, as a mean over the steps."""
        return "mse_to_linear"

    def read(self, files: DataFiles, *, is_new: bool = False) -> OwnSeries | Path:
        del is_new
        return files.data_dir if files.data is None else read_own_series(files.data, self.config.data)

    def load(self, source: OwnSeries | Path) -> ForecastData:
        known = self.facts
        series = load_series(self.config.data, source, (known["mean"], known["scale"]) if known else None)
        if known and list(known["channels"]) != list(series.channels):
            raise UserError(
                f"the data have the channels {', '.join(series.channels)}; the model was trained on "
                f"{', '.join(known['channels'])}"
            )
        context, horizon = self.config.model.context_length, self.config.model.prediction_length
        windows, size = series.windows("train", context, horizon), self.config.training.batch_size
        if len(windows) < size:
            raise UserError(
                f"{len(windows)} training windows of {context} + {horizon} rows are fewer than one batch, {size}"
            )
        series.windows("test", context, _horizons(horizon)[0])  # raises UserError if there are none
        start, middle, end = *series.validation_half(0), series.validation_half(1)[1]
        if min(middle - start, end - middle) < MIN_HALF_ROWS:
            raise UserError(
                f"validation has {end - start} rows; {2 * MIN_HALF_ROWS} are needed, to choose an epoch and to "
                "calibrate: get more data, or raise data.validation_fraction"
            )
        season, trained = season_of(series.frequency), series.values[:start]
        season = season if season + horizon <= len(trained) else 1
        linear = solve_linear_map(windows, context)
        error, whole = seasonal_error(trained, season), Start(linear, 1.0, "repeat-last")
        data = ForecastData(series, context, horizon, linear, whole, np.ones(horizon), season, error)
        step_mse = data.mse_by_step(_linear_function(linear), series.validation_half(0))
        return replace(data, start=self._start(data), step_mse=step_mse)

    def _start(self, data: ForecastData) -> Start:
        """The map that training starts from: the given share of the linear map, or the best one on validation.

        The best one has the smallest squared error on the first half of validation, among SHARES and both baselines.
        """
        share = self.config.model.linear_share
        naive = {name: season for name, season in data.naive.items() if season <= data.context}
        maps = {name: LinearMap.repeating(season, data.context, data.horizon) for name, season in naive.items()}
        if share != "best":
            name = next(iter(maps))
            return Start(data.linear.mixed(maps[name], share), share, name)
        half = data.series.validation_half(0)
        truth = data.series.values[slice(*half), None]
        linear = data.by_target(_linear_function(data.linear), *half) - truth
        mse = dict[tuple[str, float], float]()
        for name, repeating in maps.items():
            error = data.by_target(_linear_function(repeating), *half) - truth
            for share in SHARES:
                mixed = np.square(share * linear + (1 - share) * error, dtype=np.float64)
                mse[name, share] = max(float(mixed.mean()), EXACT**2)
        name, share = min(mse, key=mse.__getitem__)
        return Start(data.linear.mixed(maps[name], share), share, name)

    def with_facts_of(self, data: ForecastData) -> Self:
        series = data.series
        return self.knowing(
            channels=list(series.channels),
            mean=series.mean.tolist(),
            scale=series.scale.tolist(),
            frequency=series.frequency,
        )

    def describe(self, data: ForecastData) -> tuple[str, ...]:
        series, ends = data.series, data.series.boundaries
        summary = (
            f"{len(series.values)} rows of {len(series.channels)} channels, step {series.frequency}; training to row "
            f"{ends[0]}, validation to {ends[1]}, test to {ends[2]}; {data.context} steps in, {data.horizon} out"
        )
        lines = ("; ".join((*series.notes, summary)),)
        if self.config.model.linear_share != "best":
            return lines
        start = data.start
        rest = f", and {1 - start.share:.0%} of {start.rest}" if start.share < 1 else ""
        return (
            *lines,
            f"initial forecast: {start.share:.0%} of the linear map{rest}, the best on the first half of validation",
        )

    def stages(self, data: ForecastData) -> Sequence[Stage]:
        return gradient_stages(self.learner(data), self.config.training, is_fitted_on_all=False)

    def learner(self, data: ForecastData) -> "WindowLearner":
        """What training learns from."""
        return WindowLearner(self, data)

    def build(self) -> nn.Module:
        kind = PaperForecaster if self.config.model.kind == "paper" else ResidualForecaster
        return kind(self.config.model, len(self.facts["channels"]))

    def graphs(self, model: nn.Module) -> tuple[ExportGraph, ...]:
        context = self.config.model.context_length
        golden = golden_windows(context, len(self.facts["channels"]))
        return (ExportGraph("model", model, golden, ("forecast",), (context,)),)

    def finish(self, model: nn.Module, final: nn.Module | None, data: ForecastData) -> Finished:
        """Leave the model as it is: the calibration is that of the forecasts of its export (`measure`)."""
        del data
        return self.finished(model, final)

    def measure(self, functions: Sequence[GraphFunction], data: ForecastData) -> Measurement:
        """MSE, MAE, MASE and coverage of the 80 % band on scaled data over all test windows, by horizon.

        Horizons longer than the test split are left out. The baselines are evaluated on the same windows; a note warns
        of each that has a lower MSE than the model.
        """
        keys, archives, calibration = dict[str, Any](), dict[str, Arrays](), self.facts.get(CALIBRATION)
        if calibration is None:
            calibration, source = calibrated(functions[0], data)
            keys |= {"calibration_source": source, "calibration_examples": calibration.count}
            archives["calibration"] = {"levels": calibration.levels, "errors": calibration.errors}
        series, longest, naive = data.series, data.horizon, data.naive
        low, high = (calibration.error(level, longest) for level in BAND)
        known = _horizons(longest)
        windows = _windows_with_truth(data, "test", known[0])
        counts = {horizon: count for horizon in known if (count := len(windows) + known[0] - horizon) > 0}
        sums = {horizon: np.zeros((2 + len(naive), len(METRICS))) for horizon in counts}
        covered = dict.fromkeys(counts, 0.0)
        first = 0
        for part, forecast in _forecasts(functions[0], windows, data.context):
            context, truth = part[:, : data.context], part[:, data.context :]
            origins = series.boundaries[1] + np.arange(first, first + len(part))
            forecasts = [
                forecast,
                *(seasonal_naive(series.values, origins, longest, n) for n in naive.values()),
            ]
            forecasts.append(data.linear.forecast(context))
            values = np.stack([data.metrics(truth - other).cumsum(axis=1) for other in forecasts])  # (F, B, O, 3)
            error = truth - forecast
            hits = ((low <= error) & (error <= high)).mean(axis=2).cumsum(axis=1)  # (B, O)
            for horizon in counts:
                whole = max(0, counts[horizon] - first)  # windows whose horizon is within the split
                sums[horizon] += values[:, :whole, horizon - 1].sum(axis=1)
                covered[horizon] += float(hits[:whole, horizon - 1].sum())
            first += len(part)
        results, notes = list[Result](), list[str]()
        for horizon, count in counts.items():
            model, *others = (sums[horizon] / (count * horizon)).tolist()
            baselines = dict(zip((*naive, "linear map"), others, strict=True))
            results += self._results(horizon, count, (*model, covered[horizon] / (count * horizon)), baselines)
            mse = {name: row[0] for name, row in baselines.items()}
            notes += _warnings(model[0], mse, f"test, horizon {horizon}")
        keys["quantiles_reliable"] = quantiles_are_reliable(results)
        predictions = _predictions(functions[0], data, windows[::longest], low, high)
        return Measurement(tuple(results), tuple(notes), keys, archives, predictions)

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

    def manifest(self, golden: Arrays) -> dict[str, Any]:
        del golden
        model, layout = self.config.model, replace(self.config.data.layout, channels=(), frequency="", encoding="")
        return {
            **self.facts,
            "layout": asdict(layout),  # what `predict` needs besides to read a table like that of the training data
            "context_length": model.context_length,
            "horizon": model.prediction_length,
            "min_observations": max(2, model.context_length // 4),
        }

    def of_export(self, manifest: ExportManifest, folder: Path) -> Self:
        assert isinstance(manifest, ForecasterManifest)
        with np.load(folder / manifest.calibration.path, allow_pickle=False) as arrays:
            shipped = Calibration(arrays["levels"], arrays["errors"], manifest.calibration_examples)
        known = {key: getattr(manifest, key) for key in ("channels", "mean", "scale", "frequency")}
        return self.knowing(**known, **{CALIBRATION: shipped})

    def terms(self) -> tuple[str, bool]:
        return data_terms(self.config.data.name), False


@dataclass(frozen=True)
class WindowLearner(TaskLearner):
    """Windows of a series that train a forecaster."""

    task: ForecastingTask
    data: ForecastData

    metric, unit = "mse_to_linear", "window"
    is_error, validates_initial_model = True, True

    def build(self) -> nn.Module:
        return self.task.build()

    def initialise(self, model: nn.Module, device: torch.device) -> None:
        del device
        if isinstance(model, ResidualForecaster):
            start = self.data.start.map
            model.set_linear(torch.from_numpy(start.weight.T), torch.from_numpy(start.bias))

    @cached_property
    def windows(self) -> Floats:
        """Training windows (W, C, N + O), a view."""
        return self.data.series.windows("train", self.data.context, self.data.horizon)

    @cached_property
    def weights(self) -> Tensor:
        """Weight (O,) of each step in the loss: the inverse of the linear map's squared error."""
        context = self.data.context
        sample = self.windows[:: max(1, len(self.windows) // 2000)].transpose(0, 2, 1)
        squared = (self.data.linear.forecast(sample[:, :context]) - sample[:, context:]) ** 2
        inverse = 1 / np.maximum(squared.mean(axis=(0, 2), dtype=np.float64), EXACT**2)
        return torch.from_numpy((inverse / inverse.mean()).astype(np.float32))

    @property
    def examples_per_epoch(self) -> int:
        training, available = self.task.config.training, len(self.windows)
        return min(training.examples_per_epoch or available, available) // training.batch_size * training.batch_size

    def batches(self, epoch: int) -> Iterator[TrainingBatch]:
        """Yield training batches of one epoch.

        Shape:  context (B, N, C), truth (B, O, C), both scaled.
        """
        config, context = self.task.config, self.data.context
        order = np.random.default_rng([config.seed, epoch]).permutation(len(self.windows))
        size = config.training.batch_size
        for first in range(0, self.examples_per_epoch, size):
            rows = torch.from_numpy(self.windows[order[first : first + size]].transpose(0, 2, 1))
            yield rows[:, :context].contiguous(), rows[:, context:]

    def loss(self, model: nn.Module, batch: TrainingBatch) -> Tensor:
        """Squared error of each step divided by the linear map's, so that all steps have equal weight."""
        context, truth = batch
        squared = IDENTITY.loss(model(context), truth)  # (O,)
        return torch.mean(squared * self.weights.to(squared.device))

    def validate(self, model: nn.Module, device: torch.device) -> float:
        (function,) = module_functions(self.task.graphs(model), device)
        rows = self.data.series.validation_half(0)
        return float((self.data.mse_by_step(function, rows) / self.data.step_mse).mean())

    def compare(self, model: nn.Module, device: torch.device) -> str:
        """Errors of the model and the baselines on the second half of validation, which selected no epoch."""
        data = self.data
        start, end = data.series.validation_half(1)
        truth, steps = data.series.values[start:end, None], np.arange(data.horizon)
        (function,) = module_functions(self.task.graphs(model), device)
        forecasts = {"model": data.by_target(function, start, end)}
        forecasts["linear map"] = data.by_target(_linear_function(data.linear), start, end)
        for name, season in data.naive.items():
            rows = np.arange(start, end)[:, None] - season * (steps // season + 1)
            forecasts[name] = data.series.values[rows]
        title = "Errors on the second half of validation, which selected no epoch:"
        lines = self._table(title, {name: truth - forecast for name, forecast in forecasts.items()})
        mse = {
            name: float(np.square(truth - forecast, dtype=np.float64).mean()) for name, forecast in forecasts.items()
        }
        warnings = _warnings(mse.pop("model"), mse, "the second half of validation")
        return "\n".join((*lines, *warnings, *self._without_training(function)))

    def _without_training(self, function: GraphFunction) -> list[str]:
        """Errors of the model and of the forecaster of any series on some windows of the second half of validation."""
        data, values = self.data, self.data.series.values
        first_rows = origins(data.series.validation_half(1), data.horizon, values.shape[1])
        if not first_rows.size or (found := zero_shot(data.series, first_rows, data.horizon)) is None:
            return []
        contexts, truth = (
            np.stack([values[row + start : row + end] for row in first_rows.tolist()])
            for start, end in ((-data.context, 0), (0, data.horizon))
        )
        errors = {"model": truth - function({"series": contexts}), "any-series": truth - found}
        title = f"On {len(first_rows)} windows of that half, with a forecaster that was not trained on the series:"
        lines = self._table(title, errors)
        mse = {name: float(np.square(error, dtype=np.float64).mean()) for name, error in errors.items()}
        warnings = _warnings(mse.pop("model"), mse, "these windows")
        return [*lines, *(f"{warning}; serve any-series, which needs no training" for warning in warnings)]

    def _table(self, title: str, errors: dict[str, Floats]) -> list[str]:
        """Table of METRICS, means over errors (B, O, C) of each forecaster."""
        width = max(map(len, errors))
        rows = {name: self.data.metrics(error).mean(axis=(0, 1)) for name, error in errors.items()}
        head = f"{'':<{width}}" + "".join(f"  {metric.upper():>8}" for metric in METRICS)
        return [title, head, *(f"{name:<{width}}" + "".join(f"  {v:>8.4f}" for v in row) for name, row in rows.items())]


def calibrated(function: GraphFunction, data: ForecastData) -> tuple[Calibration, CalibrationSource]:
    """Error quantiles on the second half of validation, which did not select the epoch, or on a longer history.

    If a series drifts, half a validation split covers only one regime. The history starts earlier and also ends
    with that half, but includes rows that selected the epoch or were trained on, whose errors are slightly too
    small. To choose, the 80 % band is calibrated once on the first half and once on the history before the second
    half; the one whose coverage of the second half is closer to 80 % wins.
    """
    series = data.series
    start, middle, end = *series.validation_half(0), series.validation_half(1)[1]
    first = max(data.context + data.horizon, min(start, end - HISTORY_ROWS))
    error = series.values[first:end, None] - data.by_target(function, first, end)  # (rows, O, C)
    recent = error[middle - first :]
    distance = {}
    for source, rows in (
        ("validation", error[start - first : middle - first]),
        ("history", error[: middle - first]),
    ):
        low, high = (calibrate(rows, BAND).error(level, data.horizon) for level in BAND)
        distance[source] = abs(float(((low <= recent) & (recent <= high)).mean()) - (BAND[1] - BAND[0]))
    if distance["validation"] <= distance["history"]:
        return calibrate(recent, LEVELS), "validation"
    return calibrate(error, LEVELS), "history"


def _windows_with_truth(data: ForecastData, split: SplitName, shortest: int) -> Floats:
    """Windows of a split whose first `shortest` steps are known; NaN after the end of the split.

    Shape:  returns (windows, N + O, C), a view.
    """
    rows = data.series.windows(split, data.context, shortest)
    values = np.concatenate([rows[0].T, rows[1:, :, -1]])  # the split, preceded by its context
    missing = np.full((data.horizon - shortest, values.shape[1]), np.nan, np.float32)
    padded = np.concatenate([values, missing])
    windows = np.lib.stride_tricks.sliding_window_view(padded, data.context + data.horizon, axis=0)
    return windows.transpose(0, 2, 1)


def _predictions(
    function: GraphFunction, data: ForecastData, windows: Floats, low: Floats, high: Floats
) -> WindowPredictions:
    """Forecasts of windows (W, N + O, C) that follow one another in the test split, in the units of the series.

    `low` and `high` (O, C) bound the errors of the 80 % band.
    """
    series, horizon = data.series, data.horizon
    windows = windows.copy()  # PyTorch warns of a view that cannot be written
    forecast = np.concatenate([found for _, found in _forecasts(function, windows, data.context)])
    past, truth = windows[:, : data.context], windows[:, data.context :]
    origins = series.boundaries[1] + horizon * np.arange(len(windows))
    rivals = {name: seasonal_naive(series.values, origins, horizon, steps) for name, steps in data.naive.items()}
    rivals["linear map"] = data.linear.forecast(past)

    def restored(values: Floats) -> Doubles:
        return values * series.scale + series.mean

    return WindowPredictions(
        series.channels,
        origins,
        restored(past),
        restored(truth),
        restored(forecast),
        restored(forecast + low),
        restored(forecast + high),
        [Rival(name, restored(values)) for name, values in rivals.items()],
    )


def _forecasts(function: GraphFunction, windows: Floats, context: int) -> Iterator[tuple[Floats, Floats]]:
    """Yield windows (B, at least N, C) in chunks, with their forecasts (B, O, C)."""
    for first in progress(range(0, len(windows), BATCH), unit="batch", leave=False):
        part = windows[first : first + BATCH]
        yield part, function({"series": np.ascontiguousarray(part[:, :context])})


def quantiles_are_reliable(results: Sequence[Result]) -> bool:
    """Whether the coverage of the 80 % band is within RELIABLE at every evaluated horizon."""
    coverage = [result.value for result in results if result.metric == "coverage_80"]
    return all(RELIABLE[0] <= value <= RELIABLE[1] for value in coverage)


def _horizons(longest: int) -> list[int]:
    """Horizons at which to evaluate a model."""
    known = [horizon for horizon in HORIZONS if horizon <= longest and (horizon >= 96 or longest < 96)]
    return known or [longest]


def _linear_function(linear: LinearMap) -> GraphFunction:
    """The linear map as a `GraphFunction`."""
    return lambda inputs: linear.forecast(inputs["series"])


def _warnings(mse: float, baselines: dict[str, float], place: str) -> list[str]:
    """A line for each baseline with a lower MSE than the model."""
    return [
        f"warning: the model is behind {name} on {place}: MSE {mse:.4f}, {name} {other:.4f}"
        for name, other in baselines.items()
        if mse > max(BEHIND * other, EXACT**2)
    ]
