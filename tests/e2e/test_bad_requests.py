"""Bad requests get a clear 4xx problem that does not repeat the document."""

import json

import httpx
import pytest

from artifact.manifest import ExportManifest
from service.http.protocol import MAX_HEAD_BYTES
from tests.support.problems import SECRET, check_problem
from tests.support.server import ControlledServer, Server
from tests.support.wire import LAST_CHUNK, Wire, chunked, request

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
        (json.dumps({"inputs": [SECRET, 5]}).encode(), 422, "invalid_input", "inputs.1"),
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
def test_bad_json_body_is_rejected(
    client: httpx.Client, body: bytes, status: int, code: str, place: str | None
) -> None:
    problem = check_problem(client.post("/v1/classify", content=body, headers=JSON), status, code)
    if place is not None:
        assert problem["errors"][0]["loc"] == place


def test_duplicate_and_unknown_parameters_are_rejected(client: httpx.Client) -> None:
    for query in ("color=red", "detail=maybe", "top_k=0", "top_k=1&top_k=2", "on_overflow=cut"):
        check_problem(client.post(f"/v1/classify?{query}", content=b"x", headers=TEXT), 422, "invalid_input")
        check_problem(client.post(f"/v1/classify?{query}", json={"inputs": SECRET}), 422, "invalid_input")
    contradicted = client.post("/v1/classify?top_k=1", json={"inputs": SECRET, "top_k": 2})
    check_problem(contradicted, 422, "invalid_input")


@pytest.mark.parametrize(
    ("path", "name", "values"),
    [
        ("/v1/classify", "content-type", ("application/json", "text/plain")),
        ("/v1/classify", "x-request-timeout-ms", ("1000", "0")),
        ("/v2/models/imdb-s3/infer", "inference-header-content-length", ("2", "3")),
    ],
)
def test_headers_that_contradict_each_other_are_rejected(
    client: httpx.Client, path: str, name: str, values: tuple[str, str]
) -> None:
    response = client.post(path, content=b"{}", headers=[(name, value) for value in values])
    assert response.status_code == 422
    assert f"{name}: given more than once, with different values" in response.text


def test_empty_document_is_rejected(client: httpx.Client) -> None:
    problem = check_problem(client.post("/v1/classify", content=b"", headers=TEXT), 422, "invalid_input")
    assert "empty" in problem["detail"]


@pytest.mark.parametrize("kind", ["", "text/html", "application/xml", "text/plain; charset=utf-16", "nonsense"])
def test_other_content_types_are_rejected(client: httpx.Client, kind: str) -> None:
    response = client.post("/v1/classify", content=SECRET.encode(), headers={"content-type": kind})
    check_problem(response, 415, "unsupported_media_type")


def test_body_over_the_limit_is_rejected(client: httpx.Client) -> None:
    check_problem(client.post("/v1/classify", content=b"x" * 10_000_000, headers=TEXT), 413, "payload_too_large")
    check_problem(client.post("/v1/classify", content=b"x" * (2**20 + 1), headers=TEXT), 413, "payload_too_large")


def test_chunked_body_over_the_limit_is_rejected(client: httpx.Client) -> None:
    chunks = (b"x" * 65536 for _ in range(200))
    check_problem(client.post("/v1/classify", content=chunks, headers=TEXT), 413, "payload_too_large")


def test_content_length_over_the_limit_is_rejected_before_the_body(server: Server) -> None:
    with Wire(server.url) as wire:
        assert wire.send(request(body=b"", content_length="99999999999")).answer().status == 413


@pytest.mark.parametrize("value", ["0", "-5", "soon", "1e3", "", "9" * 30])
def test_bad_timeouts_are_rejected(client: httpx.Client, value: str) -> None:
    response = client.post("/v1/classify", content=b"x", headers={**TEXT, "X-Request-Timeout-Ms": value})
    check_problem(response, 422, "invalid_input")


def test_request_past_its_deadline_gets_504(controlled: ControlledServer, manifest: ExportManifest) -> None:
    with controlled.held():
        response = controlled.post("/v1/classify", content=b"x", headers={**TEXT, "X-Request-Timeout-Ms": "20"})
    check_problem(response, 504, "deadline_exceeded")
    again = controlled.post("/v1/classify", content=b"still there", headers=TEXT)
    assert again.json()["model"] == manifest.name


def test_router_errors_are_problems(client: httpx.Client) -> None:
    check_problem(client.get("/v1/nothing"), 404, "not_found")
    check_problem(client.get("/v1/models/none"), 404, "model_not_found")
    refused = client.get("/v1/classify")
    check_problem(refused, 405, "method_not_allowed")
    assert refused.headers["allow"] == "POST"
    assert client.patch("/v1/classify").status_code == 405


def test_body_after_an_upgrade_header_is_not_read_as_a_request(server: Server) -> None:
    hidden = request("/v1/models/hidden", None, "GET")
    with Wire(server.url) as wire:
        wire.send(request(body=hidden, connection="Upgrade", upgrade="h2c"), request(body=b"x", connection="close"))
        totals = [json.loads(wire.answer().body)["results"][0]["coverage"]["bytes_total"] for _ in range(2)]
        assert totals == [len(hidden), 1]
        assert wire.has_ended()


