"""Files that are served from memory."""

from pathlib import Path

import httpx
import pytest
from fastapi import FastAPI
from starlette.responses import Response

from service.wire.files import Files


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "a.css").write_text("ä" * 1000)
    (tmp_path / "b.bin2").write_bytes(b"\xff")
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "c.css").write_text("c")
    return tmp_path


def client_of(folder: Path) -> httpx.AsyncClient:
    app, files = FastAPI(), Files(folder, {"cache-control": "no-cache"})

    @app.head("/files/{name:path}")
    @app.get("/files/{name:path}")
    async def get_file(name: str) -> Response:
        return await files.get(name)

    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://x/files/")


async def test_files_are_served_with_their_type_and_a_tag(folder: Path) -> None:
    async with client_of(folder) as client:
        style, other = await client.get("a.css"), await client.get("b.bin2")
        again = await client.get("a.css", headers={"if-none-match": style.headers["etag"]})
    assert (style.status_code, style.text, style.headers["content-encoding"]) == (200, "ä" * 1000, "gzip")
    assert (style.headers["content-type"], style.headers["cache-control"]) == ("text/css; charset=utf-8", "no-cache")
    assert (other.content, other.headers["content-type"]) == (b"\xff", "application/octet-stream")
    assert other.headers["etag"] != style.headers["etag"]
    assert (again.status_code, again.content) == (304, b"")


async def test_file_is_read_once(folder: Path) -> None:
    async with client_of(folder) as client:
        before = await client.get("a.css")
        (folder / "a.css").unlink()
        assert (await client.get("a.css")).content == before.content


@pytest.mark.parametrize("path", ["", "none", "sub", "sub/c.css", "../a.css", "%2e/a.css", "a.css/"])
async def test_other_paths_are_not_found(folder: Path, path: str) -> None:
    async with client_of(folder) as client:
        assert (await client.get(httpx.URL(f"http://x/files/{path}"))).status_code == 404


async def test_head_has_no_body(folder: Path) -> None:
    async with client_of(folder) as client:
        head = await client.head("a.css")
    assert (head.status_code, head.content) == (200, b"")
