"""What ends requests that are open, with a transport that the test makes."""

import asyncio
import gc

import httpx
import pytest
from longdoc_client import AsyncClient, RequestError


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


def test_no_request_at_a_time_is_an_error() -> None:
    with pytest.raises(ValueError, match="concurrency: expected at least 1, got 0"):
        AsyncClient(concurrency=0)
