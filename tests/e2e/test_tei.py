"""Routes of text-embeddings-inference: shapes, and the answers computed offline; test_huggingface.py has `POST /`."""

import json
import math
import random
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from artifact.cores import cpu_count
from artifact.tasks.classification import ClassifierManifest
from tests.support.mutations import mutate
from tests.support.offline import Offline, OfflineMatcher, document, same_score
from tests.support.paths import EXPORTS
from tests.support.problems import SECRET
from tests.support.server import ControlledServer, Server

NO_FORM = "inputs: Input should be a string, a list of strings or a list of such lists"
JSON = {"content-type": "application/json"}
LONG = document(9000).decode()
TIMES = ("total", "compute", "tokenization", "queue", "inference")


def ask(client: httpx.Client, path: str, **body: object) -> httpx.Response:
    response = client.post(path, json=body)
    assert response.status_code == 200, response.text
    for stage in TIMES:
        assert float(response.headers[f"x-{stage}-time"]) >= 0
    return response


def read(response: httpx.Response) -> tuple[int, int]:
    return int(response.headers["x-bytes-total"]), int(response.headers["x-bytes-used"])


def check_labels(predictions: list[dict[str, Any]], expected: dict[str, float]) -> None:
    assert [set(prediction) for prediction in predictions] == [{"score", "label"}] * len(expected)
    scores = [prediction["score"] for prediction in predictions]
    assert scores == sorted(scores, reverse=True)
    assert {p["label"]: p["score"] for p in predictions} == pytest.approx(expected, abs=1e-5)


def check_error(response: httpx.Response, status: int, kind: str = "Validation", message: str = "") -> None:
    """Check that the response has TEI's error body only."""
    assert response.status_code == status, response.text
    assert set(response.json()) == {"error", "error_type"}
    assert response.json()["error_type"] == kind
    assert message in response.json()["error"], response.text
    assert SECRET not in response.text


def test_predict_scores_a_text_and_batches_of_texts(client: httpx.Client, offline: Offline) -> None:
    for inputs in (LONG, [LONG]):
        response = ask(client, "/predict", inputs=inputs)
        check_labels(response.json(), offline(LONG.encode()))
        assert read(response) == (9000, 9000)
    texts = ["a good film", LONG, "é"]
    response = ask(client, "/predict", inputs=[[text] for text in texts])
    assert len(response.json()) == 3
    for predictions, text in zip(response.json(), texts, strict=True):
        check_labels(predictions, offline(text.encode()))
    assert read(response) == (9013, 9013)


def test_predict_takes_two_strings_as_a_pair(client: httpx.Client, matcher: OfflineMatcher) -> None:
    (prediction,) = ask(client, "/predict", inputs=["on parsing", LONG]).json()
    assert prediction["label"] == "match"
    assert same_score(prediction["score"], matcher("on parsing", LONG))
    pairs = [["on parsing", LONG], ["on parsing", "of speech"]]
    response = ask(client, "/predict", inputs=pairs)
    for (found,), (a, b) in zip(response.json(), pairs, strict=True):
        assert same_score(found["score"], matcher(a, b))
    assert read(response) == (9029, 9029)


def test_rerank_orders_texts_by_score(client: httpx.Client, matcher: OfflineMatcher) -> None:
    query, texts = "a paper on parsing", ["one on speech", LONG, "a parser of trees"]
    ranks = ask(client, "/rerank", query=query, texts=texts).json()
    assert [set(rank) for rank in ranks] == [{"index", "score"}] * 3
    assert [rank["score"] for rank in ranks] == sorted((rank["score"] for rank in ranks), reverse=True)
    for rank in ranks:
        assert same_score(rank["score"], matcher(query, texts[rank["index"]]))
    with_texts = [{**rank, "text": texts[rank["index"]]} for rank in ranks]
    assert ask(client, "/rerank", query=query, texts=texts, return_text=True).json() == with_texts
    response = ask(client, "/rerank", query=query, texts=texts, top_n=2, return_documents=True, model="theirs")
    assert response.json() == with_texts[:2]
    total = sum(len(text.encode()) for text in (query, *texts))
    assert read(response) == (total, total)


