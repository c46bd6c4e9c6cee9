"""`POST /v1/classify`: labels of documents, sent as JSON, text, bytes or NDJSON, and of series in JSON or NDJSON."""

import functools
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any, NamedTuple, TypeVar

from starlette.responses import Response
from starlette.types import Receive, Scope, Send
from typing_extensions import override

from artifact.errors import InvalidInput
from artifact.tasks.base import Task
from artifact.tasks.classification import Classification
from artifact.tasks.labels import ResultOptions
from artifact.tasks.matching import LocatedText
from artifact.tasks.series_classification import SeriesClassification
from service.engine.selection import Models
from service.engine.served import AnyModel, ServedModel
from service.errors import rename_places
from service.offload import count_items, offload
from service.routes.bulk import BulkResponse, parse_line
from service.wire.context import RequestContext
from service.wire.dependencies import Context
from service.wire.errors import NATIVE
from service.wire.inference import model_fields, respond
from service.wire.media import BINARY, JSON, NDJSON, TEXT
from service.wire.openapi import BINARY_SCHEMA, Lines, contents, query_parameters, request_body
from service.wire.parsing import check_count, check_size, decode_base64, decode_text, parse_json, with_options
from service.wire.recordings import CheckedRecordings, SentRecording
from service.wire.requests import check_media_type, read_body, read_json, read_query, reserve_numbers
from service.wire.schemas import BulkLine, BulkResult, ClassifyOptions, ClassifyRequest, ClassifyResponse, SentSeries

router = NATIVE.router("Classify documents and series")

T = TypeVar("T", bound=Task)

MAX_LINE_VALUES = 50_000
"""Limit of values of a line at the rate of the model, unless the line has more: many lines are pending together."""


