"""`/predict`, `/rerank`, `/info` and `/health` of text-embeddings-inference (TEI): its shapes around ours.

A string, or a list of one, is a text for the default classifier; `["a", "b"]` is one pair for the default matcher; a
list of lists is a batch of the one or of the other. Texts of any length are read as a whole unless `truncate` says
otherwise; the headers `x-bytes-total` and `x-bytes-used` say what was read. Unknown fields are ignored.
"""

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeVar

import numpy as np
from fastapi import APIRouter, Request, Response
from numpy.typing import NDArray
from pydantic import AliasChoices, BaseModel, ConfigDict, Discriminator, Field, Tag

from artifact.documents import OnOverflow
from artifact.errors import InvalidInput
from artifact.manifest import ClassifierManifest
from service import __version__
from service.engine.engine import Engine, ServedClassifier, ServedModel
from service.errors import NotReady
from service.settings import Settings
from service.tasks.classification import classify
from service.tasks.matching import Encoding, Text, rank, score
from service.tasks.timing import Timing
from service.wire.errors import DOCUMENTED, Failure
from service.wire.requests import (
    JSON,
    check_count,
    check_size,
    json_body,
    read_json,
    while_connected,
)
from service.wire.responses import Stopwatch, json_response
from service.wire.schemas import Documents, form, self_contained

ERROR_TYPES = {429: "Overloaded", 503: "Unhealthy", 500: "Backend", 504: "Backend"}
"""Every other status is `Validation`."""
MATCH = "match"
"""What a matcher's score is of."""
MOST_INPUTS = 10_000
"""More than are allowed; a body could hold millions."""
LEAST = 2.0**-53
"""Probabilities nearer to 0 or 1 have no finite logit."""

Strings = Annotated[list[str], Field(max_length=MOST_INPUTS, fail_fast=True)]
Input = Annotated[list[str], Field(min_length=1, max_length=2, fail_fast=True)]
Batch = Annotated[list[Input], Field(max_length=MOST_INPUTS, fail_fast=True)]
Inputs = Annotated[
    Annotated[str, Tag("text")] | Annotated[Strings, Tag("list")] | Annotated[Batch, Tag("batch")],
    Discriminator(
        lambda value: "batch" if isinstance(value, list) and isinstance(next(iter(value), None), list) else form(value),
        custom_error_type="inputs",
        custom_error_message="Input should be a string, a list of strings or a list of such lists",
    ),
]


class _Truncation(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True, populate_by_name=True, protected_namespaces=())

    truncate: bool | None = None
    """true: a text beyond the model's length is cut, false: it is refused; by default it is read in windows."""
    truncation_direction: Literal["Left", "Right", "left", "right"] = "Right"
    """The end that is cut off."""
    raw_scores: bool = False
    """Logits instead of probabilities."""

    @property
    def on_overflow(self) -> OnOverflow:
        """The same in our words."""
        if self.truncate is None:
            return "windows"
        if not self.truncate:
            return "error"
        return "head" if self.truncation_direction.lower() == "right" else "tail"


class PredictRequest(_Truncation):
    """Body of `POST /predict`."""

    inputs: Inputs
    """A text, a pair of texts, or a batch of lists with a text each or a pair each."""


class RerankRequest(_Truncation):
    """Body of `POST /rerank`; also with the names that Cohere's clients send."""

    query: str
    texts: Documents = Field(validation_alias=AliasChoices("texts", "documents"))
    """What is ranked by its score with the query."""
    return_text: bool = Field(default=False, validation_alias=AliasChoices("return_text", "return_documents"))
    """Whether to send the texts back."""
    top_n: int | None = Field(default=None, ge=1)
    """Results to return; all by default."""


R = TypeVar("R", PredictRequest, RerankRequest)


class Prediction(BaseModel):
    """Score of a label."""

    score: float
    label: str


class Rank(BaseModel):
    """Score of a text, which is told by its place in the request."""

    index: int
    score: float
    text: str | None = None


class Labels(BaseModel):
    """Names of the outputs."""

    id2label: dict[str, str]
    label2id: dict[str, int]


class Info(BaseModel):
    """What is served, in TEI's words."""

    model_config = ConfigDict(protected_namespaces=())

    model_id: str
    model_sha: str
    model_dtype: str
    served_model_name: str
    model_type: dict[Literal["classifier", "reranker"], Labels]
    max_concurrent_requests: int
    max_input_length: int
    max_batch_tokens: int
    max_batch_requests: int | None
    max_client_batch_size: int
    auto_truncate: bool
    tokenization_workers: int
    version: str
    sha: str | None
    docker_label: str | None


