"""What applies to every request: id, limits, metrics, timing, errors."""

import gc
import weakref
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx
import pytest
from fastapi import APIRouter
from pydantic import SecretStr
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from service.errors import DeadlineExceeded
from service.metrics import Metrics
from service.settings import Settings
from service.sharing import CHUNK_BYTES
from service.wire.body import Body
from service.wire.context import context_of
from service.wire.responses import json_response
from tests.support.applications import BROKEN, application, send_to
from tests.support.contexts import receive_of
from tests.support.models import classifier, serving

SECRET = Settings(api_keys=(SecretStr("secret"),))
routes = APIRouter()


@routes.post("/echo/{name}")
async def echo(request: Request, name: str) -> Response:
    """Return the body and the variable of the path."""
    context = context_of(request.scope)
    context.server_timing["echo"] = 0.25
    body = await context.body.read()
    return json_response({"body": body.decode(), "name": name})


@routes.post("/long")
async def long_parts() -> Response:
    """Return a response whose parts are longer than the pieces that are sent."""

    async def parts() -> AsyncIterator[bytes]:
        for letter in (b"a", b"b", b"c"):
            yield letter * (2 * CHUNK_BYTES + 1)

    return StreamingResponse(parts())


@asynccontextmanager
async def client_of(
    settings: Settings | None = None, metrics: Metrics | None = None
) -> AsyncIterator[httpx.AsyncClient]:
    app = application(routes, BROKEN, settings=settings, metrics=metrics)
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://x") as client:
        yield client


def count(metrics: Metrics, route: str, method: str, code: int) -> float | None:
    """Return the number of responses with these labels."""
    labels = {"route": route, "method": method, "code": str(code)}
    return metrics.registry.get_sample_value("longdoc_http_requests_total", labels)


async def test_server_timing_is_in_milliseconds() -> None:
    async with client_of() as client:
        response = await client.post("/echo/a")
    stages = dict(stage.split(";dur=") for stage in response.headers["server-timing"].split(", "))
    assert list(stages) == ["echo", "total"]
    assert float(stages["echo"]) == 250
    assert float(stages["total"]) >= 0


@pytest.mark.parametrize(("given", "is_kept"), [("abc-1", True), ("a b", False), ("", False), ("x" * 129, False)])
async def test_safe_request_id_of_the_client_is_kept(given: str, is_kept: bool) -> None:
    async with client_of() as client:
        response = await client.post("/echo/a", headers={"X-Request-Id": given})
    found = response.headers["x-request-id"]
    assert (found == given) == is_kept
    assert is_kept or len(found) == 32


async def test_responses_are_counted_by_route() -> None:
    metrics = Metrics()
    async with client_of(metrics=metrics) as client:
        await client.post("/echo/a")
        await client.post("/echo/b")
        await client.get("/broken")
        await client.get("/nowhere")
        await client.request("SECRET", "/echo/a")

    assert count(metrics, "/echo/{name}", "POST", 200) == 2
    assert count(metrics, "/broken", "GET", 500) == 1
    assert count(metrics, "unmatched", "GET", 404) == 1
    assert count(metrics, "/echo/{name}", "other", 405) == 1


async def test_finished_bodies_are_no_longer_held() -> None:
    async with client_of(Settings(max_held_bytes=6)) as client:
        for _ in range(3):
            assert (await client.post("/echo/a", content=b"12345")).status_code == 200


@pytest.mark.parametrize("is_late", [False, True])
async def test_finished_request_is_freed_at_once(is_late: bool) -> None:
    """In a reference cycle, its body would stay until the garbage collector runs."""
    bodies, router = list[weakref.ref[Body]](), APIRouter()

    @router.post("/handle")
    async def handle(request: Request) -> Response:
        body = context_of(request.scope).body
        bodies.append(weakref.ref(body))
        vars(body.raw)["scope"] = request.scope  # as uvicorn's `receive`, a method of an object that has the scope
        await body.read()
        if is_late:
            raise DeadlineExceeded("too late")
        return json_response({})

    app = application(router)
    await send_to(app, "/handle")  # which builds the middlewares
    gc.collect()
    gc.disable()
    try:
        start, _ = await send_to(app, "/handle")
        assert [body() for body in bodies] == [None, None]
    finally:
        gc.enable()
    assert start["status"] == (504 if is_late else 200)


async def test_long_parts_of_a_response_are_sent_completely_in_pieces() -> None:
    async with client_of() as client:
        answer = await client.post("/long")
    assert answer.content == b"".join([letter * (2 * CHUNK_BYTES + 1) for letter in (b"a", b"b", b"c")])
    sent = await send_to(application(routes), "/long", receive_of(b"x", leaves=False))
    parts = [message for message in sent if "body" in message]
    assert max(len(part["body"]) for part in parts) == CHUNK_BYTES
    assert [part["more_body"] for part in parts] == [True] * 9 + [False]


async def test_draining_server_closes_its_connections() -> None:
    async with serving(classifier()) as client:
        before = await client.post("/v1/classify", json={"inputs": "+"})
        client.engine.begin_drain()
        after = await client.post("/v1/classify", json={"inputs": "+"})
    assert ("connection" in before.headers, after.headers["connection"]) == (False, "close")
    assert (before.status_code, after.status_code) == (200, 200)
