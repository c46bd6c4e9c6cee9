"""A fault of ours is answered as a problem with the request's id, and logged."""

import logging

import httpx
import pytest

from tests.support.applications import BROKEN, application


async def test_fault_is_a_problem_with_the_request_id(caplog: pytest.LogCaptureFixture) -> None:
    transport = httpx.ASGITransport(application(BROKEN), raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://x") as client:
        with caplog.at_level(logging.ERROR):
            response = await client.get("/broken", headers={"X-Request-Id": "abc"})
    assert response.status_code == 500
    assert response.headers["content-type"] == "application/problem+json"
    assert response.json()["request_id"] == response.headers["x-request-id"] == "abc"
    assert "secret" not in response.text
    assert "secret cause" in caplog.text
