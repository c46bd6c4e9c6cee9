"""`/v1/embeddings` in OpenAI's format."""

import base64
from typing import Any

import httpx
import numpy as np
import pytest

from service.settings import Settings
from tests.support.models import answer, backend_of, classifier, matcher, serving

LONG = "+++" + 22 * "." + "---"


def check_error(response: httpx.Response, status: int, kind: str = "invalid_request_error") -> dict[str, Any]:
    """Check OpenAI's error body and return the error."""
    assert response.status_code == status, response.text
    assert set(response.json()) == {"error"}
    error: dict[str, Any] = response.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["type"] == kind
    return error


@pytest.mark.parametrize("given", ["+++----", ["+++----"]])
async def test_text_gets_a_vector_of_norm_1(given: object) -> None:
    async with serving(classifier(), matcher()) as client:
        response = await client.post("/v1/embeddings", json={"input": given, "user": "somebody"})
    assert answer(response) == {
        "object": "list",
        "data": [{"object": "embedding", "index": 0, "embedding": [0.6, 0.8]}],
        "model": "twins",
        "usage": {"prompt_tokens": 7, "total_tokens": 7},
    }
    assert "server-timing" in response.headers


async def test_vectors_may_be_base64() -> None:
    body = {"input": ["+++----", LONG], "encoding_format": "base64", "model": "twins", "dimensions": 2}
    async with serving(matcher()) as client:
        found = answer(await client.post("/v1/embeddings", json=body))
    vectors = [np.frombuffer(base64.b64decode(entry["embedding"]), "<f4") for entry in found["data"]]
    assert np.allclose(vectors, [[0.6, 0.8], [0.5**0.5, 0.5**0.5]])
    assert [entry["index"] for entry in found["data"]] == [0, 1]
    assert found["usage"]["prompt_tokens"] == 35


@pytest.mark.parametrize(
    ("body", "status", "param", "message"),
    [
        ({}, 422, "input", "input: Field required"),
        ({"input": []}, 422, "input", "input: at least 1 is needed"),
        ({"input": [[1, 2]]}, 422, "input.0", "input.0: Input should be a valid string"),
        ({"input": ["++", ""]}, 422, "input.1", "input.1: the document is empty; at least 1 byte is needed"),
        ({"input": "++", "encoding_format": "hex"}, 422, "encoding_format", "encoding_format: "),
        ({"input": "++", "dimensions": 10**99}, 422, "dimensions", "dimensions: Input should be less than or equal to"),
        ({"input": "++", "dimensions": 1}, 422, "dimensions", "dimensions: 1; vectors of twins have 2 numbers"),
        ({"input": "http://a/b.png", "modality": "image"}, 422, "modality", "modality: Input should be 'text'"),
        ({"input": "++", "model": "none"}, 404, None, "no model of that name is served; there are: mood, twins"),
        (
            {"input": "++", "model": "mood"},
            422,
            "model",
            "mood is for text-classification; models for text-matching: twins",
        ),
        ({"input": ["++"] * 4}, 413, None, "input: 4; at most 3 in one request"),
    ],
)
async def test_error_names_the_wrong_value(body: dict[str, Any], status: int, param: str | None, message: str) -> None:
    settings = Settings(max_documents=1, max_embedding_documents=3)
    async with serving(classifier(), matcher(), settings=settings) as client:
        error = check_error(await client.post("/v1/embeddings", json=body), status)
    assert error["message"].startswith(message)
    assert error["param"] == param


async def test_null_zero_and_the_query_string_mean_nothing() -> None:
    body = {"input": ["+++----"] * 257, "encoding_format": None, "dimensions": 0, "model": None, "modality": None}
    async with serving(matcher()) as client:
        found = answer(await client.post("/v1/embeddings?api-version=2024-02-01", json=body))
    assert [entry["embedding"] for entry in found["data"]] == [[0.6, 0.8]] * 257


async def test_backend_error_has_openais_format() -> None:
    model = matcher()
    backend_of(model).error = RuntimeError("broken")
    async with serving(model) as client:
        error = check_error(await client.post("/v1/embeddings", json={"input": "++"}), 500, "server_error")
    assert error["code"] == "inference_failed"