def test_embed_returns_the_vectors_that_the_scores_use(client: httpx.Client, matcher: OfflineMatcher) -> None:
    texts = ["on parsing", LONG, "é for é", "on parsing"]
    plain = np.stack([matcher.vector(text.encode(), "windows") for text in texts])
    lengths = np.linalg.norm(plain, axis=1, keepdims=True)
    for given, expected in ((texts, plain), (LONG, plain[1:2])):
        response = ask(client, "/embed", inputs=given, normalize=False)
        assert np.allclose(response.json(), expected, atol=1e-5)
    response = ask(client, "/embed", inputs=texts)
    assert np.allclose(response.json(), plain / lengths, atol=1e-5)
    assert read(response) == (9029, 9029)
    found = np.array(ask(client, "/embed", inputs=texts[:2], normalize=False).json(), np.float32)
    a, b = (
        np.concatenate(
            (vector, matcher.encoding(text.encode(), "windows")[len(vector) :])
        )  # its words are not returned
        for vector, text in zip(found, texts, strict=False)
    )
    assert np.allclose(matcher.head.run({"a": a[None], "b": b[None]})["logits"], logit(matcher(*texts[:2])), atol=1e-3)


def test_similarity_scores_sentences_in_order(client: httpx.Client, matcher: OfflineMatcher) -> None:
    source, sentences = "a paper on parsing", ["one on speech", LONG, "a parser of trees"]
    inputs = {"source_sentence": source, "sentences": sentences}
    for path in ("/similarity", "/"):
        response = ask(client, path, inputs=inputs)
        for score, sentence in zip(response.json(), sentences, strict=True):
            assert same_score(score, matcher(source, sentence))
        assert read(response) == (9000 + len(source) + len(sentences[0]) + len(sentences[2]),) * 2


def logit(probability: float) -> float:
    return math.log(probability / (1 - probability))


def test_raw_scores_are_logits(client: httpx.Client, matcher: OfflineMatcher) -> None:
    plain = {p["label"]: p["score"] for p in ask(client, "/predict", inputs=LONG).json()}
    raw = {p["label"]: p["score"] for p in ask(client, "/predict", inputs=LONG, raw_scores=True).json()}
    exponents = {label: math.exp(score) for label, score in raw.items()}
    total = sum(exponents.values())
    assert {label: value / total for label, value in exponents.items()} == pytest.approx(plain)
    (pair,) = ask(client, "/predict", inputs=["on parsing", "of speech"], raw_scores=True).json()
    assert same_score(1 / (1 + math.exp(-pair["score"])), matcher("on parsing", "of speech"))
    (same,) = ask(client, "/predict", inputs=[LONG, LONG], raw_scores=True).json()
    assert abs(same["score"]) < 37  # finite although the probability is almost 1
    (rank,) = ask(client, "/rerank", query="on parsing", texts=["of speech"], raw_scores=True).json()
    assert rank["score"] == pytest.approx(pair["score"], rel=1e-6)


@pytest.mark.parametrize(
    ("options", "how"),
    [
        ({"truncate": True}, "head"),
        ({"truncate": True, "truncation_direction": "Right"}, "head"),
        ({"truncate": True, "truncation_direction": "Left"}, "tail"),
        ({"truncate": True, "truncation_direction": "left"}, "tail"),
        ({"truncate": None}, "windows"),
        ({"truncation_direction": "Left"}, "windows"),
        ({}, "windows"),
    ],
)
def test_truncation_is_reported(
    client: httpx.Client, offline: Offline, matcher: OfflineMatcher, options: dict[str, Any], how: str
) -> None:
    response = ask(client, "/predict", inputs=LONG, **options)
    check_labels(response.json(), offline(LONG.encode(), how))
    used = 9000 if how == "windows" else 4096
    assert read(response) == (9000, used)
    response = ask(client, "/rerank", query="on parsing", texts=[LONG], **options)
    assert same_score(response.json()[0]["score"], matcher("on parsing", LONG, how))
    assert read(response) == (9010, used + 10)
    response = ask(client, "/embed", inputs=LONG, normalize=False, **options)
    assert np.allclose(response.json()[0], matcher.vector(LONG.encode(), how), atol=1e-5)
    assert read(response) == (9000, used)


