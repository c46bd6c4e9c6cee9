"""Classifiers with attentions of other papers: one line of a recipe apart, trained, exported, served."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.model.commands import call
from tests.support.server import Server

DOCUMENTS = {"+ab+c+d++e f+": "plus", "-a-bc--d-e-f": "minus", "+" * 500 + "-": "plus", "-" * 100: "minus"}

OPTIONS = {"skyformer": ["model.encoder.options.num_landmarks=16"], "dba": []}
"""Landmarks are for sequences much longer than there are of them."""


@pytest.mark.parametrize("backend", ["onnx", "torchscript"])
@pytest.mark.parametrize("attention", ["skyformer", "dba"])
def test_classifier_answers(
    attention: str, backend: str, start: Callable[..., Server], exports: Callable[[str], Path]
) -> None:
    server = start("--exports", str(exports(attention)), "--backend", backend, "--drain-delay-s", "0")
    with server.client() as client:
        answer = client.post("/v1/classify", json={"inputs": list(DOCUMENTS)})
        assert answer.status_code == 200, answer.text
        assert [result["label"] for result in answer.json()["results"]] == list(DOCUMENTS.values())
        model = client.get("/v1/models").json()["models"][0]
        assert model["training"]["recipe"]["model"]["encoder"]["attention"] == attention
    assert server.stop() == 0


@pytest.fixture(scope="module")
def exports(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """A folder with the export of a classifier of generated documents, trained once for each attention."""
    made: dict[str, Path] = {}

    def make(attention: str) -> Path:
        if attention not in made:
            folder = tmp_path_factory.mktemp(attention)
            sets = [f"model.encoder.attention={attention}", "training.epochs=6", *OPTIONS[attention]]
            words = [word for override in sets for word in ("--set", override)]
            assert call("train", "synthetic", "--runs", folder / "runs", "--device", "cpu", *words) == 0
            run = folder / "runs" / "synthetic-seed0"
            assert call("export", run, "--out", folder / "exports", "--device", "cpu") == 0
            made[attention] = folder / "exports"
        return made[attention]

    return make
