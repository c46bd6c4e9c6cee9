"""Errors of the Open Inference Protocol."""

import json
from typing import Any

import httpx
import pytest

from artifact.errors import InvalidInput
from service.compat.oip.errors import DIALECT
from service.errors import Overloaded
from service.wire.errors import failure
from tests.support.applications import application


def test_body_has_only_the_detail() -> None:
    response = DIALECT.answer(failure(InvalidInput.at("a", "wrong"), "/v2/models/a/infer"))
    assert response.status_code == 422
    assert response.headers["content-type"] == "application/json"
    assert json.loads(bytes(response.body)) == {"error": "a: wrong"}


def test_headers_of_the_error_are_kept() -> None:
    response = DIALECT.answer(failure(Overloaded("full", 7), "/v2/models/a/infer"))
    assert (response.status_code, response.headers["retry-after"]) == (429, "7")


async def error_of(path: str) -> tuple[int, Any]:
    """Send a request with a method that no path answers."""
    transport = httpx.ASGITransport(application())
    async with httpx.AsyncClient(transport=transport, base_url="http://x") as client:
        response = await client.patch(path)
    return response.status_code, response.json()


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/v2", 405),
        ("/v2/models/a", 405),
        ("/v2/models/a/infer", 405),
        ("/v2/health/live", 405),
        ("/v2/none", 404),
        ("/v2/", 405),
    ],
)
async def test_every_path_of_the_protocol_has_its_error_body(path: str, status: int) -> None:
    found, body = await error_of(path)
    assert (found, set(body)) == (status, {"error"})


@pytest.mark.parametrize("path", ["/v1/classify", "/v22", "/"])
async def test_other_paths_have_no_such_error_body(path: str) -> None:
    _, body = await error_of(path)
    assert set(body) != {"error"}
