"""The FastAPI application: routes, methods, pages."""

import asyncio
import base64
import hashlib
import re
import subprocess
import sys

import httpx
import pytest
from starlette.responses import Response

from service.openapi import create_api
from service.routes import page
from service.settings import Settings
from service.table import TABLE
from service.wire.call import Call
from service.wire.responses import json_response
from service.wire.route import Route, Table
from tests.support.applications import application
from tests.support.paths import ROOT
from tests.support.problems import check_problem


async def get_it(call: Call) -> Response:
    """Show it.

    Slowly.
    """
    return json_response({"it": call.path})


ROUTES = (
    Route(method="GET", path="/it", handler=get_it, answers_head=True),
    Route(method="POST", path="/it", handler=get_it),
    Route(method="GET", path="/other", handler=get_it),
    Route(method="GET", path="/them/{name}", handler=get_it),
    Route(method="POST", path="/them/{name}:do", handler=get_it),
)


def client_of(*routes: Route) -> httpx.AsyncClient:
    return httpx.AsyncClient(
        transport=httpx.ASGITransport(application(*routes), raise_app_exceptions=False), base_url="http://x"
    )


@pytest.mark.parametrize(("method", "status"), [("GET", 200), ("POST", 200), ("HEAD", 200), ("DELETE", 405)])
async def test_route_accepts_its_methods(method: str, status: int) -> None:
    async with client_of(*ROUTES) as client:
        response = await client.request(method, "/it")
    assert response.status_code == status
    if status == 200 and method != "HEAD":
        assert response.json() == {"it": "/it"}


async def test_routes_below_a_root_path() -> None:
    transport = httpx.ASGITransport(application(*ROUTES, *page.ROUTES), root_path="/text")
    async with httpx.AsyncClient(transport=transport, base_url="http://x") as client:
        assert (await client.get("/text/it")).json() == {"it": "/it"}
        assert (await client.put("/text/it")).headers["allow"] == "GET, HEAD, POST"
        document = create_api(Settings(), Table(ROUTES + page.ROUTES)).openapi()
        assert (await client.get("/text/openapi.json")).json() == document
        for path in ("/docs", "/redoc"):
            addresses = re.findall(r'(?:src|href|spec-url)="([^"]+)"', (await client.get(f"/text{path}")).text)
            assert addresses
            for address in addresses:
                assert (await client.get(f"/text/{address}")).status_code == 200
        assert (await client.get("/text")).headers["location"] == "/text/", "addresses in the page are relative"
        found = await client.get("/text/")
        assert found.status_code == 200
        for asset in re.findall(r'(?:src|href)="\./([^"]+)"', found.text):
            assert (await client.get(f"/text/{asset}")).status_code == 200


async def test_without_the_page_the_root_leads_to_the_docs_below_a_root_path() -> None:
    app = application(*page.ROUTES, settings=Settings(page=False))
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app, root_path="/text"), base_url="http://x") as client:
        for path in ("/text", "/text/"):
            assert (await client.get(path)).headers["location"] == "/text/docs"


async def test_405_lists_the_allowed_methods() -> None:
    async with client_of(*ROUTES) as client:
        both = await client.put("/it")
        one = await client.head("/other")
        verb = await client.get("/them/a:do")
    check_problem(both, 405, "method_not_allowed")
    assert both.headers["allow"] == "GET, HEAD, POST"
    assert (one.status_code, one.headers["allow"]) == (405, "GET")
    assert (verb.status_code, verb.headers["allow"]) == (405, "POST")


@pytest.mark.parametrize("path", ["/none", "/it/", "//it"])
async def test_unknown_path_is_a_problem_and_not_a_redirect(path: str) -> None:
    async with client_of(*ROUTES) as client:
        check_problem(await client.get(path), 404, "not_found")


def test_service_starts_without_fastapi() -> None:
    code = "import sys, service.__main__; print('fastapi' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, cwd=ROOT)
    assert done.stdout == "False\n"


async def test_pages_that_are_requested_at_once_are_all_answered() -> None:
    async with client_of(*ROUTES) as client:
        first, second = await asyncio.gather(client.get("/openapi.json"), client.get("/openapi.json"))
        third = await client.post("/openapi.json")
    assert first.json() == second.json() == create_api(Settings(), Table(ROUTES)).openapi()
    check_problem(third, 405, "method_not_allowed")
    assert third.headers["allow"] == "GET, HEAD"


@pytest.mark.parametrize("path", ["/docs", "/redoc"])
async def test_policy_of_the_docs_allows_neither_other_origins_nor_frames_nor_unknown_scripts(path: str) -> None:
    async with client_of(*ROUTES) as client:
        found = await client.get(path)
    policy = dict(part.split(" ", 1) for part in found.headers["content-security-policy"].split("; "))
    assert (policy["default-src"], policy["frame-ancestors"]) == ("'none'", "'none'")
    scripts = re.findall(r"<script>(.*?)</script>", found.text, re.DOTALL)
    hashes = [base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts]
    assert policy["script-src"].split() == ["'self'", *(f"'sha256-{one}'" for one in hashes)]
    assert "://" not in found.text.replace("http://www.w3.org/", "")


def test_routes_are_described_by_their_handlers() -> None:
    paths = create_api(Settings(), Table(ROUTES)).openapi()["paths"]
    assert set(paths) == {"/it", "/other", "/them/{name}", "/them/{name}:do"}
    assert set(paths["/it"]) == {"get", "post"}
    assert (paths["/it"]["get"]["summary"], paths["/it"]["get"]["description"]) == ("Get It", "Show it.\n\nSlowly.")


def test_every_route_of_the_service_is_in_the_document() -> None:
    paths = create_api(Settings(), TABLE).openapi()["paths"]
    routes = {(route.path, route.method.lower()) for route in TABLE.routes}
    assert {(path, method) for path in paths for method in paths[path]} == routes
