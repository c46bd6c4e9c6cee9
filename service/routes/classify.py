"""`POST /v1/classify`: documents as JSON, as text or as bytes -> labels."""

import time
from collections.abc import Sequence
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse

from service.engine import Engine, ServedModel
from service.errors import InvalidInput, PayloadTooLarge
from service.routes.errors import DOCUMENTED
from service.routes.reading import deadline, media_type, parse_json, parse_query, read_body, while_connected
from service.schemas import ClassifyOptions, ClassifyRequest, ClassifyResponse
from service.settings import Settings
from service.tasks.classification import Classification, Timing, classify

JSON, TEXT, BYTES = "application/json", "text/plain", "application/octet-stream"
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
    started = time.perf_counter()
    engine: Engine = request.app.state.engine
    settings: Settings = request.app.state.settings
    until = deadline(request, settings.deadline_s)
    kind = media_type(request, (JSON, TEXT, BYTES))
    documents, options = _read(kind, request, await read_body(request, until))
    _check(documents, settings)
    model = engine.classifier(options.model)
    labels = model.manifest.labels
    if options.top_k is not None and options.top_k > len(labels):
        message = f"must be at most {len(labels)}, the number of labels"
        raise InvalidInput(f"top_k: {message}", [("top_k", message)])

    work = classify(model, documents, on_overflow=options.on_overflow, deadline=until)
    with model.metrics.in_flight.track_inprogress():
        answers, timing = await while_connected(request, work)
    computed = time.perf_counter()
    results = [describe(answer, labels, options) for answer in answers]
    response = JSONResponse({"model": model.manifest.name, "version": model.manifest.version, "results": results})
    _record(request, model, timing, (started, computed, time.perf_counter()))
    return response


def describe(answer: Classification, labels: Sequence[str], options: ClassifyOptions) -> dict[str, Any]:
    """One result as it goes over the wire, best score first."""
    scores = _ranked(answer.scores.tolist(), labels, options.top_k)
    is_cut = len(answer.windows) > 1 or answer.bytes_used < answer.bytes_total
    result: dict[str, Any] = {
        **scores[0],
        "scores": scores,
        "coverage": {
            "bytes_total": answer.bytes_total,
            "bytes_used": answer.bytes_used,
            "strategy": options.on_overflow if is_cut else "whole",
            "windows": len(answer.windows),
        },
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


def _check(documents: Sequence[bytes], settings: Settings) -> None:
    """Apply the limits. Raises: PayloadTooLarge, InvalidInput."""
    if not documents:
        raise InvalidInput("inputs: at least 1 document is needed", [("inputs", "at least 1 document is needed")])
    if len(documents) > settings.max_documents:
        raise PayloadTooLarge(f"{len(documents)} documents; at most {settings.max_documents} in one request")
    for index, document in enumerate(documents):
        if len(document) > settings.max_document_bytes:
            limit = settings.max_document_bytes
            raise PayloadTooLarge(f"input {index}: the document has {len(document)} bytes; at most {limit}")


def _record(request: Request, model: ServedModel, timing: Timing, moments: tuple[float, float, float]) -> None:
    """Put the stages of a request into the metrics and the Server-Timing header."""
    started, computed, encoded = moments
    metrics = model.metrics
    metrics.decode_seconds.observe(timing.decode)
    metrics.queue_seconds.observe(timing.queue)
    metrics.compute_seconds.observe(timing.compute)
    metrics.encode_seconds.observe(encoded - computed)
    metrics.duration(model.manifest.task).observe(encoded - started)
    request.state.timing.update(queue=timing.queue, compute=timing.compute)