class ClassifyLines(BulkResponse[LocatedText | SentRecording]):
    """Classifies documents and recordings, one a line. The options are in the query string.

    All lines of a kind get the same model. It stays loaded from the first of them until the end of the response.

    Raises: InvalidInput, ModelNotFound.
    """

    most_together = 16

    def __init__(self, context: RequestContext) -> None:
        options = read_query(context, ClassifyOptions)
        self._all, self._name = context.runtime.models, options.model
        self._models = _choose_any(self._all, self._name)
        self._options = options.result_options
        self._used = set[type[Task]]()
        self._loaded = ExitStack()
        super().__init__(context, functools.partial(parse_line, BulkLine, _content))

    @override
    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the response."""
        with self._loaded:
            await super().__call__(scope, receive, send)

    def _model(self, kind: type[T]) -> ServedModel[T]:
        """The model for lines of a kind. Raises: InvalidInput if there is none."""
        if kind not in self._models:
            self._models[kind] = self._all.choose(kind, self._name)
        model = self._models[kind]
        if kind not in self._used:
            self._used.add(kind)
            self._loaded.enter_context(model.in_flight)
        return model

    @override
    def answer_bytes(self, line: bytes) -> int:
        """Maximum bytes of the details in the answer to a line. Its document is not longer than the line."""
        size = min(len(line), self._settings.max_document_bytes)
        return max(
            model.task.max_detail_bytes(size, self._options)
            if isinstance(model.task, Classification)
            else model.task.max_detail_bytes(self._options)
            for model in self._models.values()
        )

    @override
    async def answer(self, content: LocatedText | SentRecording) -> dict[str, Any]:
        """Classify one document or recording."""
        if isinstance(content, LocatedText):
            (answer,) = await self._classify([content])
            return answer
        options, series = self._options, self._model(SeriesClassification)
        checked = await CheckedRecordings.of(series.task, [content], most=MAX_LINE_VALUES, detail=options.detail)
        (recording,) = await self.run(series, checked.classify(options), checked.items)
        return {**model_fields(series), **recording.as_json(options)}

    @override
    async def answers(
        self, contents: Sequence[LocatedText | SentRecording]
    ) -> Sequence[dict[str, Any] | BaseException]:
        """Classify documents together; each alone if there are recordings."""
        texts = [content for content in contents if isinstance(content, LocatedText)]
        if 1 < len(contents) == len(texts):
            return await self._classify(texts)
        return await super().answers(contents)

    async def _classify(self, texts: Sequence[LocatedText]) -> list[dict[str, Any]]:
        """Classify documents."""
        documents = [text.document for text in texts]
        for text in texts:
            check_size(text.place, text.document, self._settings.max_document_bytes)
        model, count, is_group = self._model(Classification), count_items(documents), len(texts) > 1
        with rename_places(lambda _: texts[0].place):  # lines of a group are computed alone after an error
            computation = model.task.classify(documents, self._options.on_overflow)
            found = await self.run(model, computation, count, is_group=is_group)
        answers = await offload(count, lambda: [one.as_json(self._options) for one in found])
        return [{**model_fields(model), **answer} for answer in answers]


def _choose_any(models: Models, name: str | None) -> dict[type[Task], AnyModel]:
    """The model for each kind of line, as far as there is one. Raises: InvalidInput, ModelNotFound."""
    found, errors = dict[type[Task], AnyModel](), list[InvalidInput]()
    for kind in (Classification, SeriesClassification):
        try:
            found[kind] = models.choose(kind, name)
        except InvalidInput as error:
            errors.append(error)
    if not found:
        raise errors[0]
    return found


def _content(line: BulkLine) -> LocatedText | SentRecording:
    """The document or recording of a line. Raises: InvalidInput."""
    if (line.text, line.base64, line.series).count(None) != 2:
        raise InvalidInput("give one of text, base64 and series", [("text", "one of text, base64 and series")])
    if line.series is not None:
        return SentRecording.of("series", SentSeries.of(line.series), line.rate)
    _check_no_rate(line.rate)
    if line.text is not None:
        return LocatedText("text", line.text.encode())
    assert line.base64 is not None
    return LocatedText("base64", decode_base64("base64", line.base64))


def _check_no_rate(rate: float | None) -> None:
    """Raise InvalidInput if documents have a rate."""
    if rate is not None:
        raise InvalidInput.at("rate", "documents have none; leave it out")


class _Asked(NamedTuple):
    """A JSON request: documents or recordings."""

    model: str | None
    options: ResultOptions
    documents: list[bytes]
    recordings: list[SentRecording] | None


def _parse(options: ClassifyOptions, body: bytes) -> _Asked:
    """Validate and read a body and the query string. Raises: InvalidInput, and what `parse_json` raises."""
    asked = with_options(parse_json(ClassifyRequest, body), options)
    if (asked.inputs is None) == (asked.series is None):
        message = "give either inputs (documents) or series"
        raise InvalidInput(message, [("inputs", "either inputs or series")])
    if asked.series is None:
        _check_no_rate(asked.rate)
        return _Asked(asked.model, asked.result_options, asked.documents, None)
    recordings = [SentRecording.of(place, one, asked.rate) for place, one in asked.recordings]
    return _Asked(asked.model, asked.result_options, [], recordings)


BODY = request_body(
    {JSON: ClassifyRequest, TEXT: str, BINARY: BINARY_SCHEMA, NDJSON: Lines(BulkLine)},
    {
        JSON: {"inputs": ["A film to see twice.", "Two hours that nobody gives back."], "top_k": 1},
        TEXT: "A film to see twice.",
        NDJSON: '{"id": 1, "text": "A film to see twice."}\n{"id": 2, "text": "Two hours wasted."}\n',
    },
    query_parameters(ClassifyOptions),
)


@router.post(
    "/v1/classify",
    name="classify",
    response_model=ClassifyResponse,
    responses={200: {"content": contents({NDJSON: Lines(BulkResult)}, "serialization")}, **NATIVE.responses()},
    openapi_extra=BODY,
)
async def post_classify(context: Context) -> Response:
    """Classify documents or series of any length. Options are in the query string, or in a body of JSON.

    NDJSON uploads may have any length. Each line gets a line of the response, in order, as soon as it is ready.
    """
    given = check_media_type(context, JSON, TEXT, BINARY, NDJSON)
    if given.name == NDJSON:
        return ClassifyLines(context)
    if given.name == JSON:
        parse = functools.partial(_parse, read_query(context, ClassifyOptions))
        asked = await read_json(context, parse, ignore_query=True)
        if asked.recordings is not None:
            return await _classify_series(context, asked.model, asked.recordings, asked.options)
        name, options, documents = asked.model, asked.options, asked.documents
    else:
        documents, query = [await read_body(context)], read_query(context, ClassifyOptions)
        name, options = query.model, query.result_options
    settings = context.runtime.settings
    check_count("inputs", len(documents), settings.max_documents)
    for index, document in enumerate(documents):
        check_size(f"input {index}", document, settings.max_document_bytes)
    model = context.runtime.models.choose(Classification, name)
    if model.task.manifest.reads_text and given.name == TEXT:
        documents = [decode_text(documents[0], given.charset, settings.max_document_bytes)]
    if options.detail:
        count = model.task.count_contributions(documents, options.top_k)
        reserve_numbers(context, count, "send fewer, or set top_k")
    return await respond(
        context,
        model,
        model.task.classify(documents, options.on_overflow),
        lambda found: {"results": [document.as_json(options) for document in found]},
        count_items(documents),
    )


async def _classify_series(
    context: RequestContext, name: str | None, recordings: list[SentRecording], options: ResultOptions
) -> Response:
    """Classify recordings."""
    check_count("series", len(recordings), context.runtime.settings.max_documents)
    model = context.runtime.models.choose(SeriesClassification, name)
    checked = await CheckedRecordings.of(model.task, recordings, detail=options.detail)
    context.body.reserve(checked.nbytes)
    if options.detail:
        count = model.task.count_contributions(len(recordings), options.top_k)
        reserve_numbers(context, count, "send fewer, or set top_k")
    return await respond(
        context,
        model,
        checked.classify(options),
        lambda found: {"results": [recording.as_json(options) for recording in found]},
        checked.items,
    )
