"""A fault of ours is answered as a problem with the request's id, and logged."""

import logging

import httpx
import pytest
from fastapi import FastAPI

from service.http.context import RequestContext
from service.observe.metrics import Metrics
from service.settings import Settings
from service.wire import errors


class Engine:
    is_draining = False


async def test_fault_is_a_problem_with_the_request_id(caplog: pytest.LogCaptureFixture) -> None:
    app = FastAPI()
    app.state.engine = Engine()
    app.state.dialects = {}
    errors.install(app)

    @app.get("/broken")
    async def broken() -> None:
        raise RuntimeError("secret cause")

    context = RequestContext(app, app.routes, metrics=Metrics(), settings=Settings())
    transport = httpx.ASGITransport(context, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://x") as client:
        with caplog.at_level(logging.ERROR):
            response = await client.get("/broken", headers={"X-Request-Id": "abc"})
    assert response.status_code == 500
    assert response.headers["content-type"] == "application/problem+json"
    assert response.json()["request_id"] == response.headers["x-request-id"] == "abc"
    assert "secret" not in response.text
    assert "secret cause" in caplog.text
