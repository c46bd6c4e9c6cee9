"""OpenAI's `/v1/embeddings`: its shape and the vectors computed offline."""

import base64
import subprocess
import sys
from collections.abc import Callable, Sequence
from typing import Any

import httpx
import numpy as np
import pytest

from tests.support.offline import OfflineMatcher, document
from tests.support.paths import ROOT
from tests.support.problems import SECRET
from tests.support.server import Server

LONG = document(9000).decode()
LONGEST = document(122_910).decode()
"""30 characters more than Infinity reads."""


def vectors(answer: dict[str, Any]) -> np.ndarray:
    """Decode the vectors (texts, dim) of a response as OpenAI's client does."""
    assert [(entry["object"], entry["index"]) for entry in answer["data"]] == [
        ("embedding", index) for index in range(len(answer["data"]))
    ]
    found = [entry["embedding"] for entry in answer["data"]]
    return np.array([np.frombuffer(base64.b64decode(v), "<f4") if isinstance(v, str) else v for v in found], np.float32)


def expected(texts: Sequence[str], matcher: OfflineMatcher) -> np.ndarray:
    plain = np.stack([matcher.vector(text.encode(), "windows") for text in texts])
    vectors: np.ndarray = plain / np.linalg.norm(plain, axis=1, keepdims=True)
    return vectors


def test_vectors_equal_those_of_the_matcher(client: httpx.Client, matcher: OfflineMatcher) -> None:
    for body, texts in (
        ({"input": LONG}, [LONG]),
        ({"input": ["on parsing", LONG], "model": "aan"}, ["on parsing", LONG]),
        ({"input": ["on parsing", LONG], "encoding_format": "base64"}, ["on parsing", LONG]),
        ({"input": [LONGEST, LONGEST[:-30]]}, [LONGEST, LONGEST[:-30]]),
    ):
        answer = client.post("/v1/embeddings", json=body).json()
        assert (answer["object"], answer["model"]) == ("list", "aan")
        assert answer["usage"] == dict.fromkeys(("prompt_tokens", "total_tokens"), sum(map(len, texts)))
        assert np.allclose(vectors(answer), expected(texts, matcher), atol=1e-5)


def test_base64_has_exactly_the_numbers_of_float(client: httpx.Client) -> None:
    answers = [
        client.post("/v1/embeddings", json={"input": ["on parsing", LONG], **more}).json()
        for more in (
            {},
            {"dimensions": 320},
            {"encoding_format": "base64"},
            {"encoding_format": "base64", "user": "me"},
        )
    ]
    assert {type(answer["data"][0]["embedding"]) for answer in answers} == {list, str}
    plain, *others = map(vectors, answers)
    assert plain.shape == (2, 320)
    for other in others:
        assert np.array_equal(other, plain)


def test_as_many_texts_as_clients_send_are_embedded(client: httpx.Client, matcher: OfflineMatcher) -> None:
    texts = [f"a paper on parsing, number {number}" for number in range(2048)]
    answer = client.post("/v1/embeddings", params={"api-version": "2024-02-01"}, json={"input": texts}).json()
    assert len(answer["data"]) == 2048
    assert np.allclose(vectors(answer)[::500], expected(texts[::500], matcher), atol=1e-5)


def test_models_are_listed_and_retrieved_by_names_and_aliases(start: Callable[..., Server]) -> None:
    server = start("--models", "aan,imdb-s3", "--aliases", "text-embedding-3-small=aan,gpt=imdb-s3")
    names = {"aan": "aan", "imdb-s3": "imdb-s3", "text-embedding-3-small": "aan", "gpt": "imdb-s3"}
    listed = server.get("/v1/models").json()
    assert (listed["object"], [model["id"] for model in listed["data"]]) == ("list", list(names))
    for model in listed["data"]:
        found = server.get(f"/v1/models/{model['id']}").json()
        assert model.items() <= found.items()
        assert (found["name"], found["object"]) == (names[model["id"]], "model")
    for path in ("/v1/embeddings", "/v1/classify"):
        key, name = ("input", "text-embedding-3-small") if path == "/v1/embeddings" else ("inputs", "gpt")
        assert server.post(path, json={key: "a film to see twice", "model": name}).json()["model"] == names[name]


@pytest.mark.parametrize(
    ("aliases", "message"),
    [
        ("nonsense", "setting aliases = 'nonsense': give different names as alias=model, separated by commas"),
        ("gpt=none", "aliases: gpt is for 'none', which is not among the exports: aan"),
    ],
)
def test_wrong_aliases_are_an_error_at_the_start(aliases: str, message: str) -> None:
    command = [sys.executable, "-m", "service", "--port", "0", "--models", "aan", "--aliases", aliases]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr.splitlines()[-1].startswith(f"error: {message}")) == (2, True), ended.stderr


def test_errors_have_openais_shape(client: httpx.Client) -> None:
    bodies: list[tuple[object, int, str | None, str]] = [
        ([], 422, "body", "invalid_input"),
        ({"input": [SECRET, 5]}, 422, "input.1", "invalid_input"),
        ({"input": SECRET, "model": "none"}, 404, None, "model_not_found"),
        ({"input": SECRET, "model": "imdb-s3"}, 422, "model", "invalid_input"),
        ({"input": ["abc"] * 2049}, 413, None, "payload_too_large"),
    ]
    for body, status, param, code in bodies:
        refused = client.post("/v1/embeddings", json=body)
        error = refused.json()["error"]
        assert (refused.status_code, error["param"], error["code"]) == (status, param, code)
        assert error["type"] == "invalid_request_error"
        assert SECRET not in refused.text
    assert client.get("/v1/embeddings").json()["error"]["code"] == "method_not_allowed"
    refused = client.post("/v1/embeddings", content=b"a", headers={"content-type": "text/plain"})
    assert (refused.status_code, refused.json()["error"]["code"]) == (415, "unsupported_media_type")
