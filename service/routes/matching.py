"""`POST /v1/score` and `/v1/rank`: pairs of documents -> scores, a query and documents -> a ranking."""

from typing import Any

from fastapi import APIRouter, Request, Response

from artifact.documents import OnOverflow
from service.engine.engine import Engine
from service.settings import Settings
from service.tasks.matching import Encoding, Text, rank, score
from service.wire.errors import DOCUMENTED
from service.wire.requests import (
    check_count,
    check_size,
    json_body,
    read_json,
    while_connected,
)
from service.wire.responses import Stopwatch, coverage
from service.wire.schemas import RankRequest, RankResponse, ScoreRequest, ScoreResponse

router = APIRouter()


@router.post("/v1/score", response_model=ScoreResponse, responses=DOCUMENTED, openapi_extra=json_body(ScoreRequest))
async def post_score(request: Request) -> Response:
    """Probability that the two documents of each pair belong together."""
    watch = Stopwatch(request)
    engine: Engine = request.app.state.engine
    settings: Settings = request.app.state.settings
    asked, until = await read_json(request, ScoreRequest)
    check_count("pairs", len(asked.pairs), settings.max_documents)
    pairs = [
        (_text(f"pairs.{i}.0", a, settings), _text(f"pairs.{i}.1", b, settings)) for i, (a, b) in enumerate(asked.pairs)
    ]
    model = engine.matcher(asked.model)
    work = score(model, pairs, on_overflow=asked.on_overflow, deadline=until)
    with model.metrics.in_flight.track_inprogress():
        scores, encodings, timing = await while_connected(request, work)
    watch.computed()
    results = [describe(value, pair, asked.on_overflow) for value, pair in zip(scores, encodings, strict=True)]
    return watch.respond(model, timing, {"results": results})


def describe(value: float, pair: tuple[Encoding, Encoding], on_overflow: OnOverflow) -> dict[str, Any]:
    """One pair as it goes over the wire."""
    a, b = pair
    return {"score": value, "coverage": {"a": _coverage(a, on_overflow), "b": _coverage(b, on_overflow)}}


@router.post("/v1/rank", response_model=RankResponse, responses=DOCUMENTED, openapi_extra=json_body(RankRequest))
async def post_rank(request: Request) -> Response:
    """Documents by their score with a query, best first; equal scores in the order they came."""
    watch = Stopwatch(request)
    engine: Engine = request.app.state.engine
    settings: Settings = request.app.state.settings
    asked, until = await read_json(request, RankRequest)
    check_count("documents", len(asked.documents), settings.max_rank_documents)
    query = _text("query", asked.query, settings)
    documents = [_text(f"documents.{i}", document, settings) for i, document in enumerate(asked.documents)]
    model = engine.matcher(asked.model)
    work = rank(model, query, documents, on_overflow=asked.on_overflow, deadline=until)
    with model.metrics.in_flight.track_inprogress():
        scores, encodings, query_encoding, timing = await while_connected(request, work)
    watch.computed()
    order = sorted(range(len(scores)), key=lambda index: -scores[index])[: asked.top_n]
    results = []
    for index in order:
        result: dict[str, Any] = {
            "index": index,
            "score": scores[index],
            "coverage": _coverage(encodings[index], asked.on_overflow),
        }
        if asked.return_documents:
            result["document"] = asked.documents[index]
        results.append(result)
    content = {"results": results, "query_coverage": _coverage(query_encoding, asked.on_overflow)}
    return watch.respond(model, timing, content)


def _text(place: str, text: str, settings: Settings) -> Text:
    """A document of the request, within its limit."""
    document = text.encode()
    check_size(place, document, settings)
    return Text(place, document)


def _coverage(encoding: Encoding, on_overflow: OnOverflow) -> dict[str, Any]:
    return coverage(encoding.bytes_total, encoding.bytes_used, encoding.windows, on_overflow)
