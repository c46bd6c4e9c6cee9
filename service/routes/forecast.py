"""`POST /v1/forecast`: a multivariate series -> its continuation with error bands."""

from collections.abc import Sequence
from typing import Any

from fastapi import APIRouter, Request, Response

from artifact.errors import InvalidInput
from artifact.series import Doubles, continue_timestamps, parse_frequency, parse_start
from service.engine.engine import Engine
from service.tasks.forecasting import Forecast, check_channels, check_levels, choose_horizon, forecast
from service.wire.errors import DOCUMENTED
from service.wire.requests import json_body, read_json, while_connected
from service.wire.responses import Stopwatch
from service.wire.schemas import ForecastRequest, ForecastResponse

router = APIRouter()


@router.post(
    "/v1/forecast", response_model=ForecastResponse, responses=DOCUMENTED, openapi_extra=json_body(ForecastRequest)
)
async def post_forecast(request: Request) -> Response:
    """Continue a series; nulls and steps before its start are filled in and counted in `coverage`."""
    watch = Stopwatch(request)
    engine: Engine = request.app.state.engine
    asked, until = await read_json(request, ForecastRequest)
    names = list(asked.series) if isinstance(asked.series, dict) else None
    sent = list(asked.series.values()) if isinstance(asked.series, dict) else asked.series
    model = engine.forecaster(asked.model, names)
    places = check_channels(model, names, len(sent))
    horizon = choose_horizon(model, asked.horizon)
    check_levels(model, asked.quantiles)
    timestamps = _timestamps(asked, max(map(len, sent)), horizon)
    columns = [sent[place] for place in places]
    work = forecast(model, columns, horizon=horizon, levels=asked.quantiles, deadline=until)
    with model.metrics.in_flight.track_inprogress():
        answer, timing = await while_connected(request, work)
    watch.computed()
    return watch.respond(model, timing, describe(answer, names, places, timestamps, model.manifest.context_length))


def describe(
    answer: Forecast,
    names: Sequence[str] | None,
    places: Sequence[int],
    timestamps: list[str] | None,
    context_length: int,
) -> dict[str, Any]:
    """An answer as it goes over the wire, in the shape and order of the series that was sent."""

    def shaped(values: Doubles) -> dict[str, list[float]] | list[list[float]]:
        columns: list[list[float]] = [[] for _ in places]
        for place, column in zip(places, values.T.tolist(), strict=True):
            columns[place] = column
        return columns if names is None else dict(zip(names, columns, strict=True))

    content: dict[str, Any] = {
        "forecast": shaped(answer.values),
        "quantiles": {str(level): shaped(values) for level, values in answer.quantiles.items()},
        "quantiles_reliable": answer.quantiles_reliable,
        "coverage": {
            "observations_total": answer.window.observations_total,
            "observations_used": answer.window.observations_used,
            "imputed": answer.window.imputed,
            "context_length": context_length,
        },
    }
    if timestamps is not None:
        content["timestamps"] = timestamps
    return content


def _timestamps(asked: ForecastRequest, length: int, horizon: int) -> list[str] | None:
    """Times of the forecast, if start and frequency are given. Raises: InvalidInput for one without the other."""
    if asked.start is None and asked.frequency is None:
        return None
    if asked.start is None or asked.frequency is None:
        missing = "start" if asked.start is None else "frequency"
        raise InvalidInput("start and frequency go together", [(missing, "missing")])
    return continue_timestamps(parse_start(asked.start), parse_frequency(asked.frequency), length, horizon)
