"""TEI's `/predict`, `/rerank` and `/similarity`."""

import math
from typing import Any

import pytest

from tests.support.models import ServingClient, answer, classifier, matcher, serving
from tests.support.tei import check_error

POSITIVE = [{"score": 0.6, "label": "positive"}, {"score": 0.4, "label": "negative"}]
"""Scores of two pluses and a minus."""
LONG = "+++" + 22 * "." + "---"
"""28 bytes: two windows."""


async def predict(client: ServingClient, inputs: object, **options: object) -> Any:
    return answer(await client.post("/predict", json={"inputs": inputs, **options}))


async def test_text_and_batches_of_texts_are_labelled() -> None:
    async with serving(classifier(), matcher()) as client:
        assert await predict(client, "++-") == POSITIVE
        assert await predict(client, ["++-"]) == POSITIVE
        assert await predict(client, [["++-"], ["-"]]) == [
            POSITIVE,
            [{"score": 0.666667, "label": "negative"}, {"score": 0.333333, "label": "positive"}],
        ]


async def test_pairs_are_scored_by_the_matcher() -> None:
    async with serving(classifier(), matcher()) as client:
        assert await predict(client, ["++", "+-"]) == [{"score": 0.75, "label": "match"}]
        assert await predict(client, [["++", "+-"], ["--", "++"]]) == [
            [{"score": 0.75, "label": "match"}],
            [{"score": 0.5, "label": "match"}],
        ]


async def test_raw_scores_are_logits() -> None:
    async with serving(classifier(), matcher()) as client:
        labels = await predict(client, "++-", raw_scores=True)
        (pair,) = await predict(client, ["++", "+-"], raw_scores=True)
    assert labels[0]["score"] - labels[1]["score"] == pytest.approx(math.log(0.6 / 0.4), abs=1e-5)
    assert pair["score"] == pytest.approx(math.log(3), abs=1e-5)


async def test_raw_scores_of_any_number_of_labels_are_their_logits() -> None:
    async with serving(classifier(thresholds=(0.5, 0.5))) as client:
        assert await predict(client, "++-") == [
            {"score": 0.75, "label": "positive"},
            {"score": 0.666667, "label": "negative"},
        ]
        labels = await predict(client, "++-", raw_scores=True)
    assert [one["score"] for one in labels] == pytest.approx([math.log(3), math.log(2)], abs=1e-5)


@pytest.mark.parametrize(
    ("options", "score", "used"),
    [
        ({}, 0.5, 28),
        ({"truncate": True}, 0.8, 16),
        ({"truncate": True, "truncation_direction": "Left"}, 0.2, 16),
    ],
)
async def test_long_text_is_read_completely_or_truncated(options: dict[str, Any], score: float, used: int) -> None:
    async with serving(classifier()) as client:
        response = await client.post("/predict", json={"inputs": LONG, **options})
    scores = {entry["label"]: entry["score"] for entry in answer(response)}
    assert scores["positive"] == score
    assert (response.headers["x-bytes-total"], response.headers["x-bytes-used"]) == ("28", str(used))
    for stage in ("total", "compute", "tokenization", "queue", "inference"):
        assert float(response.headers[f"x-{stage}-time"]) >= 0


async def test_texts_are_ranked() -> None:
    body = {"query": "++", "texts": ["--", "+.", "++"], "model": "theirs"}
    async with serving(matcher()) as client:
        response = await client.post("/rerank", json=body)
        best = answer(await client.post("/rerank", json={**body, "top_n": 1, "return_text": True}))
        same = answer(await client.post("/rerank?api-version=1", json={**body, "top_n": 1, "return_documents": True}))
    assert answer(response) == [
        {"index": 2, "score": 0.833333},
        {"index": 1, "score": 0.75},
        {"index": 0, "score": 0.5},
    ]
    assert response.headers["x-bytes-total"] == "8"
    assert best == same == [{"index": 2, "score": 0.833333, "text": "++"}]


async def test_documents_are_ranked_as_by_other_rerankers() -> None:
    body = {"query": "++", "documents": ["--", {"text": "++"}, LONG], "model": "twins"}
    async with serving(classifier(), matcher()) as client:
        response = await client.post("/rerank", json=body)
        other = answer(await client.post("/v1/rerank", json=body))
        options = {"top_n": 1, "return_documents": True, "raw_scores": True, "truncate": True}
        best = answer(await client.post("/rerank", json={**body, **options}))
        unknown = await client.post("/rerank", json={**body, "model": "theirs"})
    found = answer(response)
    assert {**found, "id": other["id"]} == other
    assert response.headers["x-bytes-total"] == str(found["usage"]["total_tokens"]) == "34"
    (result,) = best["results"]
    assert (result["index"], result["document"]) == (2, {"text": LONG})
    assert result["relevance_score"] == pytest.approx(math.log(0.875 / 0.125), abs=1e-5)
    assert check_error(unknown, 404).startswith("no model of that name is served")


async def test_sentences_are_scored_in_order() -> None:
    pair = {"source_sentence": "++", "sentences": ["--", "+.", LONG]}
    async with serving(classifier(), matcher()) as client:
        response = await client.post("/similarity", json={"inputs": pair})
        head = await client.post("/similarity", json={"inputs": pair, "parameters": {"truncate": True}})
    assert answer(response) == [0.5, 0.75, 0.8]
    assert (response.headers["x-bytes-total"], response.headers["x-bytes-used"]) == ("34", "34")
    assert (answer(head)[2], head.headers["x-bytes-used"]) == (0.875, "22")


@pytest.mark.parametrize(
    ("path", "body", "message"),
    [
        ("/predict", {"inputs": ["a", "b", "c"]}, "inputs: 3 strings; use 1 for a text, 2 for a pair"),
        ("/predict", {"inputs": [["++"], ["++", "+-"]]}, "inputs: a batch must not mix texts and pairs"),
        ("/predict", {"inputs": LONG, "truncate": False}, "input 0: the document has 28 bytes; the model reads 16"),
        ("/predict", {"inputs": ["++", ""]}, "inputs.0.1: the document is empty; at least 1 byte is needed"),
        ("/rerank", {"query": "++", "texts": []}, "texts: at least 1 is needed"),
        ("/rerank", {"query": "++"}, "texts: Field required; or give documents"),
        ("/rerank", {"query": "++", "texts": ["+"], "documents": ["+"]}, "documents: give either texts or documents"),
        ("/rerank", {"query": "++", "documents": []}, "documents: at least 1 is needed"),
        ("/similarity", {"inputs": "++"}, "inputs: Input should be an object"),
        (
            "/similarity",
            {"inputs": {"source_sentence": "++", "sentences": [""]}},
            "inputs.sentences.0: the document is empty",
        ),
        (
            "/similarity",
            {"inputs": {"source_sentence": "++", "sentences": ["+"]}, "parameters": {"prompt_name": "query"}},
            "parameters.prompt_name: Input should be null",
        ),
    ],
)
async def test_error_names_the_wrong_value(path: str, body: dict[str, Any], message: str) -> None:
    async with serving(classifier(), matcher()) as client:
        response = await client.post(path, json=body)
    assert check_error(response, 422).startswith(message)
