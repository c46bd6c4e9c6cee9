"""`POST /v1/score` and `/v1/rank`."""

from typing import Any

import pytest

from service.settings import Settings
from tests.support.models import answer, matcher, serving
from tests.support.problems import check_problem


def whole(size: int) -> dict[str, Any]:
    return {"bytes_total": size, "bytes_used": size, "strategy": "whole", "windows": 1, "known": None}


async def test_pairs_are_scored() -> None:
    """The vectors are (2, 0) and (1, 1) with the dot product 2; then (0, 2) and (1, 0)."""
    async with serving(matcher()) as client:
        found = answer(await client.post("/v1/score", json={"pairs": [["++", "+-"], ["--.", "+."]]}))
    assert found == {
        "model": "twins",
        "version": 1,
        "results": [
            {"score": 0.75, "coverage": {"a": whole(2), "b": whole(2)}},
            {"score": 0.5, "coverage": {"a": whole(3), "b": whole(2)}},
        ],
    }


async def test_long_document_is_the_mean_of_its_windows() -> None:
    """28 bytes: the first window has two pluses, the second none; the dot product with "++" is 2."""
    async with serving(matcher()) as client:
        pairs = [["++" + 26 * ".", "++"]]
        (windows,) = answer(await client.post("/v1/score", json={"pairs": pairs}))["results"]
        (tail,) = answer(await client.post("/v1/score", json={"pairs": pairs, "on_overflow": "tail"}))["results"]
    assert (windows["score"], tail["score"]) == (0.75, 0.5)
    assert windows["coverage"]["a"] == {
        "bytes_total": 28,
        "bytes_used": 28,
        "strategy": "windows",
        "windows": 2,
        "known": None,
    }
    assert tail["coverage"]["a"] == {
        "bytes_total": 28,
        "bytes_used": 16,
        "strategy": "tail",
        "windows": 1,
        "known": None,
    }


async def test_ranking_is_best_first_and_stable() -> None:
    body = {"query": "++", "documents": ["--", "+.", "-.", "++"]}
    async with serving(matcher()) as client:
        found = answer(await client.post("/v1/rank", json=body))
        best = answer(await client.post("/v1/rank", json={**body, "top_n": 2, "return_documents": True}))
    assert (found["model"], found["version"], found["query_coverage"]) == ("twins", 1, whole(2))
    assert [(result["index"], result["score"]) for result in found["results"]] == [
        (3, 0.833333),
        (1, 0.75),
        (0, 0.5),
        (2, 0.5),
    ]
    assert best["results"] == [
        {"index": 3, "score": 0.833333, "coverage": whole(2), "cached": True, "document": "++"},
        {"index": 1, "score": 0.75, "coverage": whole(2), "cached": True, "document": "+."},
    ]


@pytest.mark.parametrize(
    ("path", "body", "status", "detail"),
    [
        ("/v1/score", {"pairs": [["++"]]}, 422, "pairs.0.1: Field required"),
        ("/v1/score", {"pairs": []}, 422, "pairs: at least 1 is needed"),
        ("/v1/score", {"pairs": 3 * [["++", "++"]]}, 413, "pairs: 3; at most 2 in one request"),
        ("/v1/score", {"pairs": [["++", "+"]]}, 422, "pairs.0.1: the document has 1 bytes; the model needs at least 2"),
        ("/v1/rank", {"query": "+", "documents": ["++"]}, 422, "query: the document has 1 bytes"),
        ("/v1/rank", {"query": "++", "documents": ["++", 33 * "+"]}, 413, "documents.1: the document has 33 bytes"),
        ("/v1/rank", {"query": "++", "documents": 4 * ["++"]}, 413, "documents: 4; at most 3 in one request"),
        ("/v1/rank", {"query": "++", "documents": ["++"], "model": "none"}, 404, None),
    ],
)
async def test_problem_names_the_wrong_value(path: str, body: dict[str, Any], status: int, detail: str | None) -> None:
    codes = {404: "model_not_found", 413: "payload_too_large", 422: "invalid_input"}
    settings = Settings(max_documents=2, max_rank_documents=3, max_document_bytes=32)
    async with serving(matcher(), settings=settings) as client:
        problem = check_problem(await client.post(path, json=body), status, codes[status])
    assert problem["instance"] == path
    assert detail is None or detail in problem["detail"]
