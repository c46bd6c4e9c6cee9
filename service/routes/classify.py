"""`POST /v1/classify`: labels of documents, which are sent as JSON, text, bytes or NDJSON."""

import functools

from starlette.responses import Response

from artifact.tasks.classification import Classification
from service.offload import count_items
from service.routes.bulk import BulkResponse
from service.wire.dependencies import Context
from service.wire.errors import NATIVE
from service.wire.inference import respond
from service.wire.media import BINARY, JSON, NDJSON, TEXT
from service.wire.openapi import BINARY_SCHEMA, Lines, contents, request_body
from service.wire.parsing import check_count, check_size, decode_text, parse_json
from service.wire.requests import check_media_type, read_body, read_json, read_query, reserve_numbers
from service.wire.schemas import BulkLine, BulkResult, ClassifyOptions, ClassifyRequest, ClassifyResponse

router = NATIVE.router("Classify documents")


def _query_parameters() -> list[dict[str, object]]:
    """OpenAPI parameters: the options, for bodies that are not JSON.

    Without defaults: Swagger UI would send them with a JSON body, too, which has options of its own.
    """
    properties = ClassifyOptions.model_json_schema()["properties"]
    for schema in properties.values():
        schema.pop("default", None)
    return [{"name": name, "in": "query", "schema": properties[name]} for name in sorted(properties)]


BODY = request_body(
    {JSON: ClassifyRequest, TEXT: str, BINARY: BINARY_SCHEMA, NDJSON: Lines(BulkLine)},
    {
        JSON: {"inputs": ["A film to see twice.", "Two hours that nobody gives back."], "top_k": 1},
        TEXT: "A film to see twice.",
        NDJSON: '{"id": 1, "text": "A film to see twice."}\n{"id": 2, "text": "Two hours wasted."}\n',
    },
    _query_parameters(),
)


@router.post(
    "/v1/classify",
    name="classify",
    response_model=ClassifyResponse,
    responses={200: {"content": contents({NDJSON: Lines(BulkResult)}, "serialization")}, **NATIVE.responses()},
    openapi_extra=BODY,
)
async def post_classify(context: Context) -> Response:
    """Classify documents of any length. If the body is not JSON, options are in the query string.

    NDJSON uploads may have any length. Each line gets a line of the response, in order, as soon as it is ready.
    """
    given = check_media_type(context, JSON, TEXT, BINARY, NDJSON)
    if given.name == NDJSON:
        return BulkResponse.of(context)
    options: ClassifyOptions
    if given.name == JSON:
        options = asked = await read_json(context, functools.partial(parse_json, ClassifyRequest))
        documents = asked.documents
    else:
        documents, options = [await read_body(context)], read_query(context, ClassifyOptions)
    settings = context.runtime.settings
    check_count("inputs", len(documents), settings.max_documents)
    for index, document in enumerate(documents):
        check_size(f"input {index}", document, settings.max_document_bytes)
    model = context.runtime.models.choose(Classification, options.model)
    if model.task.manifest.reads_text and given.name == TEXT:
        documents = [decode_text(documents[0], given.charset, settings.max_document_bytes)]
    result_options = options.result_options
    if options.detail:
        count = model.task.count_contributions(documents, options.top_k)
        reserve_numbers(context, count, "send fewer, or set top_k")
    return await respond(
        context,
        model,
        model.task.classify(documents, options.on_overflow),
        lambda found: {"results": [document.as_json(result_options) for document in found]},
        count_items(documents),
    )