@pytest.mark.parametrize(
    "head",
    [
        b"GET /health HTTP/1.1\r\n\r\n",
        b"GET /health HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n",
        b"GET /health HTTP/1.1\r\nHost: a, b\r\n\r\n",
        b"GET /health HTTP/1.1\r\nHost: a/b\r\n\r\n",
        b"GET /health HTTP/1.0\r\nHost: a\r\nHost: b\r\n\r\n",
        b"GET / HTTP/1.1\r\n\r\n",
        b"POST /v1/classify HTTP/1.1\r\nContent-Type: text/plain\r\nContent-Length: 1\r\n\r\nx",
        b"OPTIONS /v1/classify HTTP/1.1\r\nOrigin: http://a\r\nAccess-Control-Request-Method: POST\r\n\r\n",
    ],
)
def test_request_without_one_valid_host_is_rejected(server: Server, head: bytes) -> None:
    with Wire(server.url) as wire:
        assert wire.send(head).answer().status == 400


@pytest.mark.parametrize("host", ["a.example", "a.example:8000", "[::1]:8000", "under_score.example", ""])
def test_request_with_one_host_is_answered(server: Server, host: str) -> None:
    with Wire(server.url) as wire:
        assert wire.send(request("/health", None, "GET", host=host)).answer().status == 200


def test_request_of_http_1_0_needs_no_host(server: Server) -> None:
    with Wire(server.url) as wire:
        assert wire.send(b"GET /health HTTP/1.0\r\n\r\n").answer().status == 200


def test_unknown_transfer_coding_is_rejected(server: Server) -> None:
    with Wire(server.url) as wire:
        head = request(body=None, transfer_encoding="gzip, chunked")
        wire.send(head + chunked(b"\x1f\x8b") + LAST_CHUNK + request("/v1/models", None, "GET"))
        answer = wire.answer()
        assert (answer.status, answer.headers["connection"]) == (501, "close")
        assert wire.has_ended()


def test_impossible_content_length_is_rejected(server: Server) -> None:
    with Wire(server.url) as wire:
        assert wire.send(request(body=b"", content_length="9" * 5000) + b"abc").answer().status in (400, 413)
    assert "Traceback" not in server.text()


def test_endless_headers_are_rejected(server: Server) -> None:
    """Slightly more than allowed: unread bytes would reset the connection before the client reads the response."""
    with Wire(server.url) as wire:
        assert wire.send(request(body=None, x_a="a" * MAX_HEAD_BYTES)[:-4]).answer().status == 431


LARGE = b"a" * 100_000
START = request(body=None, transfer_encoding="chunked", connection="close")


@pytest.mark.parametrize(
    ("sent", "answered"),
    [
        (request(body=b"1") + request(body=b"2", connection="close", x_long=LARGE.decode()), 1),
        (request("/v1/models", None, "GET") + request(body=b"2", connection="close", x_long=LARGE.decode()), 1),
        (request(body=b"1") + request("/v1/classify?" + LARGE.decode(), connection="close"), 1),
        (START + b"1;" + LARGE + b"\r\nx\r\n" + LAST_CHUNK, 0),
        (START + chunked(b"x") + b"1;" + LARGE + b"\r\nx\r\n" + LAST_CHUNK, 0),
        (START + chunked(b"x") + b"0\r\nx-long: " + LARGE + b"\r\n\r\n", 0),
        (START + chunked(b"x") + b"0\r\n" + b"x-many: 1\r\n" * 10_000 + b"\r\n", 0),
    ],
)
def test_large_heads_chunk_extensions_and_trailers_behind_a_body_are_rejected(
    server: Server, sent: bytes, answered: int
) -> None:
    """All in one write, so that they arrive together with what precedes them."""
    with Wire(server.url) as wire:
        received = wire.send(sent).rest()
    assert received.count(b"HTTP/1.1 200") <= answered, "unread bytes may reset the connection"


def test_headers_and_trailers_within_the_limit_are_accepted(server: Server) -> None:
    allowed = "a" * (MAX_HEAD_BYTES - 500)
    with Wire(server.url) as wire:
        trailers = b"0\r\nx-long: " + allowed.encode() + b"\r\n\r\n"
        last = request(body=b"3", connection="close", x_long=allowed)
        wire.send(request(body=b"1", x_long=allowed))
        wire.send(request(body=None, transfer_encoding="chunked") + chunked(b"x") + trailers + last)
        assert wire.rest().count(b"HTTP/1.1 200") == 3


def test_stalled_upload_ends_at_the_deadline(server: Server) -> None:
    with Wire(server.url) as wire:
        wire.send(request(body=b"", x_request_timeout_ms="100", content_length="10") + b"abc")
        assert wire.answer().status == 504


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/rank", {"query": "x", "documents": ["y"]}),
        ("/v1/forecast", {"series": [[1.0]]}),
    ],
)
def test_options_of_the_json_body_are_rejected_in_the_query(
    client: httpx.Client, path: str, body: dict[str, object]
) -> None:
    problem = check_problem(client.post(f"{path}?model=other", json=body), 422, "invalid_input")
    assert problem["errors"] == [{"loc": "query", "msg": "not allowed with a JSON body"}]
