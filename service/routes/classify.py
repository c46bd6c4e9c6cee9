"""`POST /v1/classify`: labels of documents, which are sent as JSON, text, bytes or NDJSON."""

import functools
from typing import Any

from starlette.responses import Response
from starlette.types import Receive, Scope, Send
from typing_extensions import override

from artifact.errors import InvalidInput
from artifact.tasks.classification import Classification
from service.offload import count_items, offload
from service.routes.bulk import BulkResponse, parse_line
from service.wire.context import RequestContext
from service.wire.dependencies import Context
from service.wire.errors import NATIVE
from service.wire.inference import model_fields, respond
from service.wire.media import BINARY, JSON, NDJSON, TEXT
from service.wire.openapi import BINARY_SCHEMA, Lines, contents, request_body
from service.wire.parsing import check_count, check_size, decode_base64, decode_text, parse_json
from service.wire.requests import check_media_type, read_body, read_json, read_query, reserve_numbers
from service.wire.schemas import BulkLine, BulkResult, ClassifyOptions, ClassifyRequest, ClassifyResponse

router = NATIVE.router("Classify documents")


class DocumentLines(BulkResponse[bytes]):
    """Classifies documents, one a line. The options are in the query string.

    Raises: InvalidInput, ModelNotFound.
    """

    def __init__(self, context: RequestContext) -> None:
        options = read_query(context, ClassifyOptions)
        self._model = context.runtime.models.choose(Classification, options.model)
        self._options = options.result_options
        super().__init__(context, functools.partial(parse_line, BulkLine, _document))

    @override
    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the response; the model stays loaded until its end."""
        with self._model.in_flight:
            await super().__call__(scope, receive, send)

    @override
    def answer_bytes(self, line: bytes) -> int:
        """Maximum bytes of the details in the answer to a line. Its document is not longer than the line."""
        size = min(len(line), self._settings.max_document_bytes)
        return self._model.task.max_detail_bytes(size, self._options)

    @override
    async def answer(self, content: bytes) -> dict[str, Any]:
        """Classify one document."""
        check_size("document", content, self._settings.max_document_bytes)
        task, options, count = self._model.task, self._options, count_items([content])
        (found,) = await self.run(self._model, lambda: task.classify([content], options.on_overflow), count)
        return {**model_fields(self._model), **await offload(count, found.as_json, options)}


def _document(line: BulkLine) -> bytes:
    """The document of a line. Raises: InvalidInput."""
    if (line.text is None) == (line.base64 is None):
        raise InvalidInput("give either text or base64", [("text", "either text or base64")])
    if line.text is not None:
        return line.text.encode()
    assert line.base64 is not None
    return decode_base64("base64", line.base64)


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
        return DocumentLines(context)
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
