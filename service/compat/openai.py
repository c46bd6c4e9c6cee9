"""OpenAI's `/v1/embeddings`: vectors of texts, from the encoder of a matcher. Unknown fields are ignored.

Texts of any length are read completely; `usage` counts bytes as tokens. Vectors have length 1.
"""

import base64
from typing import Annotated, Any, Literal

from fastapi import Depends
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response

from artifact.tasks.matching import normalized
from service.offload import offload
from service.wire.dependencies import Context, JsonBody
from service.wire.errors import Dialect, Failure
from service.wire.inference import record
from service.wire.openapi import json_body
from service.wire.responses import json_response
from service.wire.schemas import EmbeddingInputs, ModelName
from service.wire.vectors import MAX_DIMENSIONS, Embeddings, encode_texts, write_vector

EncodingFormat = Literal["float", "base64"]


class EmbeddingsRequest(BaseModel):
    """Body of `POST /v1/embeddings`."""

    model_config = ConfigDict(extra="ignore", frozen=True, protected_namespaces=())

    input: EmbeddingInputs
    """One text or several."""
    model: ModelName | None = None
    """Name of the matcher; optional if there is only one or a default is set."""
    encoding_format: EncodingFormat | None = None
    """base64: the numbers as little-endian float32; by default float."""
    dimensions: int | None = Field(default=None, ge=0, le=MAX_DIMENSIONS)
    """Length of a vector; must be the model's. Some clients send 0 for the default."""
    modality: Literal["text"] | None = None
    """Infinity's kind of input; its others would be the addresses of images and recordings."""


class OpenAIEmbedding(BaseModel):
    """Vector of a text; `index` is the text's position in the request."""

    object: Literal["embedding"]
    index: int
    embedding: list[float] | str


class OpenAIUsage(BaseModel):
    """Bytes that were read."""

    prompt_tokens: int
    total_tokens: int


class EmbeddingsResponse(BaseModel):
    """Body of the response."""

    object: Literal["list"]
    data: list[OpenAIEmbedding]
    model: str
    usage: OpenAIUsage


class OpenAIErrorDetail(BaseModel):
    """Description of an error."""

    message: str
    type: Literal["invalid_request_error", "server_error"]
    param: str | None
    code: str


class OpenAIError(BaseModel):
    """Body of every error."""

    error: OpenAIErrorDetail


def _write_error(failed: Failure) -> Response:
    """Write an error in OpenAI's format."""
    kind = "server_error" if failed.status >= 500 else "invalid_request_error"
    param = failed.fields[0][0] if failed.fields else None
    content = {"message": failed.detail, "type": kind, "param": param, "code": failed.code}
    return json_response({"error": content}, failed.status)


DIALECT = Dialect(_write_error, OpenAIError)


router = DIALECT.router("OpenAI embeddings")


@router.post(
    "/v1/embeddings",
    name="openai_embeddings",
    response_model=EmbeddingsResponse,
    responses=DIALECT.responses(),
    openapi_extra=json_body(
        EmbeddingsRequest,
        {"model": "aan", "input": ["Parsing with neural networks.", "Neural parsers of language."]},
    ),
)
async def post_embeddings(
    context: Context, asked: Annotated[EmbeddingsRequest, Depends(JsonBody(EmbeddingsRequest, ignore_query=True))]
) -> Response:
    """Return a vector per text; the vector of a text longer than the model reads is the mean over its windows."""
    encoded = await encode_texts(
        context,
        "input",
        asked.input,
        model=asked.model,
        dimensions=asked.dimensions or None,
        on_overflow="windows",
        limit=context.runtime.settings.max_embedding_documents,
    )
    response = await offload(len(encoded.vectors), _write, encoded, asked.encoding_format or "float")
    record(context, encoded.model, encoded.timing)
    return response


def _write(encoded: Embeddings, encoding: EncodingFormat) -> Response:
    """Write the vectors in OpenAI's format."""
    data = [
        {
            "object": "embedding",
            "index": index,
            "embedding": write_vector(vector) if encoding == "float" else base64.b64encode(vector.tobytes()).decode(),
        }
        for index, vector in enumerate(normalized(encoded.vectors).astype("<f4"))
    ]
    content: dict[str, Any] = {
        "object": "list",
        "data": data,
        "model": encoded.model.manifest.name,
        "usage": {"prompt_tokens": encoded.bytes_used, "total_tokens": encoded.bytes_used},
    }
    return json_response(content)
