"""Series -> their continuation with error bands. Called by `service.routes.forecast` and `service.compat.kserve`."""

import time
from collections.abc import Sequence
from dataclasses import dataclass

from artifact.errors import InvalidInput
from artifact.series import Column, Doubles, Window, conformal_rank, read_window, unscale
from service.batching.batcher import Outcome
from service.engine.engine import ServedForecaster
from service.tasks.timing import Timing

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


def choose_horizon(model: ServedForecaster, horizon: int | None) -> int:
    """Steps to forecast, by default all the model can. Raises: InvalidInput beyond them."""
    longest = model.manifest.horizon
    if horizon is not None and horizon > longest:
        message = f"must be at most {longest}, the steps that {model.manifest.name} forecasts"
        raise InvalidInput(f"horizon: {message}", [("horizon", message)])
    return horizon or longest


def check_channels(model: ServedForecaster, names: Sequence[str] | None, count: int) -> list[int]:
    """Place in the request of each channel of the model.

    Args:
        model: the forecaster.
        names: of the channels sent, in any order; None if they come by position.
        count: of the channels sent.

    Raises: InvalidInput naming what is missing or too much.

    """
    channels = model.manifest.channels
    if names is not None:
        if missing := [name for name in channels if name not in names]:
            raise _wrong(f"{model.manifest.name} needs the channels {', '.join(channels)}; {missing[0]} is missing")
        if len(names) > len(channels):
            raise _wrong(
                f"{model.manifest.name} has {len(channels)} channels ({', '.join(channels)}), not {len(names)}"
            )
        return [names.index(name) for name in channels]
    if count != len(channels):
        raise _wrong(
            f"{model.manifest.name} has {len(channels)} channels ({', '.join(channels)}), a list of values each, "
            f"not {count} lists"
        )
    return list(range(count))


def check_levels(model: ServedForecaster, levels: Sequence[float]) -> None:
    """Refuse too many levels, and those that the calibration cannot bound. Raises: InvalidInput."""
    if len(levels) > MAX_LEVELS or len(set(levels)) < len(levels):
        message = f"at most {MAX_LEVELS} different levels"
        raise InvalidInput(f"quantiles: {message}", [("quantiles", message)])
    for level in levels:
        conformal_rank(level, model.calibration.count)


async def forecast(
    model: ServedForecaster, columns: Sequence[Column], *, horizon: int, levels: Sequence[float], deadline: float
) -> tuple[Forecast, Timing]:
    """Forecast one multivariate series.

    Args:
        model: the forecaster.
        columns: one a channel, in the model's order.
        horizon: steps, at most the model's.
        levels: of the quantiles, as `check_levels` allows them.
        deadline: on the clock of the event loop.

    Raises: InvalidInput naming the channel; what `Batcher.infer` raises.

    """
    started = time.perf_counter()
    manifest = model.manifest
    bands = {level: model.calibration.error(level, horizon) for level in levels}
    window = read_window(
        columns,
        manifest.channels,
        context_length=manifest.context_length,
        min_observations=manifest.min_observations,
        mean=manifest.mean,
        scale=manifest.scale,
    )
    decode_s = time.perf_counter() - started
    outcome: Outcome = await model.batcher.infer([window.values.tobytes()], deadline)
    scaled = outcome.outputs[0, :horizon]
    model.metrics.documents.inc()
    is_whole = window.imputed <= MOST_IMPUTED * window.values.size
    answer = Forecast(
        unscale(scaled, manifest.mean, manifest.scale),
        {level: unscale(scaled + band, manifest.mean, manifest.scale) for level, band in bands.items()},
        manifest.quantiles_reliable and is_whole,
        window,
    )
    return answer, Timing(decode_s, outcome.queue_s, outcome.compute_s)


def _wrong(message: str) -> InvalidInput:
    return InvalidInput(f"series: {message}", [("series", message)])
