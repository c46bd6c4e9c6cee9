"""HTTP details over raw connections; tests/unit/service/http checks limits of time and size."""

import json

import pytest

from tests.support.problems import SECRET
from tests.support.server import Server
from tests.support.wire import LAST_CHUNK, Answer, Wire, chunked, request


def bytes_read(answer: Answer) -> int:
    """Check a response with one document and return the length of that document."""
    assert answer.status == 200, answer
    (result,) = json.loads(answer.body)["results"]
    return int(result["coverage"]["bytes_total"])


def test_pipelined_requests_are_answered_in_order(server: Server) -> None:
    lengths = [1, 20_000, 2, 3, 5000, 4]
    with Wire(server.url) as wire:
        wire.send(b"".join(request(body=b"x" * length) for length in lengths))
        assert [bytes_read(wire.answer()) for _ in lengths] == lengths


def test_rejected_request_does_not_affect_other_pipelined_requests(server: Server) -> None:
    with Wire(server.url) as wire:
        wire.send(request(body=b"12") + request(body=b"") + request("/nothing") + request(body=b"1234"))
        answers = [wire.answer() for _ in range(4)]
        assert [answer.status for answer in answers] == [200, 422, 404, 200]
        assert [bytes_read(answers[0]), bytes_read(answers[3])] == [2, 4]


@pytest.mark.parametrize("sizes", [[1] * 30, [7, 11, 1], [30]])
def test_chunked_body_is_read_whole(server: Server, sizes: list[int]) -> None:
    with Wire(server.url) as wire:
        head = request(body=None, transfer_encoding="chunked")
        wire.send(head, *(chunked(b"x" * size) for size in sizes), LAST_CHUNK)
        assert bytes_read(wire.answer()) == sum(sizes)


def test_upgrade_is_ignored(server: Server) -> None:
    with Wire(server.url) as wire:
        wire.send(request(body=b"123", connection="Upgrade, HTTP2-Settings", upgrade="h2c", http2_settings="AAMA"))
        assert bytes_read(wire.answer()) == 3
        wire.send(request(body=b"4444"))
        assert bytes_read(wire.answer()) == 4


def test_expect_100_continue_is_answered(server: Server) -> None:
    with Wire(server.url) as wire:
        wire.send(request(body=b"", content_length="3", expect="100-continue"))
        assert wire.answer().status == 100
        wire.send(b"abc")
        assert bytes_read(wire.answer()) == 3


def test_too_long_a_body_is_rejected_without_100_continue(server: Server) -> None:
    with Wire(server.url) as wire:
        wire.send(request(body=b"", content_length=str(10**9), expect="100-continue"))
        assert wire.answer().status == 413


def test_head_and_http_1_0_are_supported(server: Server) -> None:
    with Wire(server.url) as wire:
        wire.send(request("/v2/health/live", None, "HEAD"))
        assert wire.answer(has_body=False).status in (200, 405)
        wire.send(request(body=b"12", version="1.0"))
        assert bytes_read(wire.answer()) == 2
        assert wire.has_ended()


def test_content_length_with_chunked_coding_is_rejected(server: Server) -> None:
    """Otherwise a proxy could take as the body what the server reads as a second request (request smuggling)."""
    hidden = request("/v1/models", None, "GET")
    with Wire(server.url) as wire:
        wire.send(request(body=LAST_CHUNK + hidden, transfer_encoding="chunked"))
        assert wire.answer().status == 400
        assert wire.has_ended()


@pytest.mark.parametrize(
    "sent",
    [
        request("/v1/classify\xe9"),
        request("/v1/%e9%00%ff", None, "GET"),
        request("/v1/models/%2e%2e%2f", None, "GET"),
        request("*", None, "OPTIONS"),
        request("http://other/v1/models", None, "GET"),
        request("//", None, "GET"),
        request("/v1/classify?" + "a" * 60_000),
        request("/v1/classify?%ff=%00&model=\x7f"),
        request("/v1/classify?model=%ff%fe"),
        request(method="PROPFIND"),
        request("/v1/models", None, "GET", x_request_id="\xe9\xff"),
        request("/v1/models", None, "GET", accept="\x80", user_agent="\xff"),
        request(content_type="text/plain; charset=\xe9"),
        request(x_request_timeout_ms="\xb2"),
        request(traceparent="\xb2", tracestate="\xff"),
        request(x_request_timeout_ms=""),
    ],
)
def test_odd_requests_never_cause_a_server_error(server: Server, sent: bytes) -> None:
    before = server.text().count("ERROR")
    with Wire(server.url) as wire:
        assert wire.send(sent).answer(has_body=b"OPTIONS" not in sent).status < 500
    assert server.text().count("ERROR") == before
    assert "Traceback" not in server.text()


def test_request_sent_byte_by_byte_is_read_completely(server: Server) -> None:
    with Wire(server.url) as wire:
        sent = request(body=SECRET.encode())
        wire.send(*(bytes([byte]) for byte in sent))
        assert bytes_read(wire.answer()) == len(SECRET)
    assert SECRET not in server.text()
