"""Forecasting of any series, each alone: of any length and unit, without training on it."""

import itertools
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal, Self

import numpy as np
from pydantic import Field, model_validator

from artifact.arrays import Array, Doubles
from artifact.documents import OnOverflow
from artifact.errors import InvalidInput
from artifact.manifest import ExportManifest, Format
from artifact.series import SeriesCoverage, Step, Tails
from artifact.tasks.base import Answer, Computation, RunModel, Tensor, TensorAnswer, VectorCache
from artifact.tasks.forecaster import (
    Forecast,
    Forecaster,
    ForecastOptions,
    ForecastPlan,
    Seasons,
    SeasonSource,
    check_levels,
)
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
from artifact.univariate.seasons import infer_seasons, seasons_of

MAX_HORIZON = 10 * HORIZON
"""Maximum number of steps to forecast; beyond HORIZON the model continues from its own medians."""
MAX_SEASON = 100_000
"""Maximum number of steps of a season; what is longer than half the context has no effect."""
STEPS = 24
"""Default number of steps to forecast of a series without a season."""
STEPS_PER_ITEM = 16
"""Checking, preparing and restoring a series of CONTEXT steps takes about 2 ms."""
AT_ONCE = 256
"""Maximum number of series whose rows are computed together, so that a large request does not fill the queue."""
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
        if self.task != Forecaster.name:
            raise ValueError(f"task must be {Forecaster.name}, not {self.task}")
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


class AnySeries(Forecaster):
    """A forecaster of any series."""

    manifest_type = AnySeriesManifest
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

    @property
    def context_length(self) -> int:
        """Number of last steps that the model reads."""
        return CONTEXT

    @property
    def step(self) -> None:
        """None: any step."""
        return None

    def fits(self, channels: Sequence[str] | None, step: Step | None, *, exactly: bool = False) -> bool:
        """Never: it answers a request without a name as the default only."""
        del channels, step, exactly
        return False

    def check(self, options: ForecastOptions) -> None:
        """Check the options of a forecast. Raises: InvalidInput naming the option."""
        seasons, horizon = (1,) if options.seasons is None else options.seasons, options.horizon
        if not 1 <= len(seasons) <= MAX_SEASONS:
            raise InvalidInput.at("season", f"must be a number or {MAX_SEASONS}, not {len(seasons)}")
        if wrong := [season for season in seasons if not 1 <= season <= MAX_SEASON]:
            raise InvalidInput.at("season", f"must be from 1 to {MAX_SEASON:,} steps, not {wrong[0]}")
        if sorted(set(seasons)) != list(seasons):
            raise InvalidInput.at("season", f"the shorter season comes first, not {' and '.join(map(str, seasons))}")
        if horizon is not None and not 1 <= horizon <= MAX_HORIZON:
            raise InvalidInput.at("horizon", f"must be from 1 to {MAX_HORIZON}, not {horizon}")
        check_levels(options.levels)
        if wide := [level for level in options.levels if not LEVELS[0] <= level <= LEVELS[-1]]:
            raise InvalidInput.at("quantiles", f"levels must be from {LEVELS[0]} to {LEVELS[-1]}, not {wide[0]}")

    def plan(self, names: Sequence[str] | None, series: Tails, options: ForecastOptions) -> ForecastPlan:
        """Check a request and find the seasons of its series: as given, or by the step, or in the data.

        The horizon is by default a season, or STEPS without one; of several series the longest of these.

        Raises: InvalidInput naming the option, or the series without a known value.

        """
        self.check(options)
        if not series.values:
            raise InvalidInput.at("series", "at least 1 is needed")
        for place, column in zip(names or range(len(series.values)), series.values, strict=True):
            check_series(f"series.{place}", column)
        seasons, source = self._seasons(series, options)
        horizon = options.horizon or max(min(first, MAX_HORIZON) if first > 1 else STEPS for first, *_ in seasons)
        return ForecastPlan(series, names, range(len(series.values)), horizon, options, seasons, source)

    def _seasons(self, series: Tails, options: ForecastOptions) -> tuple[Sequence[Seasons], SeasonSource]:
        """Seasons of each series, and what they were found in."""
        if options.seasons is not None:
            return [options.seasons] * len(series.values), "request"
        if options.step is not None:
            return [seasons_of(options.step)] * len(series.values), "frequency"
        return [infer_seasons(column[-CONTEXT:]) for column in series.values], "data"

    def count_items(self, steps: int) -> int:
        """Number of items of so many steps, as servers count the work to check and convert inputs."""
        return 1 + steps // STEPS_PER_ITEM

    def forecast(
        self, plans: Sequence[ForecastPlan], rename: Callable[[int, str], str] | None = None
    ) -> Computation[list[Forecast]]:
        """Forecast each series alone.

        The steps after the first HORIZON continue from the medians before them. Their bands add the variance of their
        own forecast to that of the last step before, as for a random walk, so that they do not become narrower.
        """
        del rename
        parts = [
            _Part(plan, seasons, values)
            for plan in plans
            for seasons, values in zip(plan.seasons, plan.series.values, strict=True)
        ]
        for first in range(0, len(parts), AT_ONCE):
            chunk = parts[first : first + AT_ONCE]
            while waiting := [part for part in chunk if part.steps < part.plan.horizon]:
                batches = list(_together(waiting))
                rows = [tokens.tobytes() for _, prepared in batches for tokens in prepared.tokens]
                outputs = iter((yield RunModel(rows)))
                for batch, prepared in batches:
                    raw = np.stack([*itertools.islice(outputs, len(batch))]).astype(np.float64)
                    share = self.manifest.theta_shares[season_class(batch[0].seasons)]
                    for part, quantiles in zip(batch, prepared.restore(raw, share), strict=True):
                        part.add(quantiles)
        found = iter(parts)
        forecasts = [self._answer(plan, [*itertools.islice(found, len(plan.seasons))]) for plan in plans]
        return Answer(forecasts, [coverage for forecast in forecasts for coverage in forecast.coverages])

    def _answer(self, plan: ForecastPlan, parts: Sequence["_Part"]) -> Forecast:
        """The forecast of the series of a request. Levels between those of the model are interpolated linearly."""
        quantiles = np.stack([part.found[:, : plan.horizon] for part in parts], axis=2)  # (levels, horizon, series)
        between = {}
        for level in plan.options.levels:
            place = float(np.interp(level, LEVELS, range(len(LEVELS))))
            low = min(int(place), len(LEVELS) - 2)
            between[level] = quantiles[low] + (place - low) * (quantiles[low + 1] - quantiles[low])
        coverages = []
        for column, total in zip(plan.series.values, plan.series.observations.tolist(), strict=True):
            context = column[-CONTEXT:]
            imputed = int(np.isnan(context).sum())
            coverages.append(SeriesCoverage(total, len(context) - imputed, imputed, CONTEXT))
        return Forecast(plan, quantiles[MEDIAN], between, self.manifest.quantiles_reliable, coverages)

    @property
    def tensors(self) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
        """Series in, and their season if it is known; medians and quantiles out."""
        season = Tensor("season", "FP32", (-1,), is_optional=True)
        quantiles = Tensor("quantiles", "FP32", (-1, len(LEVELS), HORIZON))
        return (Tensor("series", "FP32", (-1, -1)), season), (Tensor("forecast", "FP32", (-1, HORIZON)), quantiles)

    @property
    def parameters(self) -> dict[str, str | list[str]]:
        """The levels of the quantiles."""
        return {"levels": [str(level) for level in LEVELS]}

    def infer(
        self, inputs: Mapping[str, Any], on_overflow: OnOverflow, cache: VectorCache | None = None
    ) -> Computation[TensorAnswer]:
        """Forecast the rows of `series`; NaN is a missing value. `season` has one season or two, of all rows."""
        del on_overflow, cache
        seasons = None
        if "season" in inputs:
            if (wrong := np.flatnonzero(inputs["season"] % 1)).size:
                raise InvalidInput.at(f"season.{wrong[0]}", "must be a whole number of steps")
            seasons = tuple(int(season) for season in inputs["season"])
        options = ForecastOptions(HORIZON, LEVELS, seasons=seasons)
        plan = self.plan(None, Tails.of(list(inputs["series"]), CONTEXT), options)
        answer = yield from self.forecast([plan])
        (found,) = answer.value
        levels = np.stack([*found.quantiles.values()])  # (levels, horizon, series)
        outputs: dict[str, Array] = {
            "forecast": found.values.T.astype("<f4"),
            "quantiles": levels.transpose(2, 0, 1).astype("<f4"),
        }
        return Answer(TensorAnswer(outputs, SeriesCoverage.sums(found.coverages)), found.coverages)


