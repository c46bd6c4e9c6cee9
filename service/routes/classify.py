"""`POST /v1/classify`: documents as JSON, as text, as bytes or as lines -> labels."""

from starlette.responses import Response

from artifact.errors import InvalidInput
from service.engine.selection import Models
from service.engine.served import ServedClassifier
from service.routes.bulk import BulkResponse
from service.tasks.classification import classify
from service.wire.call import Call
from service.wire.media import BINARY, JSON, NDJSON, TEXT
from service.wire.requests import check_count, parse_json
from service.wire.route import TIMEOUT_HEADERS, Lines, Route
from service.wire.schemas import BulkLine, BulkResult, ClassifyOptions, ClassifyRequest, ClassifyResponse


async def post_classify(call: Call) -> Response:
    """Classify documents of any length; options of a body that is not JSON are in the query string.

    Lines (NDJSON), of which there may be any number, are answered by lines, in order, as they finish.
    """
    until = call.deadline
    kind = call.media_type(JSON, TEXT, BINARY, NDJSON)
    if kind == NDJSON:
        options = call.query(ClassifyOptions)
        return BulkResponse(call, _model(call.models, options), options)
    documents, options = _read(call, kind, await call.body())
    check_count("inputs", len(documents), call.settings.max_documents)
    documents = [call.document(f"input {index}", document) for index, document in enumerate(documents)]
    model = _model(call.models, options)
    answers, timing = await call.run(model, classify(model, documents, on_overflow=options.on_overflow, deadline=until))
    return call.respond(model, timing, {"results": [options.show(answer, model.manifest.labels) for answer in answers]})


def _model(models: Models, options: ClassifyOptions) -> ServedClassifier:
    """The classifier asked for, if it has as many labels as are. Raises: ModelNotFound, InvalidInput."""
    model = models.classifier(options.model)
    most = len(model.manifest.labels)
    if options.top_k is not None and options.top_k > most:
        message = f"must be at most {most}, the number of labels"
        raise InvalidInput(f"top_k: {message}", [("top_k", message)])
    return model


def _read(call: Call, kind: str, body: bytes) -> tuple[list[bytes], ClassifyOptions]:
    """Documents and options of a request."""
    if kind != JSON:
        return [body], call.query(ClassifyOptions)
    call.refuse_query()
    parsed = parse_json(ClassifyRequest, body)
    texts = [parsed.inputs] if isinstance(parsed.inputs, str) else parsed.inputs
    return [text.encode() for text in texts], parsed


def _query_parameters() -> list[dict[str, object]]:
    """OpenAPI of the options of a body that is a document."""
    properties = ClassifyOptions.model_json_schema()["properties"]
    return [{"name": name, "in": "query", "schema": properties[name]} for name in sorted(properties)]


ROUTES = (
    Route(
        method="POST",
        path="/v1/classify",
        handler=post_classify,
        task="text-classification",
        takes_lines=True,
        bodies={
            JSON: ClassifyRequest,
            TEXT: str,
            BINARY: {"type": "string", "format": "binary"},
            NDJSON: Lines(BulkLine),
        },
        answers={JSON: ClassifyResponse, NDJSON: Lines(BulkResult)},
        parameters=(*_query_parameters(), *TIMEOUT_HEADERS),
    ),
)
