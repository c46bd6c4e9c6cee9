"""`POST /v1/classify`: documents as JSON, as text, as bytes or as lines -> labels."""

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel

from artifact.errors import InvalidInput
from service.engine.engine import Engine, ServedClassifier
from service.routes.bulk import NDJSON, BulkResponse
from service.settings import Settings
from service.tasks.classification import classify
from service.wire.errors import DOCUMENTED
from service.wire.requests import (
    HEADERS,
    JSON,
    check_count,
    check_size,
    deadline,
    media_type,
    parse_json,
    parse_query,
    read_body,
    refuse_query,
    while_connected,
)
from service.wire.responses import Stopwatch, describe
from service.wire.schemas import (
    BulkLine,
    BulkResult,
    ClassifyOptions,
    ClassifyRequest,
    ClassifyResponse,
    self_contained,
)

TEXT, BYTES = "text/plain", "application/octet-stream"
OPTIONS = {"model", "top_k", "on_overflow", "detail"}

router = APIRouter()


def _query_parameters() -> list[dict[str, object]]:
    """OpenAPI of the options of a body that is a document."""
    properties = ClassifyOptions.model_json_schema()["properties"]
    return [{"name": name, "in": "query", "schema": properties[name]} for name in sorted(OPTIONS)]


def _lines(schema: type[BaseModel]) -> dict[str, object]:
    """OpenAPI of a body of lines."""
    return {"type": "string", "contentMediaType": NDJSON, "contentSchema": self_contained(schema)}


@router.post(
    "/v1/classify",
    response_model=ClassifyResponse,
    responses={**DOCUMENTED, 200: {"content": {NDJSON: {"schema": _lines(BulkResult)}}}},
    openapi_extra={
        "parameters": [*_query_parameters(), *HEADERS],
        "requestBody": {
            "required": True,
            "content": {
                JSON: {"schema": ClassifyRequest.model_json_schema()},
                TEXT: {"schema": {"type": "string"}},
                BYTES: {"schema": {"type": "string", "format": "binary"}},
                NDJSON: {"schema": _lines(BulkLine)},
            },
        },
    },
)
async def post_classify(request: Request) -> Response:
    """Classify documents of any length; options of a body that is not JSON are in the query string.

    Lines (NDJSON), of which there may be any number, are answered by lines, in order, as they finish.
    """
    watch = Stopwatch(request)
    engine: Engine = request.app.state.engine
    settings: Settings = request.app.state.settings
    until = deadline(request, settings.deadline_s)
    kind = media_type(request, (JSON, TEXT, BYTES, NDJSON))
    if kind == NDJSON:
        options = parse_query(ClassifyOptions, request)
        return BulkResponse(request, _model(engine, options), options)
    documents, options = _read(kind, request, await read_body(request, until))
    check_count("inputs", len(documents), settings.max_documents)
    for index, document in enumerate(documents):
        check_size(f"input {index}", document, settings)
    model = _model(engine, options)
    work = classify(model, documents, on_overflow=options.on_overflow, deadline=until)
    with model.metrics.in_flight.track_inprogress():
        answers, timing = await while_connected(request, work)
    watch.computed()
    labels = model.manifest.labels
    return watch.respond(model, timing, {"results": [describe(answer, labels, options) for answer in answers]})


def _model(engine: Engine, options: ClassifyOptions) -> ServedClassifier:
    """The classifier asked for, if it has as many labels as are. Raises: ModelNotFound, InvalidInput."""
    model = engine.classifier(options.model)
    most = len(model.manifest.labels)
    if options.top_k is not None and options.top_k > most:
        message = f"must be at most {most}, the number of labels"
        raise InvalidInput(f"top_k: {message}", [("top_k", message)])
    return model


def _read(kind: str, request: Request, body: bytes) -> tuple[list[bytes], ClassifyOptions]:
    """Documents and options of a request."""
    if kind != JSON:
        return [body], parse_query(ClassifyOptions, request)
    refuse_query(request)
    parsed = parse_json(ClassifyRequest, body)
    texts = [parsed.inputs] if isinstance(parsed.inputs, str) else parsed.inputs
    return [text.encode() for text in texts], parsed
