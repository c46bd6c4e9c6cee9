"""`/v1/score` and `/v1/rank`: responses to good requests and to bad ones."""

import asyncio
import json
import random
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import httpx
import pytest

from artifact.documents import cut
from tests.support.offline import OfflineMatcher, same_score
from tests.support.problems import SECRET, check_problem
from tests.support.server import ControlledServer, Scrape, Server, sample

JSON = {"content-type": "application/json"}
PROSE = (
    "parsing of long sentences by machine translation and word alignment under a grammar whose trees were annotated "
    "for speech recognition, where dialogue acts depend on sentiment, semantics, corpora and the summaries of news"
)

UNSEEN = iter(range(10**6, 10**7))
"""Seeds of texts that no other test sends and this test has not sent before."""


def text(seed: int, length: int) -> str:
    return " ".join(random.Random(seed).choices(PROSE.split(), k=length))[:length]


def score(client: httpx.Client, pairs: list[tuple[str, str]], **options: object) -> list[dict[str, Any]]:
    response = client.post("/v1/score", json={"pairs": pairs, **options})
    assert response.status_code == 200, response.text
    results: list[dict[str, Any]] = response.json()["results"]
    return results


def rank(client: httpx.Client, query: str, documents: list[str], **options: object) -> list[dict[str, Any]]:
    response = client.post("/v1/rank", json={"query": query, "documents": documents, **options})
    assert response.status_code == 200, response.text
    results: list[dict[str, Any]] = response.json()["results"]
    return results


def by_index(results: list[dict[str, Any]]) -> list[float]:
    return [result["score"] for result in sorted(results, key=lambda result: result["index"])]


@pytest.fixture(scope="module")
def texts(matcher: OfflineMatcher) -> list[str]:
    longest = matcher.manifest.max_length
    return [text(seed, length) for seed, length in enumerate((3, 20, 300, 1500, longest, longest + 1, 2 * longest + 9))]


def test_scores_equal_the_offline_scores(client: httpx.Client, matcher: OfflineMatcher, texts: list[str]) -> None:
    pairs = [*pairwise(texts), (texts[0], texts[-1]), (texts[2], texts[2])]
    response = client.post("/v1/score", json={"pairs": pairs})
    assert (response.json()["model"], response.json()["version"]) == (matcher.manifest.name, matcher.manifest.version)
    for (a, b), result in zip(pairs, response.json()["results"], strict=True):
        assert same_score(result["score"], matcher(a, b))
        assert [result["coverage"][side]["bytes_total"] for side in "ab"] == [len(a), len(b)]


def test_ranking_equals_the_offline_ranking(client: httpx.Client, matcher: OfflineMatcher, texts: list[str]) -> None:
    query = text(100, 400)
    results = rank(client, query, texts)
    assert [result["score"] for result in results] == sorted((r["score"] for r in results), reverse=True)
    for document, found in zip(texts, by_index(results), strict=True):
        assert same_score(found, matcher(query, document))


def test_rank_and_score_give_equal_scores(client: httpx.Client, texts: list[str]) -> None:
    query = text(101, 400)
    scores = [result["score"] for result in score(client, [(query, document) for document in texts])]
    assert by_index(rank(client, query, texts)) == scores


def test_score_does_not_depend_on_the_order_or_number_of_pairs(client: httpx.Client, texts: list[str]) -> None:
    """Scores are equal bit by bit: vectors are cached, and the head always computes batches of the same size."""
    query = text(102, 400)
    scores = by_index(rank(client, query, texts))
    order = random.Random(0).sample(range(len(texts)), len(texts))
    assert by_index(rank(client, query, [texts[i] for i in order])) == [scores[i] for i in order]
    assert [rank(client, query, [document])[0]["score"] for document in texts] == scores
    crowd = [text(103, 30)] * 300
    assert by_index(rank(client, query, [*crowd, *texts]))[300:] == scores


