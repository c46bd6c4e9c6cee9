"""`/v1/classify`: responses to good requests."""

from collections.abc import Callable

import httpx
import pytest

from artifact.documents import cut
from artifact.tasks.classification import ClassifierManifest
from tests.support.offline import Offline, agree, document, scores_of
from tests.support.server import ControlledServer, Scrape, Server

TEXT = {"content-type": "text/plain"}


EDGES = [size + step for size in (256, 512, 1024, 2048, 4096) for step in (-1, 0, 1)]
"""Lengths around the boundary of each bucket of the classifier."""


@pytest.mark.parametrize("length", [1, 2, 100, *EDGES, 10_000, pytest.param(2**20, marks=pytest.mark.slow)])
def test_scores_equal_the_offline_scores(client: httpx.Client, offline: Offline, length: int) -> None:
    body = document(length)
    response = client.post("/v1/classify", content=body, headers=TEXT)
    assert response.status_code == 200
    (result,) = response.json()["results"]
    assert agree(result, offline(body))
    best = max(scores_of(result).items(), key=lambda item: item[1])
    assert (result["label"], result["score"]) == best
    coverage = result["coverage"]
    assert (coverage["bytes_total"], coverage["bytes_used"]) == (length, length)


@pytest.mark.parametrize("strategy", ["windows", "head", "tail", "head_tail"])
def test_overflow_is_reported(
    client: httpx.Client, offline: Offline, manifest: ClassifierManifest, strategy: str
) -> None:
    body = document(3 * manifest.max_length + 5)
    query = {"on_overflow": strategy, "detail": "true"}
    (result,) = client.post("/v1/classify", content=body, headers=TEXT, params=query).json()["results"]
    used = len(body) if strategy == "windows" else manifest.max_length
    windows = len(cut(len(body), manifest.max_length, manifest.window_overlap, "windows"))
    assert result["coverage"] == {
        "bytes_total": len(body),
        "bytes_used": used,
        "strategy": strategy,
        "windows": windows if strategy == "windows" else 1,
        "known": offline.known(body, strategy),
    }
    assert agree(result, offline(body, strategy))
    covered: set[int] = set()
    for window in result["windows"]:
        covered.update(range(window["start"], window["end"]))
        assert sum(score["score"] for score in window["scores"]) == pytest.approx(1)
    assert len(covered) == used


def test_json_text_and_bytes_give_the_same_answer(client: httpx.Client) -> None:
    text = "Ein großer Film, with NUL \0 in it."
    as_json = client.post("/v1/classify", json={"inputs": text}).json()
    as_text = client.post("/v1/classify", content=text.encode(), headers={"content-type": "text/plain; charset=UTF-8"})
    as_bytes = client.post("/v1/classify", content=text.encode(), headers={"content-type": "application/octet-stream"})
    assert as_json == as_text.json() == as_bytes.json()


def test_inputs_are_answered_in_order(client: httpx.Client, offline: Offline) -> None:
    texts = [document(length).decode() for length in (5, 3000, 1, 700, 5000, 200)]
    results = client.post("/v1/classify", json={"inputs": texts}).json()["results"]
    for text, result in zip(texts, results, strict=True):
        assert agree(result, offline(text.encode()))


def test_document_may_contain_any_bytes(client: httpx.Client, offline: Offline) -> None:
    for body in (b"\0", b"\0" * 50, b"\xff\xfe\x80", bytes(range(256))):
        for kind in ("text/plain", "application/octet-stream"):
            response = client.post("/v1/classify", content=body, headers={"content-type": kind})
            assert response.status_code == 200
            assert agree(response.json()["results"][0], offline(body))


def test_top_k_limits_the_scores(client: httpx.Client, manifest: ClassifierManifest) -> None:
    answer = client.post("/v1/classify", json={"inputs": "fine", "top_k": 1, "model": manifest.name}).json()
    assert (answer["model"], answer["version"]) == (manifest.name, manifest.version)
    assert len(answer["results"][0]["scores"]) == 1
    assert answer["results"][0]["coverage"]["strategy"] == "whole"


def test_headers_have_request_id_and_timing(client: httpx.Client) -> None:
    given = client.post("/v1/classify", content=b"x", headers={**TEXT, "X-Request-Id": "order-66"})
    assert given.headers["x-request-id"] == "order-66"
    for name in ("queue", "compute", "total"):
        assert f"{name};dur=" in given.headers["server-timing"]
    made = client.post("/v1/classify", content=b"x", headers={**TEXT, "X-Request-Id": "two words"})
    assert made.headers["x-request-id"] not in ("", "two words")


