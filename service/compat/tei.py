"""`/predict`, `/rerank`, `/info` and `/health` of text-embeddings-inference (TEI): its shapes around ours.

A string, or a list of one, is a text for the default classifier; `["a", "b"]` is one pair for the default matcher; a
list of lists is a batch of the one or of the other. Texts of any length are read as a whole unless `truncate` says
otherwise; the headers `x-bytes-total` and `x-bytes-used` say what was read. Unknown fields are ignored.
"""

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import AliasChoices, BaseModel, ConfigDict, Discriminator, Field, Tag
from starlette.responses import Response

from artifact import __version__
from artifact.documents import OnOverflow
from artifact.errors import InvalidInput
from artifact.manifest import ClassifierManifest
from artifact.matching import Encoding, Ranking, Text
from service.aside import aside
from service.engine.served import ServedClassifier, ServedModel
from service.errors import NotReady
from service.tasks.classification import classify
from service.tasks.matching import rank, score
from service.tasks.timing import Timing
from service.wire.call import Call
from service.wire.errors import Dialect, Failure
from service.wire.media import JSON
from service.wire.requests import check_count, read_document, read_json
from service.wire.responses import json_response
from service.wire.route import TIMEOUT_HEADERS, Route
from service.wire.schemas import Documents, form

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


class TEIPrediction(BaseModel):
    """Score of a label."""

    score: float
    label: str


class TEIRank(BaseModel):
    """Score of a text, which is told by its place in the request."""

    index: int
    score: float
    text: str | None = None


class TEILabels(BaseModel):
    """Names of the outputs."""

    id2label: dict[str, str]
    label2id: dict[str, int]


class TEIInfo(BaseModel):
    """What is served, in TEI's words."""

    model_config = ConfigDict(protected_namespaces=())

    model_id: str
    model_sha: str
    model_dtype: str
    served_model_name: str
    model_type: dict[Literal["classifier", "reranker"], TEILabels]
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


class TEIError(BaseModel):
    """Body of every error but 401, which has none."""

    error: str
    error_type: Literal["Validation", "Overloaded", "Unhealthy", "Backend"]


def _write_error(failed: Failure) -> Response:
    """TEI's body for a failure."""
    if failed.status == 401:
        return Response(status_code=401)
    error_type = ERROR_TYPES.get(failed.status, "Validation")
    return json_response({"error": failed.detail, "error_type": error_type}, failed.status)


DIALECT = Dialect(_write_error, TEIError, without_body=frozenset({401}))


async def health(call: Call) -> Response:
    """200 and nothing else when every model takes requests."""
    if not call.engine.is_ready:
        raise NotReady("unhealthy")
    return Response()


