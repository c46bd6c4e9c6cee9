"""`POST /v1/classify` with documents as JSON, text and bytes."""

from typing import Any

import pytest

from service.settings import Settings
from service.wire import requests
from tests.support.models import answer, backend_of, classifier, matcher, serving
from tests.support.problems import check_problem


def whole(size: int) -> dict[str, Any]:
    return {"bytes_total": size, "bytes_used": size, "strategy": "whole", "windows": 1, "known": None}


POSITIVE = [{"label": "positive", "score": 0.6}, {"label": "negative", "score": 0.4}]
"""Scores of two pluses and a minus."""


async def test_document_gets_its_scores() -> None:
    async with serving(classifier(version=3)) as client:
        found = answer(await client.post("/v1/classify", json={"inputs": "++-"}))
    result = {**POSITIVE[0], "scores": POSITIVE, "coverage": whole(3)}
    assert found == {"model": "mood", "version": 3, "results": [result]}


async def test_document_may_have_any_number_of_labels() -> None:
    async with serving(classifier(thresholds=(0.7, 0.6))) as client:
        found = answer(await client.post("/v1/classify", json={"inputs": ["+--", "."]}))
    both, none = found["results"]
    scores = [
        {"label": "negative", "score": 0.75, "threshold": 0.7},
        {"label": "positive", "score": 0.666667, "threshold": 0.6},
    ]
    assert both == {
        "label": "negative",
        "score": 0.75,
        "labels": ["negative", "positive"],
        "scores": scores,
        "coverage": whole(3),
    }
    assert (none["label"], none["score"], none["labels"]) == ("negative", 0.5, [])


async def test_documents_are_answered_in_order() -> None:
    async with serving(classifier()) as client:
        found = answer(await client.post("/v1/classify", json={"inputs": ["-", "+++", "é"], "top_k": 1}))
    assert [result["scores"] for result in found["results"]] == [
        [{"label": "negative", "score": 0.666667}],
        [{"label": "positive", "score": 0.8}],
        [{"label": "negative", "score": 0.5}],
    ]
    assert [result["coverage"] for result in found["results"]] == [whole(1), whole(3), whole(2)]


@pytest.mark.parametrize("kind", ["text/plain; charset=utf-8", "application/octet-stream"])
async def test_body_may_be_a_document_with_options_in_the_query(kind: str) -> None:
    async with serving(classifier(), classifier("other")) as client:
        response = await client.post(
            "/v1/classify?model=other&top_k=1", content=b"++-\xff", headers={"content-type": kind}
        )
    found = answer(response)
    assert found == {
        "model": "other",
        "version": 1,
        "results": [{**POSITIVE[0], "scores": POSITIVE[:1], "coverage": whole(4)}],
    }


@pytest.mark.parametrize(
    ("content", "kind", "detail"),
    [
        (b'{"inputs": ["+", "+"]}', "application/json", "inputs: 2; at most 1 in one request"),
        (b'{"inputs": "+++"}', "application/json", "input 0: the document has 3 bytes; at most 2"),
        (b"+++", "text/plain", "input 0: the document has 3 bytes; at most 2"),
        (b"+++", "application/octet-stream", "input 0: the document has 3 bytes; at most 2"),
    ],
)
async def test_documents_are_limited_in_number_and_size(content: bytes, kind: str, detail: str) -> None:
    settings = Settings(max_documents=1, max_document_bytes=2)
    async with serving(classifier(), settings=settings) as client:
        response = await client.post("/v1/classify", content=content, headers={"content-type": kind})
    assert check_problem(response, 413, "payload_too_large")["detail"] == detail


