"""The repository index of models."""

import threading
from pathlib import Path
from typing import Any

import httpx
import pytest

import service.engine.folder
from artifact.errors import BadExport
from artifact.loading import FoundVersions, find_versions
from service.settings import Settings
from tests.support.models import ServingClient, answer, classifier, forecaster, serving
from tests.support.waiting import PATIENCE_S

PATH = "/v2/repository/index"


def entry(name: str, version: str, reason: str = "") -> dict[str, str]:
    return {"name": name, "version": version, "state": "UNAVAILABLE" if reason else "READY", "reason": reason}


async def index(client: ServingClient, body: bytes = b"") -> Any:
    return answer(await client.post(PATH, content=body))


@pytest.fixture
def empty(tmp_path: Path) -> Settings:
    """Settings with an empty folder of exports."""
    return Settings(exports=tmp_path)


async def test_unserved_versions_are_listed_with_the_reason(tmp_path: Path) -> None:
    (tmp_path / "mood" / "3").mkdir(parents=True)
    (tmp_path / "mood" / "3" / "manifest.json").write_text("{}")
    async with serving(classifier(version=2), settings=Settings(exports=tmp_path)) as client:
        assert await index(client) == [entry("mood", "3", "not loaded yet"), entry("mood", "2")]


@pytest.mark.parametrize("body", [b"", b"{}", b'{"ready": true}', b'{"ready": false, "repository_name": "a"}'])
async def test_models_are_listed_with_their_versions(empty: Settings, body: bytes) -> None:
    async with serving(classifier(version=2), forecaster(), settings=empty) as client:
        assert await index(client, body) == [entry("mood", "2"), entry("naive", "1")]


async def test_model_that_accepts_no_requests_is_unavailable(empty: Settings) -> None:
    async with serving(classifier(), forecaster(), settings=empty) as client:
        client.engine.models["mood"].batcher.close()
        assert await index(client) == [entry("mood", "1", "it does not accept requests"), entry("naive", "1")]
        assert await index(client, b'{"ready": true}') == [entry("naive", "1")]
        client.engine.begin_drain()
        assert await index(client) == [
            entry("mood", "1", "it does not accept requests"),
            entry("naive", "1", "the server is about to stop"),
        ]
        assert await index(client, b'{"ready": true}') == []


async def test_slow_folder_is_an_error(empty: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    released = threading.Event()

    def find(root: Path) -> FoundVersions:
        assert released.wait(PATIENCE_S)
        return find_versions(root)

    monkeypatch.setattr(service.engine.folder, "find_versions", find)
    async with serving(classifier(), settings=empty) as client:
        response = await client.post(PATH, headers={"x-request-timeout-ms": "1"})
        released.set()
    assert response.status_code == 504
    assert response.json() == {"error": "the folder of exports has not been listed in time"}


async def test_model_with_an_unreadable_folder_has_no_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    error = BadExport("other: its folder cannot be listed: Permission denied", "unreadable")
    monkeypatch.setattr(service.engine.folder, "find_versions", lambda _: FoundVersions({}, {"other": error}))
    async with serving(classifier(), settings=Settings(exports=tmp_path)) as client:
        assert await index(client) == [entry("mood", "1"), entry("other", "", str(error))]


@pytest.mark.parametrize(
    ("body", "headers", "status", "error"),
    [
        (b"{", {}, 400, "the body is not valid JSON in UTF-8"),
        (b'{"ready": "yes"}', {}, 422, "ready: Input should be a valid boolean"),
        (b"[]", {}, 422, "body: Input should be an object"),
        (
            b"{}",
            {"content-encoding": "br"},
            415,
            "send the body without Content-Encoding, or with one of gzip, deflate",
        ),
    ],
)
async def test_wrong_body_is_an_error(body: bytes, headers: dict[str, str], status: int, error: str) -> None:
    async with serving(classifier()) as client:
        response: httpx.Response = await client.post(PATH, content=body, headers=headers)
    assert (response.status_code, response.json()) == (status, {"error": error})
