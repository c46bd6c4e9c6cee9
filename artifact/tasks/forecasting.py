"""Forecasting: series -> forecasts with error bands."""

import functools
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Annotated, Any, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from artifact.arrays import Array, Doubles
from artifact.documents import OnOverflow
from artifact.errors import BadExport, InvalidInput
from artifact.manifest import ArrayFile, ExportManifest, Format, Text
from artifact.series import (
    IRREGULAR,
    PLAIN,
    Calibration,
    Layout,
    SeriesCoverage,
    SeriesWindow,
    Step,
    Tails,
    conformal_rank,
    parse_frequency,
    read_window,
    unscale,
)
from artifact.tasks.base import Answer, Computation, RunModel, Tensor, TensorAnswer, VectorCache
from artifact.tasks.forecaster import Forecast, Forecaster, ForecastOptions, ForecastPlan, check_levels

CalibrationSource = Literal["validation", "history"]
MAX_IMPUTED = 0.1
"""Share of imputed values in the context above which the calibrated bands are not reliable."""


class ForecasterManifest(ExportManifest):
    """Window of a multivariate series -> forecast."""

    task: Literal["forecasting"]
    channels: tuple[Text, ...] = Field(min_length=1)
    mean: tuple[float, ...]
    """Training mean of each channel; the model reads (value - mean) / scale."""
    scale: tuple[Annotated[float, Field(gt=0)], ...]
    context_length: int = Field(gt=1)
    """Number of steps the model reads."""
    horizon: int = Field(gt=0)
    """Maximum number of steps the model forecasts."""
    min_observations: int = Field(gt=1)
    """Minimum number of known values per channel in the context; missing values are imputed."""
    frequency: Text
    """Time step of the training data, such as 15min or 1mo; `irregular` if it varies or is unknown."""
    layout: Layout = PLAIN
    """How the table of the training data holds the series; `predict` reads other tables in the same way."""
    calibration: ArrayFile
    """Archive of `levels` (Q,) and `errors` (Q, horizon, channels), in scaled units."""
    calibration_source: CalibrationSource
    """Part of the series used for calibration: `validation` is the second half of the validation split; `history`
    includes earlier steps as well, even of the training split."""
    calibration_examples: int = Field(gt=0)
    """m: number of errors behind each quantile; levels outside [1 / (m + 1), m / (m + 1)] are not available."""
    quantiles_reliable: bool
    """Whether the 80 % band covered 70 % to 90 % of the test values at every horizon."""

    @property
    def archives(self) -> tuple[ArrayFile, ...]:
        """Archives of the golden outputs and the calibration."""
        return (self.golden, self.calibration)

    @cached_property
    def step(self) -> Step | None:
        """Time step of the training data; None if irregular or unknown."""
        return None if self.frequency == IRREGULAR else parse_frequency(self.frequency)

    def check_step(self, step: Step) -> None:
        """Check that a series has the time step of the training data. Raises: InvalidInput."""
        if self.step not in (None, step):
            raise InvalidInput.at("frequency", f"{self.name} expects one value every {self.frequency}")

    @model_validator(mode="after")
    def _check_frequency(self) -> Self:
        try:
            _ = self.step
        except InvalidInput as error:
            raise ValueError(f"{error}, or {IRREGULAR}") from None
        return self

    @model_validator(mode="after")
    def _check_window(self) -> Self:
        count = len(self.channels)
        if len(set(self.channels)) != count:
            raise ValueError("channels must differ")
        if not len(self.mean) == len(self.scale) == count:
            raise ValueError(f"{count} channels need as many means and scales")
        if self.min_observations > self.context_length:
            raise ValueError(f"min_observations {self.min_observations} must be at most {self.context_length}")
        expected = ((-1, self.context_length, count), (-1, self.horizon, count))
        if (shapes := tuple(spec.shape for spec in (*self.inputs, *self.outputs))) != expected:
            raise ValueError(f"input and output have shapes {shapes}; expected {expected}")
        if {file.bucket for file in self.files} != {self.context_length}:
            raise ValueError(f"the bucket must be {self.context_length}, the context length")
        return self