def season_class(seasons: Sequence[int]) -> int:
    """Class of the shortest season, from 0 to len(SEASON_CLASSES)."""
    return sum(min(seasons) > longest for longest in SEASON_CLASSES)


def check_series(place: str, values: Doubles) -> None:
    """Check the last values of a series. Raises: InvalidInput if none is known, or one is infinite."""
    if np.isinf(values).any():
        raise InvalidInput.at(f"{place}.{int(np.isinf(values).argmax())}", "must be a finite number or missing")
    context = values[-CONTEXT:]
    if np.isnan(context).all():
        raise InvalidInput.at(place, f"at least 1 of the last {CONTEXT} values is needed; {len(context)} are missing")


class _Part:
    """A series that is forecast, and what was found so far."""

    def __init__(self, plan: ForecastPlan, seasons: Seasons, values: Doubles) -> None:
        context = values[-CONTEXT:]
        self.plan = plan
        self.seasons = seasons
        self.known = context[np.isnan(context).argmin() :]
        """What the next steps continue, from the first known value on."""
        self.found = np.empty((len(LEVELS), 0))
        """Quantiles (levels, steps)."""

    @property
    def steps(self) -> int:
        """Number of steps that were found."""
        return self.found.shape[1]

    def add(self, quantiles: Doubles) -> None:
        """Append quantiles (levels, HORIZON), wider by the band of the last step: squares of the distances add up."""
        if self.steps:
            distance = quantiles - quantiles[MEDIAN]
            last = self.found[:, -1:] - self.found[MEDIAN, -1]
            quantiles = quantiles[MEDIAN] + np.copysign(np.hypot(distance, last), last)
        if self.plan.options.non_negative:
            quantiles = np.maximum(quantiles, 0)
        self.found = np.concatenate([self.found, quantiles], axis=1)
        self.known = np.concatenate([self.known, quantiles[MEDIAN]])[-CONTEXT:]


def _together(parts: Sequence[_Part]) -> Iterator[tuple[list[_Part], Prepared]]:
    """Prepare series, those of equal length with the same seasons together; yields them with each batch."""
    alike = defaultdict[tuple[int, Seasons], list[_Part]](list)
    for part in parts:
        alike[len(part.known), part.seasons].append(part)
    for (_, seasons), group in alike.items():
        for first in range(0, len(group), TOGETHER):
            chosen = group[first : first + TOGETHER]
            yield chosen, prepare(np.stack([part.known for part in chosen]), seasons)