class Error(BaseModel):
    """Body of every error but 401, which has none."""

    error: str
    error_type: Literal["Validation", "Overloaded", "Unhealthy", "Backend"]


def error_body(failed: Failure) -> Response:
    """TEI's body for a failure."""
    if failed.status == 401:
        return Response(status_code=401)
    error_type = ERROR_TYPES.get(failed.status, "Validation")
    return json_response({"error": failed.detail, "error_type": error_type}, failed.status)


ERRORS: dict[int | str, dict[str, Any]] = {
    status: {**native, "content": {JSON: {"schema": self_contained(Error)}}} for status, native in DOCUMENTED.items()
}
ERRORS[401] = {"description": DOCUMENTED[401]["description"]}

router = APIRouter()


@router.get("/health", response_class=Response, responses={503: ERRORS[503]})
@router.head("/health", include_in_schema=False)
async def health(request: Request) -> Response:
    """200 and nothing else when every model takes requests."""
    engine: Engine = request.app.state.engine
    if not engine.is_ready:
        raise NotReady("unhealthy")
    return Response()


@router.get("/info", response_model=Info, responses={401: ERRORS[401], 422: ERRORS[422]})
async def get_info(request: Request) -> dict[str, Any]:
    """The default classifier; where there is none, the default matcher as a re-ranker. A token is a byte."""
    engine: Engine = request.app.state.engine
    settings: Settings = request.app.state.settings
    has_classifier = any(isinstance(model, ServedClassifier) for model in engine.models.values())
    manifest = (engine.classifier(None) if has_classifier else engine.matcher(None)).manifest
    is_classifier = isinstance(manifest, ClassifierManifest)
    labels = manifest.labels if isinstance(manifest, ClassifierManifest) else (MATCH,)
    files = manifest.files_of(settings.backend)
    file = files[max(files)]
    names = {
        "id2label": {str(number): label for number, label in enumerate(labels)},
        "label2id": {label: number for number, label in enumerate(labels)},
    }
    return {
        "model_id": manifest.name,
        "model_sha": file.sha256,
        "model_dtype": file.precision,
        "served_model_name": manifest.name,
        "model_type": {"classifier" if is_classifier else "reranker": names},
        "max_concurrent_requests": settings.max_queue_rows,
        "max_input_length": manifest.max_length,
        "max_batch_tokens": settings.max_body_bytes,
        "max_batch_requests": settings.max_batch_rows,
        "max_client_batch_size": settings.max_documents,
        "auto_truncate": False,
        "tokenization_workers": 1,
        "version": __version__,
        "sha": None,
        "docker_label": None,
    }


@dataclass(frozen=True)
class _Answer:
    """What a model gave."""

    model: ServedModel
    content: list[Any]
    bytes_total: int
    bytes_used: int
    timing: Timing


@router.post(
    "/predict",
    response_model=list[Prediction] | list[list[Prediction]],
    responses=ERRORS,
    openapi_extra=json_body(PredictRequest),
)
async def post_predict(request: Request) -> Response:
    """Labels of texts, or scores of pairs, best first; a batch is answered by a list of such lists."""
    watch, started = Stopwatch(request), time.perf_counter()
    settings: Settings = request.app.state.settings
    asked, until = await read_json(request, PredictRequest)
    inputs, is_batch = _batch(asked.inputs)
    check_count("inputs", len(inputs), settings.max_documents)
    if len({len(parts) for parts in inputs}) > 1:
        message = "texts and pairs are answered by different models; a batch of the one or of the other is allowed"
        raise InvalidInput(f"inputs: {message}", [("inputs", message)])
    answer = await (_labels if len(inputs[0]) == 1 else _scores)(request, inputs, asked, until)
    watch.computed()
    return _respond(watch, started, answer, answer.content if is_batch else answer.content[0])


@router.post("/rerank", response_model=list[Rank], responses=ERRORS, openapi_extra=json_body(RerankRequest))
async def post_rerank(request: Request) -> Response:
    """Texts by their score with a query, best first."""
    watch, started = Stopwatch(request), time.perf_counter()
    engine: Engine = request.app.state.engine
    settings: Settings = request.app.state.settings
    asked, until = await read_json(request, RerankRequest)
    check_count("texts", len(asked.texts), settings.max_rank_documents)
    query = _text("query", asked.query, settings)
    texts = [_text(f"texts.{number}", text, settings) for number, text in enumerate(asked.texts)]
    model = engine.matcher(None)
    work = rank(model, query, texts, on_overflow=asked.on_overflow, deadline=until)
    with model.metrics.in_flight.track_inprogress():
        scores, encodings, query_encoding, timing = await while_connected(request, work)
    watch.computed()
    order = sorted(range(len(scores)), key=lambda index: -scores[index])[: asked.top_n]
    ranks: list[dict[str, Any]] = [{"index": index, "score": _score(scores[index], asked)} for index in order]
    if asked.return_text:
        ranks = [{**entry, "text": asked.texts[entry["index"]]} for entry in ranks]
    answer = _Answer(model, ranks, *_bytes([query_encoding, *encodings]), timing)
    return _respond(watch, started, answer, ranks)


