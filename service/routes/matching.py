"""`POST /v1/score` and `/v1/rank`: scores of pairs of documents, and rankings of documents for a query."""

from typing import Annotated, Any

from fastapi import Depends
from starlette.responses import Response

from artifact.matching import Ranking
from service.offload import offload
from service.tasks.matching import rank, score
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
    model = context.runtime.models.matcher(asked.model)
    work = score(model, pairs, on_overflow=asked.on_overflow, deadline=context.deadline)
    return await respond(
        context,
        model,
        work,
        lambda scored: {"results": [pair.as_json(asked.on_overflow) for pair in scored]},
        len(pairs),
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
    model = context.runtime.models.matcher(asked.model)
    work = rank(model, query, documents, on_overflow=asked.on_overflow, deadline=context.deadline)

    def to_json(ranking: Ranking) -> dict[str, Any]:
        results = ranking.as_json(asked.top_n, asked.on_overflow)
        if asked.return_documents:
            results = [{**result, "document": asked.documents[result["index"]]} for result in results]
        return {"results": results, "query_coverage": ranking.query.as_json(asked.on_overflow)}

    return await respond(context, model, work, to_json, len(documents))
