"""`POST /v1/forecast`: forecasts of series, with error bands, as JSON or NDJSON."""

import functools
from dataclasses import dataclass, replace
from typing import Any

from starlette.responses import Response
from typing_extensions import override

from artifact.errors import InvalidInput
from artifact.series import Step, Tails, continue_timestamps, parse_start
from artifact.tasks.forecaster import Forecast, Forecaster, ForecastOptions, ForecastPlan
from service.engine.selection import Models, ModelSource
from service.engine.served import ServedModel
from service.errors import PayloadTooLarge
from service.offload import ITEM_NUMBERS, offload
from service.routes.bulk import BulkResponse, parse_line
from service.wire.context import RequestContext
from service.wire.dependencies import Context
from service.wire.errors import NATIVE
from service.wire.inference import model_fields, respond
from service.wire.media import JSON, NDJSON
from service.wire.openapi import Lines, contents, request_body
from service.wire.parsing import parse_json
from service.wire.requests import NUMBER_BYTES, check_media_type, check_no_query, read_json, reserve_numbers
from service.wire.responses import fragment
from service.wire.schemas import (
    ForecastLine,
    ForecastLineResult,
    ForecastRequest,
    ForecastResponse,
    SentSeries,
)

router = NATIVE.router("Forecast time series")

MAX_LINE_NUMBERS = 10_000
"""Limit of numbers in the answer to a line. The bytes of as many are counted as held while a line is pending."""


@router.post(
    "/v1/forecast",
    name="forecast",
    response_model=ForecastResponse,
    responses={
        200: {"content": contents({NDJSON: Lines(ForecastLineResult)}, "serialization")},
        **NATIVE.responses(),
    },
    openapi_extra=request_body(
        {JSON: ForecastRequest, NDJSON: Lines(ForecastLine)},
        {
            JSON: {"series": {"sales": [12, 9, 14, 11, 15]}, "frequency": "1mo", "horizon": 4, "quantiles": [0.1, 0.9]},
            NDJSON: '{"id": 1, "series": {"sales": [12, 9, 14, 11]}, "frequency": "1mo"}\n',
        },
    ),
)
async def post_forecast(context: Context) -> Response:
    """Forecast series. Missing values are imputed; `coverage` counts them.

    In NDJSON each line is a request. Each gets a line of the response, in order, as soon as it is ready.
    """
    if check_media_type(context, JSON, NDJSON).name == NDJSON:
        return ForecastLines(context)
    asked = await read_json(context, functools.partial(_parse, context.runtime.models.longest_context))
    context.body.hold(asked.series.nbytes)
    chosen = await _choose(context.runtime.models, asked)
    reserve_numbers(context, chosen.plan.count, "ask for fewer series, a shorter horizon or fewer quantiles")
    task, items = chosen.model.task, max(chosen.items, chosen.plan.count // ITEM_NUMBERS)
    return await respond(context, chosen.model, task.forecast([chosen.plan]), chosen.to_json, items)


class ForecastLines(BulkResponse["_Asked"]):
    """Answers requests, one a line. Raises: InvalidInput if the query string has options."""

    def __init__(self, context: RequestContext) -> None:
        check_no_query(context)
        self._models = context.runtime.models
        read = functools.partial(_read, self._models.longest_context)
        super().__init__(context, functools.partial(parse_line, ForecastLine, read))

    @override
    def answer_bytes(self, line: bytes) -> int:
        """Maximum bytes of the answer to a line."""
        del line
        return MAX_LINE_NUMBERS * NUMBER_BYTES

    @override
    async def answer(self, content: "_Asked") -> dict[str, Any]:
        """Answer a request."""
        chosen = await _choose(self._models, content)
        if (count := chosen.plan.count) > MAX_LINE_NUMBERS:
            message = f"the answer would have {count} numbers; at most {MAX_LINE_NUMBERS} are allowed in a line"
            raise PayloadTooLarge(f"{message}: send its series in several lines")
        with chosen.model.in_flight:
            task, items = chosen.model.task, max(chosen.items, count // ITEM_NUMBERS)
            found = await self.run(chosen.model, task.forecast([chosen.plan]), items)
            return {**model_fields(chosen.model), **await offload(items, chosen.to_json, found)}


@dataclass(frozen=True)
class _Asked:
    """A request, with only the steps of the series that a model can read."""

    model: str | None
    start: str | None
    options: ForecastOptions
    names: list[str] | None
    """Names of the channels; None if they are identified by position."""
    series: Tails
    is_flat: bool
    """Whether the only channel came as a list of its values."""


def _read(max_steps: int, request: ForecastRequest) -> _Asked:
    """Read a validated request; keep the last `max_steps` steps of its series. Raises: InvalidInput."""
    sent = SentSeries.of(request.series)
    series = Tails.of(sent.columns, max_steps)
    return _Asked(request.model, request.start, request.options, sent.names, series, sent.is_flat)


def _parse(max_steps: int, body: bytes) -> _Asked:
    """Validate and read a body. Raises: what `parse_json` and `_read` raise."""
    return _read(max_steps, parse_json(ForecastRequest, body))


@dataclass(frozen=True)
class _Chosen:
    """The model for a request, and what it is to compute."""

    model: ServedModel[Forecaster]
    source: ModelSource
    plan: ForecastPlan
    items: int
    """Number of items of the series, as `offload` counts them."""
    timestamps: list[str] | None

    def to_json(self, answers: list[Forecast]) -> dict[str, Any]:
        """The response; the forecast and each quantile are serialized separately."""
        found = answers[0].as_json()
        quantiles = {level: fragment(values) for level, values in found["quantiles"].items()}
        fields = {**found, "forecast": fragment(found["forecast"]), "quantiles": quantiles, "model_from": self.source}
        return fields if self.timestamps is None else {**fields, "timestamps": self.timestamps}


async def _choose(models: Models, asked: _Asked) -> _Chosen:
    """Choose the model for a request and plan its computation. Raises: InvalidInput, ModelNotFound."""
    model, source = models.choose_forecaster(asked.model, asked.names, asked.options.step)
    items = model.task.count_items(sum(map(len, asked.series.values)))
    plan = await offload(items, model.task.plan, asked.names, asked.series, asked.options)
    plan = replace(plan, is_flat=asked.is_flat)
    step = asked.options.step or model.task.step
    return _Chosen(model, source, plan, items, _timestamps(asked.start, step, asked.series, plan.horizon))


def _timestamps(start: str | None, step: Step | None, series: Tails, horizon: int) -> list[str] | None:
    """Timestamps of the forecast if `start` is given. Raises: InvalidInput if neither request nor model has a step."""
    if start is None:
        return None
    if step is None:
        raise InvalidInput.at("frequency", "required with start, because the model has no regular step")
    lengths = set(series.lengths.tolist())
    return continue_timestamps(parse_start(start), step, lengths.pop() if len(lengths) == 1 else 1, horizon)
