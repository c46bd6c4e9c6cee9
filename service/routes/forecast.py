"""`POST /v1/forecast`: forecast of a multivariate series, with error bands."""

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from starlette.responses import Response

from artifact.errors import InvalidInput
from artifact.series import Step, Tails, continue_timestamps, parse_frequency, parse_start
from artifact.tasks.forecasting import Forecast, Forecasting
from service.offload import ITEM_NUMBERS
from service.wire.dependencies import Context
from service.wire.errors import NATIVE
from service.wire.inference import respond
from service.wire.media import JSON
from service.wire.openapi import json_body
from service.wire.parsing import parse_json
from service.wire.requests import check_media_type, read_json, reserve_numbers
from service.wire.responses import fragment
from service.wire.schemas import EXAMPLE, ForecastOptions, ForecastRequest, ForecastResponse, channels_of

router = NATIVE.router("Forecast time series")


@router.post(
    "/v1/forecast",
    name="forecast",
    response_model=ForecastResponse,
    responses=NATIVE.responses(),
    openapi_extra=json_body(ForecastRequest, {"series": EXAMPLE, "horizon": 4, "quantiles": [0.1, 0.9]}),
)
async def post_forecast(context: Context) -> Response:
    """Forecast a series. Missing values are imputed; `coverage` counts them."""
    check_media_type(context, JSON)
    parsed = await read_json(context, functools.partial(_parse, context.runtime.models.longest_context))
    asked, names, series = parsed.options, parsed.names, parsed.series
    context.body.hold(series.values.nbytes)
    step = None if asked.frequency is None else parse_frequency(asked.frequency)
    model = context.runtime.models.choose(Forecasting, asked.model, lambda task: task.fits(names, step))
    task = model.task
    if step is not None:
        task.manifest.check_step(step)
    order = task.check_channels(names, len(series.lengths))
    horizon = task.choose_horizon(asked.horizon)
    task.check_levels(asked.quantiles)
    timestamps = _timestamps(asked.start, step or task.manifest.step, int(series.lengths.max()), horizon)
    count = horizon * len(order) * (1 + len(asked.quantiles))
    reserve_numbers(context, count, "ask for a shorter horizon or fewer quantiles")
    forecast = task.forecast([series.take(order)], horizon=horizon, levels=asked.quantiles)

    def to_json(answers: Sequence[Forecast]) -> dict[str, Any]:
        """The response; the forecast and each quantile are serialized separately."""
        found = answers[0].as_json(names, order)
        quantiles = {level: fragment(values) for level, values in found["quantiles"].items()}
        return {**found, "forecast": fragment(found["forecast"]), "quantiles": quantiles, **timestamps}

    return await respond(context, model, forecast, to_json, count // ITEM_NUMBERS)


@dataclass(frozen=True)
class _ParsedRequest:
    """A request, with only the steps of the series that a model can read."""

    options: ForecastOptions
    names: list[str] | None
    """Names of the channels; None if they are identified by position."""
    series: Tails


def _parse(max_steps: int, body: bytes) -> _ParsedRequest:
    """Validate a body; keep the last `max_steps` steps of its series. Raises: what `parse_json` raises."""
    asked = parse_json(ForecastRequest, body)
    names, columns = channels_of(asked.series)
    return _ParsedRequest(ForecastOptions(**asked.model_dump(exclude={"series"})), names, Tails.of(columns, max_steps))


def _timestamps(start: str | None, step: Step | None, length: int, horizon: int) -> dict[str, list[str]]:
    """Timestamps of the forecast if `start` is given. Raises: InvalidInput if neither request nor model has a step."""
    if start is None:
        return {}
    if step is None:
        raise InvalidInput.at("frequency", "required with start, because the model has no regular step")
    return {"timestamps": continue_timestamps(parse_start(start), step, length, horizon)}
