"""`POST /v1/score` and `/v1/rank`: pairs of documents -> scores, a query and documents -> a ranking."""

from collections.abc import Sequence
from typing import Any

from starlette.responses import Response

from artifact.matching import Ranking, Text
from service.aside import aside
from service.tasks.matching import rank, score
from service.wire.call import Call
from service.wire.media import JSON
from service.wire.requests import check_count, read_document, read_json
from service.wire.route import TIMEOUT_HEADERS, Route
from service.wire.schemas import RankRequest, RankResponse, ScoreRequest, ScoreResponse


async def post_score(call: Call) -> Response:
    """Probability that the two documents of each pair belong together."""
    asked = await read_json(call, ScoreRequest)
    check_count("pairs", len(asked.pairs), call.settings.max_documents)
    pairs = [
        (_text(call, f"pairs.{number}.0", a), _text(call, f"pairs.{number}.1", b))
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
    """Documents by their score with a query, best first; equal scores in the order they came."""
    asked = await read_json(call, RankRequest)
    check_count("documents", len(asked.documents), call.settings.max_rank_documents)
    query = _text(call, "query", asked.query)
    documents = await aside(len(asked.documents), _texts, call, "documents", asked.documents)
    model = call.models.matcher(asked.model)
    work = rank(model, query, documents, on_overflow=asked.on_overflow, deadline=call.deadline)

    def show(ranking: Ranking) -> dict[str, Any]:
        results = ranking.as_json(asked.top_n, asked.on_overflow)
        if asked.return_documents:
            results = [{**result, "document": asked.documents[result["index"]]} for result in results]
        return {"results": results, "query_coverage": ranking.query.as_json(asked.on_overflow)}

    return await call.answer(model, work, show, len(documents))


def _texts(call: Call, place: str, texts: Sequence[str]) -> list[Text]:
    """Documents of the request, each within its limit."""
    return [_text(call, f"{place}.{number}", text) for number, text in enumerate(texts)]


def _text(call: Call, place: str, text: str) -> Text:
    """A document of the request, within its limit."""
    return Text(place, read_document(call, place, text))


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
"""Without a task: encodings of documents to match may be in the cache, so that a full queue refuses none unread."""
