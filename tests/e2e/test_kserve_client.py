"""KServe's own client: V1 and V2 requests of `kserve.InferenceRESTClient`, which `make test-kserve` installs."""

import json
import subprocess
from typing import Any

import pytest

from artifact.tasks.classification import ClassifierManifest
from tests.support.offline import Offline, OfflineForecaster, OfflineMatcher, agree, same_score
from tests.support.paths import ROOT
from tests.support.server import Server
from tests.support.waiting import PATIENCE_S

pytestmark = pytest.mark.kserve

PYTHON = ROOT / ".venv" / "kserve" / "bin" / "python"
DOCUMENTS = ["A good film, even so.", "Two hours that nobody gives back. " * 300]
PAIRS = [("A parser of trees", "Dependency parsing"), ("A parser of trees", "Speech " * 900)]


class KServe:
    """KServe's client for one server; calls are collected and run together, since starting it takes seconds."""

    def __init__(self, server: Server) -> None:
        self._url = server.url
        self._calls: list[dict[str, Any]] = []

    def add(self, protocol: str, method: str, **arguments: object) -> None:
        """Add a call of a method of `InferenceRESTClient`."""
        arguments = {"base_url": self._url, **arguments}
        self._calls.append({"protocol": protocol, "method": method, "arguments": arguments})

    def results(self) -> list[Any]:
        """Run all calls; their results in order."""
        assert PYTHON.exists(), "`make test-kserve` installs KServe's client"
        command = [str(PYTHON), str(ROOT / "tests" / "support" / "kserve_client.py")]
        done = subprocess.run(
            command, input=json.dumps(self._calls), capture_output=True, text=True, timeout=PATIENCE_S, check=False
        )
        assert done.returncode == 0, done.stderr
        results: list[Any] = json.loads(done.stdout)
        return results


@pytest.fixture
def kserve(server: Server) -> KServe:
    return KServe(server)


def tensor(name: str, datatype: str, shape: list[int], data: object) -> dict[str, object]:
    return {"name": name, "datatype": datatype, "shape": shape, "data": data}


def test_server_and_models_are_ready(kserve: KServe, manifest: ClassifierManifest) -> None:
    kserve.add("v2", "is_server_live")
    kserve.add("v2", "is_server_ready")
    for protocol in ("v1", "v2"):
        kserve.add(protocol, "is_model_ready", model_name=manifest.name)
        kserve.add(protocol, "is_model_ready", model_name="none")
    live, ready, first, missing_v1, second, missing_v2 = kserve.results()
    assert (live, ready, first, second, missing_v2) == (True, True, True, True, False)
    assert missing_v1["status"] == 404


def test_v2_classifies_scores_and_forecasts(
    kserve: KServe,
    manifest: ClassifierManifest,
    offline: Offline,
    matcher: OfflineMatcher,
    forecaster: OfflineForecaster,
) -> None:
    m = forecaster.manifest
    columns = forecaster.series(m.context_length)
    steps = [list(step) for step in zip(*columns, strict=True)]
    documents = [tensor("text", "BYTES", [len(DOCUMENTS)], DOCUMENTS)]
    first, second = zip(*PAIRS, strict=True)
    pairs = [tensor(name, "BYTES", [len(PAIRS)], texts) for name, texts in (("a", first), ("b", second))]
    series = [tensor("series", "FP32", [1, m.context_length, len(m.channels)], [steps])]
    models = ((manifest.name, documents), (matcher.manifest.name, pairs), (m.name, series))
    for is_binary in (False, True):
        for name, inputs in models:
            kserve.add("v2", "infer", model_name=name, data={"inputs": inputs, "is_binary": is_binary})
    results = kserve.results()
    for classified, scored, forecast in (results[:3], results[3:]):
        assert (classified["id"], classified["model_name"]) == ("7", manifest.name)
        assert classified["parameters"]["documents_cut"] == 0
        for row, label, document in zip(
            classified["outputs"]["scores"], classified["outputs"]["label"], DOCUMENTS, strict=True
        ):
            expected = offline(document.encode())
            assert dict(zip(manifest.labels, row, strict=True)) == pytest.approx(expected, abs=1e-5)
            assert label == max(expected, key=lambda name: expected[name])
        for score, (a, b) in zip(scored["outputs"]["score"], PAIRS, strict=True):
            assert same_score(score, matcher(a, b))
        (predicted,) = forecast["outputs"]["forecast"]
        by_channel = [list(column) for column in zip(*predicted, strict=True)]
        assert forecaster.agree(by_channel, forecaster(columns))


def test_v1_predicts(kserve: KServe, manifest: ClassifierManifest, offline: Offline, matcher: OfflineMatcher) -> None:
    kserve.add("v1", "infer", model_name=manifest.name, data={"instances": DOCUMENTS})
    instances = [{"a": a, "b": b} for a, b in PAIRS]
    kserve.add("v1", "infer", model_name=matcher.manifest.name, data={"instances": instances})
    classified, scored = kserve.results()
    for prediction, document in zip(classified["predictions"], DOCUMENTS, strict=True):
        assert agree(prediction, offline(document.encode()))
    for prediction, (a, b) in zip(scored["predictions"], PAIRS, strict=True):
        assert same_score(prediction["score"], matcher(a, b))


def test_errors_reach_the_client(kserve: KServe, manifest: ClassifierManifest) -> None:
    wrong = {"inputs": [tensor("words", "BYTES", [1], ["a"])], "is_binary": False}
    kserve.add("v2", "infer", model_name=manifest.name, data=wrong)
    kserve.add("v1", "infer", model_name=manifest.name, data={"instances": [1]})
    kserve.add("v1", "infer", model_name="none", data={"instances": ["a"]})
    second, first, missing = kserve.results()
    assert second["status"] == 422
    assert "imdb-s3 needs text" in second["error"]
    assert (first["status"], missing["status"]) == (422, 404)
    assert "instances.0: Input should be a string" in first["error"]
    assert "no model of that name is served" in missing["error"]
