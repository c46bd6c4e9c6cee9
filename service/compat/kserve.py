"""KServe's `/v1/timeseries/forecast` and `/v1/timeseries/models`: its shapes around the same forecast.

`series` is channel-major, one list a channel, unless `layout` is `time_major`. KServe has no key for 10-minute data:
`frequency` takes its letters and words, and ours (10min). Unknown fields are ignored; errors have KServe's body.
"""

import contextlib
import functools
import time
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import orjson
from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag
from starlette.responses import Response

from artifact.errors import InvalidInput
from artifact.forecasting import Forecast, check_channels, check_levels, choose_horizon
from artifact.series import Doubles, Tails, continue_timestamps, parse_frequency, parse_start
from service.aside import aside
from service.engine.served import ServedForecaster
from service.errors import PayloadTooLarge
from service.tasks.forecasting import forecast
from service.wire.call import Call, named
from service.wire.errors import Dialect, Failure
from service.wire.media import JSON
from service.wire.requests import MOST_NUMBERS, check_count, parse_json, read_parsed
from service.wire.responses import json_response
from service.wire.route import TIMEOUT_HEADERS, Route
from service.wire.schemas import EXAMPLE, Channel, Channels, Levels, ModelName

STEPS = {
    **dict.fromkeys(("second", "secondly"), "1s"),
    **dict.fromkeys(("minute", "minutely"), "1min"),
    **dict.fromkeys(("hour", "hourly"), "1h"),
    **dict.fromkeys(("day", "daily"), "1d"),
    **dict.fromkeys(("week", "weekly"), "1w"),
}
"""KServe's words for steps of fixed length; its letters are pandas'. Months, quarters and years have none."""
NAMES = {"start": "start_timestamp"}
"""Our name of a part of the request -> KServe's."""

NestedOrFlat = Annotated[
    Annotated[Channels, Tag("nested")] | Annotated[Channel, Tag("flat")],
    Discriminator(lambda value: "nested" if _is_nested(value) else "flat"),
]
"""A list for each channel or step, or the values of the only channel."""


class _Part(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True, protected_namespaces=())


class KServeInput(_Part):
    """One series."""

    type: Literal["univariate_time_series", "multivariate_time_series"] = "multivariate_time_series"
    name: str = "series"
    series: NestedOrFlat
    frequency: str
    start_timestamp: str | None = None
    layout: Literal["channel_major", "time_major"] = "channel_major"


class KServeOptions(_Part):
    """What is wanted of every series."""

    horizon: int = Field(ge=1)
    quantiles: Levels = []


class KServeRequest(_Part):
    """Body of the request."""

    model: ModelName
    inputs: Annotated[list[KServeInput], Field(fail_fast=True)]
    options: KServeOptions


Values = list[float] | list[list[float]]


class KServeContent(BaseModel):
    """One forecast, in the layout of its series."""

    type: Literal["time_series_forecast"]
    name: str
    mean_forecast: Values
    frequency: str
    start_timestamp: str | None
    quantiles: dict[str, Values] | None = None


class KServeOutput(BaseModel):
    """The forecast of one input."""

    type: Literal["forecast"]
    id: str
    status: Literal["completed"]
    content: list[KServeContent]
    error: None


class KServeResponse(BaseModel):
    """Body of the answer."""

    model: str
    version: int
    id: str
    created_at: int
    status: Literal["completed"]
    error: None
    outputs: list[KServeOutput]


class KServeErrorDetail(BaseModel):
    """What went wrong."""

    code: str
    message: str
    param: str | None
    type: str


class KServeError(BaseModel):
    """Body of every error."""

    error: KServeErrorDetail


def _write_error(failed: Failure) -> Response:
    """KServe's body for a failure."""
    param = failed.fields[0][0] if failed.fields else None
    content = {"code": str(failed.status), "message": failed.detail, "param": param, "type": failed.code}
    return json_response({"error": content}, failed.status)


DIALECT = Dialect(_write_error, KServeError, prefixes=("/v1/timeseries/",))


async def get_models(call: Call) -> Response:
    """Names of the forecasters."""
    names = [name for name, model in call.models.items() if isinstance(model, ServedForecaster)]
    return json_response({"models": [{"name": name} for name in names]})


async def post_forecast(call: Call) -> Response:
    """Forecast each input with the model named; one bad input refuses the request."""
    parse = functools.partial(_parse, call.settings.max_documents, call.models.longest_context)
    sent = await read_parsed(call, parse)
    asked = sent.asked
    call.body.hold(sum(series.values.nbytes for series in sent.series))
    model = call.models.forecaster(asked.model)
    with _within("options"):
        choose_horizon(model.manifest, asked.options.horizon)
        check_levels(model.calibration, asked.options.quantiles)
    _check_answer(model, asked)
    starts = []
    for number, (given, series) in enumerate(zip(asked.inputs, sent.series, strict=True)):
        with _within(f"inputs.{number}"):
            check_channels(model.manifest, None, len(series.lengths))
            starts.append(_first_timestamp(given, int(series.lengths[0])))
    options = asked.options
    work = forecast(
        model,
        sent.series,
        horizon=options.horizon,
        levels=options.quantiles,
        deadline=call.deadline,
        rename=lambda number, place: f"inputs.{number}.{place}",
    )
    answers, timing = await call.run(model, work)
    outputs = await aside(len(answers), _outputs, sent, answers, starts)
    response = {
        "id": uuid.uuid4().hex,
        "created_at": int(time.time()),
        "status": "completed",
        "error": None,
        "outputs": outputs,
    }
    return call.finish(model, timing, json_response({**named(model), **response}))


