"""KServe's V1 protocol: `POST /v1/models/{name}:predict` takes a list of instances and returns their predictions.

| task                     | instance                                         | prediction                 |
| ------------------------ | ------------------------------------------------ | -------------------------- |
| classification           | document, or `{"text": document}`                | result of `/v1/classify`   |
| classification of series | `{"series": ...}`, one recording                 | result of `/v1/classify`   |
| matching                 | `{"a": document, "b": document}`                 | result of `/v1/score`      |
| forecasting              | `{"series": ...}`, as in `/v1/forecast`          | response of `/v1/forecast` |

A document is a string, or `{"b64": string}` for any bytes. Options have their defaults. Unknown fields beside
`instances` are ignored.
"""

import dataclasses
import functools
from collections.abc import Awaitable, Callable, Sequence
from typing import Annotated, Any, NamedTuple, TypeVar

from pydantic import BaseModel, ConfigDict, Discriminator, Tag
from starlette.responses import Response

from artifact.series import Tails
from artifact.tasks.classification import Classification
from artifact.tasks.forecaster import Forecast, Forecaster, ForecastOptions, ForecastPlan
from artifact.tasks.labels import ResultOptions
from artifact.tasks.matching import Matching
from artifact.tasks.series_classification import SeriesClassification
from service.engine.served import ServedModel
from service.errors import rename_places
from service.offload import ITEM_NUMBERS, count_items, offload
from service.wire.context import RequestContext
from service.wire.dependencies import Context, NamedModel
from service.wire.errors import Dialect, Failure
from service.wire.inference import respond
from service.wire.openapi import json_body
from service.wire.parsing import check_count, decode_base64, parse_json
from service.wire.recordings import CheckedRecordings, SentRecording
from service.wire.requests import (
    check_content_encoding,
    parse_body,
    read_body,
    read_document,
    read_text,
    reserve_numbers,
)
from service.wire.responses import fragment, json_response
from service.wire.schemas import MAX_TEXTS, ClassifyResult, ForecastResult, PairScore, SentSeries, Series, up_to

T = TypeVar("T")


class _Instance(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)  # an ignored field would be lost input


class EncodedDocument(_Instance):
    """A document of any bytes."""

    b64: str
    """The bytes in base64."""


def _kind(value: object) -> str | None:
    """Tag of an instance's type; None if it has none of the types."""
    if isinstance(value, dict):
        return next((name for name in ("b64", "text") if name in value), None)
    return "string" if isinstance(value, str) else None


InstanceDocument = Annotated[
    Annotated[str, Tag("string")] | Annotated[EncodedDocument, Tag("b64")],
    Discriminator(
        lambda value: None if (kind := _kind(value)) == "text" else kind,
        custom_error_type="document",
        custom_error_message='Input should be a string or {"b64": a string}',
    ),
]


class TextInstance(_Instance):
    """A document to classify, as an object."""

    text: InstanceDocument


ClassifierInstance = Annotated[
    Annotated[str, Tag("string")] | Annotated[EncodedDocument, Tag("b64")] | Annotated[TextInstance, Tag("text")],
    Discriminator(
        _kind,
        custom_error_type="instance",
        custom_error_message='Input should be a string, {"text": a string} or {"b64": a string}',
    ),
]


class MatcherInstance(_Instance):
    """A pair of documents."""

    a: InstanceDocument
    b: InstanceDocument


class SeriesInstance(_Instance):
    """A series to forecast or to classify."""

    series: Series


class _Instances(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)


class ClassifierInstances(_Instances):
    """Body of a request to a classifier."""

    instances: Annotated[list[ClassifierInstance], up_to(MAX_TEXTS, "max_documents")]


