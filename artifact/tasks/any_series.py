"""Forecasting of any series, each alone: of any length and unit, without training on it."""

import itertools
import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal, Self

import numpy as np
from pydantic import Field, model_validator

from artifact.arrays import Array, Doubles
from artifact.documents import OnOverflow
from artifact.errors import InvalidInput
from artifact.manifest import ExportManifest, Format
from artifact.series import SeriesWindow
from artifact.tasks.base import Answer, Computation, RunModel, Task, Tensor, TensorAnswer, VectorCache
from artifact.tasks.forecasting import Forecasting
from artifact.univariate.features import (
    CONTEXT,
    FUTURE,
    HORIZON,
    LEVELS,
    MAX_SEASONS,
    MEDIAN,
    PATCH,
    WIDTH,
    Prepared,
    prepare,
)

MAX_HORIZON = 10 * HORIZON
"""Maximum number of steps to forecast; beyond HORIZON the model continues from its own medians."""
MAX_SEASON = 100_000
"""Maximum number of steps of a season; what is longer than half the context has no effect."""
TOGETHER = 16
"""Maximum number of series that are prepared together: their arrays then fit the cache."""
SEASON_CLASSES = (1, 4, 12)
"""Longest season of each class but the last, such as years, quarters and months."""
TOKEN_BYTES = 4 * WIDTH


