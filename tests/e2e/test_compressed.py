"""Compressed bodies get the answers and the limits of uncompressed ones, as one document and as lines."""

import asyncio
import gzip
import json
import zlib
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import numpy as np
import pytest
import tritonclient.http as triton
import tritonclient.http.aio as triton_aio

from tests.support.answers import same_answer
from tests.support.offline import Offline, document
from tests.support.problems import SECRET, check_problem
from tests.support.server import Server
from tests.support.wire import LAST_CHUNK, Wire, chunked, request

JSON, NDJSON, TEXT = "application/json", "application/x-ndjson", "text/plain"
CODINGS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "X-GZip": gzip.compress,
    "deflate": zlib.compress,
    "identity": bytes,
}
BODY_BYTES = 8 * 2**20
BOMB = 128 * 2**20
"""Size to which 130 KB inflate."""


def post(
    client: httpx.Client, path: str, body: bytes, kind: str = JSON, coding: str = "gzip", **headers: str
) -> httpx.Response:
    """Post a body that is already compressed."""
    return client.post(path, content=body, headers={"content-type": kind, "content-encoding": coding, **headers})


def examples(client: httpx.Client) -> Iterator[tuple[str, str, bytes]]:
    """Yield path, media type and body of the documented examples of every route that reads a body."""
    for path, item in client.get("/openapi.json").json()["paths"].items():
        operation = item.get("post", {})
        for parameter in operation.get("parameters", ()):
            if parameter["in"] == "path":
                path = path.replace("{" + parameter["name"] + "}", parameter["schema"]["examples"][0])
        for kind, media in operation.get("requestBody", {"content": {}})["content"].items():
            if "example" in media:
                example = media["example"]
                yield path, kind, (json.dumps(example) if kind == JSON else example).encode()


def without_times(response: httpx.Response) -> Any:
    """Return the JSON of a response without ids, times and the state of the cache, which differ between requests."""
    assert response.status_code == 200, response.text
    if response.headers["content-type"] == NDJSON:
        return [json.loads(line) for line in response.text.splitlines()]
    content = response.json()
    if isinstance(content, dict):
        for name in ("id", "created_at"):
            content.pop(name, None)
        for output in content.get("outputs", ()):
            output.pop("id", None)
        for result in content.get("results", ()):
            result.pop("cached", None)
    return content


@pytest.mark.parametrize("coding", CODINGS)
def test_every_route_reads_compressed_bodies(fresh: Server, coding: str) -> None:
    with fresh.client() as client:
        found = list(examples(client))
        assert len({path for path, _, _ in found}) > 8
        for path, kind, body in found:
            plain = without_times(client.post(path, content=body, headers={"content-type": kind}))
            coded = without_times(post(client, path, CODINGS[coding](body), kind, coding))
            assert same_answer(coded, plain), f"{path}: {coded} {plain}"  # batches may differ in their number of rows


def test_gzip_members_are_concatenated(client: httpx.Client) -> None:
    lines = gzip.compress(b'{"text":"a"}\n{"te') + gzip.compress(b'xt":"b"}\n')
    assert len(post(client, "/v1/classify", lines, NDJSON).text.splitlines()) == 2


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_compressed_body_may_be_split_between_chunks_anywhere(server: Server, size: int) -> None:
    body = gzip.compress(document(20_000))
    with Wire(server.url) as wire:
        wire.send(request(body=None, transfer_encoding="chunked", content_encoding="gzip"))
        wire.send(*(chunked(body[first : first + size]) for first in range(0, len(body), size)), LAST_CHUNK)
        (result,) = json.loads(wire.answer().body)["results"]
        assert result["coverage"]["bytes_total"] == 20_000


def test_limits_apply_to_the_inflated_size(client: httpx.Client) -> None:
    spaces = b" " * (BODY_BYTES - len(b'{"inputs":"a"}')) + b'{"inputs":"a"}'
    assert post(client, "/v1/classify", gzip.compress(spaces)).status_code == 200
    refused = check_problem(post(client, "/v1/classify", gzip.compress(b" " + spaces)), 413, "payload_too_large")
    assert refused["detail"] == f"the body is longer than {BODY_BYTES} bytes"
    text = gzip.compress(bytes(2**20 + 1))
    refused = check_problem(post(client, "/v1/classify", text, TEXT), 413, "payload_too_large")
    assert "the document has 1048577 bytes; at most 1048576" in refused["detail"]


def test_compression_bomb_takes_bounded_memory(start: Callable[..., Server]) -> None:
    server = start("--drain-delay-s", "0", "--default-forecaster", "ettm2")
    bomb = gzip.compress(bytes(BOMB))
    layered = gzip.compress(bomb)
    with server.client() as client:
        idle = server.rss_bytes()
        for path, kind in (("/v1/classify", TEXT), ("/v1/forecast", JSON), ("/v2/models/imdb-s3/infer", JSON)):
            refused = post(client, path, bomb, kind)
            assert refused.status_code == 413, refused.text
        assert post(client, "/v1/classify", layered, JSON).status_code == 400  # gzip inside gzip is not JSON
        assert post(client, "/v1/classify", layered, JSON, coding="gzip, gzip").status_code == 415
        (line,) = post(client, "/v1/classify", bomb, NDJSON).text.splitlines()
        assert json.loads(line)["error"]["status"] == 413
        assert server.rss_bytes() < idle + 6 * BODY_BYTES


