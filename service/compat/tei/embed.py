"""TEI's `/embed`: vectors of texts, from the encoder of the default matcher."""

from typing import Annotated

from fastapi import Depends
from pydantic import Field
from starlette.responses import Response

from artifact.arrays import Floats
from artifact.tasks.matching import normalized
from service.compat.tei.errors import DIALECT
from service.compat.tei.texts import ResponseStats, Truncation, respond
from service.offload import offload
from service.wire.context import RequestContext
from service.wire.dependencies import Context, JsonBody
from service.wire.openapi import json_body
from service.wire.responses import json_response
from service.wire.schemas import Inputs
from service.wire.vectors import MAX_DIMENSIONS, encode_texts, write_vector

router = DIALECT.router("text-embeddings-inference")


class EmbedOptions(Truncation):
    """Options of vectors."""

    normalize: bool = True
    """Whether to scale vectors to length 1."""
    prompt_name: None = None
    """Only null: the model has no prompts."""
    dimensions: int | None = Field(default=None, ge=1, le=MAX_DIMENSIONS)
    """Length of a vector; must be the model's."""


class EmbedRequest(EmbedOptions):
    """Body of `POST /embed`."""

    inputs: Inputs
    """One text or several."""


@router.post(
    "/embed",
    name="tei_embed",
    response_model=list[list[float]],
    responses=DIALECT.responses(),
    openapi_extra=json_body(
        EmbedRequest, {"inputs": ["Parsing with neural networks.", "Phrases in machine translation."]}
    ),
)
async def post_embed(
    context: Context, asked: Annotated[EmbedRequest, Depends(JsonBody(EmbedRequest, ignore_query=True))]
) -> Response:
    """Return a vector per text; the vector of a text longer than the model reads is the mean over its windows."""
    return await answer_vectors(context, asked.inputs, asked)


async def answer_vectors(context: RequestContext, inputs: str | list[str], asked: EmbedOptions) -> Response:
    """Respond with a vector per text. Raises: what `encode_texts` raises."""
    encoded = await encode_texts(
        context,
        "inputs",
        inputs,
        model=None,
        dimensions=asked.dimensions,
        on_overflow=asked.on_overflow,
        limit=context.runtime.settings.max_documents,
    )
    response = await offload(len(encoded.vectors), _write, encoded.vectors, normalize=asked.normalize)
    return respond(context, ResponseStats.of(encoded.model, encoded.coverages, encoded.timing), response)


def _write(vectors: Floats, *, normalize: bool) -> Response:
    """Vectors as JSON."""
    return json_response([write_vector(vector) for vector in (normalized(vectors) if normalize else vectors)])
