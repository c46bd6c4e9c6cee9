"""What a client gets for bad requests: a clear 4xx, as a problem, without its document."""

import contextlib
import json
import socket
import time

import httpx
import pytest

from service.http import MAX_HEAD_BYTES
from service.manifest import Manifest
from tests.e2e.conftest import SECRET, Server, check_problem

TEXT = {"content-type": "text/plain"}
JSON = {"content-type": "application/json"}


@pytest.mark.parametrize(
    ("body", "status", "code", "place"),
    [
        (b"", 400, "malformed_input", None),
        (b"{", 400, "malformed_input", None),
        (b'{"inputs": "\xff"}', 400, "malformed_input", None),
        (b'{"inputs": "\\ud800"}', 400, "malformed_input", None),
        (b"[" * 100_000, 400, "malformed_input", None),
        (f'{{"inputs": "{SECRET}"'.encode(), 400, "malformed_input", None),
        (b"[]", 422, "invalid_input", "body"),
        (b"null", 422, "invalid_input", "body"),
        (b"{}", 422, "invalid_input", "inputs"),
        (json.dumps({"inputs": 5}).encode(), 422, "invalid_input", "inputs"),
        (json.dumps({"inputs": [SECRET, 5]}).encode(), 422, "invalid_input", "inputs.list.1"),
        (json.dumps({"inputs": {"a": SECRET}}).encode(), 422, "invalid_input", "inputs"),
        (json.dumps({"inputs": []}).encode(), 422, "invalid_input", "inputs"),
        (json.dumps({"inputs": ""}).encode(), 422, "invalid_input", "inputs.0"),
        (json.dumps({"inputs": [SECRET, ""]}).encode(), 422, "invalid_input", "inputs.1"),
        (json.dumps({"inputs": SECRET, "extra": 1}).encode(), 422, "invalid_input", "extra"),
        (json.dumps({"inputs": "a", SECRET: 1}).encode(), 422, "invalid_input", SECRET[:32] + "..."),
        (json.dumps({"inputs": SECRET, "top_k": 1.0}).encode(), 422, "invalid_input", "top_k"),
        (json.dumps({"inputs": SECRET, "top_k": True}).encode(), 422, "invalid_input", "top_k"),
        (json.dumps({"inputs": SECRET, "detail": 1}).encode(), 422, "invalid_input", "detail"),
        (json.dumps({"inputs": SECRET, "top_k": 0}).encode(), 422, "invalid_input", "top_k"),
        (json.dumps({"inputs": SECRET, "top_k": 99}).encode(), 422, "invalid_input", "top_k"),
        (json.dumps({"inputs": SECRET, "top_k": "many"}).encode(), 422, "invalid_input", "top_k"),
        (json.dumps({"inputs": SECRET, "on_overflow": SECRET}).encode(), 422, "invalid_input", "on_overflow"),
        (json.dumps({"inputs": SECRET, "detail": SECRET}).encode(), 422, "invalid_input", "detail"),
        (json.dumps({"inputs": SECRET, "model": 3}).encode(), 422, "invalid_input", "model"),
        (json.dumps({"inputs": SECRET, "model": SECRET}).encode(), 404, "model_not_found", None),
        (json.dumps({"inputs": SECRET * 200, "on_overflow": "error"}).encode(), 422, "invalid_input", "inputs.0"),
        (json.dumps({"inputs": ["a"] * 257}).encode(), 413, "payload_too_large", None),
        (json.dumps({"inputs": "a" * (2**20 + 1)}).encode(), 413, "payload_too_large", None),
    ],
)
def test_bad_json_bodies(client: httpx.Client, body: bytes, status: int, code: str, place: str | None) -> None:
    problem = check_problem(client.post("/v1/classify", content=body, headers=JSON), status, code)
    if place is not None:
        assert problem["errors"][0]["loc"] == place


def test_duplicate_and_unknown_parameters(client: httpx.Client) -> None:
    for query in ("color=red", "detail=maybe", "top_k=0", "top_k=1&top_k=2", "on_overflow=cut"):
        check_problem(client.post(f"/v1/classify?{query}", content=b"x", headers=TEXT), 422, "invalid_input")
    in_both = client.post("/v1/classify?detail=true", json={"inputs": SECRET})
    check_problem(in_both, 422, "invalid_input")


def test_empty_document_is_refused(client: httpx.Client) -> None:
    problem = check_problem(client.post("/v1/classify", content=b"", headers=TEXT), 422, "invalid_input")
    assert "empty" in problem["detail"]


@pytest.mark.parametrize("kind", ["", "text/html", "application/xml", "text/plain; charset=utf-16", "nonsense"])
def test_other_content_types_are_refused(client: httpx.Client, kind: str) -> None:
    response = client.post("/v1/classify", content=SECRET.encode(), headers={"content-type": kind})
    check_problem(response, 415, "unsupported_media_type")


def test_compressed_bodies_are_refused(client: httpx.Client) -> None:
    response = client.post("/v1/classify", content=b"\x1f\x8b", headers={**TEXT, "content-encoding": "gzip"})
    check_problem(response, 415, "unsupported_media_type")


