"""Rerankers: the requests that clients of Cohere, Jina, vLLM and Infinity send get the scores computed offline."""

from itertools import permutations
from typing import Any

import httpx
import pytest

from tests.support.offline import OfflineMatcher, document, same_score
from tests.support.problems import SECRET

LONG = document(9000).decode()
QUERY, TEXTS = "a paper on parsing", ["one on speech", LONG, "a parser of trees"]
BYTES = sum(map(len, (QUERY, *TEXTS)))
REQUESTS: dict[str, tuple[str, dict[str, Any]]] = {
    "cohere, version 1": (
        "/v1/rerank",
        {"model": "aan", "query": QUERY, "documents": [{"text": text} for text in TEXTS], "return_documents": True},
    ),
    "cohere, version 2": ("/v2/rerank", {"model": "aan", "query": QUERY, "documents": TEXTS, "top_n": 2}),
    "langchain-cohere": (
        "/v2/rerank",
        {"model": "aan", "query": QUERY, "documents": TEXTS, "top_n": 3, "max_tokens_per_doc": None},
    ),
    "jina": ("/v1/rerank", {"query": QUERY, "documents": TEXTS, "model": "aan", "top_n": None}),
    "litellm, hosted_vllm": (
        "/rerank",
        {"model": "aan", "query": QUERY, "documents": TEXTS, "top_n": 3, "return_documents": True},
    ),
    "infinity": (
        "/rerank",
        {"query": QUERY, "documents": TEXTS, "return_documents": False, "raw_scores": False, "model": "aan"},
    ),
    "open-webui": ("/v1/rerank", {"model": "aan", "query": QUERY, "documents": TEXTS, "top_n": 3}),
}


@pytest.mark.parametrize("name", REQUESTS)
def test_documents_are_ranked(client: httpx.Client, matcher: OfflineMatcher, name: str) -> None:
    path, body = REQUESTS[name]
    response = client.post(path, json=body)
    assert response.status_code == 200, response.text
    found = response.json()
    assert set(found) == {"id", "object", "model", "results", "usage", "meta"}
    assert (found["model"], found["usage"]) == ("aan", {"prompt_tokens": BYTES, "total_tokens": BYTES})
    assert len(found["results"]) == (body.get("top_n") or 3)
    scores = [result["relevance_score"] for result in found["results"]]
    assert scores == sorted(scores, reverse=True)
    for result in found["results"]:
        text = TEXTS[result["index"]]
        assert same_score(result["relevance_score"], matcher(QUERY, text))
        assert result.get("document") == ({"text": text} if body.get("return_documents") else None)


@pytest.mark.parametrize("top_n", [1, 2, 8000])
def test_best_documents_do_not_depend_on_their_order(client: httpx.Client, matcher: OfflineMatcher, top_n: int) -> None:
    best = sorted(TEXTS, key=lambda text: -matcher(QUERY, text))[:top_n]
    for texts in permutations(TEXTS):
        body = {"query": QUERY, "documents": texts, "top_n": top_n, "return_documents": True}
        results = client.post("/v1/rerank", json=body).json()["results"]
        assert [texts[result["index"]] for result in results] == best
        assert [result["document"] for result in results] == [{"text": text} for text in best]


def test_errors_have_the_fields_that_clients_read(client: httpx.Client) -> None:
    bodies: list[tuple[object, int, str]] = [
        ([], 422, "body: "),
        ({"query": SECRET, "documents": [SECRET, 5]}, 422, "documents.1: "),
        ({"query": SECRET, "documents": [SECRET, {"title": SECRET}]}, 422, "documents.1.object.text: "),
        ({"query": SECRET, "documents": [SECRET], "model": "none"}, 404, "no model of that name"),
        ({"query": SECRET, "documents": ["abc"] * 10_001}, 413, "documents: 10001; at most 10000"),
    ]
    for path in ("/v1/rerank", "/v2/rerank"):
        for body, status, message in bodies:
            refused = client.post(path, json=body)
            error = refused.json()
            assert (refused.status_code, set(error)) == (status, {"message", "detail"})
            assert error["message"].startswith(message)
            assert SECRET not in refused.text
        refused = client.post(
            path, json={"query": SECRET, "documents": [SECRET]}, headers={"X-Request-Timeout-Ms": "0"}
        )
        assert (refused.status_code, set(refused.json())) == (422, {"message", "detail"})
