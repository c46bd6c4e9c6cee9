"""The repository index, and loading and unloading by request, with a folder of empty exports."""

import errno
import json
import os
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

import service.engine.folder
import service.engine.loading
from artifact.errors import BadExport
from artifact.loading import FoundVersions, LoadedModel, find_versions
from service.settings import Settings
from tests.support.applications import application
from tests.support.models import ServingClient, answer, classifier, forecaster, matcher, serving
from tests.support.waiting import PATIENCE_S

INDEX = "/v2/repository/index"
LOAD, UNLOAD = (f"/v2/repository/models/mood/{action}" for action in ("load", "unload"))
DAMAGED = 50
"""First damaged version: this version and all later ones are damaged."""


def entry(name: str, version: str, reason: str = "") -> dict[str, str]:
    return {"name": name, "version": version, "state": "UNAVAILABLE" if reason else "READY", "reason": reason}


async def index(client: ServingClient, body: bytes = b"") -> Any:
    return answer(await client.post(INDEX, content=body))


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
        response = await client.post(INDEX, headers={"x-request-timeout-ms": "1"})
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
        response: httpx.Response = await client.post(INDEX, content=body, headers=headers)
    assert (response.status_code, response.json()) == (status, {"error": error})


@pytest.fixture
def exports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of exports that `client_of` serves."""

    def load_export(folder: Path, **_: object) -> LoadedModel:
        if int(folder.name) >= DAMAGED:
            raise BadExport(f"{folder.parent.name}/{folder.name}: model.onnx has another hash", "hash")
        return classifier(folder.parent.name, int(folder.name))

    monkeypatch.setattr(service.engine.loading, "load_export", load_export)
    for place in ("mood/1", "mood/2", "twins/1"):
        (tmp_path / place).mkdir(parents=True)
    return tmp_path


@pytest.fixture
def client_of(exports: Path) -> Callable[..., ServingClient]:
    """Create clients of a server with both versions of a model and with another model."""

    def make(**changes: object) -> ServingClient:
        given = {"exports": exports, "version_policy": "all", "model_control": True, **changes}
        return serving(classifier(version=2), classifier(version=1), matcher(), settings=Settings.model_validate(given))

    return make


def served(client: ServingClient) -> list[str]:
    return [f"{model.manifest.name}@{model.manifest.version}" for model in client.engine.models.served]


def check_error(response: httpx.Response, status: int, message: str) -> None:
    assert (response.status_code, response.json()) == (status, {"error": message})


@pytest.mark.parametrize("path", [LOAD, UNLOAD])
async def test_load_and_unload_are_rejected_unless_the_setting_allows_them(
    client_of: Callable[..., ServingClient], path: str
) -> None:
    async with client_of(model_control=False) as client:
        response = await client.post(path)
        assert served(client) == ["mood@2", "mood@1", "twins@1"]
    message = "loading and unloading by request is disabled; the setting model_control enables it"
    check_error(response, 400, message)


async def test_model_is_unloaded_and_loaded(client_of: Callable[..., ServingClient], exports: Path) -> None:
    async with client_of() as client:
        assert answer(await client.post(UNLOAD)) == {"name": "mood", "versions": []}
        assert served(client) == ["twins@1"]
        gone = await client.get("/v2/models/mood/ready")
        check_error(gone, 404, "no model of that name is served; there are: twins")
        (exports / "mood" / "3").mkdir()
        shutil.rmtree(exports / "mood" / "1")
        assert answer(await client.post(LOAD)) == {"name": "mood", "versions": ["2", "3"]}
        assert served(client) == ["twins@1", "mood@3", "mood@2"]


@pytest.mark.parametrize("action", ["load", "unload"])
def test_document_requires_no_body(action: str) -> None:
    operation = application().openapi()["paths"][f"/v2/repository/models/{{name}}/{action}"]["post"]
    assert operation["requestBody"]["required"] is False


@pytest.mark.parametrize(
    "body", [b"", b"{}", b'{"parameters": {"unload_dependents": true}}', b'{"parameters": {}, "other": 1}']
)
async def test_bodies_of_tritons_client_are_accepted(client_of: Callable[..., ServingClient], body: bytes) -> None:
    async with client_of() as client:
        for path, versions in ((UNLOAD, []), (LOAD, ["1", "2"])):
            headers = {"content-type": "application/octet-stream"}
            found = answer(await client.post(path, content=body, headers=headers))
            assert found == {"name": "mood", "versions": versions}


@pytest.mark.parametrize(
    ("body", "status", "message"),
    [
        (b"{", 400, "the body is not valid JSON in UTF-8"),
        (b"[]", 422, "body: "),
        (b'{"parameters": 5}', 422, "parameters: "),
        (
            json.dumps({"parameters": {"config": "{}"}}).encode(),
            422,
            "parameters: `config` and `file:` parameters are not supported; models are loaded from the exports folder",
        ),
        (
            json.dumps({"parameters": {"file:1/model.onnx": "AAAA"}}).encode(),
            422,
            "parameters: `config` and `file:` parameters are",
        ),
    ],
)
@pytest.mark.parametrize("path", [LOAD, UNLOAD])
async def test_invalid_bodies_are_rejected(
    client_of: Callable[..., ServingClient], path: str, body: bytes, status: int, message: str
) -> None:
    async with client_of() as client:
        response = await client.post(path, content=body)
        assert response.status_code == status
        found: dict[str, Any] = response.json()
        assert set(found) == {"error"}
        assert found["error"].startswith(message)
        assert served(client) == ["mood@2", "mood@1", "twins@1"]


@pytest.mark.parametrize(
    ("path", "message"),
    [
        (
            "/v2/repository/models/none/load",
            "no export of that name is selected by version_policy; there are: mood, twins",
        ),
        ("/v2/repository/models/none/unload", "no model of that name is served; there are: mood, twins"),
        ("/v2/repository/models/mood@1/unload", "no model of that name is served; there are: mood, twins"),
    ],
)
async def test_unknown_model_is_an_error(client_of: Callable[..., ServingClient], path: str, message: str) -> None:
    async with client_of() as client:
        check_error(await client.post(path), 404, message)


async def test_load_of_a_damaged_export_is_an_error(client_of: Callable[..., ServingClient], exports: Path) -> None:
    (exports / "mood" / str(DAMAGED)).mkdir()
    async with client_of() as client:
        response = await client.post(LOAD)
        assert served(client) == ["mood@2", "mood@1", "twins@1"]
    check_error(response, 400, "mood/50: model.onnx has another hash; versions that are served: 2, 1")


async def test_load_past_its_deadline_is_an_error_and_continues(
    client_of: Callable[..., ServingClient], exports: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    released = threading.Event()

    def load_export(folder: Path, **_: object) -> LoadedModel:
        assert released.wait(PATIENCE_S)
        return classifier(folder.parent.name, int(folder.name))

    monkeypatch.setattr(service.engine.loading, "load_export", load_export)
    (exports / "mood" / "3").mkdir()
    async with client_of() as client:
        response = await client.post(LOAD, headers={"x-request-timeout-ms": "1"})
        check_error(response, 504, "the model is not loaded yet; loading continues")
        released.set()
        assert answer(await client.post(LOAD)) == {"name": "mood", "versions": ["1", "2", "3"]}


async def test_unreadable_folder_is_an_error(
    client_of: Callable[..., ServingClient], monkeypatch: pytest.MonkeyPatch
) -> None:
    def find(root: Path) -> FoundVersions:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), root)

    monkeypatch.setattr(service.engine.folder, "find_versions", find)
    async with client_of() as client:
        check_error(await client.post(LOAD), 503, "the folder of exports cannot be read: Permission denied")
        assert len(answer(await client.post("/v2/repository/index"))) == 3
