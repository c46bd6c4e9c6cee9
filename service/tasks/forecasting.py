"""Series -> forecasts with error bands, through the batcher of a model."""

import functools
import time
from collections.abc import Callable, Sequence

from artifact.arrays import Floats
from artifact.errors import InvalidInput
from artifact.forecasting import Forecast, Series
from artifact.series import Tails
from service.engine.served import ServedForecaster
from service.offload import offload
from service.tasks.timing import Timing


async def forecast(
    model: ServedForecaster,
    series: Sequence[Tails],
    *,
    horizon: int,
    levels: Sequence[float],
    deadline: float,
    rename: Callable[[int, str], str] | None = None,
) -> tuple[list[Forecast], Timing]:
    """Forecast multivariate series; all of them go to the batcher as one request.

    Args:
        model: the forecaster.
        series: last steps of each series, channels in the model's order. They cover the model's context, unless the
            whole series is shorter.
        horizon: steps to forecast, at most the model's.
        levels: levels of the quantiles, valid by `check_levels`.
        deadline: time on the clock of the event loop.
        rename: (index of a series, location in the series) -> location in the request, for errors.

    Raises: InvalidInput naming the channel; whatever `Batcher.infer` raises.

    """
    started = time.perf_counter()
    windows = await offload(len(series), _windows, model, series, horizon, levels, rename)
    decode_s = time.perf_counter() - started
    outcome = await model.batcher.infer([window.row for window in windows], deadline)
    model.metrics.documents.inc(len(windows))
    answers = await offload(len(series), _answers, windows, outcome.outputs)
    return answers, Timing(decode_s, outcome.queue_s, outcome.compute_s)


def _windows(
    model: ServedForecaster,
    series: Sequence[Tails],
    horizon: int,
    levels: Sequence[float],
    rename: Callable[[int, str], str] | None,
) -> list[Series]:
    """Cut each series to the model's context window. Raises: InvalidInput naming the channel."""
    windows = []
    for number, tails in enumerate(series):
        try:
            windows.append(Series(tails, model.manifest, model.calibration, horizon=horizon, levels=levels))
        except InvalidInput as error:
            raise (error.renamed(functools.partial(rename, number)) if rename else error) from None
    return windows


def _answers(windows: Sequence[Series], outputs: Sequence[Floats]) -> list[Forecast]:
    """The forecast of each series."""
    return [window.answer(output) for window, output in zip(windows, outputs, strict=True)]
