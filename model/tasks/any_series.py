"""Forecasting of any series by one model, trained on generated series. Used by the commands through `model.tasks`."""

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from artifact.arrays import Doubles, Floats
from artifact.manifest import ExportManifest, Result
from artifact.tasks.any_series import season_class
from artifact.univariate.features import CONTEXT, FUTURE, HORIZON, LEVELS, MEDIAN, PATCH, WIDTH, Prepared, prepare
from model.config.run import AnySeriesRun
from model.data.added_series import AddedSeries, read_added
from model.data.own import DataFiles
from model.data.synthetic_univariate import GROUP, KINDS, Group, draw_group, draw_groups
from model.errors import UserError
from model.nn.any_series import AnySeriesForecaster
from model.tasks.base import ADDED, Finished, Measurement, TrainingTask
from model.tasks.forecasting import quantiles_are_reliable
from model.tasks.graphs import Arrays, ExportGraph, GraphFunction, module_functions
from model.tasks.predictions import Rival, WindowPredictions
from model.training.checkpoint import Progress, RunFolder, load_best
from model.training.learner import TaskLearner, TrainingBatch
from model.training.plot import Panel, plot_forecasts
from model.training.stages import MODEL, Stage, gradient_stages

BUCKETS = tuple(1 + FUTURE + steps // PATCH for steps in (64, 128, 256, CONTEXT))
"""Padded numbers of tokens."""
TRAINING, VALIDATION, TEST = 0, 1, 2
"""Streams of generated series. Validation and test are the same for all seeds."""
BATCHES = 48
"""Batches of validation and of test."""
BATCH = 64
"""Series of a batch of validation and of test."""
FARTHEST = 12.0
"""Limit of the targets, in units of the model."""
AHEAD, AT_LEAST_AHEAD = 2, 8
"""Steps ahead that count in the loss: so many for each step of the past, and some more."""
HALF_WEIGHT = 8
"""Step whose weight in the loss is half that of the first."""
BASELINES = ("Theta", "seasonal naive", "naive")
DRAWN = 48
"""Steps of the shortest series in the picture."""
BAND = (LEVELS.index(0.1), LEVELS.index(0.9))


@dataclass(frozen=True)
class SeriesBatch:
    """Prepared groups of series as one batch."""

    groups: tuple[Group, ...]
    prepared: tuple[Prepared, ...]

    @classmethod
    def of(cls, groups: Iterable[Group]) -> "SeriesBatch":
        """Prepare groups."""
        kept = tuple(groups)
        return cls(kept, tuple(prepare(group.past, group.seasons) for group in kept))

    def inputs(self, *, buckets: Sequence[int] = ()) -> Arrays:
        """Inputs of the graph; padded to the next of the buckets, or to the longest series."""
        longest = max(prepared.tokens.shape[1] for prepared in self.prepared)
        size = next((bucket for bucket in buckets if longest <= bucket), max(longest, BUCKETS[0]))
        tokens = np.zeros((len(self.prepared) * GROUP, size, WIDTH), np.float32)
        lengths = np.zeros(len(tokens), np.int32)
        for place, prepared in enumerate(self.prepared):
            rows, count = slice(place * GROUP, (place + 1) * GROUP), prepared.tokens.shape[1]
            tokens[rows, :count], lengths[rows] = prepared.tokens, count
        return {"tokens": tokens, "lengths": lengths}

    def targets(self) -> Floats:
        """What the model should forecast, (B, HORIZON); NaN for exact lines."""
        found = [prepared.targets(group.future) for group, prepared in zip(self.groups, self.prepared, strict=True)]
        targets: Floats = np.clip(np.concatenate(found), -FARTHEST, FARTHEST).astype(np.float32)
        return targets

    def learned(self) -> Floats:
        """Targets that count in the loss (B, HORIZON): NaN for exact lines and for steps too far ahead of the past."""
        past = np.repeat([group.past.shape[1] for group in self.groups], GROUP)
        is_far = np.arange(HORIZON) >= AT_LEAST_AHEAD + AHEAD * past[:, None]
        return np.where(is_far, np.float32(np.nan), self.targets())

    def theta(self) -> Doubles:
        """Theta forecasts in units of the model, (B, HORIZON)."""
        return np.concatenate([prepared.theta for prepared in self.prepared])

    def seasonal_naive(self) -> Doubles:
        """Seasonal naive forecasts in units of the model, (B, HORIZON)."""
        found = []
        for group, prepared in zip(self.groups, self.prepared, strict=True):
            season = max(group.seasons) if max(group.seasons) <= group.past.shape[1] else 1
            filled = np.where(np.isnan(group.past), group.past[:, -1:], group.past)
            found.append(prepared.targets(filled[:, -season + np.arange(HORIZON) % season]))
        return np.clip(np.concatenate(found), -FARTHEST, FARTHEST)


@dataclass(frozen=True)
class GeneratedData:
    """Validation and test series, and those of the user that are added to training."""

    validation: tuple[SeriesBatch, ...]
    test: tuple[SeriesBatch, ...]
    added: AddedSeries | None = None


@cache
def levels_and_weights(device: torch.device) -> tuple[Tensor, Tensor]:
    """Levels (LEVELS, 1), and the weight of each step in the loss (HORIZON,), with mean 1: near steps count most.

    Kept on the device, because a recorded CUDA step cannot copy them there.
    """
    weight = 1 / (1 + torch.arange(HORIZON, device=device) / HALF_WEIGHT)
    return torch.tensor(LEVELS, device=device).unsqueeze(1), weight / weight.mean()


def pinball(quantiles: Tensor, truth: Tensor) -> Tensor:
    """Mean quantile loss, twice; of a median, the absolute error.

    Shape:  quantiles (B, LEVELS, HORIZON), truth (B, HORIZON) with NaN for what does not count.
    """
    level, weight = levels_and_weights(quantiles.device)
    counts = ~torch.isnan(truth) * weight  # (B, HORIZON)
    error = torch.nan_to_num(truth).unsqueeze(1) - quantiles
    loss = 2 * torch.maximum(level * error, (level - 1) * error).mean(1)
    return (loss * counts).sum() / counts.sum().clamp(min=1)


@dataclass(frozen=True)
class Evaluated:
    """Forecasts of a batch and the truth, in units of the model. Exact lines are left out."""

    quantiles: Doubles
    """(B, LEVELS, HORIZON), in order, mixed with Theta forecasts."""
    truth: Doubles
    """(B, HORIZON), as all below."""
    theta: Doubles
    seasonal_naive: Doubles
    kinds: tuple[str, ...]
    """(B,)."""


def evaluate(function: GraphFunction, batches: Iterable[SeriesBatch], theta_shares: Sequence[float]) -> list[Evaluated]:
    """Forecast generated series; `theta_shares` are those of the Theta forecast for each class of season."""
    found = []
    for batch in batches:
        truth = batch.targets().astype(np.float64)
        kept = np.flatnonzero(~np.isnan(truth).any(axis=1))
        quantiles = function(batch.inputs(buckets=BUCKETS)).astype(np.float64)
        mixed = [
            prepared.mixed(part, theta_shares[season_class(group.seasons)])
            for group, prepared, part in zip(
                batch.groups, batch.prepared, np.split(quantiles, len(batch.groups)), strict=True
            )
        ]
        found.append(
            Evaluated(
                np.concatenate(mixed)[kept],
                truth[kept],
                batch.theta()[kept],
                batch.seasonal_naive()[kept],
                tuple(batch.groups[row // GROUP].kind for row in kept),
            )
        )
    return found


def examples(batches: Sequence[SeriesBatch]) -> Iterator[tuple[str, SeriesBatch, int]]:
    """Title, batch and place of a group of each kind of series, without a season and with one."""
    for kind, is_seasonal in itertools.product(KINDS, (False, True)):
        fitting = (
            (batch, place)
            for batch in batches
            for place, group in enumerate(batch.groups)
            if (group.kind, max(group.seasons) > 1) == (kind, is_seasonal) and group.past.shape[1] >= DRAWN
        )
        if (found := next(fitting, None)) is not None:
            batch, place = found
            season = f", season of {' and '.join(map(str, batch.groups[place].seasons))}" if is_seasonal else ""
            yield f"{kind}{season}", batch, place


def quantiles_of(function: GraphFunction, batch: SeriesBatch, place: int) -> Doubles:
    """Quantiles of a group in units of the model, (GROUP, LEVELS, HORIZON)."""
    return function(batch.inputs(buckets=BUCKETS))[place * GROUP : (place + 1) * GROUP].astype(np.float64)


def predicted(
    function: GraphFunction, batches: Sequence[SeriesBatch], theta_shares: Sequence[float]
) -> WindowPredictions:
    """The forecast of a series of each kind, with those of Theta and seasonal naive; as channels of one window."""
    titles, pasts, columns = list[str](), list[Doubles](), list[Doubles]()
    for title, batch, place in examples(batches):
        rows, group, prepared = slice(place * GROUP, (place + 1) * GROUP), batch.groups[place], batch.prepared[place]
        quantiles = quantiles_of(function, batch, place)
        own = prepared.restore(quantiles, theta_shares[season_class(group.seasons)])[0]
        others = (np.broadcast_to(one[rows, None], quantiles.shape) for one in (batch.theta(), batch.seasonal_naive()))
        theta, naive = (prepared.restore(one, 0.0)[0][MEDIAN] for one in others)
        past = np.full(2 * HORIZON, np.nan)
        past[-group.past.shape[1] :] = group.past[0, -2 * HORIZON :]
        titles.append(title)
        pasts.append(past)
        columns.append(np.stack([group.future[0], own[MEDIAN], own[BAND[0]], own[BAND[1]], theta, naive]))
    truth, forecast, low, high, theta, naive = np.stack(columns, axis=-1)[:, None]
    rivals = [Rival(name, values) for name, values in zip(BASELINES, (theta, naive), strict=False)]
    origin, past = np.zeros(1, np.int64), np.stack(pasts, axis=-1)[None]
    return WindowPredictions(titles, origin, past, truth, forecast, low, high, rivals, is_one_series=False)


def errors(evaluated: Sequence[Evaluated]) -> dict[str, dict[str, float]]:
    """Of all series and of each kind: their number, mean absolute errors and coverage of the 80 % band."""
    rows = list[tuple[float, ...]]()
    for part in evaluated:
        low, high = (part.quantiles[:, place] for place in BAND)
        forecasts = (part.quantiles[:, MEDIAN], part.theta, part.seasonal_naive, 0 * part.theta)
        columns = [np.abs(part.truth - forecast).mean(axis=1) for forecast in forecasts]
        columns.append(((low <= part.truth) & (part.truth <= high)).mean(axis=1))
        rows += zip(*columns, strict=True)
    table, kinds = np.array(rows), np.array([kind for part in evaluated for kind in part.kinds])
    found = dict[str, dict[str, float]]()
    for kind in ("all", *(kind for kind in KINDS if kind in kinds)):
        chosen = table if kind == "all" else table[kinds == kind]
        means = dict(zip(("mae", *BASELINES, "coverage_80"), chosen.mean(axis=0).tolist(), strict=True))
        found[kind] = {"series": float(len(chosen)), **means}
    return found


@dataclass(frozen=True)
class AnySeriesTask(TrainingTask[AnySeriesRun, tuple[Path, ...], GeneratedData]):
    """One model for any series; validation on generated series selects the epoch."""

    unit = "series"

    @property
    def metric(self) -> str:
        """Mean quantile loss in units of the model."""
        return "pinball"

    def read(self, files: DataFiles, *, is_new: bool = False) -> tuple[Path, ...]:
        del is_new
        return files.series

    def load(self, source: tuple[Path, ...]) -> GeneratedData:
        if self.config.training.batch_size % GROUP:
            raise UserError(f"training.batch_size must be a multiple of {GROUP}, not {self.config.training.batch_size}")
        validation, test = (
            tuple(SeriesBatch.of(draw_groups((stream,), index, BATCH)) for index in range(BATCHES))
            for stream in (VALIDATION, TEST)
        )
        if not source:  # evaluation and export read no series of the user
            return GeneratedData(validation, test)
        added = read_added(source, self.config.data.series_share)
        if self.facts.get(ADDED, added.fingerprint) != added.fingerprint:
            raise UserError(f"{', '.join(map(str, source))}: other series than those that this run began with")
        return GeneratedData(validation, test, added)

    def with_facts_of(self, data: GeneratedData) -> Self:
        return self if data.added is None else self.knowing(**{ADDED: data.added.fingerprint})

    def describe(self, data: GeneratedData) -> tuple[str, ...]:
        found = f"generated series; {len(data.validation) * BATCH} of them for validation"
        if data.added is None:
            return (found,)
        lengths = data.added.lengths
        counts = ", ".join(
            f"{len(places):,} of {' and '.join(map(str, seasons))}" for seasons, places in data.added.alike.items()
        )
        return (found, f"added: {len(lengths):,} series of {lengths[0]} to {lengths[-1]} steps; seasons: {counts}")

    def stages(self, data: GeneratedData) -> Sequence[Stage]:
        stages = gradient_stages(AnySeriesLearner(self, data), self.config.training, is_fitted_on_all=False)
        return [*stages, Stage("picture", partial(self._draw, data), (MODEL,))]

    def _draw(self, data: GeneratedData, folder: RunFolder, progress: Progress) -> None:
        """Plot one generated validation series of each kind, without a season and with one, and its forecast."""
        del progress
        model = self.build().to(folder.device)
        load_best(model, folder.path)
        (function,) = module_functions(self.graphs(model.eval()), folder.device)
        panels = list[Panel]()
        for title, batch, place in examples(data.validation):
            quantiles, group = quantiles_of(function, batch, place), batch.groups[place]
            ends = batch.prepared[place].restore(quantiles, 0.0)[0][[BAND[0], MEDIAN, BAND[1]]]
            panels.append(Panel(title, group.past[0, -2 * HORIZON :], group.future[0], ends))
        plot_forecasts(panels, folder.path / "generated.png")

    def build(self) -> nn.Module:
        return AnySeriesForecaster(self.config.model)

    def graphs(self, model: nn.Module) -> tuple[ExportGraph, ...]:
        return (ExportGraph("model", model, golden_series(), ("quantiles",), BUCKETS),)

    def finish(self, model: nn.Module, final: nn.Module | None, data: GeneratedData) -> Finished:
        """Leave the model as it is."""
        del data
        return self.finished(model, final)

    def measure(self, functions: Sequence[GraphFunction], data: GeneratedData) -> Measurement:
        """Errors of the median and coverage of the 80 % band on generated test series, of all kinds and of each."""
        found = errors(evaluate(functions[0], data.test, self.config.model.theta_shares))
        results = list[Result]()
        for kind, rows in found.items():
            note = ", ".join(f"{name} {rows[name]:.4f}" for name in BASELINES)
            for metric, compared in (("mae", note), ("coverage_80", "0.8")):
                results.append(
                    Result(
                        metric=metric,
                        value=round(rows[metric], 6),
                        split="test",
                        examples=int(rows["series"]),
                        condition=kind,
                        seeds=(self.config.seed,),
                        compared_with=compared,
                    )
                )
        predictions = predicted(functions[0], data.test, self.config.model.theta_shares)
        keys = {"quantiles_reliable": quantiles_are_reliable(results)}
        return Measurement(tuple(results), keys=keys, predictions=predictions)

    def manifest(self, golden: Arrays) -> dict[str, Any]:
        del golden
        shares = self.config.model.theta_shares
        return {
            "kind": "any-series",
            "context_length": CONTEXT,
            "horizon": HORIZON,
            "levels": LEVELS,
            "theta_shares": shares,
        }

    def of_export(self, manifest: ExportManifest, folder: Path) -> Self:
        del manifest, folder
        return self

    def terms(self) -> tuple[str, bool]:
        return "Generated, and own data." if self.config.data.series_share else "Generated; no terms.", False


@dataclass(frozen=True)
class GeneratedBatches(Dataset[TrainingBatch]):
    """The training batches of an epoch, some of the user's series: tokens, lengths and targets."""

    seed: int
    first: int
    """Index of the first batch."""
    count: int
    size: int
    """Series of a batch."""
    added: AddedSeries | None

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, place: int) -> TrainingBatch:
        draw = draw_group if self.added is None else self.added.draw_group
        batch = SeriesBatch.of(draw_groups((TRAINING, self.seed), self.first + place, self.size, draw))
        arrays = (*batch.inputs(buckets=BUCKETS).values(), batch.learned())
        return tuple(torch.from_numpy(array) for array in arrays)


@dataclass(frozen=True)
class AnySeriesLearner(TaskLearner):
    """Generated series that train a forecaster of any series."""

    task: AnySeriesTask
    data: GeneratedData

    metric, unit = "pinball", "series"
    is_error = True
    has_fixed_shapes = True

    def build(self) -> nn.Module:
        return self.task.build()

    def initialise(self, model: nn.Module, device: torch.device) -> None:
        """The model needs no initialisation from data."""

    @property
    def examples_per_epoch(self) -> int:
        training = self.task.config.training
        return training.examples_per_epoch // training.batch_size * training.batch_size

    def batches(self, epoch: int) -> Iterator[TrainingBatch]:
        """Yield training batches of one epoch: tokens, lengths and targets."""
        config = self.task.config
        count = self.examples_per_epoch // config.training.batch_size
        generated = GeneratedBatches(config.seed, epoch * count, count, config.training.batch_size, self.data.added)
        yield from DataLoader(generated, batch_size=None, num_workers=config.data.workers)

    def loss(self, model: nn.Module, batch: TrainingBatch) -> Tensor:
        tokens, lengths, targets = batch
        with torch.autocast(targets.device.type, enabled=False):  # bfloat16 has too few digits for values
            return pinball(model(tokens, lengths), targets)

    def validate(self, model: nn.Module, device: torch.device) -> float:
        (function,) = module_functions(self.task.graphs(model), device)
        losses = [self._loss(function, batch) for batch in self.data.validation]
        return float(np.mean(losses))

    def _loss(self, function: GraphFunction, batch: SeriesBatch) -> float:
        found = torch.from_numpy(function(batch.inputs()))
        return float(pinball(found, torch.from_numpy(batch.learned())))

    def compare(self, model: nn.Module, device: torch.device) -> str:
        """Mean absolute errors on validation, with those of simple forecasts, of all kinds of series and of each."""
        (function,) = module_functions(self.task.graphs(model), device)
        found = errors(evaluate(function, self.data.validation, self.task.config.model.theta_shares))
        heads = ("series", "mae", *BASELINES, "coverage_80")
        lines = ["Mean absolute errors on validation:"]
        lines.append(f"{'':<12}" + "".join(f"  {head:>14}" for head in heads))
        for kind, row in found.items():
            lines.append(f"{kind:<12}" + "".join(f"  {row[head]:>14.4g}" for head in heads))
        return "\n".join(lines)


def golden_series() -> Arrays:
    """Generated series of all lengths: tokens (8, BUCKETS[-1], WIDTH) float32, lengths (8,) int32."""
    generator = np.random.default_rng(0)
    inputs = {"tokens": np.zeros((8, BUCKETS[-1], WIDTH), np.float32), "lengths": np.zeros(8, np.int32)}
    for row, steps in enumerate((1, 17, 64, 90, 128, 250, 400, CONTEXT)):
        wave = 100 + 10 * np.sin(np.arange(steps) * 2 * np.pi / 12)
        tokens = prepare((wave + generator.standard_normal(steps).cumsum())[None], (12,)).tokens[0]
        inputs["tokens"][row, : len(tokens)], inputs["lengths"][row] = tokens, len(tokens)
    return inputs