async def get_info(call: Call) -> Response:
    """The default classifier; where there is none, the default matcher as a re-ranker. A token is a byte."""
    models, settings = call.models, call.settings
    has_classifier = any(isinstance(model, ServedClassifier) for model in models.values())
    manifest = (models.classifier(None) if has_classifier else models.matcher(None)).manifest
    is_classifier = isinstance(manifest, ClassifierManifest)
    labels = manifest.labels if isinstance(manifest, ClassifierManifest) else (MATCH,)
    files = manifest.files_of(settings.backend)
    file = files[max(files)]
    names = {
        "id2label": {str(number): label for number, label in enumerate(labels)},
        "label2id": {label: number for number, label in enumerate(labels)},
    }
    info = {
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
    return json_response(info)


@dataclass(frozen=True)
class _Answer:
    """What a model gave."""

    model: ServedModel
    content: list[Any]
    bytes_total: int
    bytes_used: int
    timing: Timing


async def post_predict(call: Call) -> Response:
    """Labels of texts, or scores of pairs, best first; a batch is answered by a list of such lists."""
    asked = await read_json(call, PredictRequest)
    inputs, is_batch = _batch(asked.inputs)
    check_count("inputs", len(inputs), call.settings.max_documents)
    if len({len(parts) for parts in inputs}) > 1:
        raise InvalidInput.at(
            "inputs", "texts and pairs are answered by different models; a batch of the one or of the other is allowed"
        )
    answer = await (_labels if len(inputs[0]) == 1 else _scores)(call, inputs, asked)
    return _respond(call, answer, answer.content if is_batch else answer.content[0])


async def post_rerank(call: Call) -> Response:
    """Texts by their score with a query, best first."""
    asked = await read_json(call, RerankRequest)
    check_count("texts", len(asked.texts), call.settings.max_rank_documents)
    query = _text(call, "query", asked.query)
    texts = await aside(len(asked.texts), _texts, call, asked.texts)
    model = call.models.matcher(None)
    ranking, timing = await call.run(
        model, rank(model, query, texts, on_overflow=asked.on_overflow, deadline=call.deadline)
    )
    ranks = await aside(len(texts), _ranks, ranking, asked)
    answer = _Answer(model, ranks, *_bytes([ranking.query, *ranking.documents]), timing)
    return _respond(call, answer, ranks)


def _texts(call: Call, texts: Sequence[str]) -> list[Text]:
    """Texts to rank, each within its limit."""
    return [_text(call, f"texts.{number}", text) for number, text in enumerate(texts)]


def _ranks(ranking: Ranking, asked: RerankRequest) -> list[dict[str, Any]]:
    """The best texts in TEI's shape."""
    ranks: list[dict[str, Any]] = [
        {"index": index, "score": _score(ranking.scores[index], asked)} for index in ranking.best(asked.top_n)
    ]
    if asked.return_text:
        ranks = [{**entry, "text": asked.texts[entry["index"]]} for entry in ranks]
    return ranks


def _batch(inputs: str | list[str] | list[list[str]]) -> tuple[list[list[str]], bool]:
    """Texts as lists of one and pairs as lists of two; whether they came as a batch. Raises: InvalidInput."""
    if isinstance(inputs, str):
        return [[inputs]], False
    batch = [given for given in inputs if isinstance(given, list)]
    if batch:
        return batch, True
    strings = [given for given in inputs if isinstance(given, str)]
    if len(strings) not in (1, 2):
        raise InvalidInput.at(
            "inputs", f"{len(strings)} strings; 1, a text, or 2, a pair, are allowed; a batch is a list of lists"
        )
    return [strings], False


async def _labels(call: Call, inputs: Sequence[list[str]], asked: PredictRequest) -> _Answer:
    """Labels of each text, best first."""
    documents = [read_document(call, f"inputs.{number}", text) for number, (text,) in enumerate(inputs)]
    model = call.models.classifier(None)
    answers, timing = await call.run(
        model, classify(model, documents, on_overflow=asked.on_overflow, deadline=call.deadline)
    )
    predictions = [_ranked(answer.scores, model.manifest.labels, asked) for answer in answers]
    total, used = sum(answer.bytes_total for answer in answers), sum(answer.bytes_used for answer in answers)
    return _Answer(model, predictions, total, used, timing)


def _ranked(scores: NDArray[np.float64], labels: Sequence[str], asked: PredictRequest) -> list[dict[str, Any]]:
    """Labels of one text; the logarithms of its probabilities are its logits but for a constant."""
    values = np.log(scores.clip(min=np.finfo(float).tiny)) if asked.raw_scores else scores
    pairs = sorted(zip(values.tolist(), labels, strict=True), key=lambda pair: -pair[0])
    return [{"score": value, "label": label} for value, label in pairs]


async def _scores(call: Call, inputs: Sequence[list[str]], asked: PredictRequest) -> _Answer:
    """Score of each pair."""
    pairs = [
        (_text(call, f"inputs.{number}.0", a), _text(call, f"inputs.{number}.1", b))
        for number, (a, b) in enumerate(inputs)
    ]
    model = call.models.matcher(None)
    scored, timing = await call.run(model, score(model, pairs, on_overflow=asked.on_overflow, deadline=call.deadline))
    predictions = [[{"score": _score(pair.score, asked), "label": MATCH}] for pair in scored]
    return _Answer(model, predictions, *_bytes([text for pair in scored for text in (pair.a, pair.b)]), timing)


def _text(call: Call, place: str, text: str) -> Text:
    """A text within its limit."""
    return Text(place, read_document(call, place, text))


def _score(probability: float, asked: _Truncation) -> float:
    """Of a pair, as it is wanted."""
    if not asked.raw_scores:
        return probability
    bounded = min(max(probability, LEAST), 1 - LEAST)
    return math.log(bounded / (1 - bounded))


def _bytes(encodings: Sequence[Encoding]) -> tuple[int, int]:
    """Bytes of texts, and those that were read."""
    return sum(text.bytes_total for text in encodings), sum(text.bytes_used for text in encodings)


def _respond(call: Call, answer: _Answer, content: list[Any]) -> Response:
    """An answer with TEI's headers, in milliseconds."""
    response = call.finish(answer.model, answer.timing, json_response(content))
    timing, total = answer.timing, time.perf_counter() - call.started
    times = {"total": total, "compute": total, "tokenization": timing.decode, "queue": timing.queue}
    times["inference"] = timing.compute
    response.headers.update({f"x-{stage}-time": f"{1000 * seconds:.2f}" for stage, seconds in times.items()})
    response.headers.update({"x-bytes-total": str(answer.bytes_total), "x-bytes-used": str(answer.bytes_used)})
    return response


ROUTES = (
    Route(
        method="GET",
        path="/health",
        handler=health,
        dialect=DIALECT,
        needs_key=False,
        answers_head=True,
        statuses=(503,),
    ),
    Route(method="GET", path="/info", handler=get_info, dialect=DIALECT, answers={JSON: TEIInfo}, statuses=(401, 422)),
    Route(
        method="POST",
        path="/predict",
        handler=post_predict,
        dialect=DIALECT,
        bodies={JSON: PredictRequest},
        examples={JSON: {"inputs": [["A film to see twice."], ["Two hours that nobody gives back."]]}},
        answers={JSON: list[TEIPrediction] | list[list[TEIPrediction]]},
        parameters=TIMEOUT_HEADERS,
    ),
    Route(
        method="POST",
        path="/rerank",
        handler=post_rerank,
        dialect=DIALECT,
        bodies={JSON: RerankRequest},
        examples={
            JSON: {
                "query": "Parsing with neural networks.",
                "texts": ["Neural parsers of natural language.", "Phrases in machine translation."],
            }
        },
        answers={JSON: list[TEIRank]},
        parameters=TIMEOUT_HEADERS,
    ),
)
