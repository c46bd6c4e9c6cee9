"""Series -> their continuation with error bands, through the batcher of a model."""

import time
from collections.abc import Sequence

from artifact.forecasting import Forecast, Series
from artifact.series import Column
from service.engine.served import ServedForecaster
from service.tasks.timing import Timing


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
    request = Series(columns, model.manifest, model.calibration, horizon=horizon, levels=levels)
    decode_s = time.perf_counter() - started
    outcome = await model.batcher.infer([request.row], deadline)
    model.metrics.documents.inc()
    return request.answer(outcome.outputs[0]), Timing(decode_s, outcome.queue_s, outcome.compute_s)
