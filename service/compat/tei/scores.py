"""TEI's `/predict`, `/rerank` and `/similarity`.

`/predict` classifies texts with the default classifier and scores pairs with the default matcher:

| `inputs`                     | meaning       |
| ---------------------------- | ------------- |
| `"a"` or `["a"]`             | one text      |
| `["a", "b"]`                 | one pair      |
| `[["a"], ["b"]]`             | several texts |
| `[["a", "b"], ["c", "d"]]`   | several pairs |

`/rerank` and `/similarity` return the matcher's scores of pairs. `/rerank` is also the path of other rerankers, such as
vLLM and Infinity: a body with `documents` is answered in their format.
"""

import functools
import math
import sys
from collections.abc import Callable, Sequence
from typing import Annotated, Any

from fastapi import Depends
from pydantic import BaseModel, Discriminator, Field, Tag
from starlette.responses import Response

from artifact.documents import OnOverflow
from artifact.errors import InvalidInput
from artifact.tasks.classification import Classification
from artifact.tasks.matching import Matching
from service.compat.tei.errors import DIALECT
from service.compat.tei.texts import ResponseStats, Truncation, respond
from service.offload import count_items, offload
from service.wire.context import RequestContext
from service.wire.dependencies import Context, JsonBody
from service.wire.inference import run
from service.wire.openapi import json_body
from service.wire.parsing import check_count
from service.wire.ranking import (
    RankedTexts,
    RerankDocuments,
    RerankOptions,
    RerankResponse,
    rank_texts,
    write_ranking,
)
from service.wire.requests import read_document, read_text
from service.wire.responses import json_response
from service.wire.schemas import Candidates, text_or_list, up_to

router = DIALECT.router("text-embeddings-inference")

MATCH = "match"
"""Label of a pair's score in `/predict`."""
MAX_INPUTS = 10_000
"""Maximum number of inputs in a body, whatever the settings: it could have millions."""
MIN_PROBABILITY = 2.0**-53
"""Probabilities closer to 0 or 1 are clipped, so that their logits are finite."""


def _is_batch(value: object) -> bool:
    """Whether a value is a list of lists."""
    return isinstance(value, list) and isinstance(next(iter(value), None), list)


Strings = Annotated[list[str], up_to(MAX_INPUTS, "max_documents")]
Input = Annotated[list[str], Field(min_length=1, max_length=2, fail_fast=True)]
TextBatch = Annotated[list[Input], up_to(MAX_INPUTS, "max_documents")]
PredictInputs = Annotated[
    Annotated[str, Tag("text")] | Annotated[Strings, Tag("list")] | Annotated[TextBatch, Tag("batch")],
    Discriminator(
        lambda value: "batch" if _is_batch(value) else text_or_list(value),
        custom_error_type="inputs",
        custom_error_message="Input should be a string, a list of strings or a list of such lists",
    ),
]


class _ScoreOptions(Truncation):
    raw_scores: bool = False
    """Logits instead of probabilities."""


class PredictRequest(_ScoreOptions):
    """Body of `POST /predict`."""

    inputs: PredictInputs
    """A text, a pair of texts, or a list of texts or pairs, each in a list of its own."""


class TEIRerankRequest(RerankOptions, _ScoreOptions):
    """Body of `POST /rerank`: with `texts`, TEI's, which ignores `model`; or else Cohere's, with `documents`."""

    texts: Candidates | None = None
    """Texts to rank."""
    documents: RerankDocuments | None = None
    """Documents to rank, in the place of `texts`; the response is that of `/v1/rerank`."""
    return_text: bool = False
    """Whether to return the texts, like `return_documents`."""


class SimilarityInput(BaseModel):
    """A text, and the texts to compare it with."""

    source_sentence: str
    sentences: Candidates


class SimilarityParameters(Truncation):
    """Options of similarities."""

    prompt_name: None = None
    """Only null: the model has no prompts."""


class SimilarityRequest(BaseModel):
    """Body of `POST /similarity`."""

    inputs: SimilarityInput
    parameters: SimilarityParameters | None = None


class TEIPrediction(BaseModel):
    """A label with its score."""

    score: float
    label: str


