"""The OpenAPI document and the pages that show it."""

import asyncio
import base64
import hashlib
import re

import httpx
import pytest
from pydantic import SecretStr

from service.routes.docs import STATIC
from service.settings import Settings
from tests.support.applications import application
from tests.support.problems import check_problem


def client_of(settings: Settings | None = None, root_path: str = "") -> httpx.AsyncClient:
    transport = httpx.ASGITransport(application(settings=settings), root_path=root_path)
    return httpx.AsyncClient(transport=transport, base_url="http://x")


async def test_document_is_that_of_the_application_and_needs_no_key() -> None:
    settings = Settings(api_keys=(SecretStr("secret"),))
    async with client_of(settings) as client:
        answers = await asyncio.gather(client.get("/openapi.json"), client.get("/openapi.json"))
    for found in answers:
        assert (found.status_code, found.headers["content-type"]) == (200, "application/json")
        assert found.json() == application(settings=settings).openapi()


@pytest.mark.parametrize("path", ["/openapi.json", "/docs", "/redoc", "/static-offline-docs/favicon.png"])
async def test_documentation_cannot_be_changed(path: str) -> None:
    async with client_of() as client:
        refused = await client.post(path)
    check_problem(refused, 405, "method_not_allowed")
    assert refused.headers["allow"] == "GET, HEAD"


@pytest.mark.parametrize("path", ["/docs", "/redoc"])
async def test_pages_load_their_own_files_below_a_root_path(path: str) -> None:
    async with client_of(root_path="/text") as client:
        page, head = await client.get(f"/text{path}"), await client.head(f"/text{path}")
        addresses = re.findall(r'(?:src|href|spec-url)="([^"]+)"', page.text)
        assert addresses
        for address in addresses:
            assert (await client.get(f"/text/{address}")).status_code == 200
        assert (await client.get("/text/openapi.json")).json() == application().openapi()
    assert (head.status_code, head.content) == (200, b"")


async def test_files_of_the_pages_are_served_from_memory() -> None:
    async with client_of() as client:
        for file in STATIC.iterdir():
            found = await client.get(f"/static-offline-docs/{file.name}")
            assert found.content == file.read_bytes()
            again = await client.get(
                f"/static-offline-docs/{file.name}", headers={"if-none-match": found.headers["etag"]}
            )
            assert (again.status_code, again.content) == (304, b"")
        check_problem(await client.get("/static-offline-docs/none.js"), 404, "not_found")


@pytest.mark.parametrize("path", ["/docs", "/redoc"])
async def test_policy_of_the_docs_allows_neither_other_origins_nor_frames_nor_unknown_scripts(path: str) -> None:
    async with client_of() as client:
        found = await client.get(path)
    policy = dict(part.split(" ", 1) for part in found.headers["content-security-policy"].split("; "))
    assert (policy["default-src"], policy["frame-ancestors"]) == ("'none'", "'none'")
    scripts = re.findall(r"<script>(.*?)</script>", found.text, re.DOTALL)
    hashes = [base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts]
    assert policy["script-src"].split() == ["'self'", *(f"'sha256-{one}'" for one in hashes)]
    assert "://" not in found.text.replace("http://www.w3.org/", "")