def test_a_million_blank_lines_are_skipped(client: httpx.Client) -> None:
    body = gzip.compress(b"\n" * 10**6 + b'{"text":"a"}' + b"\r\n" * 10**5)
    (line,) = post(client, "/v1/classify", body, NDJSON).text.splitlines()
    assert json.loads(line)["label"]
    check_problem(post(client, "/v1/classify", gzip.compress(b"\n" * 10**5), NDJSON), 422, "invalid_input")


PACKED = gzip.compress(json.dumps({"inputs": SECRET, "texts": [SECRET]}).encode(), mtime=0)


DAMAGED = {
    "nothing": ("gzip", b"", "the body is not complete gzip"),
    "cut": ("gzip", PACKED[:-1], "the body is not complete gzip"),
    "not compressed": ("gzip", b'{"inputs": "a"}', "the body is not valid gzip"),
    "wrong checksum": ("gzip", PACKED[:-6] + b"123456", "the body is not valid gzip"),
    "and more": ("gzip", PACKED + b"more", "the data after the first gzip member is not valid gzip"),
    "gzip as deflate": ("deflate", PACKED, "the body is not valid deflate (zlib's format)"),
    "deflate and more": (
        "deflate",
        zlib.compress(b"{}") + b"more",
        "the body has data after the end of its deflate stream",
    ),
}


@pytest.mark.parametrize("damage", DAMAGED)
def test_damaged_bodies_are_rejected(client: httpx.Client, damage: str) -> None:
    coding, body, message = DAMAGED[damage]
    problem = check_problem(post(client, "/v1/classify", body, coding=coding), 400, "malformed_input")
    assert problem["detail"] == message
    assert post(client, "/predict", body, coding=coding).json() == {"error": message, "error_type": "Validation"}
    assert post(client, "/v2/models/aan/infer", body, coding=coding).json() == {"error": message}
    answer = post(client, "/v1/timeseries/forecast", body, coding=coding)
    assert (answer.status_code, answer.json()["error"]["message"]) == (400, message)


def test_damaged_upload_is_answered_up_to_the_damage(client: httpx.Client) -> None:
    good = b'{"text":"a"}\n' * 3
    for body in (gzip.compress(good)[:-1], gzip.compress(good) + b"more", gzip.compress(good + b'{"text":')[:-8]):
        *lines, last = map(json.loads, post(client, "/v1/classify", body, NDJSON).text.splitlines())
        assert [line["label"] == lines[0]["label"] for line in lines] == [True] * 3
        assert (last["index"], last["error"]["code"]) == (3, "malformed_input")


@pytest.mark.parametrize("coding", ["br", "zstd", "gzip, gzip", "deflate, gzip", "compress"])
@pytest.mark.parametrize("path", ["/v1/classify", "/v1/forecast", "/predict", "/v2/models/imdb-s3/infer"])
def test_unknown_coding_is_rejected_with_the_accepted_ones(client: httpx.Client, path: str, coding: str) -> None:
    for kind in (JSON, NDJSON) if path == "/v1/classify" else (JSON,):
        refused = post(client, path, PACKED, kind, coding)
        assert refused.status_code == 415
        assert refused.headers["accept-encoding"] == "gzip, deflate"
        assert "send the body without Content-Encoding, or with one of gzip, deflate" in refused.text
    assert "accept-encoding" not in client.post("/v1/classify", content=b"a", headers={"content-type": "a/b"}).headers


def test_compressed_lines_are_answered_during_their_upload(server: Server) -> None:
    packer = zlib.compressobj(wbits=31)
    head = request(body=None, content_type=NDJSON, content_encoding="gzip", transfer_encoding="chunked")
    with Wire(server.url) as wire:
        wire.send(head)
        chunks: Iterator[bytes] | None = None
        for number in range(5):
            line = packer.compress(b'{"id":%d,"text":"x"}\n' % number) + packer.flush(zlib.Z_SYNC_FLUSH)
            wire.send(chunked(line))
            if chunks is None:
                assert wire.head()[0] == 200
                chunks = wire.chunks()
            assert json.loads(next(chunks))["id"] == number
        wire.send(chunked(packer.flush()), LAST_CHUNK)
        assert list(chunks or []) == []
        wire.send(request())
        assert wire.answer().status == 200


def test_more_lines_than_the_read_ahead_limit_are_all_answered(client: httpx.Client) -> None:
    lines = b"".join(b'{"id":%d,"text":"x"}\n' % number for number in range(1000))
    answers = [
        json.loads(line) for line in post(client, "/v1/classify", gzip.compress(lines), NDJSON).text.splitlines()
    ]
    assert [answer["id"] for answer in answers] == list(range(1000))


@pytest.mark.parametrize("algorithm", ["gzip", "deflate"])
@pytest.mark.parametrize("is_binary", [True, False])
def test_requests_compressed_by_tritons_client_are_accepted(
    server: Server, offline: Offline, algorithm: str, is_binary: bool
) -> None:
    documents = [b"A good film.", document(9000)]
    text = triton.InferInput("text", [2], "BYTES")
    text.set_data_from_numpy(np.array(documents, object), binary_data=is_binary)
    packed = {"request_compression_algorithm": algorithm, "response_compression_algorithm": algorithm}
    address = server.url.removeprefix("http://")
    with triton.InferenceServerClient(address) as client:
        results = [
            client.infer("imdb-s3", [text], **packed),
            client.async_infer("imdb-s3", [text], **packed).get_result(),
        ]

    async def ask() -> triton.InferResult:
        async with triton_aio.InferenceServerClient(address) as client:
            return await client.infer("imdb-s3", [text], **packed)

    for result in (*results, asyncio.run(ask())):
        for row, given in zip(result.as_numpy("scores").tolist(), documents, strict=True):
            assert row == pytest.approx(list(offline(given).values()), abs=1e-5)
