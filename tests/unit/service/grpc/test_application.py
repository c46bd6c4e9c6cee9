"""Requests to the application without a connection."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from starlette.requests import Request
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from service.grpc.application import ask


async def test_request_and_response_are_those_of_asgi() -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        body = await request.body()

        async def parts() -> AsyncIterator[bytes]:
            yield request.method.encode()
            yield request.url.path.encode()
            yield body

        await StreamingResponse(parts(), 201, {"X-Name": request.headers["x-given"]})(scope, receive, send)

    answer = await ask(app, "POST", "/a b", {"x-given": "ä"}, b"\0body")
    assert (answer.status, answer.headers["x-name"], answer.body) == (201, "ä", b"POST/a b\0body")


async def test_cancelled_call_is_a_client_that_disconnects() -> None:
    works, has_disconnected, may_end, events = asyncio.Event(), asyncio.Event(), asyncio.Event(), list[str]()

    async def app(_: Scope, receive: Receive, __: Send) -> None:
        events.append((await receive())["type"])
        works.set()
        events.append((await receive())["type"])
        has_disconnected.set()
        await may_end.wait()
        events.append("ended")

    call = asyncio.create_task(ask(app, "GET", "/", {}))
    await works.wait()
    call.cancel()
    await has_disconnected.wait()
    assert not call.done(), "the call waits for the application"
    may_end.set()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert events == ["http.request", "http.disconnect", "ended"]