def test_without_a_cache_other_pairs_change_a_score_by_rounding_only(
    start: Callable[..., Server], texts: list[str]
) -> None:
    server = start("--models", "aan", "--max-cache-bytes", "0", "--drain-delay-s", "0")
    query = text(104, 400)
    with server.client() as client:
        together = by_index(rank(client, query, texts))
        alone = [rank(client, query, [document])[0]["score"] for document in texts]
        assert together == pytest.approx(alone, abs=1e-6)
        assert not any(result["cached"] for result in rank(client, query, texts))
        assert sample(client, "longdoc_encoding_cache_bytes") == 0
        assert sample(client, "longdoc_encoding_cache_requests_total", result="hit") == 0


def test_concurrent_requests_get_the_scores_of_single_requests(server: Server, texts: list[str]) -> None:
    queries = [text(200 + i, 300) for i in range(12)]

    async def ask() -> list[httpx.Response]:
        async with server.async_client() as client:
            bodies = [{"query": query, "documents": texts} for query in queries]
            return await asyncio.gather(*(client.post("/v1/rank", json=body) for body in bodies))

    answers = asyncio.run(ask())
    with server.client() as client:
        for query, answer in zip(queries, answers, strict=True):
            alone = by_index(rank(client, query, texts))
            assert by_index(answer.json()["results"]) == pytest.approx(alone, abs=1e-6)


def test_equal_documents_have_equal_scores_and_keep_their_order(client: httpx.Client) -> None:
    document, other = text(300, 200), text(301, 200)
    results = rank(client, text(302, 100), [document, other, document, document])
    same = [result for result in results if result["index"] != 1]
    assert [result["index"] for result in same] == [0, 2, 3]
    assert len({result["score"] for result in same}) == 1


def test_query_may_be_one_of_the_documents(client: httpx.Client, matcher: OfflineMatcher) -> None:
    query, other = (text(next(UNSEEN), 200) for _ in range(2))
    before = sample(client, "longdoc_encoding_cache_requests_total", result="miss")
    found = by_index(rank(client, query, [other, query]))
    assert same_score(found[1], matcher(query, query))
    assert sample(client, "longdoc_encoding_cache_requests_total", result="miss") == before + 2


def test_cached_texts_are_not_encoded_again(client: httpx.Client) -> None:
    documents = [text(next(UNSEEN), 100) for _ in range(20)]

    metrics = {
        "rows": ("longdoc_batch_size_sum", {}),
        "hit": ("longdoc_encoding_cache_requests_total", {"result": "hit"}),
        "miss": ("longdoc_encoding_cache_requests_total", {"result": "miss"}),
    }

    def grown(query: str) -> dict[str, float]:
        before = Scrape(client)
        rank(client, query, documents)
        after = Scrape(client)
        return {
            key: after.sum(name, model="aan", **labels) - before.sum(name, model="aan", **labels)
            for key, (name, labels) in metrics.items()
        }

    first, second = (text(next(UNSEEN), 100) for _ in range(2))
    assert grown(first) == {"rows": 21, "hit": 0, "miss": 21}
    assert grown(first) == {"rows": 0, "hit": 21, "miss": 0}
    assert grown(second) == {"rows": 1, "hit": 20, "miss": 1}
    assert sample(client, "longdoc_encoding_cache_bytes", model="aan") > 0


def test_results_tell_which_documents_were_cached(client: httpx.Client) -> None:
    """A document that occurs twice in a request, or is its query, is encoded once, but was not known before."""
    query, *documents = (text(next(UNSEEN), 100) for _ in range(4))

    def cached(*asked: str) -> list[bool]:
        return [result["cached"] for result in sorted(rank(client, query, list(asked)), key=lambda r: r["index"])]

    assert cached(documents[0], documents[0], query) == [False, False, False]
    assert cached(documents[0], documents[1], query) == [True, False, True]
    assert cached(*documents) == [True, True, False]


def test_top_n_returns_the_best_documents(client: httpx.Client, texts: list[str]) -> None:
    query = text(600, 200)
    everything = rank(client, query, texts)
    for count in (1, 3, len(texts), 10**9):
        best = rank(client, query, texts, top_n=count)
        assert [(result["index"], result["score"]) for result in best] == [
            (result["index"], result["score"]) for result in everything[:count]
        ]


def test_documents_are_returned_on_request(client: httpx.Client) -> None:
    documents = ["plain", "Ünïcödé \0 and\nmore", "😀"]
    for result in rank(client, "a query", documents, return_documents=True):
        assert result["document"] == documents[result["index"]]
        assert result["coverage"]["bytes_total"] == len(documents[result["index"]].encode())
    assert all("document" not in result for result in rank(client, "a query", documents))


