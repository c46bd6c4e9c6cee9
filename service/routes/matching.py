"""`POST /v1/score` and `/v1/rank`: scores of pairs of documents, rankings of documents for a query; JSON or NDJSON."""

import functools
from collections.abc import Sequence
from typing import Any, TypeVar

from starlette.responses import Response
from starlette.types import Receive, Scope, Send
from typing_extensions import override

from artifact.tasks.matching import LocatedText, Matching, Ranking
from service.offload import count_items, offload
from service.routes.bulk import BulkResponse, parse_line
from service.settings import Settings
from service.wire.context import RequestContext
from service.wire.dependencies import Context
from service.wire.errors import NATIVE
from service.wire.inference import model_fields, respond
from service.wire.media import JSON, NDJSON
from service.wire.openapi import Lines, contents, query_parameters, request_body
from service.wire.parsing import check_count, parse_json, with_options
from service.wire.requests import check_media_type, check_no_query, read_json, read_query, read_text, read_texts
from service.wire.schemas import (
    Line,
    MatchOptions,
    RankLine,
    RankLineResult,
    RankRequest,
    RankResponse,
    ScoreLine,
    ScoreLineResult,
    ScoreRequest,
    ScoreResponse,
)

router = NATIVE.router("Score and rank documents")

L = TypeVar("L", bound=Line)

RESULT_BYTES = 256
"""Maximum size of the result of a document in a ranking, without the document."""


@router.post(
    "/v1/score",
    name="score",
    response_model=ScoreResponse,
    responses={200: {"content": contents({NDJSON: Lines(ScoreLineResult)}, "serialization")}, **NATIVE.responses()},
    openapi_extra=request_body(
        {JSON: ScoreRequest, NDJSON: Lines(ScoreLine)},
        {
            JSON: {"pairs": [["Parsing with neural networks.", "Neural parsers of natural language."]]},
            NDJSON: '{"id": 1, "a": "Parsing with neural networks.", "b": "Neural parsers of natural language."}\n',
        },
        query_parameters(MatchOptions),
    ),
)
async def post_score(context: Context) -> Response:
    """Return the probability that the two documents of each pair belong together.

    In NDJSON each line is a pair, and options are in the query string. Each gets a line of the response, in order.
    Beside JSON, options may be in the query string or in the body.
    """
    if check_media_type(context, JSON, NDJSON).name == NDJSON:
        return ScoreLines(context)
    options = read_query(context, MatchOptions)
    parse = functools.partial(parse_json, ScoreRequest)
    asked = with_options(await read_json(context, parse, ignore_query=True), options)
    settings = context.runtime.settings
    check_count("pairs", len(asked.pairs), settings.max_documents)
    pairs = [
        (read_text(settings, f"pairs.{number}.0", a), read_text(settings, f"pairs.{number}.1", b))
        for number, (a, b) in enumerate(asked.pairs)
    ]
    model = context.runtime.models.choose(Matching, asked.model)
    return await respond(
        context,
        model,
        model.task.score(pairs, asked.on_overflow, model.cache),
        lambda scored: {"results": [pair.as_json(asked.on_overflow) for pair in scored]},
        count_items(text.document for pair in pairs for text in pair),
    )


class ScoreLines(BulkResponse[ScoreLine]):
    """Scores pairs, one a line, all with the same model. Raises: InvalidInput, ModelNotFound."""

    def __init__(self, context: RequestContext) -> None:
        self._options = read_query(context, MatchOptions)
        self._model = context.runtime.models.choose(Matching, self._options.model)
        super().__init__(context, functools.partial(parse_line, ScoreLine, _whole))

    @override
    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the response."""
        with self._model.in_flight:
            await super().__call__(scope, receive, send)

    @override
    def answer_bytes(self, line: bytes) -> int:
        """None: the answer to a line is small."""
        del line
        return 0

    @override
    async def answer(self, content: ScoreLine) -> dict[str, Any]:
        """Score a pair."""
        model, on_overflow = self._model, self._options.on_overflow
        pair = read_text(self._settings, "a", content.a), read_text(self._settings, "b", content.b)
        items = count_items(text.document for text in pair)
        (scored,) = await self.run(model, model.task.score([pair], on_overflow, model.cache), items)
        return {**model_fields(model), **scored.as_json(on_overflow)}


@router.post(
    "/v1/rank",
    name="rank",
    response_model=RankResponse,
    responses={200: {"content": contents({NDJSON: Lines(RankLineResult)}, "serialization")}, **NATIVE.responses()},
    openapi_extra=request_body(
        {JSON: RankRequest, NDJSON: Lines(RankLine)},
        {
            JSON: {
                "query": "Parsing with neural networks.",
                "documents": ["Neural parsers of natural language.", "Phrases in machine translation."],
            },
            NDJSON: '{"id": 1, "query": "Parsing with neural networks.", "documents": ["Neural parsers."]}\n',
        },
    ),
)
async def post_rank(context: Context) -> Response:
    """Rank documents by their score with a query, best first; ties keep the order of the request.

    In NDJSON each line is a request. Each gets a line of the response, in order, as soon as it is ready.
    """
    if check_media_type(context, JSON, NDJSON).name == NDJSON:
        return RankLines(context)
    asked = await read_json(context, functools.partial(parse_json, RankRequest))
    query, *documents = await _texts(context.runtime.settings, asked)
    model = context.runtime.models.choose(Matching, asked.model)
    return await respond(
        context,
        model,
        model.task.rank(query, documents, asked.on_overflow, model.cache),
        functools.partial(_ranked, asked),
        count_items(text.document for text in (query, *documents)),
    )


class RankLines(BulkResponse[RankLine]):
    """Answers requests, one a line. Raises: InvalidInput if the query string has options."""

    def __init__(self, context: RequestContext) -> None:
        check_no_query(context)
        self._models = context.runtime.models
        super().__init__(context, functools.partial(parse_line, RankLine, _whole))

    @override
    def answer_bytes(self, line: bytes) -> int:
        """Maximum bytes of the answer to a line, which may return its documents."""
        return len(line) + RESULT_BYTES * min(1 + line.count(b","), self._settings.max_rank_documents)

    @override
    async def answer(self, content: RankLine) -> dict[str, Any]:
        """Answer a request."""
        model = self._models.choose(Matching, content.model)
        with model.in_flight:
            query, *documents = await _texts(self._settings, content)
            items = count_items(text.document for text in (query, *documents))
            ranking = model.task.rank(query, documents, content.on_overflow, model.cache)
            found = await self.run(model, ranking, items)
            return {**model_fields(model), **await offload(items, _ranked, content, found)}


def _whole(line: L) -> L:
    """All of a validated line."""
    return line


async def _texts(settings: Settings, asked: RankRequest) -> Sequence[LocatedText]:
    """Query and documents of a request. Raises: InvalidInput, PayloadTooLarge."""
    check_count("documents", len(asked.documents), settings.max_rank_documents)
    documents = await offload(len(asked.documents), read_texts, settings, "documents", asked.documents)
    return [read_text(settings, "query", asked.query), *documents]


def _ranked(asked: RankRequest, found: Ranking) -> dict[str, Any]:
    """The response."""
    results = found.as_json(asked.top_n, asked.on_overflow)
    if asked.return_documents:
        results = [{**result, "document": asked.documents[result["index"]]} for result in results]
    return {"results": results, "query_coverage": found.query.as_json(asked.on_overflow)}