@dataclass(frozen=True)
class _Sent:
    """A request without the values that no model reads."""

    asked: KServeRequest
    """Its series are empty."""
    series: list[Tails]
    """Of each input."""
    are_flat: list[bool]
    """Of each input, whether its series was the values of the only channel."""


def _parse(max_inputs: int, max_steps: int, body: bytes) -> _Sent:
    """Check a body of at most `max_inputs` inputs; keep the last `max_steps` steps of each series.

    Raises: PayloadTooLarge, InvalidInput, and what `parse_json` raises.
    """
    asked = parse_json(KServeRequest, body, strict=None)
    check_count("inputs", len(asked.inputs), max_inputs)
    series = []
    for number, given in enumerate(asked.inputs):
        with _within(f"inputs.{number}"):
            series.append(Tails.of(_columns(given), max_steps))
    are_flat = [not _is_nested(given.series) for given in asked.inputs]
    empty = [given.model_copy(update={"series": []}) for given in asked.inputs]
    return _Sent(asked.model_copy(update={"inputs": empty}), series, are_flat)


def _check_answer(model: ServedForecaster, asked: KServeRequest) -> None:
    """Bound the size of the answer. Raises: PayloadTooLarge."""
    steps = len(asked.inputs) * asked.options.horizon * (1 + len(asked.options.quantiles))
    if (count := steps * len(model.manifest.channels)) > MOST_NUMBERS:
        raise PayloadTooLarge(
            f"the answer would hold {count} numbers, at most {MOST_NUMBERS}: send fewer series, or ask for a shorter "
            "horizon or fewer quantiles"
        )


@contextlib.contextmanager
def _within(part: str) -> Iterator[None]:
    """Put the part of the request, and KServe's names, into the places of errors."""
    try:
        yield
    except InvalidInput as error:
        raise error.renamed(lambda place: f"{part}.{NAMES.get(place, place)}") from None


def _outputs(sent: _Sent, answers: Sequence[Forecast], starts: Sequence[str | None]) -> list[orjson.Fragment]:
    """The forecasts, each written already: to write all in one call would keep the interpreter for long."""
    return [
        orjson.Fragment(
            orjson.dumps(
                {
                    "type": "forecast",
                    "id": uuid.uuid4().hex,
                    "status": "completed",
                    "content": [_content(given, answer, start, is_flat=is_flat)],
                    "error": None,
                }
            )
        )
        for given, answer, start, is_flat in zip(sent.asked.inputs, answers, starts, sent.are_flat, strict=True)
    ]


def _content(given: KServeInput, answer: Forecast, start: str | None, *, is_flat: bool) -> dict[str, Any]:
    """One forecast in KServe's shape."""
    content: dict[str, Any] = {
        "type": "time_series_forecast",
        "name": given.name,
        "mean_forecast": _as_sent(answer.values, given, is_flat=is_flat),
        "frequency": given.frequency,
        "start_timestamp": start,
    }
    if answer.quantiles:
        content["quantiles"] = {
            str(level): _as_sent(values, given, is_flat=is_flat) for level, values in answer.quantiles.items()
        }
    return content


def _is_nested(series: object) -> bool:
    """Whether a series is a list of lists."""
    return isinstance(series, list) and any(isinstance(item, list) for item in series)


def _columns(given: KServeInput) -> list[Channel]:
    """The series as one list a channel. Raises: InvalidInput for steps of different width."""
    nested = [row for row in given.series if isinstance(row, list)]
    if not nested:
        return [[value for value in given.series if not isinstance(value, list)]]
    if given.layout == "time_major":
        if len({len(row) for row in nested}) != 1:
            raise InvalidInput.at("series", "every step must have as many values")
        return [list(column) for column in zip(*nested, strict=True)]
    return nested


def _as_sent(values: Doubles, given: KServeInput, *, is_flat: bool) -> list[list[float]] | list[float]:
    """A forecast (horizon, channels) in the layout of the series that was sent."""
    shaped = values[:, 0] if is_flat else values if given.layout == "time_major" else values.T
    sent: list[list[float]] | list[float] = shaped.tolist()
    return sent


def _first_timestamp(given: KServeInput, length: int) -> str | None:
    """Time of the first step forecast; None if the series has no start. Raises: InvalidInput for a bad frequency."""
    step = parse_frequency(STEPS.get(given.frequency, given.frequency))
    if given.start_timestamp is None:
        return None
    return continue_timestamps(parse_start(given.start_timestamp), step, length, 1)[0]


ROUTES = (
    Route(
        method="GET",
        path="/v1/timeseries/models",
        handler=get_models,
        dialect=DIALECT,
        answers={JSON: dict[str, list[dict[str, str]]]},
        statuses=(401,),
    ),
    Route(
        method="POST",
        path="/v1/timeseries/forecast",
        handler=post_forecast,
        dialect=DIALECT,
        bodies={JSON: KServeRequest},
        examples={
            JSON: {
                "model": "ettm2",
                "inputs": [{"series": EXAMPLE, "frequency": "15min"}],
                "options": {"horizon": 4, "quantiles": [0.1, 0.9]},
            }
        },
        answers={JSON: KServeResponse},
        parameters=TIMEOUT_HEADERS,
    ),
)
