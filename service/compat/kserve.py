"""KServe's `/v1/timeseries/forecast` and `/v1/timeseries/models`: the forecasts of `/v1/forecast` in KServe's format.

`series` has one list per channel, or one per step if `layout` is `time_major`. KServe's `frequency` cannot express
10-minute data, so the values of `/v1/forecast` (10min) are accepted, too. Unknown fields are ignored.
"""

import functools
import time
import uuid
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import orjson
from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag
from starlette.responses import Response

from artifact.arrays import Doubles
from artifact.errors import InvalidInput
from artifact.series import Tails, continue_timestamps, parse_frequency, parse_start
from artifact.tasks.forecaster import Forecast, Forecaster, ForecastOptions, ForecastPlan
from service.errors import rename_places
from service.offload import ITEM_NUMBERS, offload
from service.wire.dependencies import Context, CurrentRuntime
from service.wire.errors import Dialect, Failure
from service.wire.inference import model_fields, record, run
from service.wire.media import JSON
from service.wire.openapi import json_body
from service.wire.parsing import check_count, parse_json
from service.wire.requests import check_media_type, read_json, reserve_numbers
from service.wire.responses import fragment, json_response
from service.wire.schemas import Channel, Channels, Levels, ModelName

STEPS = {
    **dict.fromkeys(("second", "secondly"), "1s"),
    **dict.fromkeys(("minute", "minutely"), "1min"),
    **dict.fromkeys(("hour", "hourly"), "1h"),
    **dict.fromkeys(("day", "daily"), "1d"),
    **dict.fromkeys(("week", "weekly"), "1w"),
    **dict.fromkeys(("month", "monthly"), "1mo"),
    **dict.fromkeys(("quarter", "quarterly"), "1q"),
    **dict.fromkeys(("year", "yearly"), "1y"),
}
"""KServe's names of frequencies. Its one-letter names are pandas aliases, which `parse_frequency` reads."""
NAMES = {"start": "start_timestamp"}
"""Field names of `/v1/forecast`, with KServe's names for them."""

NestedOrFlat = Annotated[
    Annotated[Channels, Tag("nested")] | Annotated[Channel, Tag("flat")],
    Discriminator(lambda value: "nested" if _is_nested(value) else "flat"),
]
"""A list per channel or step, or the values of a single channel."""


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
    """Options of all forecasts of a request."""

    horizon: int = Field(ge=1)
    quantiles: Levels = []


class KServeRequest(_Part):
    """Body of `POST /v1/timeseries/forecast`."""

    model: ModelName | None = None
    """By default the default forecaster."""
    inputs: Annotated[list[KServeInput], Field(fail_fast=True)]
    options: KServeOptions


ForecastValues = list[float] | list[list[float]]


class KServeContent(BaseModel):
    """One forecast, in the layout of the series in the request."""

    type: Literal["time_series_forecast"]
    name: str
    mean_forecast: ForecastValues
    frequency: str
    start_timestamp: str | None
    quantiles: dict[str, ForecastValues] | None = None


class KServeOutput(BaseModel):
    """The forecast of one input."""

    type: Literal["forecast"]
    id: str
    status: Literal["completed"]
    content: list[KServeContent]
    error: None


class KServeResponse(BaseModel):
    """Body of the response."""

    model: str
    version: int
    id: str
    created_at: int
    status: Literal["completed"]
    error: None
    outputs: list[KServeOutput]


class KServeErrorDetail(BaseModel):
    """Description of an error."""

    code: str
    message: str
    param: str | None
    type: str


class KServeError(BaseModel):
    """Body of every error."""

    error: KServeErrorDetail


def _write_error(failed: Failure) -> Response:
    """Write an error in KServe's format."""
    param = failed.fields[0][0] if failed.fields else None
    content = {"code": str(failed.status), "message": failed.detail, "param": param, "type": failed.code}
    return json_response({"error": content}, failed.status)


DIALECT = Dialect(_write_error, KServeError, prefix="/v1/timeseries/")
router = DIALECT.router("KServe time series")


@router.get(
    "/v1/timeseries/models",
    name="kserve_forecasters",
    response_model=dict[str, list[dict[str, str]]],
    responses=DIALECT.responses(401),
)
async def get_models(runtime: CurrentRuntime) -> Response:
    """List the names of the forecasters."""
    names = dict.fromkeys(model.manifest.name for model in runtime.models.of_task(Forecaster.name))
    return json_response({"models": [{"name": name} for name in names]})


