"""Rankings of texts, for the protocols that return them, and the format that Cohere, Jina, vLLM and others share."""

import uuid
from collections.abc import Callable, Sequence
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Discriminator, Field, StringConstraints, Tag
from starlette.responses import Response

from artifact.documents import OnOverflow
from artifact.tasks.matching import Matching, Ranking
from service.engine.served import ServedModel, Timing
from service.offload import count_items, offload
from service.wire.context import RequestContext
from service.wire.inference import run
from service.wire.parsing import check_count
from service.wire.requests import read_text, read_texts
from service.wire.responses import json_response
from service.wire.schemas import MAX_TEXTS, up_to


class TextObject(BaseModel):
    """A text as an object; further fields are ignored."""

    text: str


RerankDocuments = Annotated[
    list[
        Annotated[
            Annotated[str, Tag("string")] | Annotated[TextObject, Tag("object")],
            Discriminator(
                lambda value: "string" if isinstance(value, str) else "object" if isinstance(value, dict) else None,
                custom_error_type="document",
                custom_error_message='Input should be a string or {"text": a string}',
            ),
        ]
    ],
    up_to(MAX_TEXTS, "max_rank_documents"),
]


class RerankOptions(BaseModel):
    """What a request for a ranking has beside its documents."""

    model_config = ConfigDict(extra="ignore", frozen=True, protected_namespaces=())

    query: str
    model: Annotated[str, StringConstraints(max_length=128)] | None = None
    """Name of the matcher; optional if there is only one or a default is set."""
    top_n: int | None = Field(default=None, ge=1)
    """Maximum number of results; by default all."""
    return_documents: bool | None = None
    """Whether to return the documents."""


class RerankRequest(RerankOptions):
    """Body of `POST /v1/rerank` and `/v2/rerank`."""

    documents: RerankDocuments
    """Documents to rank: strings, or objects with `text`."""


class RerankResult(BaseModel):
    """Score of a document; `index` is its position in the request."""

    index: int
    relevance_score: float
    document: TextObject | None = None


class RerankUsage(BaseModel):
    """Bytes that were read of query and documents."""

    prompt_tokens: int
    total_tokens: int


class RerankTokens(BaseModel):
    """The same in Cohere's format."""

    input_tokens: int
    output_tokens: Literal[0]


class RerankBilledUnits(BaseModel):
    """One search, which is a request."""

    search_units: Literal[1]


class RerankVersion(BaseModel):
    """Version of Cohere's API."""

    version: Literal["2"]


class RerankMeta(BaseModel):
    """What Cohere's clients read beside the results."""

    api_version: RerankVersion
    billed_units: RerankBilledUnits
    tokens: RerankTokens


class RerankResponse(BaseModel):
    """Body of the response, best score first."""

    id: str
    object: Literal["rerank"]
    model: str
    results: list[RerankResult]
    usage: RerankUsage
    meta: RerankMeta


class RankedTexts(NamedTuple):
    """Texts of a request and their ranking."""

    texts: Sequence[str]
    model: ServedModel[Matching]
    ranking: Ranking
    timing: Timing


async def rank_texts(
    context: RequestContext,
    query: tuple[str, str],
    texts: tuple[str, Sequence[str | TextObject]],
    *,
    model: str | None = None,
    on_overflow: OnOverflow = "windows",
) -> RankedTexts:
    """Score texts with a query by a matcher.

    Args:
        context: the request.
        query: location and text of the query.
        texts: location and texts.
        model: name of the matcher; None or empty for the default one.
        on_overflow: what happens to texts longer than the model reads.

    Raises: InvalidInput, PayloadTooLarge, ModelNotFound, ClientDisconnect, and what `Matching.rank` raises.

    """
    settings, (place, given) = context.runtime.settings, texts
    check_count(place, len(given), settings.max_rank_documents)
    query_text = read_text(settings, *query)
    plain = [text if isinstance(text, str) else text.text for text in given]
    candidates = await offload(len(plain), read_texts, settings, place, plain)
    served = context.runtime.models.choose(Matching, model or None)
    computation = served.task.rank(query_text, candidates, on_overflow, served.cache)
    items = count_items(text.document for text in (query_text, *candidates))
    ranking, timing = await run(context, served, computation, items)
    return RankedTexts(plain, served, ranking, timing)


def write_ranking(ranked: RankedTexts, asked: RerankOptions, score: Callable[[float], float] = float) -> Response:
    """Respond with a ranking in Cohere's format.

    Args:
        ranked: the ranking.
        asked: the options of the request.
        score: converts the probability that a text matches the query to the score that is returned.

    """
    texts, ranking = ranked.texts, ranked.ranking
    results: list[dict[str, Any]] = [
        {"index": index, "relevance_score": score(ranking.scores[index])} for index in ranking.best(asked.top_n)
    ]
    if asked.return_documents:
        results = [{**result, "document": {"text": texts[result["index"]]}} for result in results]
    used = sum(coverage.bytes_used for coverage in (ranking.query, *ranking.documents))
    content = {
        "id": uuid.uuid4().hex,
        "object": "rerank",
        "model": ranked.model.manifest.name,
        "results": results,
        "usage": {"prompt_tokens": used, "total_tokens": used},
        "meta": {
            "api_version": {"version": "2"},
            "billed_units": {"search_units": 1},
            "tokens": {"input_tokens": used, "output_tokens": 0},
        },
    }
    return json_response(content)
