"""Clients that are generated from the OpenAPI document; `make test-generated` installs the generators."""

import json
import os
import subprocess
from pathlib import Path

import httpx
import pytest

from tests.support.paths import ROOT
from tests.support.server import Server
from tests.support.waiting import PATIENCE_S

pytestmark = pytest.mark.generated

INSTALLED = ROOT / ".venv" / "generated"
DOCUMENT = ROOT / "docs" / "openapi.json"
PROGRAM = ROOT / "tests" / "support" / "generated_client.py"


def run(*command: object, **variables: str) -> str:
    """Run a program of the generators, with further environment variables; return what it prints."""
    assert INSTALLED.exists(), "`make test-generated` installs the generators"
    arguments = [str(part) for part in command]
    environment = {**os.environ, **variables}
    done = subprocess.run(arguments, capture_output=True, text=True, timeout=PATIENCE_S, check=False, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_client_in_python_classifies_scores_ranks_and_forecasts(
    server: Server, client: httpx.Client, tmp_path: Path
) -> None:
    generator = INSTALLED / "bin" / "openapi-python-client"
    run(generator, "generate", "--path", DOCUMENT, "--output-path", tmp_path / "generated", "--meta", "none")
    answers = json.loads(run(INSTALLED / "bin" / "python", PROGRAM, server.url, PYTHONPATH=str(tmp_path)))
    (classified,) = answers["classify"]["results"]
    assert (classified["label"], len(classified["scores"]), len(classified["windows"])) == ("positive", 1, 1)
    assert answers["refused"]["errors"][0]["loc"] == "top_k"
    query, documents = "A parser of trees", ["Speech recognition", "Dependency parsing"]
    pairs = {"pairs": [[query, document] for document in documents]}
    assert answers["score"] == client.post("/v1/score", json=pairs).json()
    ranked = [(result["index"], result["document"]) for result in answers["rank"]["results"]]
    assert ranked == [(1, documents[1]), (0, documents[0])]
    forecast = answers["forecast"]
    assert (list(forecast["forecast"]), len(forecast["forecast"]["sales"])) == (["sales"], 2)
    assert (list(forecast["quantiles"]), forecast["coverage"]["imputed"]) == (["0.1", "0.9"], 1)


def test_types_for_typescript_compile(tmp_path: Path) -> None:
    programs, types = INSTALLED / "node_modules" / ".bin", tmp_path / "api.d.ts"
    run(programs / "openapi-typescript", DOCUMENT, "--output", types)
    run(programs / "tsc", "--noEmit", "--strict", types)
    assert "ClassifyRequest" in types.read_text()
