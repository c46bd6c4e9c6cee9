"""`POST /v1/classify`: documents as JSON, as text or as bytes -> labels."""

from collections.abc import Sequence
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse

from service.engine import Engine
from service.errors import InvalidInput
from service.routes.answer import Stopwatch, coverage
from service.routes.errors import DOCUMENTED
from service.routes.reading import (
    JSON,
    check_count,
    check_size,
    deadline,
    media_type,
    parse_json,
    parse_query,
    read_body,
    while_connected,
)
from service.schemas import ClassifyOptions, ClassifyRequest, ClassifyResponse
from service.settings import Settings
from service.tasks.classification import Classification, classify

TEXT, BYTES = "text/plain", "application/octet-stream"
OPTIONS = {"model", "top_k", "on_overflow", "detail"}

router = APIRouter()


def _query_parameters() -> list[dict[str, object]]:
    """OpenAPI of the options of a body that is a document."""
    properties = ClassifyOptions.model_json_schema()["properties"]
    return [{"name": name, "in": "query", "schema": properties[name]} for name in sorted(OPTIONS)]


@router.post(
    "/v1/classify",
    response_model=ClassifyResponse,
    responses=DOCUMENTED,
    openapi_extra={
        "parameters": _query_parameters(),
        "requestBody": {
            "required": True,
            "content": {
                JSON: {"schema": ClassifyRequest.model_json_schema()},
                TEXT: {"schema": {"type": "string"}},
                BYTES: {"schema": {"type": "string", "format": "binary"}},
            },
        },
    },
)
async def post_classify(request: Request) -> JSONResponse:
    """Classify documents of any length; options of a text or byte body are in the query string."""
    watch = Stopwatch(request)
    engine: Engine = request.app.state.engine
    settings: Settings = request.app.state.settings
    until = deadline(request, settings.deadline_s)
    kind = media_type(request, (JSON, TEXT, BYTES))
    documents, options = _read(kind, request, await read_body(request, until))
    check_count("inputs", len(documents), settings.max_documents)
    for index, document in enumerate(documents):
        check_size(f"input {index}", document, settings)
    model = engine.classifier(options.model)
    labels = model.manifest.labels
    if options.top_k is not None and options.top_k > len(labels):
        message = f"must be at most {len(labels)}, the number of labels"
        raise InvalidInput(f"top_k: {message}", [("top_k", message)])

    work = classify(model, documents, on_overflow=options.on_overflow, deadline=until)
    with model.metrics.in_flight.track_inprogress():
        answers, timing = await while_connected(request, work)
    watch.computed()
    return watch.respond(model, timing, {"results": [describe(answer, labels, options) for answer in answers]})


def describe(answer: Classification, labels: Sequence[str], options: ClassifyOptions) -> dict[str, Any]:
    """One result as it goes over the wire, best score first."""
    scores = _ranked(answer.scores.tolist(), labels, options.top_k)
    result: dict[str, Any] = {
        **scores[0],
        "scores": scores,
        "coverage": coverage(answer.bytes_total, answer.bytes_used, len(answer.windows), options.on_overflow),
    }
    if options.detail:
        result["windows"] = [
            {"start": start, "end": end, "scores": _ranked(row.tolist(), labels, options.top_k)}
            for spans, row in answer.windows
            for start, end in spans
        ]
    return result


def _ranked(scores: Sequence[float], labels: Sequence[str], top_k: int | None) -> list[dict[str, Any]]:
    """Labels with their scores, best first."""
    pairs = sorted(zip(labels, scores, strict=True), key=lambda pair: -pair[1])
    return [{"label": label, "score": score} for label, score in pairs[:top_k]]


def _read(kind: str, request: Request, body: bytes) -> tuple[list[bytes], ClassifyOptions]:
    """Documents and options of a request."""
    if kind != JSON:
        return [body], parse_query(ClassifyOptions, request)
    if request.query_params:
        raise InvalidInput("options of a JSON body go into the body", [("query", "not allowed with a JSON body")])
    parsed = parse_json(ClassifyRequest, body)
    texts = [parsed.inputs] if isinstance(parsed.inputs, str) else parsed.inputs
    return [text.encode() for text in texts], parsed