class TEIRank(BaseModel):
    """Score of a text; `index` is its position in the request."""

    index: int
    score: float
    text: str | None = None


@router.post(
    "/predict",
    name="tei_predict",
    response_model=list[TEIPrediction] | list[list[TEIPrediction]],
    responses=DIALECT.responses(),
    openapi_extra=json_body(
        PredictRequest, {"inputs": [["A film to see twice."], ["Two hours that nobody gives back."]]}
    ),
)
async def post_predict(
    context: Context,
    asked: Annotated[PredictRequest, Depends(JsonBody(PredictRequest, ignore_query=True))],
) -> Response:
    """Return the labels of a text, best first, or the score of a pair; for a batch, a list of these."""
    inputs, is_batch = _batch(asked.inputs)
    check_count("inputs", len(inputs), context.runtime.settings.max_documents)
    if len({len(parts) for parts in inputs}) > 1:
        raise InvalidInput.at("inputs", "a batch must not mix texts and pairs")
    if len(inputs[0]) == 1:
        texts, is_raw = [text for (text,) in inputs], asked.raw_scores
        predictions, stats = await predict_labels(context, texts, asked.on_overflow, raw_scores=is_raw)
    else:
        predictions, stats = await _predict_matches(context, inputs, asked)
    return respond(context, stats, json_response(predictions if is_batch else predictions[0]))


@router.post(
    "/rerank",
    name="tei_rerank",
    response_model=list[TEIRank] | RerankResponse,
    responses=DIALECT.responses(),
    openapi_extra=json_body(
        TEIRerankRequest,
        {
            "query": "Parsing with neural networks.",
            "texts": ["Neural parsers of natural language.", "Phrases in machine translation."],
        },
    ),
)
async def post_rerank(
    context: Context,
    asked: Annotated[TEIRerankRequest, Depends(JsonBody(TEIRerankRequest, ignore_query=True))],
) -> Response:
    """Rank texts by their score with a query, best first."""
    query = ("query", asked.query)
    if asked.texts is not None and asked.documents is not None:
        raise InvalidInput.at("documents", "give either texts or documents, not both")
    if asked.texts is not None:
        ranked = await rank_texts(context, query, ("texts", asked.texts), on_overflow=asked.on_overflow)
        response = await offload(len(ranked.texts), _write_texts, ranked, asked)
    elif asked.documents is not None:
        documents = ("documents", asked.documents)
        ranked = await rank_texts(context, query, documents, model=asked.model, on_overflow=asked.on_overflow)
        score = functools.partial(_score, asked=asked)
        response = await offload(len(ranked.texts), write_ranking, ranked, asked, score)
    else:
        raise InvalidInput.at("texts", "Field required; or give documents, for the response of /v1/rerank")
    return respond(context, _stats(ranked), response)


@router.post(
    "/similarity",
    name="tei_similarity",
    response_model=list[float],
    responses=DIALECT.responses(),
    openapi_extra=json_body(
        SimilarityRequest,
        {
            "inputs": {
                "source_sentence": "Parsing with neural networks.",
                "sentences": ["Neural parsers of natural language.", "Phrases in machine translation."],
            }
        },
    ),
)
async def post_similarity(
    context: Context, asked: Annotated[SimilarityRequest, Depends(JsonBody(SimilarityRequest, ignore_query=True))]
) -> Response:
    """Return the scores of texts with a source text, as in `/v1/rank`, in the order of the texts."""
    on_overflow = (asked.parameters or SimilarityParameters()).on_overflow
    return await answer_similarity(context, asked.inputs, on_overflow)


async def answer_similarity(context: RequestContext, inputs: SimilarityInput, on_overflow: OnOverflow) -> Response:
    """Respond with the score of each text. Raises: what `rank_texts` raises."""
    source, sentences = ("inputs.source_sentence", inputs.source_sentence), ("inputs.sentences", inputs.sentences)
    ranked = await rank_texts(context, source, sentences, on_overflow=on_overflow)
    return respond(context, _stats(ranked), json_response(ranked.ranking.scores))


