"""Forecasting apart from the model: a series -> the window it reads, its output -> a forecast with error bands."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from artifact.errors import InvalidInput
from artifact.manifest import ForecasterManifest
from artifact.series import Calibration, Doubles, Tails, Window, conformal_rank, read_window, unscale

MAX_LEVELS = 20
MOST_IMPUTED = 0.1
"""Share of the context beyond which the bands are no longer what was calibrated."""


@dataclass(frozen=True)
class Forecast:
    """The answer, in the units of the data."""

    values: Doubles
    """(horizon, channels)."""
    quantiles: dict[float, Doubles]
    """Level -> (horizon, channels)."""
    quantiles_reliable: bool
    """Whether the bands are what was calibrated: measured to cover, and hardly a value had to be filled in."""
    window: Window

    def as_json(self, names: Sequence[str] | None, places: Sequence[int]) -> dict[str, Any]:
        """The answer as clients get it, in the shape and order of the series that was sent.

        Args:
            names: of the channels sent; None if they came by position.
            places: in the request of each channel of the model.

        """

        def shaped(values: Doubles) -> dict[str, list[float]] | list[list[float]]:
            columns: list[list[float]] = [[] for _ in places]
            for place, column in zip(places, values.T.tolist(), strict=True):
                columns[place] = column
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
    """One multivariate series, cut to the window that the model reads.

    Args:
        series: the ends of its channels, in the model's order, at least as long as the model's context.
        manifest: of the forecaster.
        calibration: of the forecaster.
        horizon: steps, at most the model's.
        levels: of the quantiles, as `check_levels` allows them.

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
        self._bands = {level: calibration.error(level, horizon) for level in levels}
        self._window = read_window(
            series,
            manifest.channels,
            context_length=manifest.context_length,
            min_observations=manifest.min_observations,
            mean=manifest.mean,
            scale=manifest.scale,
        )
        self.row = self._window.values.tobytes()
        """What the model reads."""

    def answer(self, output: NDArray[np.float32]) -> Forecast:
        """The forecast from the model's output (at least horizon, channels)."""
        mean, scale, scaled = self._manifest.mean, self._manifest.scale, output[: self._horizon]
        is_whole = self._window.imputed <= MOST_IMPUTED * self._window.values.size
        return Forecast(
            unscale(scaled, mean, scale),
            {level: unscale(scaled + band, mean, scale) for level, band in self._bands.items()},
            self._manifest.quantiles_reliable and is_whole,
            self._window,
        )


def choose_horizon(manifest: ForecasterManifest, horizon: int | None) -> int:
    """Steps to forecast, by default all the model can. Raises: InvalidInput."""
    longest = manifest.horizon
    if horizon is not None and not 1 <= horizon <= longest:
        message = "must be at least 1"
        if horizon > longest:
            message = f"must be at most {longest}, the steps that {manifest.name} forecasts"
        raise InvalidInput.at("horizon", message)
    return longest if horizon is None else horizon


def check_channels(manifest: ForecasterManifest, names: Sequence[str] | None, count: int) -> list[int]:
    """Place in the request of each channel of the model.

    Args:
        manifest: of the forecaster.
        names: of the channels sent, in any order; None if they come by position.
        count: of the channels sent.

    Raises: InvalidInput naming what is missing or too much.

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
    """Refuse too many levels, and those that the calibration cannot bound. Raises: InvalidInput."""
    if len(levels) > MAX_LEVELS or len(set(levels)) < len(levels):
        raise InvalidInput.at("quantiles", f"at most {MAX_LEVELS} different levels")
    for level in levels:
        conformal_rank(level, calibration.count)
