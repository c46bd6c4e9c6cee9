"""`POST /v1/classify`: documents as JSON, as text, as bytes or as lines -> labels."""

from starlette.responses import Response

from service.aside import pieces
from service.routes.bulk import post_lines
from service.tasks.classification import classify
from service.wire.call import Call
from service.wire.media import BINARY, JSON, NDJSON, TEXT
from service.wire.requests import read_documents
from service.wire.route import TIMEOUT_HEADERS, Lines, Route
from service.wire.schemas import BulkLine, BulkResult, ClassifyOptions, ClassifyRequest, ClassifyResponse


async def post_classify(call: Call) -> Response:
    """Classify documents of any length; options of a body that is not JSON are in the query string.

    Lines (NDJSON), of which there may be any number, are answered by lines, in order, as they finish.
    """
    documents, options = await read_documents(call)
    model = call.models.classifier(options.model)
    work = classify(model, documents, on_overflow=options.on_overflow, deadline=call.deadline)
    labels, wanted = model.manifest.labels, options.wanted
    return await call.answer(
        model,
        work,
        lambda answers: {"results": [answer.as_json(labels, wanted) for answer in answers]},
        pieces(documents),
    )


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
        lines_handler=post_lines,
        bodies={
            JSON: ClassifyRequest,
            TEXT: str,
            BINARY: {"type": "string", "format": "binary"},
            NDJSON: Lines(BulkLine),
        },
        examples={
            JSON: {"inputs": ["A film to see twice.", "Two hours that nobody gives back."], "top_k": 1},
            TEXT: "A film to see twice.",
            NDJSON: '{"id": 1, "text": "A film to see twice."}\n{"id": 2, "text": "Two hours wasted."}\n',
        },
        answers={JSON: ClassifyResponse, NDJSON: Lines(BulkResult)},
        parameters=(*_query_parameters(), *TIMEOUT_HEADERS),
    ),
)