class Forecasting(Forecaster):
    """A forecaster of multivariate series."""

    manifest_type = ForecasterManifest
    public = frozenset(
        {
            *("channels", "context_length", "horizon", "min_observations", "frequency"),
            *("calibration_source", "calibration_examples", "quantiles_reliable"),
        }
    )

    manifest: ForecasterManifest

    def __init__(self, manifest: ForecasterManifest, calibration: Calibration) -> None:
        self.manifest = manifest
        self.calibration = calibration

    @classmethod
    def open(cls, manifest: ForecasterManifest, read: Callable[[ArrayFile, str], dict[str, Array]]) -> Self:
        """The task of an export, with its calibration. Raises: BadExport."""
        return cls(manifest, _calibration(manifest, read(manifest.calibration, "calibration")))

    def row_lengths(self, format: Format) -> list[int]:
        """Bytes of a window; the buckets of the files are in time steps."""
        return [4 * steps * len(self.manifest.channels) for steps in super().row_lengths(format)]

    def pack(self, rows: Sequence[bytes], bucket: int) -> dict[str, Array]:
        """Windows of float32, which all have the same length."""
        del bucket
        (spec,) = self.manifest.inputs
        windows = np.frombuffer(bytearray().join(rows), np.float32)  # PyTorch warns about read-only arrays
        return {spec.name: windows.reshape(len(rows), *spec.shape[1:])}

    @property
    def context_length(self) -> int:
        """Number of last steps that the model reads."""
        return self.manifest.context_length

    @property
    def step(self) -> Step | None:
        """Time step of the training data; None if irregular or unknown."""
        return self.manifest.step

    def fits(self, channels: Sequence[str] | None, step: Step | None, *, exactly: bool = False) -> bool:
        """Whether the model has these channels, in any order, and this step; None means that they are not given."""
        if exactly and (channels is None or step is None):
            return False
        manifest = self.manifest
        return (channels is None or set(channels) == set(manifest.channels)) and step in (None, manifest.step)

    def check(self, options: ForecastOptions) -> None:
        """Check the options of a request alone. Raises: InvalidInput naming the option."""
        if options.step is not None:
            self.manifest.check_step(options.step)
        if options.seasons is not None:
            raise InvalidInput.at("season", f"{self.manifest.name} has learned its seasons; leave it out")
        self.choose_horizon(options.horizon)
        self.check_levels(options.levels)

    def plan(self, names: Sequence[str] | None, series: Tails, options: ForecastOptions) -> ForecastPlan:
        """Check a request, with its channels in any order. Raises: InvalidInput naming the option or the channel."""
        self.check(options)
        order = self.check_channels(names, len(series.lengths))
        return ForecastPlan(series.take(order), names, order, self.choose_horizon(options.horizon), options)

    def count_items(self, steps: int) -> int:
        """One: a window is checked and scaled quickly."""
        del steps
        return 1

    def forecast(
        self, plans: Sequence[ForecastPlan], rename: Callable[[int, str], str] | None = None
    ) -> Computation[list[Forecast]]:
        """Forecast multivariate series, all channels of one together. Raises: InvalidInput naming the channel."""
        manifest, windows = self.manifest, list[SeriesWindow]()
        for index, plan in enumerate(plans):
            try:
                window = read_window(
                    plan.series,
                    manifest.channels,
                    context_length=manifest.context_length,
                    min_observations=manifest.min_observations,
                    mean=manifest.mean,
                    scale=manifest.scale,
                )
            except InvalidInput as error:
                raise (error.renamed(functools.partial(rename, index)) if rename else error) from None
            windows.append(window)
        outputs = yield RunModel([window.values.tobytes() for window in windows])
        forecasts = list[Forecast]()
        for plan, window, output in zip(plans, windows, outputs, strict=True):
            scaled, lowest = output[: plan.horizon], 0 if plan.options.non_negative else -np.inf

            def unscaled(values: NDArray[np.float32], lowest: float = lowest) -> Doubles:
                return np.maximum(unscale(values, manifest.mean, manifest.scale), lowest)

            errors = {level: self.calibration.error(level, plan.horizon) for level in plan.options.levels}
            has_few_imputed = window.imputed <= MAX_IMPUTED * window.values.size
            forecasts.append(
                Forecast(
                    plan,
                    unscaled(scaled),
                    {level: unscaled(scaled + error) for level, error in errors.items()},
                    manifest.quantiles_reliable and has_few_imputed,
                    [window],
                )
            )
        return Answer(forecasts, windows)

    def choose_horizon(self, horizon: int | None) -> int:
        """Number of steps to forecast; None means the model's maximum. Raises: InvalidInput."""
        longest = self.manifest.horizon
        if horizon is not None and not 1 <= horizon <= longest:
            message = "must be at least 1"
            if horizon > longest:
                message = f"must be at most {longest}, the steps that {self.manifest.name} forecasts"
            raise InvalidInput.at("horizon", message)
        return longest if horizon is None else horizon

    def check_channels(self, names: Sequence[str] | None, count: int) -> list[int]:
        """Check the channels of a request; returns the index in the request of each channel of the model.

        Args:
            names: names of the channels in the request, in any order; None if they came by position.
            count: number of channels in the request.

        Raises: InvalidInput naming the missing or unknown channels.

        """
        name, channels = self.manifest.name, self.manifest.channels
        if names is not None:
            if missing := [channel for channel in channels if channel not in names]:
                raise InvalidInput.at(
                    "series", f"{name} needs the channels {', '.join(channels)}; {missing[0]} is missing"
                )
            if len(names) > len(channels):
                raise InvalidInput.at(
                    "series", f"{name} has {len(channels)} channels ({', '.join(channels)}), not {len(names)}"
                )
            return [names.index(channel) for channel in channels]
        if count != len(channels):
            raise InvalidInput.at(
                "series",
                f"{name} has {len(channels)} channels ({', '.join(channels)}), a list of values each, "
                f"not {count} lists",
            )
        return list(range(count))

    def check_levels(self, levels: Sequence[float]) -> None:
        """Check the number of levels, and that the calibration bounds each of them. Raises: InvalidInput."""
        check_levels(levels)
        for level in levels:
            conformal_rank(level, self.calibration.count)

    @property
    def tensors(self) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
        """Series in, forecasts out."""
        manifest = self.manifest
        channels = len(manifest.channels)
        series = Tensor("series", "FP32", (-1, manifest.context_length, channels))
        return (series,), (Tensor("forecast", "FP32", (-1, manifest.horizon, channels)),)

    @property
    def parameters(self) -> dict[str, str | list[str]]:
        """The channels, in their order, and the time between two values."""
        return {"channels": list(self.manifest.channels), "frequency": self.manifest.frequency}

    def infer(
        self, inputs: Mapping[str, Any], on_overflow: OnOverflow, cache: VectorCache | None = None
    ) -> Computation[TensorAnswer]:
        """Forecast the rows of `series`; NaN is a missing value."""
        del on_overflow, cache
        tails = [Tails.of(list(window.T), self.context_length) for window in inputs["series"]]
        plans = [self.plan(None, series, ForecastOptions()) for series in tails]
        answer = yield from self.forecast(plans, rename=_in_tensor)
        values: Array = np.stack([forecast.values for forecast in answer.value]).astype("<f4")
        coverages = [coverage for forecast in answer.value for coverage in forecast.coverages]
        return Answer(TensorAnswer({"forecast": values}, SeriesCoverage.sums(coverages)), coverages)


