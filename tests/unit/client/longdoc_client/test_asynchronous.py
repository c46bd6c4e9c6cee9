"""What ends requests that are open, with a transport that the test makes."""

import asyncio
import gc

import httpx
import polars as pl
import pytest
from longdoc_client import AsyncClient, RequestError, Unreachable


async def test_error_ends_the_other_requests(caplog: pytest.LogCaptureFixture) -> None:
    ended = list[str]()

    async def answer(request: httpx.Request) -> httpx.Response:
        if b'"c"' in request.content:
            try:
                await asyncio.Event().wait()
            finally:
                ended.append("c")
        return httpx.Response(404, json={"status": 404, "code": "not_found", "detail": "no such model"})

    async with AsyncClient(transport=httpx.MockTransport(answer), concurrency=3) as client:
        with pytest.raises(RequestError, match="404"):
            [one async for one in client.classify_each(["a"] * 128 + ["b"] * 128 + ["c"])]
        assert ended == ["c"]
    gc.collect()
    assert caplog.text == ""


async def test_frame_keeps_the_answers_before_an_error() -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        if b'"b"' in request.content:
            raise httpx.LocalProtocolError("broken")
        lines = [b'{"label": "x", "score": 1.0, "coverage": {}}'] * len(request.content.splitlines())
        return httpx.Response(200, content=b"\n".join(lines))

    async with AsyncClient(transport=httpx.MockTransport(answer), concurrency=1) as client:
        found = await client.classify_frame(pl.Series(["a"] * 128 + ["b"]))
        assert found["label"].to_list() == ["x"] * 128 + [None]
        assert found["error"].to_list() == [None] * 128 + ["/v1/classify: broken"]
        with pytest.raises(Unreachable, match="broken"):
            await client.classify_frame(pl.Series(["b"]))


def test_no_request_at_a_time_is_an_error() -> None:
    with pytest.raises(ValueError, match="concurrency: expected at least 1, got 0"):
        AsyncClient(concurrency=0)