@router.post(
    "/v1/timeseries/forecast",
    name="kserve_forecast",
    response_model=KServeResponse,
    responses=DIALECT.responses(),
    openapi_extra=json_body(
        KServeRequest,
        {
            "model": "any-series",
            "inputs": [{"series": [12, 9, 14, 11, 15], "frequency": "1mo"}],
            "options": {"horizon": 4, "quantiles": [0.1, 0.9]},
        },
    ),
)
async def post_forecast(context: Context) -> Response:
    """Forecast each series with the given model; if one is invalid, the whole request is rejected."""
    check_media_type(context, JSON)
    parse = functools.partial(_parse, context.runtime.settings.max_documents, context.runtime.models.longest_context)
    parsed = await read_json(context, parse)
    asked = parsed.request
    context.body.hold(sum(series.nbytes for series in parsed.series))
    model, _ = context.runtime.models.choose_forecaster(asked.model, None, None)
    with _within("options"):
        model.task.check(ForecastOptions(asked.options.horizon, asked.options.quantiles))
    items = max(
        len(parsed.series),
        model.task.count_items(sum(len(column) for series in parsed.series for column in series.values)),
    )
    plans, starts = await offload(items, _plan, model.task, parsed)
    count = sum(plan.count for plan in plans)
    reserve_numbers(context, count, "send fewer series, or ask for a shorter horizon or fewer quantiles")
    computation = model.task.forecast(plans, rename=lambda number, place: f"inputs.{number}.{place}")
    answers, timing = await run(context, model, computation, items)
    outputs = await offload(count // ITEM_NUMBERS, _outputs, parsed, answers, starts)
    content = {
        "id": uuid.uuid4().hex,
        "created_at": int(time.time()),
        "status": "completed",
        "error": None,
        "outputs": outputs,
    }
    response = json_response({**model_fields(model), **content})
    record(context, model, timing)
    return response


@dataclass(frozen=True)
class _ParsedRequest:
    """A validated request. Steps before the longest context of a model are dropped."""

    request: KServeRequest
    """The request without the values of its series."""
    series: list[Tails]
    """Last steps of each series."""
    are_flat: list[bool]
    """Whether each series was a flat list, of a single channel."""


def _parse(max_inputs: int, max_steps: int, body: bytes) -> _ParsedRequest:
    """Validate a body of at most `max_inputs` inputs; keep the last `max_steps` steps of each series.

    Raises: PayloadTooLarge, InvalidInput, and what `parse_json` raises.
    """
    request = parse_json(KServeRequest, body, strict=None)
    check_count("inputs", len(request.inputs), max_inputs)
    series = []
    for number, given in enumerate(request.inputs):
        with _within(f"inputs.{number}"):
            series.append(Tails.of(_columns(given), max_steps))
    are_flat = [not _is_nested(given.series) for given in request.inputs]
    empty = [given.model_copy(update={"series": []}) for given in request.inputs]
    return _ParsedRequest(request.model_copy(update={"inputs": empty}), series, are_flat)


def _within(part: str) -> AbstractContextManager[None]:
    """Rewrite locations in errors: prefix them with `part`, and use KServe's field names."""
    return rename_places(lambda place: f"{part}.{NAMES.get(place, place)}")


def _outputs(
    parsed: _ParsedRequest, answers: Sequence[Forecast], starts: Sequence[str | None]
) -> list[orjson.Fragment]:
    """The forecasts, each serialized separately."""
    return [
        fragment(
            {
                "type": "forecast",
                "id": uuid.uuid4().hex,
                "status": "completed",
                "content": [_content(given, answer, start, is_flat=is_flat)],
                "error": None,
            }
        )
        for given, answer, start, is_flat in zip(parsed.request.inputs, answers, starts, parsed.are_flat, strict=True)
    ]


def _content(given: KServeInput, answer: Forecast, start: str | None, *, is_flat: bool) -> dict[str, Any]:
    """One forecast in KServe's format."""
    content: dict[str, Any] = {
        "type": "time_series_forecast",
        "name": given.name,
        "mean_forecast": fragment(_as_sent(answer.values, given, is_flat=is_flat)),
        "frequency": given.frequency,
        "start_timestamp": start,
    }
    if answer.quantiles:
        content["quantiles"] = {
            str(level): fragment(_as_sent(values, given, is_flat=is_flat)) for level, values in answer.quantiles.items()
        }
    return content


def _is_nested(series: object) -> bool:
    """Whether a series is a list of lists."""
    return isinstance(series, list) and any(isinstance(item, list) for item in series)


def _columns(given: KServeInput) -> list[Channel]:
    """The series as one list per channel. Raises: InvalidInput if steps have different numbers of values."""
    nested = [values for values in given.series if isinstance(values, list)]
    if not nested:
        return [[value for value in given.series if not isinstance(value, list)]]
    if given.layout == "time_major":
        if len({len(values) for values in nested}) != 1:
            raise InvalidInput.at("series", "all steps must have the same number of values")
        return [list(column) for column in zip(*nested, strict=True)]
    return nested


def _as_sent(values: Doubles, given: KServeInput, *, is_flat: bool) -> list[list[float]] | list[float]:
    """A forecast (horizon, channels) in the layout of the series in the request."""
    shaped = values[:, 0] if is_flat else values if given.layout == "time_major" else values.T
    sent: list[list[float]] | list[float] = shaped.tolist()
    return sent


def _plan(task: Forecaster, parsed: _ParsedRequest) -> tuple[list[ForecastPlan], list[str | None]]:
    """What is to be computed for each input, and the timestamp of its first forecast step if the input has a start.

    Raises: InvalidInput, also if a frequency is not the model's.
    """
    asked, plans, starts = parsed.request.options, list[ForecastPlan](), list[str | None]()
    for number, (given, series) in enumerate(zip(parsed.request.inputs, parsed.series, strict=True)):
        with _within(f"inputs.{number}"):
            step = parse_frequency(STEPS.get(given.frequency, given.frequency))
            plans.append(task.plan(None, series, ForecastOptions(asked.horizon, asked.quantiles, step)))
            start, length = given.start_timestamp, int(series.lengths[0])
            starts.append(None if start is None else continue_timestamps(parse_start(start), step, length, 1)[0])
    return plans, starts
