"""`detail=true` of `/v1/classify` with a model that returns contributions, which is trained briefly."""

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from artifact.exports import read_manifest
from artifact.tasks.classification import ClassifierManifest
from tests.support.offline import document
from tests.support.server import Server
from tests.support.stretches import check_stretches
from tests.unit.model.conftest import exported_once
from tests.unit.model.export.test_export_words import ngram_run

TEXT = {"content-type": "text/plain"}
NAME = "tiny"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the export."""
    return exported_once(ngram_run(tmp_path_factory), tmp_path_factory)


@pytest.fixture(scope="module")
def manifest(folder: Path) -> ClassifierManifest:
    found = read_manifest(folder)
    assert isinstance(found, ClassifierManifest)
    return found


@pytest.fixture(scope="module", params=["onnx", "torchscript"])
def divided(request: pytest.FixtureRequest, folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    flags = ("--exports", str(folder.parents[1]), "--backend", request.param)
    with Server(tmp_path_factory.mktemp("server") / "log", *flags) as server:
        yield server


@pytest.mark.parametrize("strategy", ["windows", "head", "tail", "head_tail"])
def test_stretches_add_up_to_the_scores(divided: Server, manifest: ClassifierManifest, strategy: str) -> None:
    bodies = [document(length) for length in (1, 256, 257, 512, 3000)]
    asked = {"inputs": [body.decode() for body in bodies], "detail": True, "on_overflow": strategy}
    results = divided.post("/v1/classify", json=asked).json()["results"]
    for body, result in zip(bodies, results, strict=True):
        check_stretches(result, manifest, len(body))
        query = {"detail": "true", "on_overflow": strategy}
        (alone,) = divided.post("/v1/classify", content=body, headers=TEXT, params=query).json()["results"]
        check_stretches(alone, manifest, len(body))


def test_other_answers_have_no_contributions(divided: Server, manifest: ClassifierManifest) -> None:
    (result,) = divided.post("/v1/classify", content=b"one", headers=TEXT).json()["results"]
    assert set(result) == {"label", "score", "scores", "coverage"}
    found = divided.get(f"/v2/models/{NAME}").json()["outputs"]
    assert [output["name"] for output in found] == ["scores", "label"]
    given = {"inputs": [{"name": "text", "datatype": "BYTES", "shape": [1], "data": ["one"]}]}
    outputs = divided.post(f"/v2/models/{NAME}/infer", json=given).json()["outputs"]
    assert [output["name"] for output in outputs] == ["scores", "label"]
    assert divided.get(f"/v1/models/{NAME}").json()["stretches"] == manifest.model_dump(mode="json")["stretches"]


def test_repositorys_classifier_returns_stretches(client: httpx.Client, export: Path) -> None:
    """Those of an export without contributions are its windows."""
    found = read_manifest(export)
    assert isinstance(found, ClassifierManifest)
    body = document(10_000)
    query = {"detail": "true", "model": found.name}
    (result,) = client.post("/v1/classify", content=body, headers=TEXT, params=query).json()["results"]
    check_stretches(result, found, len(body))