def test_long_texts_are_rejected_if_truncate_is_false(client: httpx.Client) -> None:
    bodies: dict[str, dict[str, Any]] = {
        "/predict": {"inputs": LONG},
        "/rerank": {"query": "abc", "texts": ["abc", LONG]},
        "/embed": {"inputs": ["abc", LONG]},
        "/": {"inputs": LONG},
    }
    for path, body in bodies.items():
        response = client.post(path, json={**body, "truncate": False})
        check_error(response, 422, message="the document has 9000 bytes; the model reads 4096")


def test_info_describes_the_classifier(client: httpx.Client, manifest: ClassifierManifest) -> None:
    info = client.get("/info").json()
    assert info.pop("model_sha") in {file.sha256 for file in manifest.files}
    assert info.pop("version")
    assert info == {
        "model_id": manifest.name,
        "model_dtype": "float32",
        "served_model_name": manifest.name,
        "model_type": {
            "classifier": {
                "id2label": {"0": "negative", "1": "positive"},
                "label2id": {"negative": 0, "positive": 1},
            }
        },
        "max_concurrent_requests": 8192,
        "max_input_length": 4096,
        "max_batch_tokens": 8 * 2**20,
        "max_batch_requests": None,
        "max_client_batch_size": 256,
        "auto_truncate": False,
        "tokenization_workers": 1,
        "sha": None,
        "docker_label": None,
    }


def test_matcher_alone_is_a_reranker(tmp_path: Path, start: Callable[..., Server]) -> None:
    shutil.copytree(EXPORTS / "aan", tmp_path / "aan")
    server = start("--exports", str(tmp_path), "--drain-delay-s", "0")
    with server.client() as client:
        info = client.get("/info").json()
        assert (info["model_id"], list(info["model_type"])) == ("aan", ["reranker"])
        check_error(
            client.post("/predict", json={"inputs": "a"}), 422, message="no model for text-classification is served"
        )
        ask(client, "/predict", inputs=["abc", "def"])
        assert ask(client, "/", inputs="abc").json() == ask(client, "/embed", inputs="abc").json()


def test_health_returns_200(client: httpx.Client) -> None:
    answer = client.get("/health")
    assert (answer.status_code, answer.content) == (200, b"")
    assert client.head("/health").status_code == 200
    check_error(client.post("/health"), 405)


def test_draining_server_is_unhealthy_but_still_answers(start: Callable[..., Server]) -> None:
    server = start("--drain-delay-s", "3600", "--default-forecaster", "ettm2")
    with server.client() as client:
        assert client.get("/health").status_code == 200
        server.drain()
        answer = client.get("/health")
        check_error(answer, 503, "Unhealthy", "unhealthy")
        assert answer.headers["retry-after"]
        ask(client, "/predict", inputs="a good film")
    assert server.stop() == 0


def test_overload_gets_429_and_missed_deadline_504(start_controlled: Callable[..., ControlledServer]) -> None:
    server = start_controlled("--drain-delay-s", "0", "--default-forecaster", "ettm2", "--max-queue-rows", "1")
    with server.held(), server.client() as client, ThreadPoolExecutor(cpu_count() + 1) as pool:
        late = partial(client.post, "/predict", json={"inputs": "a"}, headers={"X-Request-Timeout-Ms": "3000000"})
        running = []
        for batches in range(1, cpu_count() + 1):
            running.append(pool.submit(late))
            server.wait_for_batches(batches)
        running.append(pool.submit(late))
        server.wait_for(1, "longdoc_queue_depth")
        refused = client.post("/predict", json={"inputs": "a"})
        check_error(refused, 429, "Overloaded")
        assert refused.headers["retry-after"]
        server.advance(3000)
        for request in running:
            check_error(request.result(), 504, "Backend", "deadline")


