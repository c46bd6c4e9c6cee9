"""`/v1/rerank` and `/v2/rerank` in the format of Cohere and Jina."""

from typing import Any

import httpx
import pytest
from pydantic import SecretStr

from service.settings import Settings
from tests.support.models import answer, backend_of, classifier, matcher, serving

PATHS = pytest.mark.parametrize("path", ["/v1/rerank", "/v2/rerank"])
BODY = {"query": "++", "documents": ["--", "+.", "++"]}


def check_error(response: httpx.Response, status: int) -> str:
    """Check the error body that clients of Cohere and of Jina read, and return the message."""
    assert response.status_code == status, response.text
    error: dict[str, str] = response.json()
    assert error == dict.fromkeys(("message", "detail"), error["message"])
    return error["message"]


@PATHS
async def test_documents_are_ranked(path: str) -> None:
    async with serving(classifier(), matcher()) as client:
        response = await client.post(path, json={**BODY, "model": "twins", "max_tokens_per_doc": 4096})
    found = answer(response)
    assert found.pop("id")
    assert found == {
        "object": "rerank",
        "model": "twins",
        "results": [
            {"index": 2, "relevance_score": 0.833333},
            {"index": 1, "relevance_score": 0.75},
            {"index": 0, "relevance_score": 0.5},
        ],
        "usage": {"prompt_tokens": 8, "total_tokens": 8},
        "meta": {
            "api_version": {"version": "2"},
            "billed_units": {"search_units": 1},
            "tokens": {"input_tokens": 8, "output_tokens": 0},
        },
    }
    assert "server-timing" in response.headers


async def test_documents_may_be_objects_and_are_returned_as_such() -> None:
    body = {"query": "++", "documents": [{"text": "--", "title": "a"}, "++"], "top_n": 1, "return_documents": True}
    async with serving(matcher()) as client:
        found = answer(await client.post("/v1/rerank?api-version=1", json=body))
    assert found["results"] == [{"index": 1, "relevance_score": 0.833333, "document": {"text": "++"}}]


async def test_null_and_an_empty_model_mean_the_default() -> None:
    body = {**BODY, "model": "", "top_n": None, "return_documents": None, "rank_fields": None}
    async with serving(matcher()) as client:
        found = answer(await client.post("/v1/rerank", json=body))
    assert (found["model"], [one["index"] for one in found["results"]]) == ("twins", [2, 1, 0])


@PATHS
@pytest.mark.parametrize(
    ("body", "status", "message"),
    [
        ({}, 422, "query: Field required; documents: Field required"),
        ({**BODY, "documents": []}, 422, "documents: at least 1 is needed"),
        ({**BODY, "documents": ["++", 1]}, 422, 'documents.1: Input should be a string or {"text": a string}'),
        ({**BODY, "documents": [{"title": "a"}]}, 422, "documents.0.object.text: Field required"),
        ({**BODY, "documents": ["++", {"text": ""}]}, 422, "documents.1: the document is empty"),
        ({**BODY, "query": ""}, 422, "query: the document is empty"),
        ({**BODY, "top_n": 0}, 422, "top_n: "),
        ({**BODY, "top_n": -1}, 422, "top_n: "),
        ({**BODY, "model": "none"}, 404, "no model of that name is served; there are: mood, twins"),
        ({**BODY, "model": "mood"}, 422, "mood is for text-classification; models for text-matching: twins"),
        ({**BODY, "documents": ["++"] * 4}, 413, "documents: 4; at most 3 in one request"),
    ],
)
async def test_error_names_the_wrong_value(path: str, body: dict[str, Any], status: int, message: str) -> None:
    async with serving(classifier(), matcher(), settings=Settings(max_rank_documents=3)) as client:
        assert check_error(await client.post(path, json=body), status).startswith(message)


@PATHS
async def test_other_errors_have_the_same_format(path: str) -> None:
    model = matcher()
    backend_of(model).error = RuntimeError("broken")
    async with serving(model) as client:
        check_error(await client.post(path, json=BODY), 500)
        check_error(await client.get(path), 405)
        check_error(await client.post(path, content=b"{", headers={"content-type": "application/json"}), 400)
    async with serving(matcher(), settings=Settings(api_keys=(SecretStr("secret"),))) as client:
        check_error(await client.post(path, json=BODY), 401)
        answer(await client.post(path, json=BODY, headers={"authorization": "Bearer secret"}))
