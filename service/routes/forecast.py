"""`POST /v1/forecast`: a multivariate series -> its continuation with error bands."""

import functools
from dataclasses import dataclass

from starlette.responses import Response

from artifact.errors import InvalidInput
from artifact.forecasting import check_channels, check_levels, choose_horizon
from artifact.series import Tails, continue_timestamps, parse_frequency, parse_start
from service.tasks.forecasting import forecast
from service.wire.call import Call
from service.wire.media import JSON
from service.wire.requests import parse_json, read_parsed
from service.wire.route import TIMEOUT_HEADERS, Route
from service.wire.schemas import EXAMPLE, ForecastOptions, ForecastRequest, ForecastResponse


async def post_forecast(call: Call) -> Response:
    """Continue a series; nulls and steps before its start are filled in and counted in `coverage`."""
    sent = await read_parsed(call, functools.partial(_parse, call.models.longest_context))
    asked, names, series = sent.options, sent.names, sent.series
    call.body.hold(series.values.nbytes)
    model = call.models.forecaster(asked.model, names)
    places = check_channels(model.manifest, names, len(series.lengths))
    horizon = choose_horizon(model.manifest, asked.horizon)
    check_levels(model.calibration, asked.quantiles)
    timestamps = _timestamps(asked, int(series.lengths.max()), horizon)
    work = forecast(model, [series.take(places)], horizon=horizon, levels=asked.quantiles, deadline=call.deadline)
    return await call.answer(model, work, lambda answers: {**answers[0].as_json(names, places), **timestamps})


@dataclass(frozen=True)
class _Sent:
    """A request without the values that no model reads."""

    options: ForecastOptions
    names: list[str] | None
    """Of the channels; None if they came by position."""
    series: Tails


def _parse(max_steps: int, body: bytes) -> _Sent:
    """Check a body; keep the last `max_steps` steps of its series. Raises: what `parse_json` raises."""
    asked = parse_json(ForecastRequest, body)
    names, columns = None, asked.series
    if isinstance(columns, dict):
        names, columns = list(columns), list(columns.values())
    return _Sent(ForecastOptions(**asked.model_dump(exclude={"series"})), names, Tails.of(columns, max_steps))


def _timestamps(asked: ForecastOptions, length: int, horizon: int) -> dict[str, list[str]]:
    """Times of the forecast, if start and frequency are given. Raises: InvalidInput for one without the other."""
    if asked.start is None and asked.frequency is None:
        return {}
    if asked.start is None or asked.frequency is None:
        missing = "start" if asked.start is None else "frequency"
        raise InvalidInput("start and frequency go together", [(missing, "missing")])
    times = continue_timestamps(parse_start(asked.start), parse_frequency(asked.frequency), length, horizon)
    return {"timestamps": times}


ROUTES = (
    Route(
        method="POST",
        path="/v1/forecast",
        handler=post_forecast,
        task="forecasting",
        bodies={JSON: ForecastRequest},
        examples={JSON: {"series": EXAMPLE, "horizon": 4, "quantiles": [0.1, 0.9]}},
        answers={JSON: ForecastResponse},
        parameters=TIMEOUT_HEADERS,
    ),
)