class AnySeriesManifest(ExportManifest):
    """Any series -> quantiles."""

    kind: Literal["any-series"]
    context_length: int = Field(gt=0)
    """Number of last observations that the model reads."""
    horizon: int = Field(gt=0)
    """Number of steps that one computation forecasts."""
    levels: tuple[float, ...]
    """Levels of the quantiles."""
    theta_shares: tuple[Annotated[float, Field(ge=0, le=1)], ...]
    """Share of the Theta forecast in the medians, for each class of season (SEASON_CLASSES)."""
    quantiles_reliable: bool
    """Whether the 80 % band covered 70 % to 90 % of the values of generated test series."""

    @model_validator(mode="after")
    def _check_shapes(self) -> Self:
        """Check that the model reads what this version of the code prepares."""
        if self.task != Forecasting.name:
            raise ValueError(f"task must be {Forecasting.name}, not {self.task}")
        if (found := (self.context_length, self.horizon, self.levels)) != (expected := (CONTEXT, HORIZON, LEVELS)):
            raise ValueError(f"context_length, horizon and levels must be {expected}, not {found}")
        if len(self.theta_shares) != len(SEASON_CLASSES) + 1:
            raise ValueError(f"theta_shares must be {len(SEASON_CLASSES) + 1} numbers, not {len(self.theta_shares)}")
        expected_shapes = ((-1, -1, WIDTH), (-1,), (-1, -1, HORIZON))
        if (shapes := tuple(spec.shape for spec in (*self.inputs, *self.outputs))) != expected_shapes:
            raise ValueError(f"inputs and output have shapes {shapes}; expected {expected_shapes}")
        if (longest := max(file.bucket for file in self.files)) != (tokens := 1 + FUTURE + CONTEXT // PATCH):
            raise ValueError(f"the longest bucket must be {tokens} tokens, not {longest}")
        return self


@dataclass(frozen=True, slots=True)
class ForecastOptions:
    """How to forecast series; checked by `AnySeries.forecast`."""

    seasons: tuple[int, ...] = (1,)
    """Steps of the season, or of two seasons such as a day and a week; 1 for none."""
    horizon: int = HORIZON
    levels: tuple[float, ...] = ()
    """Levels of the quantiles, within those of the model."""
    non_negative: bool = False
    """Whether forecasts below 0 become 0."""


@dataclass(frozen=True, slots=True)
class SeriesForecast:
    """A forecast in the units of the series."""

    values: Doubles
    """Medians (horizon,)."""
    quantiles: dict[float, Doubles]
    """Level -> (horizon,)."""
    window: SeriesWindow


class AnySeries(Task):
    """A forecaster of any series: the same task as one of the channels that it was trained on."""

    name: ClassVar[str] = Forecasting.name
    kind: ClassVar[str] = Forecasting.kind
    manifest_type = AnySeriesManifest
    operations: ClassVar[tuple[str, ...]] = Forecasting.operations
    is_chosen_by_input = Forecasting.is_chosen_by_input
    public = frozenset({"kind", "context_length", "horizon", "levels", "quantiles_reliable"})

    manifest: AnySeriesManifest

    def row_lengths(self, format: Format) -> list[int]:
        """Bytes of the tokens of a series; the buckets of the files are in tokens."""
        return [TOKEN_BYTES * tokens for tokens in super().row_lengths(format)]

    def pack(self, rows: Sequence[bytes], bucket: int) -> dict[str, Array]:
        """Tokens, padded with zeros, and their number."""
        tokens = np.frombuffer(bytearray().join(row.ljust(bucket, b"\0") for row in rows), np.float32)
        lengths = np.array([len(row) // TOKEN_BYTES for row in rows], np.int32)
        names = [spec.name for spec in self.manifest.inputs]
        return dict(zip(names, (tokens.reshape(len(rows), -1, WIDTH), lengths), strict=True))

    def forecast(self, series: Mapping[str, Doubles], options: ForecastOptions) -> Computation[list[SeriesForecast]]:
        """Forecast each series alone.

        The steps after the first HORIZON continue from the medians before them. Their bands add the variance of their
        own forecast to that of the last step before, as for a random walk, so that they do not become narrower.

        Args:
            series: location in the request -> values (n,), the oldest first, NaN if missing.
            options: how to forecast.

        Raises: InvalidInput naming the series or the option.

        """
        check_options(options)
        windows = {place: read_series(place, values) for place, values in series.items()}
        known = {place: values[-CONTEXT:] for place, values in _without_gap_at_start(series).items()}
        found: dict[str, Doubles] = {place: np.empty((len(LEVELS), 0)) for place in series}
        for _ in range(math.ceil(options.horizon / HORIZON)):
            batches = list(_together(known, options.seasons))
            rows = [tokens.tobytes() for _, prepared in batches for tokens in prepared.tokens]
            outputs = iter((yield RunModel(rows)))
            for places, prepared in batches:
                raw = np.stack([*itertools.islice(outputs, len(places))]).astype(np.float64)
                restored = prepared.restore(raw, self.manifest.theta_shares[season_class(options.seasons)])
                for place, quantiles in zip(places, restored, strict=True):
                    wide = np.maximum(_continued(found[place], quantiles), 0 if options.non_negative else -np.inf)
                    found[place] = np.concatenate([found[place], wide], axis=1)
                    known[place] = np.concatenate([known[place], wide[MEDIAN]])[-CONTEXT:]
        answers = [_answer(found[place][:, : options.horizon], options.levels, windows[place]) for place in series]
        return Answer(answers, list(windows.values()))

    def as_json(
        self, forecasts: list[SeriesForecast], arranged: Callable[[list[list[float]]], object]
    ) -> dict[str, Any]:
        """The JSON object returned to clients.

        Args:
            forecasts: of all series of a request, with the same levels.
            arranged: lists of numbers, one of each series -> the same as in the request.

        """
        windows = [forecast.window for forecast in forecasts]
        return {
            "forecast": arranged([forecast.values.tolist() for forecast in forecasts]),
            "quantiles": {
                str(level): arranged([forecast.quantiles[level].tolist() for forecast in forecasts])
                for level in forecasts[0].quantiles
            },
            "quantiles_reliable": self.manifest.quantiles_reliable,
            "coverage": {**SeriesWindow.sums(windows), "context_length": self.manifest.context_length},
        }

    @property
    def tensors(self) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
        """Series and season in, quantiles out."""
        quantiles = Tensor("quantiles", "FP32", (-1, len(LEVELS), HORIZON))
        return (Tensor("series", "FP32", (-1, -1)), Tensor("season", "FP32", (-1,))), (quantiles,)

    @property
    def parameters(self) -> dict[str, str | list[str]]:
        """The levels of the quantiles."""
        return {"levels": [str(level) for level in LEVELS]}

    def infer(
        self, inputs: Mapping[str, Any], on_overflow: OnOverflow, cache: VectorCache | None = None
    ) -> Computation[TensorAnswer]:
        """Forecast the rows of `series` with the seasons `season`; NaN is a missing value."""
        del on_overflow, cache
        seasons = tuple(int(season) for season in inputs["season"])
        series = {f"series.{row}": np.asarray(values, np.float64) for row, values in enumerate(inputs["series"])}
        answer = yield from self.forecast(series, ForecastOptions(seasons, levels=LEVELS))
        values: Array = np.stack([[*forecast.quantiles.values()] for forecast in answer.value]).astype("<f4")
        windows = [forecast.window for forecast in answer.value]
        return Answer(TensorAnswer({"quantiles": values}, SeriesWindow.sums(windows)), windows)


def season_class(seasons: Sequence[int]) -> int:
    """Class of the shortest season, from 0 to len(SEASON_CLASSES)."""
    return sum(min(seasons) > longest for longest in SEASON_CLASSES)


def check_options(options: ForecastOptions) -> None:
    """Check the options of a forecast. Raises: InvalidInput naming the option."""
    seasons, horizon = options.seasons, options.horizon
    if not 1 <= len(seasons) <= MAX_SEASONS:
        raise InvalidInput.at("season", f"must be a number or {MAX_SEASONS}, not {len(seasons)}")
    if wrong := [season for season in seasons if not 1 <= season <= MAX_SEASON]:
        raise InvalidInput.at("season", f"must be from 1 to {MAX_SEASON:,} steps, not {wrong[0]}")
    if sorted(set(seasons)) != list(seasons):
        raise InvalidInput.at("season", f"the shorter season comes first, not {' and '.join(map(str, seasons))}")
    if not 1 <= horizon <= MAX_HORIZON:
        raise InvalidInput.at("horizon", f"must be from 1 to {MAX_HORIZON}, not {horizon}")
    if wide := [level for level in options.levels if not LEVELS[0] <= level <= LEVELS[-1]]:
        raise InvalidInput.at("quantiles", f"levels must be from {LEVELS[0]} to {LEVELS[-1]}, not {wide[0]}")


def read_series(place: str, values: Doubles) -> SeriesWindow:
    """What is read of a series. Raises: InvalidInput if no value is known, or one is infinite."""
    if np.isinf(values).any():
        raise InvalidInput.at(f"{place}.{int(np.isinf(values).argmax())}", "must be a finite number or missing")
    is_known = ~np.isnan(values)
    context = values[-CONTEXT:]
    used = int(is_known[-CONTEXT:].sum())
    if not used:
        raise InvalidInput.at(place, f"at least 1 of the last {CONTEXT} values is needed; {len(values)} are missing")
    return SeriesWindow(np.zeros((len(context), 1), np.float32), int(is_known.sum()), used, len(context) - used)


def _without_gap_at_start(series: Mapping[str, Doubles]) -> dict[str, Doubles]:
    """The context of each series from its first known value on."""
    contexts = {place: values[-CONTEXT:] for place, values in series.items()}
    return {place: context[np.isnan(context).argmin() :] for place, context in contexts.items()}


def _together(series: Mapping[str, Doubles], seasons: tuple[int, ...]) -> Iterator[tuple[list[str], Prepared]]:
    """Prepare series, those of equal length together; yields their locations with each batch."""
    by_length = defaultdict[int, list[str]](list)
    for place, values in series.items():
        by_length[len(values)].append(place)
    for places in by_length.values():
        for first in range(0, len(places), TOGETHER):
            chosen = places[first : first + TOGETHER]
            yield chosen, prepare(np.stack([series[place] for place in chosen]), seasons)


def _continued(before: Doubles, quantiles: Doubles) -> Doubles:
    """Quantiles (levels, steps), wider by the band of the last step of `before`: squares of the distances add up."""
    if not before.shape[1]:
        return quantiles
    distance, last = quantiles - quantiles[MEDIAN], before[:, -1:] - before[MEDIAN, -1]
    wider: Doubles = quantiles[MEDIAN] + np.copysign(np.hypot(distance, last), last)
    return wider


def _answer(quantiles: Doubles, levels: Sequence[float], window: SeriesWindow) -> SeriesForecast:
    """The forecast of quantiles (levels, horizon), interpolated linearly between the levels of the model."""
    between = {}
    for level in levels:
        place = float(np.interp(level, LEVELS, range(len(LEVELS))))
        low = min(int(place), len(LEVELS) - 2)
        between[level] = quantiles[low] + (place - low) * (quantiles[low + 1] - quantiles[low])
    return SeriesForecast(quantiles[MEDIAN], between, window)
