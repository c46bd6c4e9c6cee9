"""`POST /v1/score` and `/v1/rank`: scores of pairs of documents, and rankings of documents for a query."""

from typing import Annotated, Any

from fastapi import Depends
from starlette.responses import Response

from artifact.tasks.matching import Matching, Ranking
from service.offload import count_items, offload
from service.wire.dependencies import Context, JsonBody
from service.wire.errors import NATIVE
from service.wire.inference import respond
from service.wire.openapi import json_body
from service.wire.parsing import check_count
from service.wire.requests import read_text, read_texts
from service.wire.schemas import RankRequest, RankResponse, ScoreRequest, ScoreResponse

router = NATIVE.router("Score and rank documents")


@router.post(
    "/v1/score",
    name="score",
    response_model=ScoreResponse,
    responses=NATIVE.responses(),
    openapi_extra=json_body(
        ScoreRequest, {"pairs": [["Parsing with neural networks.", "Neural parsers of natural language."]]}
    ),
)
async def post_score(
    context: Context,
    asked: Annotated[ScoreRequest, Depends(JsonBody(ScoreRequest))],
) -> Response:
    """Return the probability that the two documents of each pair belong together."""
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


@router.post(
    "/v1/rank",
    name="rank",
    response_model=RankResponse,
    responses=NATIVE.responses(),
    openapi_extra=json_body(
        RankRequest,
        {
            "query": "Parsing with neural networks.",
            "documents": ["Neural parsers of natural language.", "Phrases in machine translation."],
        },
    ),
)
async def post_rank(
    context: Context,
    asked: Annotated[RankRequest, Depends(JsonBody(RankRequest))],
) -> Response:
    """Rank documents by their score with a query, best first; ties keep the order of the request."""
    settings = context.runtime.settings
    check_count("documents", len(asked.documents), settings.max_rank_documents)
    query = read_text(settings, "query", asked.query)
    documents = await offload(len(asked.documents), read_texts, settings, "documents", asked.documents)
    model = context.runtime.models.choose(Matching, asked.model)
    ranking = model.task.rank(query, documents, asked.on_overflow, model.cache)
    inputs = count_items(text.document for text in (query, *documents))

    def to_json(found: Ranking) -> dict[str, Any]:
        results = found.as_json(asked.top_n, asked.on_overflow)
        if asked.return_documents:
            results = [{**result, "document": asked.documents[result["index"]]} for result in results]
        return {"results": results, "query_coverage": found.query.as_json(asked.on_overflow)}

    return await respond(context, model, ranking, to_json, inputs)
