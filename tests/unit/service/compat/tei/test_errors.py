"""Errors in TEI's format."""

import pytest
from pydantic import SecretStr

from service.settings import Settings
from tests.support.models import backend_of, classifier, serving
from tests.support.tei import check_error


async def test_backend_error_has_teis_format() -> None:
    model = classifier()
    backend_of(model).error = RuntimeError("broken")
    async with serving(model) as client:
        check_error(await client.post("/predict", json={"inputs": "+"}), 500, "Backend")


@pytest.mark.parametrize("path", ["/predict", "/rerank", "/similarity", "/embed", "/"])
async def test_missing_key_has_no_body(path: str) -> None:
    async with serving(classifier(), settings=Settings(api_keys=(SecretStr("secret"),))) as client:
        response = await client.post(path, json={"inputs": "+"})
        healthy = await client.get("/health")
    assert (response.status_code, response.content) == (401, b"")
    assert response.headers["www-authenticate"] == "Bearer"
    assert healthy.status_code == 200


@pytest.mark.parametrize("path", ["/predict", "/rerank", "/similarity", "/embed", "/"])
async def test_errors_of_every_route_have_teis_format(path: str) -> None:
    async with serving(classifier()) as client:
        assert check_error(await client.post(path, json={}), 422)
        refused = await client.request("DELETE", path)
        assert check_error(refused, 405) == f"the methods of this path: {refused.headers['allow']}"
