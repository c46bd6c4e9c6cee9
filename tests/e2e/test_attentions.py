"""Classifiers with the attentions of other papers: trained, exported and served. The recipes differ in one line."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.commands import export, train
from tests.support.server import Server

DOCUMENTS = {"+ab+c+d++e f+": "plus", "-a-bc--d-e-f": "minus", "+" * 500 + "-": "plus", "-" * 100: "minus"}

OPTIONS = {"skyformer": ["model.encoder.options.num_landmarks=16", "model.encoder.options.num_steps=2"], "dba": []}
"""Landmark attentions need sequences much longer than the number of landmarks; fewer steps are exported sooner."""


@pytest.mark.parametrize("attention", ["skyformer", pytest.param("dba", marks=pytest.mark.slow)])
def test_classifier_is_trained_exported_and_served(
    attention: str, start: Callable[..., Server], tmp_path: Path
) -> None:
    """On generated documents; the export has compared its backends."""
    sets = [f"model.encoder.attention={attention}", "training.epochs=6", *OPTIONS[attention]]
    export(train("synthetic", tmp_path / "runs", *sets), tmp_path / "exports")
    server = start("--exports", str(tmp_path / "exports"), "--drain-delay-s", "0")
    answer = server.post("/v1/classify", json={"inputs": list(DOCUMENTS)})
    assert answer.status_code == 200, answer.text
    assert [result["label"] for result in answer.json()["results"]] == list(DOCUMENTS.values())
    model = server.get("/v1/models").json()["models"][0]
    assert model["training"]["recipe"]["model"]["encoder"]["attention"] == attention
    assert server.stop() == 0