def test_401_has_no_body(start: Callable[..., Server]) -> None:
    server = start("--drain-delay-s", "0", "--default-forecaster", "ettm2", "--api-keys", "sesame")
    with server.client() as client:
        assert client.get("/", follow_redirects=True).status_code == 200
        posts = (client.post(path, json={"inputs": "a"}) for path in ("/predict", "/embed", "/similarity", "/"))
        for refused in (*posts, client.get("/info")):
            assert (refused.status_code, refused.content) == (401, b"")
            assert refused.headers["www-authenticate"] == "Bearer"
        assert client.get("/health").status_code == 200
        client.headers["authorization"] = "Bearer sesame"
        ask(client, "/predict", inputs="a good film")


@pytest.mark.parametrize(
    ("body", "status", "message"),
    [
        (b"{", 400, "not valid JSON"),
        (b"[]", 422, "body: "),
        ({}, 422, "inputs: Field required"),
        ({"inputs": 5}, 422, NO_FORM),
        ({"inputs": [5]}, 422, "inputs.0: "),
        ({"inputs": {"a": SECRET}}, 422, NO_FORM),
        ({"inputs": [SECRET, [SECRET]]}, 422, "inputs.1: "),
        ({"inputs": [[SECRET], SECRET]}, 422, "inputs.1: "),
        ({"inputs": [[[SECRET]]]}, 422, "inputs.0.0: "),
        ({"inputs": []}, 422, "inputs: 0 strings; use 1 for a text, 2 for a pair, or a list of lists for a batch"),
        ({"inputs": [SECRET] * 3}, 422, "inputs: 3 strings; use 1 for a text, 2 for a pair"),
        ({"inputs": [[]]}, 422, "inputs.0: "),
        ({"inputs": [[SECRET] * 3]}, 422, "inputs.0: "),
        ({"inputs": [[SECRET], [SECRET] * 2]}, 422, "inputs: a batch must not mix texts and pairs"),
        ({"inputs": ""}, 422, "the document is empty"),
        ({"inputs": [["a"], [""]]}, 422, "input 1: the document is empty"),
        ({"inputs": ["abc", ""]}, 422, "inputs.0.1: the document is empty; at least 1 byte is needed"),
        ({"inputs": [["a"]] * 257}, 413, "inputs: 257; at most 256"),
        ({"inputs": [["a"]] * 10_001}, 422, "inputs: "),
        ({"inputs": "a" * (2**20 + 1)}, 413, "inputs.0: the document has 1048577 bytes; at most 1048576"),
        ({"inputs": SECRET, "truncate": "true"}, 422, "truncate: "),
        ({"inputs": SECRET, "truncation_direction": SECRET}, 422, "truncation_direction: "),
        ({"inputs": SECRET, "raw_scores": 1}, 422, "raw_scores: "),
    ],
)
def test_bad_predict_request_is_named_in_the_error(
    client: httpx.Client, body: object, status: int, message: str
) -> None:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    check_error(client.post("/predict", content=content, headers=JSON), status, message=message)


@pytest.mark.parametrize(
    ("body", "status", "message"),
    [
        ({"texts": [SECRET]}, 422, "query: "),
        ({"query": SECRET}, 422, "texts: "),
        ({"query": SECRET, "texts": SECRET}, 422, "texts: "),
        ({"query": SECRET, "texts": []}, 422, "texts: at least 1 is needed"),
        ({"query": SECRET, "texts": [SECRET, 5]}, 422, "texts.1: "),
        ({"query": "", "texts": [SECRET]}, 422, "query: the document is empty"),
        ({"query": SECRET, "texts": [SECRET, ""]}, 422, "texts.1: the document is empty"),
        ({"query": SECRET, "texts": ["abc"] * 10_001}, 413, "texts: 10001; at most 10000"),
        ({"query": SECRET, "texts": [SECRET], "top_n": 0}, 422, "top_n: "),
    ],
)
def test_bad_rerank_request_is_named_in_the_error(
    client: httpx.Client, body: object, status: int, message: str
) -> None:
    check_error(client.post("/rerank", json=body), status, message=message)