def test_body_over_the_limit_is_refused(client: httpx.Client) -> None:
    check_problem(client.post("/v1/classify", content=b"x" * 10_000_000, headers=TEXT), 413, "payload_too_large")
    check_problem(client.post("/v1/classify", content=b"x" * (2**20 + 1), headers=TEXT), 413, "payload_too_large")


def test_chunked_body_is_counted(client: httpx.Client) -> None:
    chunks = (b"x" * 65536 for _ in range(200))
    check_problem(client.post("/v1/classify", content=chunks, headers=TEXT), 413, "payload_too_large")


def test_declared_length_is_refused_before_the_body_is_sent(server: Server) -> None:
    host, port = server.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=10) as connection:
        head = (
            "POST /v1/classify HTTP/1.1\r\nHost: x\r\nContent-Type: text/plain\r\nContent-Length: 99999999999\r\n\r\n"
        )
        connection.sendall(head.encode())
        assert connection.recv(100).startswith(b"HTTP/1.1 413 ")


@pytest.mark.parametrize("value", ["0", "-5", "soon", "1e3", "", "9" * 30])
def test_bad_timeouts_are_refused(client: httpx.Client, value: str) -> None:
    response = client.post("/v1/classify", content=b"x", headers={**TEXT, "X-Request-Timeout-Ms": value})
    check_problem(response, 422, "invalid_input")


def test_deadline_is_answered_with_504(client: httpx.Client, manifest: Manifest) -> None:
    body = b"x" * 2**20
    response = client.post("/v1/classify", content=body, headers={**TEXT, "X-Request-Timeout-Ms": "20"})
    check_problem(response, 504, "deadline_exceeded")
    again = client.post("/v1/classify", content=b"still there", headers=TEXT)
    assert again.json()["model"] == manifest.name


def test_router_errors_are_problems(client: httpx.Client) -> None:
    check_problem(client.get("/v1/nothing"), 404, "not_found")
    check_problem(client.get("/v1/models/none"), 404, "model_not_found")
    refused = client.get("/v1/classify")
    check_problem(refused, 405, "method_not_allowed")
    assert refused.headers["allow"] == "POST"
    assert client.patch("/v1/classify").status_code == 405


def exchange(server: Server, *parts: bytes) -> bytes:
    """Send parts as packets of their own; all that comes back until the connection ends or 3 seconds of silence."""
    host, port = server.url.removeprefix("http://").split(":")
    received = b""
    with socket.create_connection((host, int(port)), timeout=3) as connection:
        for part in parts:
            connection.sendall(part)
            time.sleep(0.1)
        with contextlib.suppress(TimeoutError):
            while chunk := connection.recv(65536):
                received += chunk
    return received


HEAD = b"POST /v1/classify HTTP/1.1\r\nHost: x\r\nContent-Type: text/plain\r\n"


def test_body_after_an_upgrade_header_is_never_a_request(server: Server) -> None:
    hidden = b"GET /v1/models/hidden HTTP/1.1\r\nHost: x\r\n\r\n"
    upgrade = b"Connection: Upgrade\r\nUpgrade: h2c\r\nContent-Length: %d\r\n\r\n" % len(hidden)
    answer = exchange(server, HEAD + upgrade, hidden)
    assert answer.count(b"HTTP/1.1") == 1
    assert b'"bytes_total":%d' % len(hidden) in answer


def test_absurd_content_length_is_refused(server: Server) -> None:
    answer = exchange(server, HEAD + b"Content-Length: " + b"9" * 5000 + b"\r\n\r\nabc")
    assert answer.startswith((b"HTTP/1.1 413 ", b"HTTP/1.1 400 "))
    assert "Traceback" not in server.text()


def test_endless_headers_are_refused(server: Server) -> None:
    """Little more than allowed, so that nothing is left unread, which would reset the connection before the answer."""
    answer = exchange(server, HEAD + b"X-A: " + b"a" * MAX_HEAD_BYTES)
    assert answer.startswith(b"HTTP/1.1 431 ")


def test_stalled_upload_ends_at_its_deadline(server: Server) -> None:
    answer = exchange(server, HEAD + b"Connection: close\r\nX-Request-Timeout-Ms: 100\r\nContent-Length: 10\r\n\r\nabc")
    assert answer.startswith(b"HTTP/1.1 504 ")


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/classify", {"inputs": "x"}),
        ("/v1/score", {"pairs": [{"a": "x", "b": "y"}]}),
        ("/v1/rank", {"query": "x", "documents": ["y"]}),
        ("/v1/forecast", {"series": [[1.0]]}),
    ],
)
def test_options_of_a_json_body_are_not_ignored_in_the_query(
    client: httpx.Client, path: str, body: dict[str, object]
) -> None:
    problem = check_problem(client.post(f"{path}?model=other", json=body), 422, "invalid_input")
    assert problem["errors"] == [{"loc": "query", "msg": "not allowed with a JSON body"}]
