"""gRPC clients of Triton and KServe, unchanged; `make test-kserve` installs them."""

import json
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from artifact.tasks.classification import ClassifierManifest
from tests.support.offline import Offline
from tests.support.paths import ROOT
from tests.support.server import Server
from tests.support.waiting import PATIENCE_S

pytestmark = pytest.mark.kserve

PYTHON = ROOT / ".venv" / "kserve" / "bin" / "python"
HORIZON = 720
"""Of `ettm2`."""
DOCUMENTS = (b"A good film, \xff\x00 even so.", b"Two hours that nobody gives back.")


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    flags = ("--models", "imdb-s3,ettm2", "--grpc-port", "0", "--drain-delay-s", "0")
    with Server(tmp_path_factory.mktemp("grpc") / "log", *flags) as server:
        yield server.grpc_address()


def answers_of(client: str, address: str) -> dict[str, Any]:
    """Run the calls of a client."""
    assert PYTHON.exists(), "`make test-kserve` installs the clients"
    command = [str(PYTHON), str(ROOT / "tests" / "support" / "grpc_clients.py"), client, address]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == 0, done.stderr
    answers: dict[str, Any] = json.loads(done.stdout)
    return answers


@pytest.mark.parametrize("client", ["triton", "kserve"])
def test_client_gets_the_answers_computed_offline(
    client: str, address: str, offline: Offline, manifest: ClassifierManifest
) -> None:
    found, expected = answers_of(client, address), [offline(document) for document in DOCUMENTS]
    labels = [max(scores, key=lambda name: scores[name]) for scores in expected]
    assert (found["ready"], found["id"], found["labels"]) == ([True, True, True], "7", labels)
    for rows in found["scores"]:
        for row, scores in zip(rows, expected, strict=True):
            assert dict(zip(manifest.labels, row, strict=True)) == pytest.approx(scores, abs=1e-5)
    if client == "triton":
        assert (found["server"], found["forecast"], found["best"]) == ("longdoc-serve", [1, HORIZON, 7], labels)
        assert found["inputs"] == [{"name": "text", "datatype": "BYTES", "shape": ["-1", "1"]}]
        codes = ("NOT_FOUND", "UNIMPLEMENTED", "DEADLINE_EXCEEDED")
        assert found["errors"] == [f"StatusCode.{code}" for code in codes]
