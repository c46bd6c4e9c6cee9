"""Check errors of the native routes."""

from typing import Any

import httpx

SECRET = "my secret document, never to be echoed"


def check_problem(response: httpx.Response, status: int, code: str) -> dict[str, Any]:
    """Check the fields that every error of a native route has, and return all fields."""
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/problem+json"
    body: dict[str, Any] = response.json()
    assert (body["status"], body["code"]) == (status, code)
    assert body["request_id"] == response.headers["x-request-id"]
    assert body["title"]
    assert body["detail"]
    assert SECRET not in response.text
    return body
