"""Triton's statistics of models."""

import time
from collections import Counter
from typing import Any

import httpx
import pytest

from tests.support.models import ServingClient, answer, backend_of, classifier, forecaster, matcher, serving

LONG = "+++" + 22 * "." + "---"
"""28 bytes: two windows."""
ZERO = {"count": 0, "ns": 0}
STAGES = ("queue", "compute_input", "compute_infer", "compute_output")


async def stats(client: ServingClient, name: str) -> Any:
    (found,) = answer(await client.get(f"/v2/models/{name}/stats"))["model_stats"]
    return found


async def classify(client: ServingClient, *documents: str) -> httpx.Response:
    return await client.post("/v1/classify", json={"inputs": documents})


async def test_counts_start_at_zero() -> None:
    names = ("success", "fail", *STAGES, "cache_hit", "cache_miss")
    async with serving(classifier(version=3)) as client:
        found = answer(await client.get("/v2/models/stats"))
    nothing = {
        "name": "mood",
        "version": "3",
        "last_inference": 0,
        "inference_count": 0,
        "execution_count": 0,
        "inference_stats": dict.fromkeys(names, ZERO),
        "batch_stats": [],
    }
    assert found == {"model_stats": [nothing]}


async def test_requests_rows_and_batches_are_counted() -> None:
    model, before = classifier(), int(1000 * time.time())
    async with serving(model) as client:
        assert (await classify(client, "++-", LONG)).status_code == 200
        assert (await classify(client, "+")).status_code == 200
        found = await stats(client, "mood")
    batches = Counter(backend_of(model).batches)
    assert (found["inference_count"], found["execution_count"]) == (4, batches.total())
    assert {batch["batch_size"]: batch["compute_infer"]["count"] for batch in found["batch_stats"]} == batches
    assert [batch["batch_size"] for batch in found["batch_stats"]] == sorted(batches)
    assert all(batch["compute_infer"]["ns"] > 0 for batch in found["batch_stats"])
    done = found["inference_stats"]
    assert {done[stage]["count"] for stage in ("success", *STAGES)} == {2}
    assert done["success"]["ns"] >= done["compute_infer"]["ns"] > 0
    assert done["fail"] == ZERO
    assert before <= found["last_inference"] <= int(1000 * time.time())


async def test_failures_are_counted() -> None:
    """Counts rejections and failures by the model, but no request that does not reach the model."""
    model = classifier()
    async with serving(model) as client:
        assert (await classify(client, "")).status_code == 422
        backend_of(model).error = RuntimeError("broken")
        assert (await classify(client, "+")).status_code == 500
        assert (await client.post("/v1/classify", json={})).status_code == 422
        client.engine.models["mood"].batcher.close()
        assert (await classify(client, "+")).status_code == 503
        found = await stats(client, "mood")
    assert found["inference_stats"]["fail"]["count"] == 3
    assert found["inference_stats"]["fail"]["ns"] > 0
    assert found["inference_stats"]["success"] == ZERO
    assert (found["inference_count"], found["last_inference"]) == (0, 0)


async def test_request_rejected_unread_is_a_failure_without_time() -> None:
    async with serving(classifier()) as client:
        client.engine.models["mood"].batcher.close()
        assert (await classify(client, "+")).status_code == 503
        assert (await stats(client, "mood"))["inference_stats"]["fail"] == {"count": 1, "ns": 0}


async def test_cached_text_is_not_computed_again() -> None:
    async with serving(matcher()) as client:
        for _ in range(2):
            assert (await client.post("/v1/score", json={"pairs": [["++", "+-"]]})).status_code == 200
        found = await stats(client, "twins")
    assert (found["inference_count"], found["inference_stats"]["success"]["count"]) == (2, 2)


async def test_lines_count_as_rows_and_not_as_requests() -> None:
    async with serving(classifier()) as client:
        lines = '{"text": "+"}\n{"text": "-"}\n'
        await client.post("/v1/classify", content=lines, headers={"content-type": "application/x-ndjson"})
        found = await stats(client, "mood")
    assert (found["inference_count"], found["inference_stats"]["success"]) == (2, ZERO)


async def test_models_are_counted_separately_and_a_new_version_starts_at_zero() -> None:
    async with serving(classifier(), forecaster()) as client:
        assert (await classify(client, "+")).status_code == 200
        counts = {m["name"]: m["inference_count"] for m in answer(await client.get("/v2/models/stats"))["model_stats"]}
        assert counts == {"mood": 1, "naive": 0}
        client.engine.put(classifier(version=2))
        both = answer(await client.get("/v2/models/mood/stats"))["model_stats"]
        assert answer(await client.get("/v2/models/mood/versions/2/stats")) == {"model_stats": both[:1]}
    assert [(found["version"], found["inference_count"]) for found in both] == [("2", 0), ("1", 1)]


@pytest.mark.parametrize(
    ("path", "error"),
    [
        ("/v2/models/none/stats", "no model of that name is served; there are: mood"),
        ("/v2/models/mood/versions/2/stats", "model mood is served in version 1 only"),
    ],
)
async def test_unknown_model_is_an_error(path: str, error: str) -> None:
    async with serving(classifier()) as client:
        response = await client.get(path)
    assert (response.status_code, response.json()) == (404, {"error": error})
