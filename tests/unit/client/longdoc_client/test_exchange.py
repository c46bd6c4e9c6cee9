"""Repetitions of requests, with a clock that the test sets."""

import itertools
import json
from typing import Any

import httpx
import pytest
from longdoc_client.errors import RequestError, Unreachable
from longdoc_client.exchange import BYTES_PER_REQUEST, JSON, LINES_PER_REQUEST, NDJSON, Call, Exchange, calls

LINES = (b'{"text":"a"}', b'{"text":"b"}', b'{"text":"c"}')
BUSY = {"status": 503, "code": "shutting_down", "detail": "the server is shutting down", "request_id": "7"}


class Clock:
    """Time in seconds."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def lines(*answers: Any) -> httpx.Response:
    return httpx.Response(200, content=b"".join(json.dumps(answer).encode() + b"\n" for answer in answers))


def refused(status: int, **headers: str) -> httpx.Response:
    return httpx.Response(status, json={**BUSY, "status": status}, headers=headers)


def test_lines_without_an_answer_are_sent_again(clock: Clock) -> None:
    exchange = Exchange(Call("/v1/classify", LINES), 10, clock)
    assert exchange.request()["content"] == b"\n".join(LINES)
    bad = {"index": 1, "error": {"status": 422, "code": "invalid_input"}}
    wait_s = exchange.receive(lines({"index": 0, "label": "x"}, bad, {"index": 2, "error": BUSY}))
    assert wait_s is not None
    assert exchange.request()["content"] == LINES[2]
    assert exchange.receive(lines({"index": 0, "label": "z"})) is None
    assert [answer.get("label") for answer in exchange.answers] == ["x", None, "z"]
    assert exchange.answers[1] == bad


def test_answers_that_end_early_are_asked_for_again(clock: Clock) -> None:
    exchange = Exchange(Call("/v1/classify", LINES), 10, clock)
    assert exchange.receive(lines({"index": 0, "label": "x"})) is not None
    assert exchange.request()["content"] == b"\n".join(LINES[1:])


def test_time_of_retry_after_is_waited(clock: Clock) -> None:
    exchange = Exchange(Call("/v1/rank", (b"{}",), media=JSON), 10, clock)
    assert exchange.receive(refused(429, **{"retry-after": "3"})) == 3
    clock.now += 3
    assert exchange.request()["headers"]["x-request-timeout-ms"] == "7000"
    assert exchange.receive(httpx.Response(200, json={"results": []})) is None
    assert exchange.answers == [{"results": []}]


def test_waits_grow_to_a_limit(clock: Clock) -> None:
    exchange = Exchange(Call("/v1/rank", (b"{}",), media=JSON), 1000, clock)
    waits = [exchange.receive(httpx.ConnectError("refused")) or 0 for _ in range(10)]
    assert 0.05 <= waits[0] <= 0.1
    assert all(2.5 <= wait <= 5 for wait in waits[-3:])


@pytest.mark.parametrize("retry_after", ["11", "soon", ""])
def test_deadline_ends_the_repetitions(clock: Clock, retry_after: str) -> None:
    exchange = Exchange(Call("/v1/rank", (b"{}",), media=JSON), 10, clock)
    clock.now += 0 if retry_after == "11" else 9.999
    with pytest.raises(RequestError, match=r"429 shutting_down: the server is shutting down") as error:
        exchange.receive(refused(429, **{"retry-after": retry_after}))
    assert (error.value.status, error.value.request_id, error.value.index) == (429, "7", None)
    clock.now += 10
    with pytest.raises(Unreachable, match="/v1/rank: refused"):
        exchange.receive(httpx.ConnectError("refused"))


def test_lines_that_are_busy_until_the_deadline_keep_their_errors(clock: Clock) -> None:
    exchange = Exchange(Call("/v1/classify", LINES[:1]), 10, clock)
    clock.now += 10
    assert exchange.receive(lines({"index": 0, "error": BUSY})) is None
    assert exchange.answers == [{"index": 0, "error": BUSY}]


@pytest.mark.parametrize("status", [400, 401, 404, 413, 415, 422, 500])
def test_other_errors_are_final(clock: Clock, status: int) -> None:
    with pytest.raises(RequestError) as error:
        Exchange(Call("/v1/rank", (b"{}",), media=JSON), 10, clock).receive(refused(status))
    assert error.value.status == status


def test_answer_of_a_proxy_is_an_error_with_its_text(clock: Clock) -> None:
    with pytest.raises(RequestError, match="403 unexpected_response: <html>no</html>"):
        Exchange(Call("/v1/rank", (b"{}",), media=JSON), 10, clock).receive(httpx.Response(403, text="<html>no</html>"))


@pytest.mark.parametrize("media", [JSON, NDJSON])
def test_page_in_the_place_of_an_answer_is_an_error_with_its_text(clock: Clock, media: str) -> None:
    exchange = Exchange(Call("/v1/rank", (b"{}",), media=media), 10, clock)
    with pytest.raises(RequestError, match="200 unexpected_response: <html>log in</html>"):
        exchange.receive(httpx.Response(200, text="<html>log in</html>"))


def test_json_of_a_proxy_is_no_problem_of_the_service(clock: Clock) -> None:
    with pytest.raises(RequestError, match=r"403 unexpected_response: .*denied"):
        Exchange(Call("/v1/rank", (b"{}",)), 10, clock).receive(httpx.Response(403, json={"status": "denied"}))


@pytest.mark.parametrize("error", [httpx.UnsupportedProtocol, httpx.LocalProtocolError])
def test_address_or_headers_that_cannot_work_are_not_tried_again(
    clock: Clock, error: type[httpx.TransportError]
) -> None:
    with pytest.raises(Unreachable, match="/v1/rank: no http"):
        Exchange(Call("/v1/rank", (b"{}",)), 10, clock).receive(error("no http://"))


def test_service_that_names_no_wait_is_not_asked_at_once(clock: Clock) -> None:
    assert Exchange(Call("/v1/rank", (b"{}",)), 10, clock).receive(refused(503, **{"retry-after": "0"})) == 0.1


def test_requests_are_limited_and_read_lazily() -> None:
    taken = list[int]()

    def source() -> Any:
        for number in range(10**9):
            taken.append(number)
            yield b"x"

    first, second = itertools.islice(calls("/", source()), 2)
    assert (len(first.lines), second.first) == (LINES_PER_REQUEST, LINES_PER_REQUEST)
    assert len(taken) <= 2 * LINES_PER_REQUEST + 1
    large = b"x" * (BYTES_PER_REQUEST // 2)
    assert [len(call.lines) for call in calls("/", [large, large, large, b"x" * 10**6, b"y"])] == [1, 1, 1, 1, 1]
    assert [len(call.lines) for call in calls("/", [large[:-1], large, b"y"])] == [2, 1]
    assert list(calls("/", [])) == []


def test_error_names_the_input_once() -> None:
    problem = {"status": 413, "code": "payload_too_large", "detail": "input 3: the document is too long"}
    assert str(RequestError(problem, 700)) == "input 700: 413 payload_too_large: the document is too long"