def _in_tensor(index: int, place: str) -> str:
    """Location in a tensor, from the location in a series."""
    return place.replace("series", f"series.{index}", 1)


def _calibration(manifest: ForecasterManifest, arrays: Mapping[str, Array]) -> Calibration:
    """Check the calibration of a forecaster. Raises: BadExport."""
    place = f"{manifest.name}/{manifest.version}"
    levels, errors = arrays.get("levels", np.empty(0)), arrays.get("errors", np.empty(0))
    expected = (levels.size, manifest.horizon, len(manifest.channels))
    is_sound = (
        levels.ndim == 1
        and levels.dtype == np.float64
        and errors.dtype == np.float32
        and errors.shape == expected
        and levels.size > 0
        and bool(np.isfinite(levels).all() and np.isfinite(errors).all())
        and bool((np.diff(levels) > 0).all() and (np.diff(errors, axis=0) >= 0).all())
    )
    if not is_sound:
        raise BadExport(
            f"{place}: {manifest.calibration.path} does not hold finite, increasing levels (float64), with errors "
            f"(float32) of shape (levels, horizon, channels) = {expected} that do not decrease with the level",
            "calibration",
        )
    lowest = 1 / (manifest.calibration_examples + 1)
    if not np.allclose([levels[0], 1 - levels[-1]], lowest, rtol=1e-6, atol=0):
        raise BadExport(
            f"{place}: {manifest.calibration.path} has levels from {levels[0]:g} to {levels[-1]:g}, not from "
            f"{lowest:g} to {1 - lowest:g}: 1 / (m + 1) to m / (m + 1) for m = {manifest.calibration_examples}, the "
            "manifest's calibration_examples",
            "calibration",
        )
    return Calibration(levels, errors, manifest.calibration_examples)
