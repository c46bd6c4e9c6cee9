"""`POST /v1/score` and `/v1/rank`."""

import json
from typing import Any

import orjson
import pytest

from artifact.documents import TextCoverage
from artifact.tasks.matching import Ranking
from service.routes.matching import RESULT_BYTES, RankLines
from service.settings import Settings
from tests.support.contexts import context
from tests.support.models import ServingClient, answer, matcher, serving
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


async def test_options_of_pairs_in_json_may_be_in_the_query_string() -> None:
    async with serving(matcher()) as client:
        body = {"pairs": [["++" + 26 * ".", "++"]]}
        (tail,) = answer(await client.post("/v1/score?on_overflow=tail", json=body))["results"]
        refused = await client.post("/v1/score?on_overflow=tail", json={**body, "on_overflow": "head"})
    assert tail["coverage"]["a"]["strategy"] == "tail"
    assert check_problem(refused, 422, "invalid_input")["errors"][0]["loc"] == "on_overflow"


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
        ("/v1/score", {"pairs": [["++"]]}, 422, "pairs.0: Input should be a list of two strings"),
        ("/v1/score", {"pairs": []}, 422, "pairs: at least 1 is needed"),
        ("/v1/score", {"pairs": 3 * [["++", "++"]]}, 413, "pairs: 3; at most 2 in one request"),
        ("/v1/score", {"pairs": [["++", ""]]}, 422, "pairs.0.1: the document is empty; at least 1 byte is needed"),
        ("/v1/rank", {"query": "", "documents": ["++"]}, 422, "query: the document is empty"),
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


NDJSON = {"content-type": "application/x-ndjson"}


async def ask(client: ServingClient, path: str, *lines: object) -> list[dict[str, Any]]:
    """Return the lines of the response to lines of NDJSON."""
    body = b"\n".join(line if isinstance(line, bytes) else json.dumps(line).encode() for line in lines)
    response = await client.post(path, content=body, headers=NDJSON)
    assert (response.status_code, response.headers["content-type"]) == (200, "application/x-ndjson")
    return [json.loads(line, parse_float=lambda text: round(float(text), 6)) for line in response.text.splitlines()]


async def test_each_line_of_pairs_gets_its_score() -> None:
    async with serving(matcher()) as client:
        first, second = await ask(client, "/v1/score", {"id": "x", "a": "++", "b": "+-"}, {"a": "--.", "b": "+"})
        long = {"a": "++" + 26 * ".", "b": "++"}
        (tail,) = await ask(client, "/v1/score?on_overflow=tail&model=twins@1", long)
    padded = {**whole(1), "strategy": "padded"}
    model = {"model": "twins", "version": 1}
    assert first == {"index": 0, "id": "x", **model, "score": 0.75, "coverage": {"a": whole(2), "b": whole(2)}}
    assert second == {"index": 1, **model, "score": 0.5, "coverage": {"a": whole(3), "b": padded}}
    assert (tail["score"], tail["coverage"]["a"]["strategy"]) == (0.5, "tail")


async def test_each_line_of_requests_gets_its_ranking() -> None:
    body = {"query": "++", "documents": ["--", "+.", "++"]}
    best = {**body, "id": 7, "top_n": 1, "return_documents": True}
    async with serving(matcher()) as client:
        whole_answer = answer(await client.post("/v1/rank", json=body))
        first, second = await ask(client, "/v1/rank", body, best)
    known = [{**result, "cached": True} for result in whole_answer["results"]]
    assert first == {"index": 0, **whole_answer, "results": known}
    assert (second["index"], second["id"]) == (1, 7)
    assert second["results"] == [{**known[0], "document": "++"}]


@pytest.mark.parametrize(
    ("path", "line", "status", "detail"),
    [
        ("/v1/score", b"{", 400, "the line is not valid JSON in UTF-8"),
        ("/v1/score", {"a": "++"}, 422, "b: Field required"),
        ("/v1/score", {"a": "++", "b": ""}, 422, "b: the document is empty; at least 1 byte is needed"),
        ("/v1/score", {"a": "++", "b": 33 * "+"}, 413, "b: the document has 33 bytes; at most 32"),
        ("/v1/rank", {"query": "++", "documents": []}, 422, "documents: at least 1 is needed"),
        (
            "/v1/rank",
            {"query": "++", "documents": ["+", ""]},
            422,
            "documents.1: the document is empty; at least 1 byte",
        ),
        ("/v1/rank", {"query": "++", "documents": 4 * ["++"]}, 413, "documents: 4; at most 3 in one request"),
        ("/v1/rank", {"query": "++", "documents": ["++"], "model": "none"}, 404, "no model of that name is served"),
    ],
)
async def test_wrong_line_gets_an_error_in_its_position(path: str, line: object, status: int, detail: str) -> None:
    good = {"a": "++", "b": "++"} if path == "/v1/score" else {"query": "++", "documents": ["++"]}
    settings = Settings(max_rank_documents=3, max_document_bytes=32)
    async with serving(matcher(), settings=settings) as client:
        before, wrong, after = await ask(client, path, good, line, good)
    assert (before["model"], after["model"], wrong["index"]) == ("twins", "twins", 1)
    assert wrong["error"]["status"] == status
    assert wrong["error"]["detail"].startswith(f"input 1: {detail}")


@pytest.mark.parametrize(
    ("target", "status", "detail"),
    [
        ("/v1/score?top_n=1", 422, "top_n: no such field"),
        ("/v1/score?model=none", 404, "no model of that name is served"),
        ("/v1/rank?model=twins", 422, "put the options into the JSON body"),
    ],
)
async def test_wrong_option_is_a_problem_before_a_line_is_read(target: str, status: int, detail: str) -> None:
    async with serving(matcher()) as client:
        response = await client.post(target, content=b"{", headers=NDJSON)
    problem = check_problem(response, status, {404: "model_not_found", 422: "invalid_input"}[status])
    assert problem["detail"].startswith(detail)


@pytest.mark.parametrize(
    "line", [b'{"query":"q","documents":["a,b","c"]}', json.dumps({"documents": 9 * ["x"]}).encode()]
)
async def test_answer_to_a_ranking_is_counted_before_it_is_computed(line: bytes) -> None:
    """By the commas of the line, or if these are fewer, by the documents that a request may have."""
    asked = context(headers=NDJSON, models=[matcher()], settings=Settings(max_rank_documents=3))
    counted = RankLines(asked).answer_bytes(line)
    asked.runtime.close()
    assert counted == len(line) + 3 * RESULT_BYTES


def test_result_of_a_document_has_no_more_than_its_maximum_of_bytes() -> None:
    coverage = TextCoverage(10**9, 10**9, 10**6)
    ranking = Ranking(coverage, [1.2345678901234567e-300], [coverage], [False])
    assert len(orjson.dumps(ranking.as_json(None, "head_tail"))) <= RESULT_BYTES
