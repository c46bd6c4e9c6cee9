"""What ends requests that are open, with a transport that the test makes."""

import threading

import httpx
import polars as pl
import pytest
from longdoc_client import Client, RequestError

REFUSED = {"status": 404, "code": "not_found", "detail": "no such model"}


def test_error_does_not_wait_for_the_other_requests() -> None:
    is_open, may_end, ended = threading.Event(), threading.Event(), list[str]()

    def answer(request: httpx.Request) -> httpx.Response:
        if b'"b"' in request.content:
            is_open.set()
            may_end.wait(30)
            ended.append("b")
        is_open.wait()
        return httpx.Response(404, json=REFUSED)

    with Client(transport=httpx.MockTransport(answer), concurrency=2) as client:
        with pytest.raises(RequestError, match="404"):
            list(client.classify_each(["a"] * 128 + ["b"]))
        assert ended == []
        may_end.set()


def test_frame_keeps_the_answers_before_an_error() -> None:
    documents = ["a"] * 128 + ["b"] * 2

    def answer(request: httpx.Request) -> httpx.Response:
        if b'"b"' in request.content:
            return httpx.Response(404, json=REFUSED)
        lines = [b'{"label": "x", "score": 1.0, "coverage": {}}'] * len(request.content.splitlines())
        return httpx.Response(200, content=b"\n".join(lines))

    with Client(transport=httpx.MockTransport(answer), concurrency=1) as client:
        found = client.classify_frame(pl.Series(documents))
        assert found["label"].to_list() == ["x"] * 128 + [None] * 2
        assert found["error"].to_list() == [None] * 128 + ["404 not_found: no such model"] * 2
        with pytest.raises(RequestError, match="404"):
            client.classify_frame(pl.Series(["b"]))


def test_headers_of_the_caller_are_sent_with_the_key() -> None:
    seen = httpx.Headers()

    def answer(request: httpx.Request) -> httpx.Response:
        seen.update(request.headers)
        return httpx.Response(404, json=REFUSED)

    client = Client(transport=httpx.MockTransport(answer), api_key="key", headers={"x-team": "a"})
    with client, pytest.raises(RequestError, match="404"):
        client.classify("a")
    assert (seen["x-team"], seen["authorization"]) == ("a", "Bearer key")


def test_no_request_at_a_time_is_an_error() -> None:
    with pytest.raises(ValueError, match="concurrency: expected at least 1, got 0"):
        Client(concurrency=0)
