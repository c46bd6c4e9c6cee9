"""The routes of text-embeddings-inference: its shapes around ours."""

import math
from typing import Any

import httpx
import pytest
from pydantic import SecretStr

from service.settings import Settings
from tests.support.models import SHA256, ServingClient, answer, backend_of, classifier, matcher, serving

POSITIVE = [{"score": 0.6, "label": "positive"}, {"score": 0.4, "label": "negative"}]
"""Of two pluses and a minus."""
LONG = "+++" + 22 * "." + "---"
"""28 bytes: two windows."""


def check_error(response: httpx.Response, status: int, kind: str) -> str:
    """TEI's body of an error; its message."""
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/json"
    message: str = response.json()["error"]
    assert response.json() == {"error": message, "error_type": kind}
    return message


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


@pytest.mark.parametrize(
    ("options", "score", "used"),
    [
        ({}, 0.5, 28),
        ({"truncate": True}, 0.8, 16),
        ({"truncate": True, "truncation_direction": "Left"}, 0.2, 16),
    ],
)
async def test_long_text_is_read_as_a_whole_or_truncated(options: dict[str, Any], score: float, used: int) -> None:
    async with serving(classifier()) as client:
        response = await client.post("/predict", json={"inputs": LONG, **options})
    scores = {entry["label"]: entry["score"] for entry in answer(response)}
    assert scores["positive"] == score
    assert (response.headers["x-bytes-total"], response.headers["x-bytes-used"]) == ("28", str(used))
    for stage in ("total", "compute", "tokenization", "queue", "inference"):
        assert float(response.headers[f"x-{stage}-time"]) >= 0


@pytest.mark.parametrize(("query", "texts"), [("query", "texts"), ("query", "documents")])
async def test_texts_are_ranked(query: str, texts: str) -> None:
    body = {query: "++", texts: ["--", "+.", "++"]}
    async with serving(matcher()) as client:
        response = await client.post("/rerank", json=body)
        best = answer(await client.post("/rerank", json={**body, "top_n": 1, "return_text": True}))
    assert answer(response) == [
        {"index": 2, "score": 0.833333},
        {"index": 1, "score": 0.75},
        {"index": 0, "score": 0.5},
    ]
    assert response.headers["x-bytes-total"] == "8"
    assert best == [{"index": 2, "score": 0.833333, "text": "++"}]


async def test_info_describes_the_default_model() -> None:
    settings = Settings(max_documents=7, max_batch_rows=5)
    async with serving(matcher(), classifier(), settings=settings) as client:
        info = answer(await client.get("/info"))
    assert (info["model_id"], info["model_sha"], info["model_dtype"]) == ("mood", SHA256, "float32")
    names = {"id2label": {"0": "negative", "1": "positive"}, "label2id": {"negative": 0, "positive": 1}}
    assert info["model_type"] == {"classifier": names}
    assert (info["max_input_length"], info["max_client_batch_size"], info["max_batch_requests"]) == (16, 7, 5)


async def test_matcher_alone_is_a_reranker() -> None:
    async with serving(matcher()) as client:
        info = answer(await client.get("/info"))
    assert info["model_type"] == {"reranker": {"id2label": {"0": "match"}, "label2id": {"match": 0}}}


async def test_health_follows_the_engine() -> None:
    async with serving(classifier()) as client:
        healthy = await client.get("/health")
        client.engine.begin_drain()
        unhealthy = await client.get("/health")
    assert (healthy.status_code, healthy.content) == (200, b"")
    assert check_error(unhealthy, 503, "Unhealthy") == "unhealthy"


@pytest.mark.parametrize(
    ("path", "body", "message"),
    [
        ("/predict", {"inputs": ["a", "b", "c"]}, "inputs: 3 strings; 1, a text, or 2, a pair, are allowed"),
        ("/predict", {"inputs": [["++"], ["++", "+-"]]}, "inputs: texts and pairs are answered by different models"),
        ("/predict", {"inputs": LONG, "truncate": False}, "input 0: the document has 28 bytes; the model reads 16"),
        ("/predict", {"inputs": ["++", "+"]}, "inputs.0.1: the document has 1 bytes; the model needs at least 2"),
        ("/rerank", {"query": "++", "texts": []}, "texts: at least 1 is needed"),
        ("/rerank", {"query": "++"}, "texts: Field required"),
    ],
)
async def test_wrong_value_is_named(path: str, body: dict[str, Any], message: str) -> None:
    async with serving(classifier(), matcher()) as client:
        response = await client.post(path, json=body)
    assert check_error(response, 422, "Validation").startswith(message)


async def test_error_of_the_backend_is_one() -> None:
    model = classifier()
    backend_of(model).error = RuntimeError("broken")
    async with serving(model) as client:
        check_error(await client.post("/predict", json={"inputs": "+"}), 500, "Backend")


async def test_missing_key_has_no_body() -> None:
    async with serving(classifier(), settings=Settings(api_keys=(SecretStr("secret"),))) as client:
        response = await client.post("/predict", json={"inputs": "+"})
        healthy = await client.get("/health")
    assert (response.status_code, response.content) == (401, b"")
    assert response.headers["www-authenticate"] == "Bearer"
    assert healthy.status_code == 200