@pytest.mark.parametrize("strategy", ["windows", "head", "tail", "head_tail"])
def test_overflow_is_reported(client: httpx.Client, matcher: OfflineMatcher, strategy: str) -> None:
    m = matcher.manifest
    short, long = text(700, 100), text(701, 3 * m.max_length + 5)
    windows = len(cut(len(long), m.max_length, m.window_overlap, "windows"))
    expected = {
        "bytes_total": len(long),
        "bytes_used": len(long) if strategy == "windows" else m.max_length,
        "strategy": strategy,
        "windows": windows if strategy == "windows" else 1,
        "known": None,
    }
    whole = {"bytes_total": len(short), "bytes_used": len(short), "strategy": "whole", "windows": 1, "known": None}
    (result,) = score(client, [(short, long)], on_overflow=strategy)
    assert result["coverage"] == {"a": whole, "b": expected}
    assert same_score(result["score"], matcher(short, long, strategy))
    ranking = client.post("/v1/rank", json={"query": long, "documents": [short], "on_overflow": strategy}).json()
    assert ranking["query_coverage"] == expected
    assert ranking["results"][0]["coverage"] == whole
    assert same_score(ranking["results"][0]["score"], matcher(long, short, strategy))


def test_overflow_is_rejected_on_request(client: httpx.Client, matcher: OfflineMatcher) -> None:
    long = "x" * (matcher.manifest.max_length + 1)
    body = {"pairs": [["fine", long]], "on_overflow": "error"}
    problem = check_problem(client.post("/v1/score", json=body), 422, "invalid_input")
    assert problem["errors"][0]["loc"] == "pairs.0.1"
    ranking = {"query": long[1:], "documents": ["fine", long], "on_overflow": "error"}
    problem = check_problem(client.post("/v1/rank", json=ranking), 422, "invalid_input")
    assert problem["errors"][0]["loc"] == "documents.1"
    assert str(matcher.manifest.max_length) in problem["detail"]


def pairs(*given: object, **options: object) -> dict[str, object]:
    return {"pairs": given, **options}


def ranking(*documents: object, query: object = "a query", **options: object) -> dict[str, object]:
    return {"query": query, "documents": documents, **options}


