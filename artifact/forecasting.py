"""Pre- and postprocessing of forecasting: series -> input window, output -> forecast with error bands."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from artifact.arrays import Doubles
from artifact.errors import InvalidInput
from artifact.manifest import ForecasterManifest
from artifact.series import Calibration, Tails, Window, conformal_rank, read_window, unscale

MAX_LEVELS = 20
MAX_IMPUTED = 0.1
"""Share of imputed values in the context above which the calibrated bands are not reliable."""


@dataclass(frozen=True)
class Forecast:
    """A forecast in the units of the data."""

    values: Doubles
    """(horizon, channels)."""
    quantiles: dict[float, Doubles]
    """Level -> (horizon, channels)."""
    quantiles_reliable: bool
    """Whether the bands can be relied on: their measured coverage is close to nominal and few values were imputed."""
    window: Window

    def as_json(self, names: Sequence[str] | None, order: Sequence[int]) -> dict[str, Any]:
        """The JSON object returned to clients, with the channels in the order of the request.

        Args:
            names: names of the channels in the request; None if the channels came by position.
            order: index in the request of each channel of the model.

        """

        def shaped(values: Doubles) -> dict[str, list[float]] | list[list[float]]:
            columns: list[list[float]] = [[] for _ in order]
            for index, column in zip(order, values.T.tolist(), strict=True):
                columns[index] = column
            return columns if names is None else dict(zip(names, columns, strict=True))

        return {
            "forecast": shaped(self.values),
            "quantiles": {str(level): shaped(values) for level, values in self.quantiles.items()},
            "quantiles_reliable": self.quantiles_reliable,
            "coverage": {
                "observations_total": self.window.observations_total,
                "observations_used": self.window.observations_used,
                "imputed": self.window.imputed,
                "context_length": len(self.window.values),
            },
        }


class Series:
    """One multivariate series, reduced to the window that the model reads.

    Args:
        series: last steps of the channels in the model's order; at least the model's context, or the whole series.
        manifest: manifest of the forecaster.
        calibration: calibration of the forecaster.
        horizon: number of steps to forecast, at most the model's horizon.
        levels: quantile levels, already checked by `check_levels`.

    Raises: InvalidInput naming the channel.

    """

    def __init__(
        self,
        series: Tails,
        manifest: ForecasterManifest,
        calibration: Calibration,
        *,
        horizon: int,
        levels: Sequence[float],
    ) -> None:
        self._manifest = manifest
        self._horizon = horizon
        self._errors = {level: calibration.error(level, horizon) for level in levels}
        self._window = read_window(
            series,
            manifest.channels,
            context_length=manifest.context_length,
            min_observations=manifest.min_observations,
            mean=manifest.mean,
            scale=manifest.scale,
        )
        self.row = self._window.values.tobytes()
        """Input of the model: the window's values as bytes."""

    def answer(self, output: NDArray[np.float32]) -> Forecast:
        """Forecast from the model's output (the model's horizon, channels)."""
        mean, scale, scaled = self._manifest.mean, self._manifest.scale, output[: self._horizon]
        has_few_imputed = self._window.imputed <= MAX_IMPUTED * self._window.values.size
        return Forecast(
            unscale(scaled, mean, scale),
            {level: unscale(scaled + error, mean, scale) for level, error in self._errors.items()},
            self._manifest.quantiles_reliable and has_few_imputed,
            self._window,
        )


def choose_horizon(manifest: ForecasterManifest, horizon: int | None) -> int:
    """Number of steps to forecast; None means the model's maximum. Raises: InvalidInput."""
    longest = manifest.horizon
    if horizon is not None and not 1 <= horizon <= longest:
        message = "must be at least 1"
        if horizon > longest:
            message = f"must be at most {longest}, the steps that {manifest.name} forecasts"
        raise InvalidInput.at("horizon", message)
    return longest if horizon is None else horizon


def check_channels(manifest: ForecasterManifest, names: Sequence[str] | None, count: int) -> list[int]:
    """Check the channels of a request; returns the index in the request of each channel of the model.

    Args:
        manifest: manifest of the forecaster.
        names: names of the channels in the request, in any order; None if they came by position.
        count: number of channels in the request.

    Raises: InvalidInput naming the missing or unknown channels.

    """
    channels = manifest.channels
    if names is not None:
        if missing := [name for name in channels if name not in names]:
            raise InvalidInput.at(
                "series", f"{manifest.name} needs the channels {', '.join(channels)}; {missing[0]} is missing"
            )
        if len(names) > len(channels):
            raise InvalidInput.at(
                "series", f"{manifest.name} has {len(channels)} channels ({', '.join(channels)}), not {len(names)}"
            )
        return [names.index(name) for name in channels]
    if count != len(channels):
        raise InvalidInput.at(
            "series",
            f"{manifest.name} has {len(channels)} channels ({', '.join(channels)}), a list of values each, "
            f"not {count} lists",
        )
    return list(range(count))


def check_levels(calibration: Calibration, levels: Sequence[float]) -> None:
    """Check the number of levels, and that the calibration bounds each of them. Raises: InvalidInput."""
    if len(levels) > MAX_LEVELS or len(set(levels)) < len(levels):
        raise InvalidInput.at("quantiles", f"at most {MAX_LEVELS} levels, each once")
    for level in levels:
        conformal_rank(level, calibration.count)