def test_models_lists_labels_and_limits(client: httpx.Client, manifest: ClassifierManifest) -> None:
    listed = client.get("/v1/models").json()
    (model,) = (m for m in listed["models"] if m["name"] == manifest.name)
    (of_openai,) = (m for m in listed["data"] if m["id"] == manifest.name)
    assert model | of_openai == client.get(f"/v1/models/{manifest.name}").json()
    assert model["ready"] is True
    assert model["labels"] == list(manifest.labels)
    assert model["data_terms"] == manifest.data_terms
    assert model["limits"]["document_bytes"] == 2**20


def test_health_routes_of_the_open_inference_protocol(client: httpx.Client, manifest: ClassifierManifest) -> None:
    paths = ["/v2/health/live", "/v2/health/ready", f"/v2/models/{manifest.name}/ready"]
    paths.append(f"/v2/models/{manifest.name}/versions/{manifest.version}/ready")
    assert [client.get(path).status_code for path in paths] == [200] * len(paths)
    assert client.get(f"/v2/models/{manifest.name}/versions/999/ready").status_code == 404


def test_docs_pages_load_no_external_resources(client: httpx.Client) -> None:
    page = client.get("/docs").text
    assert "http://" not in page
    assert "https://" not in page
    paths = client.get("/openapi.json").json()["paths"]
    content = paths["/v1/classify"]["post"]["requestBody"]["content"]
    assert set(content) == {"application/json", "text/plain", "application/octet-stream", "application/x-ndjson"}


def test_metrics_count_requests_and_documents(client: httpx.Client, manifest: ClassifierManifest) -> None:
    model = {"model": manifest.name}
    answered = {"route": "/v1/classify", "method": "POST", "code": "200"}
    names = {
        "longdoc_documents_total": model,
        "longdoc_documents_truncated_total": model,
        "longdoc_bytes_dropped_total": model,
        "longdoc_request_duration_seconds_count": {**model, "task": "text-classification"},
        "longdoc_request_queue_seconds_count": model,
        "longdoc_http_requests_total": answered,
    }
    before = Scrape(client)
    body = document(manifest.max_length + 7)
    client.post("/v1/classify", content=body, headers=TEXT, params={"on_overflow": "head"})
    after = Scrape(client)
    grown = {name: after.sum(name, **labels) - before.sum(name, **labels) for name, labels in names.items()}
    assert grown == {name: 7 if name == "longdoc_bytes_dropped_total" else 1 for name in names}
    assert after.sum("longdoc_model_ready", **model) == 1
    assert after.sum("longdoc_model_info", **model, version=str(manifest.version)) == 1
    assert after.sum("longdoc_queue_depth", **model) == 0


@pytest.mark.parametrize(
    ("lengths", "bucket"),
    [([1], 256), ([256], 256), ([257], 512), ([1025, 2048], 2048), ([2049], 4096), ([4096], 4096), ([4097], 4096)],
)
def test_batch_is_padded_to_the_smallest_bucket_that_fits(
    controlled: ControlledServer, manifest: ClassifierManifest, lengths: list[int], bucket: int
) -> None:
    """The server's batches are as large as the limits allow, however long one takes."""
    model = {"model": manifest.name}
    names = ("longdoc_batch_size_sum", "longdoc_batch_padding_ratio_count", "longdoc_batch_padding_ratio_sum")
    before = [controlled.metric(name, **model) for name in names]
    controlled.post("/v1/classify", json={"inputs": [document(length).decode() for length in lengths]})
    rows, batches, padding = (controlled.metric(name, **model) - b for name, b in zip(names, before, strict=True))
    sizes = [end - start for n in lengths for ((start, end),) in cut(n, 4096, manifest.window_overlap, "windows")]
    assert (rows, batches) == (len(sizes), 1)
    assert padding == pytest.approx(1 - sum(sizes) / (bucket * len(sizes)), abs=1e-9)


def test_memory_stays_below_400_mb(start: Callable[..., Server]) -> None:
    """With two slots; each further slot computes a batch of its own in parallel."""
    two_cores = "import os; os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:2])"
    program = f"{two_cores}; import sys; from service.__main__ import main; sys.exit(main(sys.argv[1:]))"
    server = start("--drain-delay-s", "0", "--default-forecaster", "ettm2", program=("-c", program))
    assert server.post("/v1/classify", content=document(2**18), headers=TEXT).status_code == 200
    assert server.rss_bytes() < 400e6