def _stats(ranked: RankedTexts) -> ResponseStats:
    """Statistics of the response with a ranking."""
    coverages = [ranked.ranking.query, *ranked.ranking.documents]
    return ResponseStats.of(ranked.model, coverages, ranked.timing)


def _write_texts(ranked: RankedTexts, asked: TEIRerankRequest) -> Response:
    """Respond with the best texts in TEI's format."""
    ranking = ranked.ranking
    ranks: list[dict[str, Any]] = [
        {"index": index, "score": _score(ranking.scores[index], asked)} for index in ranking.best(asked.top_n)
    ]
    if asked.return_text or asked.return_documents:
        ranks = [{**entry, "text": ranked.texts[entry["index"]]} for entry in ranks]
    return json_response(ranks)


def _batch(inputs: str | list[str] | list[list[str]]) -> tuple[list[list[str]], bool]:
    """Texts as lists of one and pairs as lists of two; and whether `inputs` is a batch. Raises: InvalidInput."""
    if isinstance(inputs, str):
        return [[inputs]], False
    batch = [given for given in inputs if isinstance(given, list)]
    if batch:
        return batch, True
    strings = [given for given in inputs if isinstance(given, str)]
    if len(strings) not in (1, 2):
        raise InvalidInput.at(
            "inputs", f"{len(strings)} strings; use 1 for a text, 2 for a pair, or a list of lists for a batch"
        )
    return [strings], False


async def predict_labels(
    context: RequestContext, texts: Sequence[str], on_overflow: OnOverflow, *, raw_scores: bool
) -> tuple[list[list[dict[str, Any]]], ResponseStats]:
    """Labels of each text, best first, by the default classifier.

    Raises: PayloadTooLarge, and what `Classification.classify` raises.
    """
    documents = [read_document(context.runtime.settings, f"inputs.{number}", text) for number, text in enumerate(texts)]
    model = context.runtime.models.choose(Classification, None)
    found, timing = await run(context, model, model.task.classify(documents, on_overflow), count_items(documents))
    manifest = model.task.manifest
    raw = _log_probability if manifest.thresholds is None else _logit
    predictions = [_ranked(one.scores, manifest.labels, raw if raw_scores else None) for one in found]
    return predictions, ResponseStats.of(model, [one.coverage for one in found], timing)


def _ranked(
    scores: Sequence[float], labels: Sequence[str], raw: Callable[[float], float] | None
) -> list[dict[str, Any]]:
    """Labels of one text, best first, with their scores or with their raw scores."""
    values = scores if raw is None else list(map(raw, scores))
    pairs = sorted(zip(values, labels, strict=True), key=lambda pair: -pair[0])
    return [{"score": value, "label": label} for value, label in pairs]


async def _predict_matches(
    context: RequestContext, inputs: Sequence[list[str]], asked: PredictRequest
) -> tuple[list[list[dict[str, Any]]], ResponseStats]:
    """Score each pair with the default matcher."""
    pairs = [
        (
            read_text(context.runtime.settings, f"inputs.{number}.0", a),
            read_text(context.runtime.settings, f"inputs.{number}.1", b),
        )
        for number, (a, b) in enumerate(inputs)
    ]
    model = context.runtime.models.choose(Matching, None)
    items = count_items(text.document for pair in pairs for text in pair)
    scored, timing = await run(context, model, model.task.score(pairs, asked.on_overflow, model.cache), items)
    predictions = [[{"score": _score(pair.score, asked), "label": MATCH}] for pair in scored]
    return predictions, ResponseStats.of(model, [text for pair in scored for text in (pair.a, pair.b)], timing)


def _score(probability: float, asked: _ScoreOptions) -> float:
    """Probability of a pair, or its logit if `raw_scores` is set."""
    return _logit(probability) if asked.raw_scores else probability


def _logit(probability: float) -> float:
    """Logit of a probability of yes or no."""
    bounded = min(max(probability, MIN_PROBABILITY), 1 - MIN_PROBABILITY)
    return math.log(bounded / (1 - bounded))


def _log_probability(probability: float) -> float:
    """Logarithm of the probability of one label of several: its logit up to a constant."""
    return math.log(max(probability, sys.float_info.min))
