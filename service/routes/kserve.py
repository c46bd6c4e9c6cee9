"""KServe's `/v1/timeseries/forecast` and `/v1/timeseries/models`: its shapes around the same forecast.

`series` is channel-major, one list a channel, unless `layout` is `time_major`. KServe has no key for 10-minute data:
`frequency` takes its letters and words, and ours (10min). Unknown fields are ignored; errors have KServe's body.
"""

import asyncio
import time
import uuid
from collections.abc import Coroutine, Iterable
from typing import Annotated, Any, Literal, TypeVar

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse
from fastapi.routing import APIRoute
from pydantic import BaseModel, ConfigDict, Field

from service.engine import Engine, ServedForecaster
from service.errors import InvalidInput, RetryableError, ServiceError
from service.routes.answer import Stopwatch
from service.routes.errors import STATUS
from service.routes.reading import JSON, deadline, json_body, media_type, parse_json, read_body, while_connected
from service.schemas import Channel
from service.series import Doubles, continue_timestamps, parse_frequency, parse_start
from service.settings import Settings
from service.tasks.forecasting import Forecast, check_channels, choose_horizon, forecast

T = TypeVar("T")

STEPS = {
    **dict.fromkeys(("S", "second", "secondly"), "1s"),
    **dict.fromkeys(("T", "minute", "minutely"), "1min"),
    **dict.fromkeys(("H", "hour", "hourly"), "1h"),
    **dict.fromkeys(("D", "day", "daily"), "1d"),
    **dict.fromkeys(("W", "week", "weekly"), "1w"),
}
"""KServe's frequencies of fixed length; months, quarters and years have none."""


class _Part(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True, protected_namespaces=())


class Input(_Part):
    """One series."""

    type: Literal["univariate_time_series", "multivariate_time_series"] = "multivariate_time_series"
    name: str = "series"
    series: list[Channel] | Channel
    frequency: str
    start_timestamp: str | None = None
    layout: Literal["channel_major", "time_major"] = "channel_major"


class Options(_Part):
    """What is wanted of every series."""

    horizon: int = Field(ge=1)
    quantiles: list[Annotated[float, Field(gt=0, lt=1)]] = []


class KServeRequest(_Part):
    """Body of the request."""

    model: str
    inputs: list[Input] = Field(min_length=1)
    options: Options


def _error(error: ServiceError) -> JSONResponse:
    """KServe's body for an error of ours."""
    status = STATUS[type(error)]
    fields = error.errors if isinstance(error, InvalidInput) else []
    content = {"code": str(status), "message": str(error), "param": fields[0][0] if fields else None}
    response = JSONResponse({"error": {**content, "type": error.code}}, status)
    if isinstance(error, RetryableError):
        response.headers["Retry-After"] = str(error.retry_after_s)
    return response


class _KServeRoute(APIRoute):
    """Answers errors in KServe's shape."""

    def get_route_handler(self) -> Any:
        handler = super().get_route_handler()

        async def handle(request: Request) -> Response:
            try:
                return await handler(request)
            except ServiceError as error:
                return _error(error)

        return handle


router = APIRouter(prefix="/v1/timeseries", route_class=_KServeRoute)


@router.get("/models")
async def get_models(request: Request) -> dict[str, list[dict[str, str]]]:
    """Names of the forecasters."""
    engine: Engine = request.app.state.engine
    names = [name for name, model in engine.models.items() if isinstance(model, ServedForecaster)]
    return {"models": [{"name": name} for name in names]}


@router.post("/forecast", openapi_extra=json_body(KServeRequest))
async def post_forecast(request: Request) -> JSONResponse:
    """Forecast each input with the model named; one bad input refuses the request."""
    watch = Stopwatch(request)
    engine: Engine = request.app.state.engine
    settings: Settings = request.app.state.settings
    until = deadline(request, settings.deadline_s)
    media_type(request, (JSON,))
    asked = parse_json(KServeRequest, await read_body(request, until), strict=False)
    if len(asked.inputs) > settings.max_documents:
        message = f"{len(asked.inputs)} series; at most {settings.max_documents} in one request"
        raise InvalidInput(message, [("inputs", message)])
    model = engine.forecaster(asked.model)
    horizon = choose_horizon(model, asked.options.horizon)
    channels = [_columns(given, number) for number, given in enumerate(asked.inputs)]
    for columns in channels:
        check_channels(model, None, len(columns))
    starts = [
        _first_timestamp(given, len(columns[0]), number)
        for number, (given, columns) in enumerate(zip(asked.inputs, channels, strict=True))
    ]
    levels = asked.options.quantiles
    works = (forecast(model, columns, horizon=horizon, levels=levels, deadline=until) for columns in channels)
    with model.metrics.in_flight.track_inprogress():
        answers = await while_connected(request, _together(works))
    watch.computed()
    outputs = [
        {
            "type": "forecast",
            "id": uuid.uuid4().hex,
            "status": "completed",
            "content": [_content(given, answer, start)],
            "error": None,
        }
        for given, (answer, _), start in zip(asked.inputs, answers, starts, strict=True)
    ]
    response = {
        "id": uuid.uuid4().hex,
        "created_at": int(time.time()),
        "status": "completed",
        "error": None,
        "outputs": outputs,
    }
    return watch.respond(model, answers[-1][1], response)


async def _together(works: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """Await works side by side, so that their rows share batches."""
    return await asyncio.gather(*works)


def _content(given: Input, answer: Forecast, start: str | None) -> dict[str, Any]:
    """One forecast in KServe's shape."""
    content: dict[str, Any] = {
        "type": "time_series_forecast",
        "name": given.name,
        "mean_forecast": _as_sent(answer.values, given),
        "frequency": given.frequency,
        "start_timestamp": start,
    }
    if answer.quantiles:
        content["quantiles"] = {f"{level:g}": _as_sent(values, given) for level, values in answer.quantiles.items()}
    return content


def _columns(given: Input, number: int) -> list[Channel]:
    """The series as one list a channel. Raises: InvalidInput for ragged or mixed lists."""
    place = f"inputs.{number}.series"
    nested = [row for row in given.series if isinstance(row, list)]
    if not nested:
        return [[value for value in given.series if not isinstance(value, list)]]
    if given.layout == "time_major":
        if len({len(row) for row in nested}) != 1:
            raise InvalidInput(f"{place}: every step must have as many values", [(place, "every step must be as long")])
        return [list(column) for column in zip(*nested, strict=True)]
    return nested


def _as_sent(values: Doubles, given: Input) -> list[list[float]] | list[float]:
    """A forecast (horizon, channels) in the layout of the series that was sent."""
    is_flat = not any(isinstance(row, list) for row in given.series)
    sent: list[list[float]] | list[float] = (
        values[:, 0] if is_flat else values if given.layout == "time_major" else values.T
    ).tolist()
    return sent


def _first_timestamp(given: Input, length: int, number: int) -> str | None:
    """Time of the first step forecast; None if the series has no start. Raises: InvalidInput for a bad frequency."""
    try:
        step = parse_frequency(STEPS.get(given.frequency, given.frequency))
        if given.start_timestamp is None:
            return None
        return continue_timestamps(parse_start(given.start_timestamp), step, length, 1)[0]
    except InvalidInput as error:
        place = f"inputs.{number}"
        raise InvalidInput(f"{place}.{error}", [(f"{place}.{where}", why) for where, why in error.errors]) from None
