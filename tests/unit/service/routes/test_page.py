"""`GET /`: the page and its files, or a redirect to the documentation."""

import gzip
import re
from pathlib import Path

import httpx
import pytest
from pydantic import SecretStr

from service.routes.page import FOLDER
from service.settings import Settings
from tests.support.applications import application
from tests.support.models import classifier, serving
from tests.support.paths import ROOT
from tests.support.problems import check_problem

INDEX = (FOLDER / "index.html").read_text()
FILES = sorted((FOLDER / "assets").iterdir())
MAX_BYTES = 150_000
"""Limit of the page and its files, compressed."""


async def test_root_is_the_page() -> None:
    async with serving(classifier()) as client:
        found = await client.get("/")
        head = await client.head("/")
    assert (found.status_code, found.text) == (200, INDEX)
    assert found.headers["content-type"] == "text/html; charset=utf-8"
    assert found.headers["cache-control"] == "no-cache", "it names the current files"
    assert (head.status_code, head.content) == (200, b"")


async def test_policy_allows_the_own_origin_only_and_is_that_of_pages_alone() -> None:
    async with serving(classifier()) as client:
        policy = (await client.get("/")).headers["content-security-policy"]
        others = [await client.get(path) for path in ("/openapi.json", "/metrics", "/v1/models")]
    sources = {source for part in policy.split("; ") for source in part.split()[1:]}
    assert sources == {"'none'", "'self'", "data:"}
    assert policy.startswith("default-src 'none'; ")
    assert all("content-security-policy" not in other.headers for other in others)


@pytest.mark.parametrize(("path", "location"), [("/", "docs"), ("/text", "/text/docs"), ("/text/", "/text/docs")])
async def test_without_the_page_the_root_leads_to_the_docs(path: str, location: str) -> None:
    root_path = "/text" if path.startswith("/text") else ""
    transport = httpx.ASGITransport(application(settings=Settings(page=False)), root_path=root_path)
    async with httpx.AsyncClient(transport=transport, base_url="http://x") as client:
        found = await client.get(path)
        assert (found.status_code, found.headers["location"]) == (307, location)
        assert (await client.get(f"{root_path}/docs")).status_code == 200
        check_problem(await client.get(f"{root_path}/assets/{FILES[0].name}"), 404, "not_found")


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.suffix)
@pytest.mark.parametrize("keys", [(), (SecretStr("secret"),)], ids=["open", "keys"])
async def test_files_are_kept_by_browsers(file: Path, keys: tuple[SecretStr, ...]) -> None:
    async with serving(classifier(), settings=Settings(api_keys=keys)) as client:
        found = await client.get(f"/assets/{file.name}")
        again = await client.get(f"/assets/{file.name}", headers={"if-none-match": found.headers["etag"]})
    assert (found.status_code, found.content) == (200, file.read_bytes())  # noqa: ASYNC240  # nothing else runs
    assert found.headers["cache-control"] == "public, max-age=31536000, immutable"
    assert found.headers["content-type"].split(";")[0] in {"text/javascript", "text/css", "image/svg+xml"}
    assert (again.status_code, again.content) == (304, b"")


async def test_files_are_compressed_for_browsers_that_ask() -> None:
    (script,) = (file for file in FILES if file.suffix == ".js")
    async with serving(classifier()) as client:
        found = await client.get(f"/assets/{script.name}", headers={"accept-encoding": "gzip"})
        plain = await client.get(f"/assets/{script.name}", headers={"accept-encoding": "identity"})
    assert found.headers["content-encoding"] == "gzip"
    assert int(found.headers.get("content-length", 0)) < script.stat().st_size
    assert found.content == plain.content == script.read_bytes()


@pytest.mark.parametrize(
    "path", ["/assets/", "/assets/none.js", "/assets/..%2findex.html", "/assets/%2e%2e/index.html"]
)
async def test_unknown_file_is_a_problem(path: str) -> None:
    async with serving(classifier()) as client:
        check_problem(await client.get(httpx.URL(f"http://x{path}")), 404, "not_found")


async def test_root_below_a_prefix_is_the_page_whose_addresses_are_relative() -> None:
    transport = httpx.ASGITransport(application(), root_path="/text")
    async with httpx.AsyncClient(transport=transport, base_url="http://x") as client:
        assert (await client.get("/text")).headers["location"] == "/text/", "addresses in the page are relative"
        found = await client.get("/text/")
        assert found.status_code == 200
        for asset in re.findall(r'(?:src|href)="\./([^"]+)"', found.text):
            assert (await client.get(f"/text/{asset}")).status_code == 200


async def test_files_cannot_be_changed() -> None:
    async with serving(classifier()) as client:
        for path in ("/", f"/assets/{FILES[0].name}"):
            refused = await client.put(path)
            assert (refused.status_code, "HEAD" in refused.headers["allow"]) == (405, True)


def test_page_loads_only_its_own_files_by_relative_addresses() -> None:
    addresses = re.findall(r'(?:src|href)="([^"]+)"', INDEX)
    assert sorted(address for address in addresses if address != "docs") == [f"./assets/{file.name}" for file in FILES]
    assert all(re.fullmatch(r"\w+-[\w-]{8}\.\w+", file.name) for file in FILES), "names have a hash of the content"
    assert re.findall(r"<script[^>]*>(.+?)</script>|<style|\sstyle=|\son\w+=", INDEX) == []


def test_page_is_small() -> None:
    files = [FOLDER / "index.html", *FILES]
    assert sum(len(gzip.compress(file.read_bytes())) for file in files) <= MAX_BYTES


def test_source_inserts_no_html() -> None:
    """Preact escapes texts, unless the source asks for HTML."""
    sources = [path for path in (ROOT / "page" / "src").iterdir() if path.suffix in (".ts", ".tsx")]
    assert sources
    for path in sources:
        found = re.findall(
            r"\w*(?:innerHTML|outerHTML|insertAdjacentHTML|SetInnerHTML|document\.write|srcdoc)\w*", path.read_text()
        )
        assert not found, path.name
