"""`POST /v1/forecast`: a multivariate series -> its continuation with error bands."""

from starlette.responses import Response

from artifact.errors import InvalidInput
from artifact.forecasting import check_channels, check_levels, choose_horizon
from artifact.series import continue_timestamps, parse_frequency, parse_start
from service.tasks.forecasting import forecast
from service.wire.call import Call
from service.wire.media import JSON
from service.wire.requests import read_json
from service.wire.route import TIMEOUT_HEADERS, Route
from service.wire.schemas import ForecastRequest, ForecastResponse


async def post_forecast(call: Call) -> Response:
    """Continue a series; nulls and steps before its start are filled in and counted in `coverage`."""
    asked = await read_json(call, ForecastRequest)
    names = list(asked.series) if isinstance(asked.series, dict) else None
    sent = list(asked.series.values()) if isinstance(asked.series, dict) else asked.series
    model = call.models.forecaster(asked.model, names)
    places = check_channels(model.manifest, names, len(sent))
    horizon = choose_horizon(model.manifest, asked.horizon)
    check_levels(model.calibration, asked.quantiles)
    timestamps = _timestamps(asked, max(map(len, sent)), horizon)
    columns = [sent[place] for place in places]
    work = forecast(model, columns, horizon=horizon, levels=asked.quantiles, deadline=call.deadline)
    return await call.answer(model, work, lambda answer: {**answer.as_json(names, places), **timestamps})


def _timestamps(asked: ForecastRequest, length: int, horizon: int) -> dict[str, list[str]]:
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
        answers={JSON: ForecastResponse},
        parameters=TIMEOUT_HEADERS,
    ),
)
