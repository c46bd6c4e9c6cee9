"""TEI's `/embed`: the vectors that scores are computed from."""

from typing import Any

import pytest

from service.settings import Settings
from service.wire import requests
from tests.support.models import answer, backend_of, classifier, matcher, serving
from tests.support.tei import check_error

LONG = "+++" + 22 * "." + "---"
"""28 bytes: two windows."""


async def test_each_text_gets_a_vector_of_norm_1() -> None:
    async with serving(classifier(), matcher()) as client:
        assert answer(await client.post("/embed", json={"inputs": "+++----"})) == [[0.6, 0.8]]
        response = await client.post("/embed", json={"inputs": ["+++----", "++", ".."]})
    assert answer(response) == [[0.6, 0.8], [1, 0], [0, 0]]
    assert (response.headers["x-bytes-total"], response.headers["x-bytes-used"]) == ("11", "11")
    for stage in ("total", "compute", "tokenization", "queue", "inference"):
        assert float(response.headers[f"x-{stage}-time"]) >= 0


@pytest.mark.parametrize(
    ("options", "vector", "used"),
    [
        ({}, [1.5, 1.5], 28),
        ({"truncate": True}, [3, 0], 16),
        ({"truncate": True, "truncation_direction": "Left"}, [0, 3], 16),
    ],
)
async def test_long_text_is_read_completely_or_truncated(
    options: dict[str, Any], vector: list[float], used: int
) -> None:
    async with serving(matcher()) as client:
        response = await client.post("/embed", json={"inputs": LONG, "normalize": False, **options})
    assert answer(response) == [vector]
    assert (response.headers["x-bytes-total"], response.headers["x-bytes-used"]) == ("28", str(used))


async def test_vectors_are_shared_with_scores_through_the_cache() -> None:
    model = matcher()
    async with serving(model) as client:
        await client.post("/v1/score", json={"pairs": [["++", LONG]]})
        batches = list(backend_of(model).batches)
        assert answer(await client.post("/embed", json={"inputs": ["++", LONG], "normalize": False}))[0] == [2, 0]
        assert backend_of(model).batches == batches
        await client.post("/embed", json={"inputs": "+-+"})
        await client.post("/v1/score", json={"pairs": [["+-+", "+-+"]]})
        assert len(backend_of(model).batches) == len(batches) + 1


async def test_many_texts_are_answered_in_order() -> None:
    texts = ["+" * (1 + number % 9) + "-" * (1 + number % 7) for number in range(100)]
    async with serving(matcher()) as client:
        found = answer(await client.post("/embed", json={"inputs": texts, "normalize": False}))
    assert found == [[text.count("+"), text.count("-")] for text in texts]


@pytest.mark.parametrize(
    ("body", "status", "message"),
    [
        ({}, 422, "inputs: Field required"),
        ({"inputs": []}, 422, "inputs: at least 1 is needed"),
        ({"inputs": [1]}, 422, "inputs.0: Input should be a valid string"),
        ({"inputs": ["++", ""]}, 422, "inputs.1: the document is empty; at least 1 byte is needed"),
        ({"inputs": LONG, "truncate": False}, 422, "inputs.0: the document has 28 bytes; the model reads 16"),
        ({"inputs": "++", "prompt_name": "query"}, 422, "prompt_name: Input should be null"),
        ({"inputs": "++", "dimensions": 10**99}, 422, "dimensions: Input should be less than or equal to 1000000"),
        ({"inputs": "++", "dimensions": 3}, 422, "dimensions: 3; vectors of twins have 2 numbers"),
        ({"inputs": "++", "normalize": "yes"}, 422, "normalize: "),
        ({"inputs": ["++"] * 4}, 413, "inputs: 4; at most 3 in one request"),
        ({"inputs": "+" * 21}, 413, "inputs.0: the document has 21 bytes; at most 20"),
    ],
)
async def test_error_names_the_wrong_value(body: dict[str, Any], status: int, message: str) -> None:
    settings = Settings(max_documents=3, max_document_bytes=28 if LONG in str(body) else 20)
    async with serving(matcher(), settings=settings) as client:
        response = await client.post("/embed", json=body)
    assert check_error(response, status).startswith(message)


async def test_options_without_effect_are_accepted() -> None:
    async with serving(matcher()) as client:
        body = {"inputs": "++", "prompt_name": None, "dimensions": 2, "truncate": None, "encoding_format": "float"}
        assert answer(await client.post("/embed", json=body)) == [[1, 0]]


async def test_too_large_an_answer_is_rejected_before_it_is_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requests, "MAX_NUMBERS", 5)
    model = matcher()
    async with serving(model) as client:
        refused = await client.post("/embed", json={"inputs": ["++"] * 3})
    assert check_error(refused, 413) == "the response would have 6 numbers; at most 5 are allowed: send fewer texts"
    assert backend_of(model).batches == []


async def test_embed_needs_a_matcher() -> None:
    async with serving(classifier()) as client:
        message = check_error(await client.post("/embed", json={"inputs": "++"}), 422)
    assert message == "no model for text-matching is served"