async def test_too_many_contributions_are_refused_before_they_are_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of two documents of 28 bytes has two windows of 16, and each window contributes to two labels."""
    monkeypatch.setattr(requests, "MAX_NUMBERS", 7)
    body = {"inputs": [28 * "+"] * 2}
    async with serving(model := classifier()) as client:
        refused = await client.post("/v1/classify", json={**body, "detail": True})
        assert backend_of(model).batches == []
        allowed = [
            await client.post("/v1/classify", json={**body, **more}) for more in ({}, {"detail": True, "top_k": 1})
        ]
    problem = check_problem(refused, 413, "payload_too_large")
    assert problem["detail"] == "the response would have 8 numbers; at most 7 are allowed: send fewer, or set top_k"
    assert [response.status_code for response in allowed] == [200, 200]


async def test_options_of_json_may_be_in_the_query_string() -> None:
    async with serving(classifier(), classifier("other")) as client:
        found = answer(await client.post("/v1/classify?model=other&top_k=1", json={"inputs": "++-", "detail": True}))
        refused = await client.post("/v1/classify?model=other", json={"inputs": "+", "model": "mood"})
    (result,) = found["results"]
    assert (found["model"], len(result["scores"]), len(result["windows"])) == ("other", 1, 1)
    assert check_problem(refused, 422, "invalid_input")["errors"][0]["loc"] == "model"


async def test_long_document_is_read_in_windows() -> None:
    """28 bytes are two windows of 16 that overlap by 4; the score is the softmax of the mean of their logits."""
    body = {"inputs": "+++" + 22 * "." + "---", "detail": True}
    async with serving(classifier()) as client:
        (result,) = answer(await client.post("/v1/classify", json=body))["results"]
    assert result["coverage"] == {
        "bytes_total": 28,
        "bytes_used": 28,
        "strategy": "windows",
        "windows": 2,
        "known": None,
    }
    assert result["score"] == 0.5
    assert [(window["start"], window["end"], window["scores"][0]) for window in result["windows"]] == [
        (0, 16, {"label": "positive", "score": 0.8}),
        (12, 28, {"label": "negative", "score": 0.8}),
    ]


async def test_overflow_strategy_selects_a_part_of_a_long_document() -> None:
    async with serving(classifier()) as client:
        body = {"inputs": "+++" + 22 * "." + "---", "on_overflow": "head"}
        (result,) = answer(await client.post("/v1/classify", json=body))["results"]
    assert (result["label"], result["score"]) == ("positive", 0.8)
    assert result["coverage"] == {"bytes_total": 28, "bytes_used": 16, "strategy": "head", "windows": 1, "known": None}


@pytest.mark.parametrize(
    ("body", "status", "code", "places"),
    [
        ({"inputs": "+", "top_k": 0}, 422, "invalid_input", ["top_k"]),
        ({"inputs": ["+", ""]}, 422, "invalid_input", ["inputs.1"]),
        ({"inputs": []}, 422, "invalid_input", ["inputs"]),
        ({"inputs": "+", "model": "twins"}, 422, "invalid_input", ["model"]),
        ({"inputs": "+", "model": "none"}, 404, "model_not_found", []),
    ],
)
async def test_problem_names_the_wrong_value(body: dict[str, Any], status: int, code: str, places: list[str]) -> None:
    async with serving(classifier(), matcher()) as client:
        problem = check_problem(await client.post("/v1/classify", json=body), status, code)
    assert problem["instance"] == "/v1/classify"
    assert problem["type"] == f"urn:longdoc:error:{code}"
    assert [error["loc"] for error in problem.get("errors", [])] == places


async def test_models_of_bytes_read_text_as_it_is() -> None:
    """UTF-16 would be refused, or decoded, in front of a model of words."""
    body = "\ufeff++-".encode("utf-16-le")
    async with serving(classifier(kind="bytes"), classifier("words")) as client:
        for kind in ("text/plain", "text/plain; charset=utf-16", "application/octet-stream"):
            headers = {"content-type": kind}
            found = answer(await client.post("/v1/classify?model=mood", content=body, headers=headers))
            assert found["results"][0]["coverage"] == whole(8)
            response = await client.post("/v1/classify?model=words", content=body, headers=headers)
            if kind == "application/octet-stream":
                problem = check_problem(response, 422, "invalid_input")
                assert problem["errors"][0]["loc"] == "inputs.0"
            else:
                assert answer(response)["results"][0]["coverage"] == whole(3)


async def test_decoded_text_is_within_the_limit_of_a_document() -> None:
    settings = Settings(max_document_bytes=20)
    async with serving(classifier(), settings=settings) as client:
        for text, status in (("é" * 10, 200), ("é" * 11, 413)):
            body, headers = text.encode("latin-1"), {"content-type": "text/plain; charset=latin-1"}
            assert (await client.post("/v1/classify", content=body, headers=headers)).status_code == status