def test_other_errors_have_the_same_shape(client: httpx.Client) -> None:
    check_error(client.post("/predict", content=b"a", headers={"content-type": "text/plain"}), 415)
    check_error(client.post("/predict", content=b" " * 9_000_000, headers=JSON), 413)
    check_error(client.get("/rerank"), 405)
    check_error(client.post("/predict", json={"inputs": "a"}, headers={"X-Request-Timeout-Ms": "soon"}), 422)


def test_unknown_fields_are_ignored(client: httpx.Client) -> None:
    plain = ask(client, "/predict", inputs="a good film").json()
    assert ask(client, "/predict", inputs="a good film", parameters={"top_k": 1}, model="theirs").json() == plain


def test_number_of_vectors_is_limited(client: httpx.Client) -> None:
    check_error(client.post("/embed", json={"inputs": ["abc"] * 257}), 413, message="inputs: 257; at most 256")
    assert len(ask(client, "/embed", inputs=[f"text {number}" for number in range(256)]).json()) == 256
    check_error(client.post("/embed", json={"inputs": SECRET, "dimensions": 5}), 422, message="have 320 numbers")
    check_error(client.post("/embed", json={"inputs": SECRET, "prompt_name": SECRET}), 422, message="prompt_name: ")


def test_body_with_too_many_values_is_rejected(client: httpx.Client) -> None:
    """Parsing millions of lists would block other requests for seconds; brackets inside strings do not count."""
    for unit, status in ((b"[],", 413), (b'[""],', 413), (b"[[]],", 413), (b'"",', 413), (b"1,", 413)):
        content = b'{"inputs":[' + (unit * (8_000_000 // len(unit)))[:-1] + b"]}"
        check_error(client.post("/predict", content=content, headers=JSON), status)
    ask(client, "/predict", inputs="[{" * 200_000)


def test_mutated_bodies_get_clear_errors(client: httpx.Client) -> None:
    seeds = [
        ("/predict", b'{"inputs":[["ab"],["cd"]],"truncate":true,"truncation_direction":"Left","raw_scores":true}'),
        ("/predict", b'{"inputs":["abc","def"],"truncate":null}'),
        ("/rerank", b'{"query":"abc","texts":["def","ghi"],"return_text":true,"top_n":1}'),
        ("/embed", b'{"inputs":["abc","def"],"normalize":false,"truncate":true,"prompt_name":null,"dimensions":320}'),
        ("/similarity", b'{"inputs":{"source_sentence":"abc","sentences":["def"]},"parameters":{"truncate":true}}'),
        ("/", b'{"inputs":["abc","def"],"parameters":{"top_k":1,"function_to_apply":"none"}}'),
    ]
    generator = random.Random(0)
    for _ in range(300):
        path, seed = generator.choice(seeds)
        response = client.post(path, content=mutate(seed, generator), headers=JSON)
        assert response.status_code in (200, 400, 413, 422), response.text
        assert response.status_code == 200 or set(response.json()) == {"error", "error_type"}


def test_routes_are_in_the_openapi_document(client: httpx.Client) -> None:
    document = client.get("/openapi.json").json()
    paths = document["paths"]
    for path in ("/predict", "/rerank", "/similarity", "/embed", "/"):
        assert "application/json" in paths[path]["post"]["requestBody"]["content"]
        schema = paths[path]["post"]["responses"]["422"]["content"]["application/json"]["schema"]
        assert schema == {"$ref": "#/components/schemas/TEIError"}
    assert set(document["components"]["schemas"]["TEIError"]["properties"]) == {"error", "error_type"}
    assert {"/info", "/health"} <= set(paths)
