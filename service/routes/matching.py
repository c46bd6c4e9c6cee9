"""`POST /v1/score` and `/v1/rank`: scores of pairs of documents, and rankings of documents for a query."""

from typing import Any

from starlette.responses import Response

from artifact.matching import Ranking
from service.offload import offload
from service.tasks.matching import rank, score
from service.wire.call import Call
from service.wire.media import JSON
from service.wire.requests import check_count, read_json, read_text, read_texts
from service.wire.route import TIMEOUT_HEADERS, Route
from service.wire.schemas import RankRequest, RankResponse, ScoreRequest, ScoreResponse


async def post_score(call: Call) -> Response:
    """Return the probability that the two documents of each pair belong together."""
    asked = await read_json(call, ScoreRequest)
    check_count("pairs", len(asked.pairs), call.settings.max_documents)
    pairs = [
        (read_text(call, f"pairs.{number}.0", a), read_text(call, f"pairs.{number}.1", b))
        for number, (a, b) in enumerate(asked.pairs)
    ]
    model = call.models.matcher(asked.model)
    work = score(model, pairs, on_overflow=asked.on_overflow, deadline=call.deadline)
    return await call.answer(
        model,
        work,
        lambda scored: {"results": [pair.as_json(asked.on_overflow) for pair in scored]},
        len(pairs),
    )


async def post_rank(call: Call) -> Response:
    """Rank documents by their score with a query, best first; ties keep the order of the request."""
    asked = await read_json(call, RankRequest)
    check_count("documents", len(asked.documents), call.settings.max_rank_documents)
    query = read_text(call, "query", asked.query)
    documents = await offload(len(asked.documents), read_texts, call, "documents", asked.documents)
    model = call.models.matcher(asked.model)
    work = rank(model, query, documents, on_overflow=asked.on_overflow, deadline=call.deadline)

    def to_json(ranking: Ranking) -> dict[str, Any]:
        results = ranking.as_json(asked.top_n, asked.on_overflow)
        if asked.return_documents:
            results = [{**result, "document": asked.documents[result["index"]]} for result in results]
        return {"results": results, "query_coverage": ranking.query.as_json(asked.on_overflow)}

    return await call.answer(model, work, to_json, len(documents))


ROUTES = (
    Route(
        method="POST",
        path="/v1/score",
        handler=post_score,
        bodies={JSON: ScoreRequest},
        examples={JSON: {"pairs": [["Parsing with neural networks.", "Neural parsers of natural language."]]}},
        answers={JSON: ScoreResponse},
        parameters=TIMEOUT_HEADERS,
    ),
    Route(
        method="POST",
        path="/v1/rank",
        handler=post_rank,
        bodies={JSON: RankRequest},
        examples={
            JSON: {
                "query": "Parsing with neural networks.",
                "documents": ["Neural parsers of natural language.", "Phrases in machine translation."],
            }
        },
        answers={JSON: RankResponse},
        parameters=TIMEOUT_HEADERS,
    ),
)
"""The routes set no `task`, so that requests are not rejected from their headers: if the vectors of all documents are
cached, a request is answered even while the queue is full."""
