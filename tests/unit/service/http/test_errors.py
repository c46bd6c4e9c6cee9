"""Errors that no handler of the application answers, requests cut off by the client or the server."""

import asyncio
import json
import logging
from typing import Any

import httpx
import pytest
from fastapi import APIRouter
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from service.metrics import Metrics
from tests.support.applications import BROKEN, application, send_to
from tests.support.problems import check_problem

routes = APIRouter()


def count(metrics: Metrics, route: str, code: int) -> float | None:
    """Return the number of responses to a POST with these labels."""
    labels = {"route": route, "method": "POST", "code": str(code)}
    return metrics.registry.get_sample_value("longdoc_http_requests_total", labels)


@routes.post("/wait")
async def wait() -> None:
    """Wait until the request is cancelled."""
    await asyncio.Event().wait()


class FailsAfterStart(Response):
    """A response that fails after its start."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        del scope, receive
        await send({"type": "http.response.start", "status": 200, "headers": []})
        raise RuntimeError("fails after start")


@routes.post("/fails-after-start")
async def fail_after_start() -> Response:
    """Return a response that fails after its start."""
    return FailsAfterStart()


class FailsAfterEnd(Response):
    """A response that fails after its end."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await super().__call__(scope, receive, send)
        raise RuntimeError("fails after end")


@routes.post("/fails-after-end")
async def fail_after_end() -> Response:
    """Return a response that fails after its end."""
    return FailsAfterEnd(b"whole")


async def test_internal_error_is_a_problem_with_the_request_id(caplog: pytest.LogCaptureFixture) -> None:
    transport = httpx.ASGITransport(application(BROKEN), raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://x") as client:
        with caplog.at_level(logging.ERROR):
            response = await client.get("/broken", headers={"X-Request-Id": "abc"})
    problem = check_problem(response, 500, "internal")
    assert problem["request_id"] == "abc"
    assert "secret" not in response.text
    assert "secret cause" in caplog.text


async def test_request_cancelled_by_the_server_gets_503() -> None:
    app = application(routes)
    task = asyncio.create_task(send_to(app, "/wait"))
    for _ in range(5):
        await asyncio.sleep(0)
    task.cancel()
    start, body = await task
    assert (start["status"], json.loads(body["body"])["code"]) == (503, "shutting_down")


async def test_response_that_fails_after_its_start_is_aborted() -> None:
    """If it ended normally, the client would take the part for the whole."""
    metrics = Metrics()
    with pytest.raises(RuntimeError, match="fails after start"):
        await send_to(application(routes, metrics=metrics), "/fails-after-start")
    assert count(metrics, "/fails-after-start", 200) == 1


async def test_response_that_is_complete_stays_so_if_it_fails_later(caplog: pytest.LogCaptureFixture) -> None:
    start, body = await send_to(application(routes), "/fails-after-end")
    assert (start["status"], body["body"]) == (200, b"whole")
    assert "fails after end" in caplog.text


async def test_error_of_a_middleware_has_the_format_of_its_path() -> None:
    """No route is known yet."""
    found = dict[str, Any]()
    transport = httpx.ASGITransport(application(BROKEN), raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://x") as client:
        for path in ("/v2/none", "/none"):
            found[path] = (await client.post(path, headers={"origin": "https://other.example"})).json()
    assert set(found["/v2/none"]) == {"error"}
    assert found["/none"]["code"] == "cross_origin"
