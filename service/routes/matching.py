"""`POST /v1/score` and `/v1/rank`: pairs of documents -> scores, a query and documents -> a ranking."""

from typing import Any

from starlette.responses import Response

from artifact.matching import Text, best_first, pair_as_json
from service.tasks.matching import rank, score
from service.wire.call import Call
from service.wire.media import JSON
from service.wire.requests import check_count
from service.wire.route import TIMEOUT_HEADERS, Route
from service.wire.schemas import RankRequest, RankResponse, ScoreRequest, ScoreResponse


async def post_score(call: Call) -> Response:
    """Probability that the two documents of each pair belong together."""
    asked = await call.json(ScoreRequest)
    check_count("pairs", len(asked.pairs), call.settings.max_documents)
    pairs = [
        (_text(call, f"pairs.{number}.0", a), _text(call, f"pairs.{number}.1", b))
        for number, (a, b) in enumerate(asked.pairs)
    ]
    model = call.models.matcher(asked.model)
    scores, encodings, timing = await call.run(
        model, score(model, pairs, on_overflow=asked.on_overflow, deadline=call.deadline)
    )
    both = zip(scores, encodings, strict=True)
    return call.respond(
        model, timing, {"results": [pair_as_json(value, pair, asked.on_overflow) for value, pair in both]}
    )


async def post_rank(call: Call) -> Response:
    """Documents by their score with a query, best first; equal scores in the order they came."""
    asked = await call.json(RankRequest)
    check_count("documents", len(asked.documents), call.settings.max_rank_documents)
    query = _text(call, "query", asked.query)
    documents = [_text(call, f"documents.{number}", document) for number, document in enumerate(asked.documents)]
    model = call.models.matcher(asked.model)
    scores, encodings, query_encoding, timing = await call.run(
        model, rank(model, query, documents, on_overflow=asked.on_overflow, deadline=call.deadline)
    )
    results = []
    for index in best_first(scores, asked.top_n):
        coverage = encodings[index].as_json(asked.on_overflow)
        result: dict[str, Any] = {"index": index, "score": scores[index], "coverage": coverage}
        if asked.return_documents:
            result["document"] = asked.documents[index]
        results.append(result)
    content = {"results": results, "query_coverage": query_encoding.as_json(asked.on_overflow)}
    return call.respond(model, timing, content)


def _text(call: Call, place: str, text: str) -> Text:
    """A document of the request, within its limit."""
    return Text(place, call.document(place, text))


ROUTES = (
    Route(
        method="POST",
        path="/v1/score",
        handler=post_score,
        bodies={JSON: ScoreRequest},
        answers={JSON: ScoreResponse},
        parameters=TIMEOUT_HEADERS,
    ),
    Route(
        method="POST",
        path="/v1/rank",
        handler=post_rank,
        bodies={JSON: RankRequest},
        answers={JSON: RankResponse},
        parameters=TIMEOUT_HEADERS,
    ),
)
"""Without a task: encodings of documents to match may be in the cache, so that a full queue refuses none unread."""