class MatcherInstances(_Instances):
    """Body of a request to a matcher."""

    instances: Annotated[list[MatcherInstance], up_to(MAX_TEXTS // 2, "max_documents")]


class SeriesInstances(_Instances):
    """Body of a request to a forecaster or a classifier of series."""

    instances: Annotated[list[SeriesInstance], up_to(MAX_TEXTS, "max_documents")]


class Predictions(BaseModel):
    """Body of the response."""

    model: str
    version: int
    predictions: list[ClassifyResult] | list[PairScore] | list[ForecastResult]
    """One per instance, in the same order."""


class PredictError(BaseModel):
    """Body of every error."""

    error: str


def _write_error(failed: Failure) -> Response:
    """Write an error in KServe's format."""
    return json_response({"error": failed.detail}, failed.status)


DIALECT = Dialect(_write_error, PredictError)


router = DIALECT.router("KServe v1")


@router.post(
    "/v1/models/{name}:predict",
    name="kserve_predict",
    response_model=Predictions,
    responses=DIALECT.responses(),
    openapi_extra=json_body(
        ClassifierInstances | MatcherInstances | SeriesInstances,
        {"instances": ["A film to see twice.", {"text": "Two hours that nobody gives back."}]},
    ),
)
async def post_instances(context: Context, model: NamedModel) -> Response:
    """Run a model on instances."""
    check_content_encoding(context)  # no check of the media type: some clients send none
    return await PREDICT[model.task.name](context, model)


async def _read(context: RequestContext, parse: Callable[[int, bytes], T]) -> T:
    """Read the body and parse it; `parse` must be picklable, and gets the maximum number of instances first."""
    limited = functools.partial(parse, context.runtime.settings.max_documents)
    return await parse_body(context, limited, await read_body(context))


async def _classify(context: RequestContext, model: ServedModel[Classification]) -> Response:
    """Classify documents."""
    sent = await _read(context, _parse_documents)
    settings, options = context.runtime.settings, ResultOptions()
    documents = [read_document(settings, f"instances.{number}", document) for number, document in enumerate(sent)]
    return await respond(
        context,
        model,
        model.task.classify(documents, options.on_overflow, "instances"),
        lambda found: {"predictions": [document.as_json(options) for document in found]},
        count_items(documents),
    )


async def _classify_series(context: RequestContext, model: ServedModel[SeriesClassification]) -> Response:
    """Classify recordings."""
    sent, options = await _read(context, _parse_recordings), ResultOptions()
    checked = await CheckedRecordings.of(model.task, sent)
    context.body.reserve(checked.nbytes)
    return await respond(
        context,
        model,
        checked.classify(options),
        lambda found: {"predictions": [recording.as_json(options) for recording in found]},
        checked.items,
    )


async def _score(context: RequestContext, model: ServedModel[Matching]) -> Response:
    """Score pairs of documents."""
    sent = await _read(context, _parse_pairs)
    settings = context.runtime.settings
    pairs = [
        (read_text(settings, f"instances.{number}.a", a), read_text(settings, f"instances.{number}.b", b))
        for number, (a, b) in enumerate(sent)
    ]
    return await respond(
        context,
        model,
        model.task.score(pairs, "windows", model.cache),
        lambda scored: {"predictions": [pair.as_json("windows") for pair in scored]},
        count_items(text.document for pair in pairs for text in pair),
    )


async def _forecast(context: RequestContext, model: ServedModel[Forecaster]) -> Response:
    """Forecast series over the model's default horizon."""
    task = model.task
    sent = await _read(context, functools.partial(_parse_series, task.context_length))
    context.body.hold(sum(one.series.nbytes for one in sent))
    items = max(len(sent), task.count_items(sum(len(column) for one in sent for column in one.series.values)))
    plans = await offload(items, _plan, task, sent)
    count = sum(plan.count for plan in plans)
    reserve_numbers(context, count, "send fewer instances")

    def to_json(forecasts: Sequence[Forecast]) -> dict[str, Any]:
        """The predictions, each serialized separately."""
        return {"predictions": [fragment(forecast.as_json()) for forecast in forecasts]}

    return await respond(
        context, model, task.forecast(plans, rename=_in_instance), to_json, max(items, count // ITEM_NUMBERS)
    )


def _plan(task: Forecaster, sent: Sequence["_ParsedSeries"]) -> list[ForecastPlan]:
    """What is to be computed for each instance. Raises: InvalidInput."""
    plans = []
    for number, one in enumerate(sent):
        with rename_places(functools.partial(_in_instance, number)):
            plan = task.plan(one.names, one.series, ForecastOptions())
            plans.append(dataclasses.replace(plan, is_flat=one.is_flat))
    return plans


PREDICT: dict[str, Callable[[RequestContext, ServedModel[Any]], Awaitable[Response]]] = {
    Classification.name: _classify,
    SeriesClassification.name: _classify_series,
    Matching.name: _score,
    Forecaster.name: _forecast,
}
"""Task -> what answers a request."""


class _ParsedSeries(NamedTuple):
    """A series, with only the steps that the model reads."""

    names: list[str] | None
    """Names of the channels; None if they are identified by position."""
    series: Tails
    is_flat: bool
    """Whether the only channel came as a list of its values."""


def _parse_documents(most: int, body: bytes) -> list[bytes]:
    """Parse documents to classify. Raises: InvalidInput, PayloadTooLarge, and what `parse_json` raises."""
    instances = parse_json(ClassifierInstances, body).instances
    check_count("instances", len(instances), most)
    return [_bytes(f"instances.{number}", given) for number, given in enumerate(instances)]


def _parse_recordings(most: int, body: bytes) -> list[SentRecording]:
    """Parse recordings. Raises: as `_parse_documents`."""
    instances = parse_json(SeriesInstances, body).instances
    check_count("instances", len(instances), most)
    return [
        SentRecording.of(f"instances.{number}.series", SentSeries.of(given.series))
        for number, given in enumerate(instances)
    ]


def _parse_pairs(most: int, body: bytes) -> list[tuple[bytes, bytes]]:
    """Parse pairs of documents. Raises: as `_parse_documents`."""
    instances = parse_json(MatcherInstances, body).instances
    check_count("instances", len(instances), most)
    return [
        (_bytes(f"instances.{number}.a", given.a), _bytes(f"instances.{number}.b", given.b))
        for number, given in enumerate(instances)
    ]


def _parse_series(max_steps: int, most: int, body: bytes) -> list[_ParsedSeries]:
    """Parse series; keep the last `max_steps` steps of each. Raises: as `_parse_documents`."""
    instances = parse_json(SeriesInstances, body).instances
    check_count("instances", len(instances), most)
    sent = (SentSeries.of(given.series) for given in instances)
    return [_ParsedSeries(one.names, Tails.of(one.columns, max_steps), one.is_flat) for one in sent]


def _bytes(place: str, given: str | EncodedDocument | TextInstance) -> bytes:
    """Bytes of a document. Raises: InvalidInput naming its location."""
    if isinstance(given, TextInstance):
        return _bytes(f"{place}.text", given.text)
    return given.encode() if isinstance(given, str) else decode_base64(f"{place}.b64", given.b64)


def _in_instance(number: int, place: str) -> str:
    """Location in the request, from the location in an instance."""
    return f"instances.{number}.{place}"
