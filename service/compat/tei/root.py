"""`POST /`, to which `huggingface_hub.InferenceClient` sends the requests of every task if it is given a server's URL.

| task                  | body                                              |
| --------------------- | ------------------------------------------------- |
| `text_classification` | `{"inputs": text, "parameters": {...}}`           |
| `feature_extraction`  | `{"inputs": text, "normalize": ..., ...}`         |
| `sentence_similarity` | `{"inputs": {"source_sentence", "sentences"}}`    |
"""

from typing import Annotated, Any, Literal

from fastapi import Depends
from pydantic import ConfigDict, Discriminator, Field, Tag
from starlette.responses import Response

from service.compat.tei.embed import EmbedOptions, answer_vectors
from service.compat.tei.errors import DIALECT
from service.compat.tei.info import has_classifier
from service.compat.tei.scores import SimilarityInput, TEIPrediction, answer_similarity, predict_labels
from service.compat.tei.texts import Truncation, respond
from service.wire.context import RequestContext
from service.wire.dependencies import Context, JsonBody
from service.wire.openapi import json_body
from service.wire.parsing import check_count
from service.wire.responses import json_response
from service.wire.schemas import TextList, text_or_list

router = DIALECT.router("text-embeddings-inference")

TaskInputs = Annotated[
    Annotated[str, Tag("text")] | Annotated[TextList, Tag("list")] | Annotated[SimilarityInput, Tag("object")],
    Discriminator(
        lambda value: "object" if isinstance(value, dict) else text_or_list(value),
        custom_error_type="inputs",
        custom_error_message="Input should be a string, a list of strings or a source_sentence with sentences",
    ),
]


class TaskParameters(Truncation):
    """Options of labels and scores; those of other tasks are rejected."""

    model_config = ConfigDict(extra="forbid")

    top_k: int | None = Field(default=None, ge=1)
    """Maximum number of labels, best first; by default all."""
    function_to_apply: Literal["softmax", "none"] | None = None
    """`none` returns logits instead of probabilities."""


class TaskRequest(EmbedOptions):
    """Body of `POST /`."""

    inputs: TaskInputs
    """One text or several; or a text and the texts to compare it with."""
    parameters: TaskParameters | None = None

    @property
    def truncation(self) -> Truncation:
        """Truncation of texts: from `parameters`, or else from the fields beside it."""
        return self if self.parameters is None or self.parameters.truncate is None else self.parameters


@router.post(
    "/",
    name="tei_task",
    response_model=list[list[TEIPrediction]] | list[list[float]] | list[float],
    responses=DIALECT.responses(),
    openapi_extra=json_body(TaskRequest, {"inputs": "A film to see twice."}),
)
async def post_task(
    context: Context,
    asked: Annotated[TaskRequest, Depends(JsonBody(TaskRequest, ignore_query=True))],
) -> Response:
    """Return labels of texts, best first, or scores of sentences; without a classifier, vectors of texts.

    Each text has its own list of labels, even a single one, as in Hugging Face's Inference API.
    """
    if isinstance(asked.inputs, SimilarityInput):
        return await answer_similarity(context, asked.inputs, asked.truncation.on_overflow)
    if not has_classifier(context.runtime.models):
        return await answer_vectors(context, asked.inputs, asked)
    return await _answer_labels(context, asked.inputs, asked)


async def _answer_labels(context: RequestContext, inputs: str | list[str], asked: TaskRequest) -> Response:
    """Respond with the labels of each text."""
    texts = [inputs] if isinstance(inputs, str) else inputs
    check_count("inputs", len(texts), context.runtime.settings.max_documents)
    parameters = asked.parameters or TaskParameters()
    on_overflow, is_raw = asked.truncation.on_overflow, parameters.function_to_apply == "none"
    predictions, stats = await predict_labels(context, texts, on_overflow, raw_scores=is_raw)
    best: list[list[dict[str, Any]]] = [labels[: parameters.top_k] for labels in predictions]
    return respond(context, stats, json_response(best))