def _batch(inputs: str | list[str] | list[list[str]]) -> tuple[list[list[str]], bool]:
    """Texts as lists of one and pairs as lists of two; whether they came as a batch. Raises: InvalidInput."""
    if isinstance(inputs, str):
        return [[inputs]], False
    batch = [given for given in inputs if isinstance(given, list)]
    if batch:
        return batch, True
    strings = [given for given in inputs if isinstance(given, str)]
    if len(strings) not in (1, 2):
        message = f"{len(strings)} strings; 1, a text, or 2, a pair, are allowed; a batch is a list of lists"
        raise InvalidInput(f"inputs: {message}", [("inputs", message)])
    return [strings], False


async def _labels(request: Request, inputs: Sequence[list[str]], asked: PredictRequest, until: float) -> _Answer:
    """Labels of each text, best first."""
    engine: Engine = request.app.state.engine
    documents = [text.encode() for (text,) in inputs]
    for number, document in enumerate(documents):
        check_size(f"inputs.{number}", document, request.app.state.settings)
    model = engine.classifier(None)
    work = classify(model, documents, on_overflow=asked.on_overflow, deadline=until)
    with model.metrics.in_flight.track_inprogress():
        answers, timing = await while_connected(request, work)
    predictions = [_ranked(answer.scores, model.manifest.labels, asked) for answer in answers]
    total, used = sum(answer.bytes_total for answer in answers), sum(answer.bytes_used for answer in answers)
    return _Answer(model, predictions, total, used, timing)


def _ranked(scores: NDArray[np.float64], labels: Sequence[str], asked: PredictRequest) -> list[dict[str, Any]]:
    """Labels of one text; the logarithms of its probabilities are its logits but for a constant."""
    values = np.log(scores.clip(min=np.finfo(float).tiny)) if asked.raw_scores else scores
    pairs = sorted(zip(values.tolist(), labels, strict=True), key=lambda pair: -pair[0])
    return [{"score": value, "label": label} for value, label in pairs]


async def _scores(request: Request, inputs: Sequence[list[str]], asked: PredictRequest, until: float) -> _Answer:
    """Score of each pair."""
    engine: Engine = request.app.state.engine
    settings: Settings = request.app.state.settings
    pairs = [
        (_text(f"inputs.{number}.0", a, settings), _text(f"inputs.{number}.1", b, settings))
        for number, (a, b) in enumerate(inputs)
    ]
    model = engine.matcher(None)
    work = score(model, pairs, on_overflow=asked.on_overflow, deadline=until)
    with model.metrics.in_flight.track_inprogress():
        scores, encodings, timing = await while_connected(request, work)
    predictions = [[{"score": _score(value, asked), "label": MATCH}] for value in scores]
    return _Answer(model, predictions, *_bytes([text for pair in encodings for text in pair]), timing)


def _text(place: str, text: str, settings: Settings) -> Text:
    """A text within its limit."""
    document = text.encode()
    check_size(place, document, settings)
    return Text(place, document)


def _score(probability: float, asked: _Truncation) -> float:
    """Of a pair, as it is wanted."""
    if not asked.raw_scores:
        return probability
    bounded = min(max(probability, LEAST), 1 - LEAST)
    return math.log(bounded / (1 - bounded))


def _bytes(encodings: Sequence[Encoding]) -> tuple[int, int]:
    """Bytes of texts, and those that were read."""
    return sum(text.bytes_total for text in encodings), sum(text.bytes_used for text in encodings)


def _respond(watch: Stopwatch, started: float, answer: _Answer, content: list[Any]) -> Response:
    """An answer with TEI's headers, in milliseconds."""
    response = watch.finish(answer.model, answer.timing, json_response(content))
    timing, total = answer.timing, time.perf_counter() - started
    times = {"total": total, "compute": total, "tokenization": timing.decode, "queue": timing.queue}
    times["inference"] = timing.compute
    response.headers.update({f"x-{stage}-time": f"{1000 * seconds:.2f}" for stage, seconds in times.items()})
    response.headers.update({"x-bytes-total": str(answer.bytes_total), "x-bytes-used": str(answer.bytes_used)})
    return response
