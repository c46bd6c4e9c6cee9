"""Series -> their continuation with error bands, through the batcher of a model."""

import functools
import time
from collections.abc import Callable, Sequence

from artifact.errors import InvalidInput
from artifact.forecasting import Forecast, Series
from artifact.loading import Floats
from artifact.series import Tails
from service.aside import aside
from service.engine.served import ServedForecaster
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
    """Forecast multivariate series, which are one request of the batcher.

    Args:
        model: the forecaster.
        series: the ends of the channels of each, in the model's order, at least as long as the model's context.
        horizon: steps, at most the model's.
        levels: of the quantiles, as `check_levels` allows them.
        deadline: on the clock of the event loop.
        rename: number of a series, and the name of a place in it -> name of the place in the request, for errors.

    Raises: InvalidInput naming the channel; what `Batcher.infer` raises.

    """
    started = time.perf_counter()
    requests = await aside(len(series), _requests, model, series, horizon, levels, rename)
    decode_s = time.perf_counter() - started
    outcome = await model.batcher.infer([request.row for request in requests], deadline)
    model.metrics.documents.inc(len(requests))
    answers = await aside(len(series), _answers, requests, outcome.outputs)
    return answers, Timing(decode_s, outcome.queue_s, outcome.compute_s)


def _requests(
    model: ServedForecaster,
    series: Sequence[Tails],
    horizon: int,
    levels: Sequence[float],
    rename: Callable[[int, str], str] | None,
) -> list[Series]:
    """Cut each series to its window. Raises: InvalidInput naming the channel."""
    requests = []
    for number, tails in enumerate(series):
        try:
            requests.append(Series(tails, model.manifest, model.calibration, horizon=horizon, levels=levels))
        except InvalidInput as error:
            raise (error.renamed(functools.partial(rename, number)) if rename else error) from None
    return requests


def _answers(requests: Sequence[Series], outputs: Floats) -> list[Forecast]:
    """The forecast of each series."""
    return [request.answer(output) for request, output in zip(requests, outputs, strict=True)]
