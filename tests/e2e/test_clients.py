"""The clients that docs/start/clients.md names, in their newest versions, which `make test-clients` installs.

Each has a program in `tests/support/clients`, which calls it as the page says. It prints, as JSON, answers by kind and
by name of the call; answers of a kind equal those of our own routes.
"""

import importlib.metadata
import json
import os
import re
import subprocess
import sys
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.answers import same_answer
from tests.support.blocks import BLOCK, values
from tests.support.paths import ROOT
from tests.support.server import Server
from tests.support.waiting import PATIENCE_S

pytestmark = pytest.mark.clients

PACKAGES = {
    "cohere.py": "cohere",
    "cohere-ai.mjs": "cohere-ai",
    "haystack.py": "huggingface-api-haystack cohere-haystack jina-haystack",
    "huggingface_hub.py": "huggingface_hub numpy",
    "infinity_client.py": "infinity-client",
    "langchain.py": "langchain-openai langchain-cohere numpy",
    "langchain_huggingface.py": "langchain-huggingface",
    "litellm.py": "litellm",
    "llama_index.py": "llama-index-embeddings-text-embeddings-inference llama-index-postprocessor-tei-rerank "
    "llama-index-postprocessor-cohere-rerank llama-index-postprocessor-jinaai-rerank",
    "mlserver.py": "mlserver httpx",
    "openai.py": "openai",
    "openai-node.mjs": "openai",
    "tritonclient.py": "tritonclient[http]",
}
"""Program -> packages, as the page installs them. Each program has an environment of its own."""
BLOCKS = BLOCK.finditer((ROOT / "docs" / "start" / "clients.md").read_text())
PIPELINES = {
    f"{block['mark']}.py": (block["code"], output["code"])
    for block, output in pairwise(BLOCKS)
    if f"{block['mark']}.py" in PACKAGES
}
"""Program in whose environment it runs -> code and output on the page."""
FILM, QUERY, DOCUMENTS = "A film to see twice.", "A parser of trees", ["Speech recognition", "Dependency parsing"]


def run(*command: object, text: str = "", folder: Path = ROOT) -> str:
    """Run a program; return what it prints."""
    # LiteLLM would read its prices from the network.
    environment = {**os.environ, "LITELLM_LOCAL_MODEL_COST_MAP": "True"}
    done = subprocess.run(
        [str(part) for part in command],
        input=text, capture_output=True, text=True, cwd=folder, env=environment, timeout=PATIENCE_S, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@cache
def install(program: str) -> Path:
    """Install the newest versions of a program's packages; return the folder of its environment."""
    folder, packages = ROOT / ".venv" / "clients" / Path(program).stem, PACKAGES[program].split()
    folder.mkdir(parents=True, exist_ok=True)
    if program.endswith(".mjs"):
        run("npm", "install", "--prefix", folder, "--no-fund", "--no-audit", "--loglevel", "error", *packages)
    else:
        run(sys.executable, "-m", "venv", folder)
        newest = ("--upgrade", "--upgrade-strategy", "eager")
        run(folder / "bin" / "python", "-m", "pip", "install", "--quiet", "--no-compile", *newest, *packages)
    return folder


def version(folder: Path, package: str) -> str:
    """Return the version of an installed package."""
    if (modules := folder / "node_modules").exists():
        return str(json.loads((modules / package / "package.json").read_text())["version"])
    (packages,) = folder.glob("lib/python*/site-packages")
    (found,) = importlib.metadata.distributions(name=package, path=[str(packages)])
    return found.version


def ask(program: str, text: str, server: Server, folder: Path) -> str:
    """Run the text of a program in the environment of a program with the address of a server; return what it prints."""
    environment = install(program)
    text = text.replace("localhost:8000", server.url.removeprefix("http://"))
    if program.endswith(".mjs"):
        return run("node", "--input-type=module", "-", text=text, folder=environment)
    return run(environment / "bin" / "python", "-", text=text, folder=folder)


@pytest.fixture
def expected(client: httpx.Client) -> dict[str, Any]:
    """What the service's own routes answer, by kind of answer."""

    def post(path: str, **body: object) -> dict[str, Any]:
        answer: dict[str, Any] = client.post(path, json=body).json()
        return answer

    (classified,) = post("/v1/classify", inputs=FILM)["results"]
    ranked = post("/v1/rank", query=QUERY, documents=DOCUMENTS, return_documents=True)["results"]
    scored = post("/v1/score", pairs=[[QUERY, document] for document in DOCUMENTS])["results"]
    return {
        "label": [classified["label"]],
        "labels": [[entry["label"], entry["score"]] for entry in classified["scores"]],
        "ranking": [[entry["document"], entry["score"]] for entry in ranked],
        "scores": [entry["score"] for entry in scored],
        "vectors": [entry["embedding"] for entry in post("/v1/embeddings", input=DOCUMENTS)["data"]],
        "model": "aan",
        "models": [entry["name"] for entry in client.get("/v1/models").json()["models"]],
        "unknown model": post("/v1/rank", query=QUERY, documents=DOCUMENTS, model="none")["detail"],
        "no URL": "must be a HuggingFace repo ID, not a URL",
    }


@pytest.mark.parametrize("program", PACKAGES)
def test_client_gets_the_answers_of_our_own_routes(
    program: str, server: Server, expected: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, packages = install(program), re.sub(r"\[.*?\]", "", PACKAGES[program]).split()
    with capsys.disabled():
        sys.stdout.write("\n" + "\n".join(f"{package} {version(folder, package)}" for package in packages) + " ")
    assert [*folder.glob("lib/python*/site-packages/torch")] == []
    text = (ROOT / "tests" / "support" / "clients" / program).read_text()
    *_, last = ask(program, text, server, tmp_path).splitlines()  # LiteLLM also prints errors
    found = json.loads(last)
    assert found
    for kind, answers in found.items():
        for call, answer in answers.items():
            agrees = expected[kind] in answer if isinstance(answer, str) else same_answer(answer, expected[kind])
            assert agrees, f"{kind} of {call}: {answer}"


@pytest.mark.parametrize("program", PIPELINES)
def test_pipelines_of_the_page_print_the_documented_output(program: str, server: Server, tmp_path: Path) -> None:
    code, output = PIPELINES[program]
    printed = ask(program, code, server, tmp_path)
    assert same_answer(values(printed), values(output)), printed