@pytest.mark.parametrize(
    ("route", "body", "status", "place"),
    [
        ("score", {}, 422, "pairs"),
        ("score", [], 422, "body"),
        ("score", pairs(), 422, "pairs"),
        ("score", {"pairs": SECRET}, 422, "pairs"),
        ("score", pairs(SECRET), 422, "pairs.0"),
        ("score", pairs([SECRET]), 422, "pairs.0"),
        ("score", pairs([SECRET] * 3), 422, "pairs.0"),
        ("score", pairs({"a": SECRET, "b": SECRET}), 422, "pairs.0"),
        ("score", pairs([SECRET, 5]), 422, "pairs.0.1"),
        ("score", pairs(["a", "b"], [None, SECRET]), 422, "pairs.1.0"),
        ("score", pairs([SECRET, ""]), 422, "pairs.0.1"),
        ("score", pairs(["abc", "abc"], ["", SECRET]), 422, "pairs.1.0"),
        ("score", pairs(["a", SECRET], colour=SECRET), 422, "colour"),
        ("score", pairs(["a", SECRET], top_n=1), 422, "top_n"),
        ("score", pairs(["a", SECRET], on_overflow=SECRET), 422, "on_overflow"),
        ("score", pairs(["a", SECRET], model=SECRET), 404, None),
        ("score", pairs(["a", SECRET], model="imdb-s3"), 422, "model"),
        ("score", pairs(["a", SECRET], model="ettm2"), 422, "model"),
        ("score", pairs(["a", SECRET], model=""), 422, "model"),
        ("score", pairs(*[["a", "b"]] * 257), 413, None),
        ("score", pairs(["a", "x" * (2**20 + 1)]), 413, None),
        ("rank", {}, 422, "query"),
        ("rank", {"query": SECRET}, 422, "documents"),
        ("rank", ranking(), 422, "documents"),
        ("rank", {"query": "a", "documents": SECRET}, 422, "documents"),
        ("rank", ranking(SECRET, query=""), 422, "query"),
        ("rank", ranking(SECRET, query=[SECRET]), 422, "query"),
        ("rank", ranking(SECRET, ""), 422, "documents.1"),
        ("rank", ranking(SECRET, 5), 422, "documents.1"),
        ("rank", ranking(SECRET, None), 422, "documents.1"),
        ("rank", ranking(SECRET, [SECRET]), 422, "documents.1"),
        ("rank", ranking(SECRET, top_n=0), 422, "top_n"),
        ("rank", ranking(SECRET, top_n=1.0), 422, "top_n"),
        ("rank", ranking(SECRET, top_n=True), 422, "top_n"),
        ("rank", ranking(SECRET, return_documents=1), 422, "return_documents"),
        ("rank", ranking(SECRET, colour=1), 422, "colour"),
        ("rank", ranking(SECRET, model=SECRET), 404, None),
        ("rank", ranking(SECRET, model="imdb-s3"), 422, "model"),
        ("rank", ranking("x" * (2**20 + 1)), 413, None),
        ("rank", ranking("a", query="x" * (2**20 + 1)), 413, None),
        ("classify", {"inputs": SECRET, "model": "aan"}, 422, "model"),
        ("forecast", {"series": [[1]], "model": "aan"}, 422, "model"),
    ],
)
def test_bad_body_is_rejected(client: httpx.Client, route: str, body: object, status: int, place: str | None) -> None:
    codes = {404: "model_not_found", 413: "payload_too_large", 422: "invalid_input"}
    problem = check_problem(client.post(f"/v1/{route}", json=body), status, codes[status])
    if place is not None:
        assert problem["errors"][0]["loc"] == place


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b'{"query": "a", "documents": ["b"]',
        b'{"query": "\\ud800", "documents": ["b"]}',
        b'{"query": "a", "documents": ["\\udfff"]}',
        b'{"query": "a", "documents": ["\xff"]}',
        b'{"query": "a", "documents": ["b"], "\\ud800": 1}',
        b'{"query": "a", "documents": ["b"], "top_n": 1' + b"0" * 5000 + b"}",
    ],
)
def test_body_that_is_not_json_in_utf8_is_rejected(client: httpx.Client, body: bytes) -> None:
    check_problem(client.post("/v1/rank", content=body, headers=JSON), 400, "malformed_input")


@pytest.mark.parametrize("count", [10_001, 100_000])
def test_too_many_documents_are_rejected_before_encoding(client: httpx.Client, count: int) -> None:
    body = json.dumps(ranking(*[SECRET] * count, query=SECRET)).encode()
    batches = sample(client, "longdoc_batch_size_count")
    problem = check_problem(client.post("/v1/rank", content=body, headers=JSON), 413, "payload_too_large")
    assert "10000" in problem["detail"]
    assert sample(client, "longdoc_batch_size_count") == batches


def test_largest_number_of_documents_is_ranked(client: httpx.Client) -> None:
    """As many documents as a request may have; most are equal, because each distinct one has to be encoded."""
    documents = [text(900 + i % 5, 40) for i in range(10_000)]
    results = rank(client, text(910, 40), documents)
    assert sorted(result["index"] for result in results) == list(range(10_000))
    assert len({result["score"] for result in results}) <= 5


@pytest.mark.parametrize("route", ["score", "rank", "forecast"])
def test_other_content_types_are_rejected(client: httpx.Client, route: str) -> None:
    for kind in ("text/plain", "application/octet-stream", "application/json; charset=utf-16"):
        response = client.post(f"/v1/{route}", content=SECRET, headers={"content-type": kind})
        check_problem(response, 415, "unsupported_media_type")
    assert client.get(f"/v1/{route}").status_code == 405


def test_request_past_its_deadline_gets_504(controlled: ControlledServer) -> None:
    body = ranking(*(text(1000 + i, 4000) for i in range(20)))
    with controlled.held(), controlled.client() as client:
        response = client.post("/v1/rank", json=body, headers={"X-Request-Timeout-Ms": "20"})
    check_problem(response, 504, "deadline_exceeded")
    with controlled.client() as client:
        assert rank(client, "still", ["there"])
