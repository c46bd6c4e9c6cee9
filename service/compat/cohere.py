"""Rerankers' `/v1/rerank` and `/v2/rerank`, as Cohere, Jina, vLLM and others have them. Unknown fields are ignored.

Texts of any length are read completely; `usage` counts bytes as tokens.
"""

from typing import Annotated

from fastapi import Depends
from pydantic import BaseModel
from starlette.responses import Response

from service.offload import offload
from service.wire.dependencies import Context, JsonBody
from service.wire.errors import Dialect, Failure
from service.wire.inference import record
from service.wire.openapi import json_body
from service.wire.ranking import RerankRequest, RerankResponse, rank_texts, write_ranking
from service.wire.responses import json_response


class RerankError(BaseModel):
    """Body of every error: Cohere's clients read `message`, Jina's read `detail`."""

    message: str
    detail: str


def _write_error(failed: Failure) -> Response:
    """Write an error in both formats."""
    return json_response({"message": failed.detail, "detail": failed.detail}, failed.status)


DIALECT = Dialect(_write_error, RerankError)
router = DIALECT.router("Rerank (Cohere, Jina)")

EXAMPLE = {
    "model": "aan",
    "query": "Parsing with neural networks.",
    "documents": ["Neural parsers of natural language.", "Phrases in machine translation."],
    "top_n": 1,
}


@router.post(
    "/v1/rerank",
    name="rerank",
    response_model=RerankResponse,
    responses=DIALECT.responses(),
    openapi_extra=json_body(RerankRequest, EXAMPLE),
)
@router.post(
    "/v2/rerank",
    name="rerank_v2",
    response_model=RerankResponse,
    responses=DIALECT.responses(),
    openapi_extra=json_body(RerankRequest, EXAMPLE),
)
async def post_rerank(
    context: Context, asked: Annotated[RerankRequest, Depends(JsonBody(RerankRequest, ignore_query=True))]
) -> Response:
    """Rank documents by their score with a query, best first."""
    query, documents = ("query", asked.query), ("documents", asked.documents)
    ranked = await rank_texts(context, query, documents, model=asked.model)
    response = await offload(len(ranked.texts), write_ranking, ranked, asked)
    record(context, ranked.model, ranked.timing)
    return response
