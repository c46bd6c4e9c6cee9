"""Run the code blocks of README and docs. Every block has a mark, such as `<!-- test: run -->`.

- `run`: run against a server; `output`: what the previous block prints, as JSON values or a Python literal;
- `parse`: only the syntax is checked, and that its make targets and recipes exist;
- `tiny`: from training to a response, in a slow test;
- the name of a program in `tests/support/clients`: run in its environment by `test_clients.py`.
"""

import ast
import json
import re
import shlex
import subprocess
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest

from service.settings import Settings
from tests.support.answers import same_answer
from tests.support.blocks import BLOCK, run, values
from tests.support.paths import ROOT
from tests.support.server import Server

DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
CLIENTS = {path.stem for path in (ROOT / "tests" / "support" / "clients").iterdir()}
RUN = [path for path in DOCUMENTS if any(match["mark"] == "run" for match in BLOCK.finditer(path.read_text()))]


def page_id(page: Path) -> str:
    return str(page.relative_to(ROOT))


def blocks(*marks: str) -> list[re.Match[str]]:
    return [m for path in DOCUMENTS for m in BLOCK.finditer(path.read_text()) if m["mark"] in marks]


def test_every_code_block_has_a_mark() -> None:
    found = [m for path in DOCUMENTS for m in BLOCK.finditer(path.read_text())]
    assert len(found) > 5
    for match in found:
        drawing = match["language"] == "mermaid"
        assert drawing or match["mark"] in {"run", "output", "parse", "tiny", *CLIENTS}, match["code"]


def test_make_targets_and_recipes_of_parsed_blocks_exist() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for match in blocks("parse"):
        if match["language"] == "python":
            ast.parse(match["code"])
            continue
        if match["language"] != "sh":
            continue
        subprocess.run(["bash", "-n", "-c", match["code"]], check=True)
        for line in match["code"].replace("\\\n", " ").splitlines():
            words = shlex.split(line, comments=True)
            if words[:1] == ["make"]:
                assert words[1] in targets, line
            if words[:4] == ["python", "-m", "model", "train"] and words[4] != "--task":
                assert (ROOT / "model" / "recipes" / f"{words[4]}.toml").is_file(), line


@pytest.mark.parametrize("page", RUN, ids=page_id)
def test_code_blocks_print_the_documented_output(page: Path, fresh: Server, tmp_path: Path) -> None:
    """The blocks run in a folder with the paths that they name; floats are compared as precisely as backends agree."""
    for folder in ("docs", "exports"):
        (tmp_path / folder).symlink_to(ROOT / folder)
    found = list(BLOCK.finditer(page.read_text()))
    for match, following in pairwise([*found, None]):
        assert match is not None
        if match["mark"] == "output":
            continue
        expected = following["code"] if following is not None and following["mark"] == "output" else None
        if match["mark"] != "run":
            assert expected is None or match["mark"] in CLIENTS, f"output of a block that is not run: {match['code']}"
            continue
        answer = run(code(match, fresh), tmp_path)
        if expected is not None:
            assert same_answer(values(answer), values(expected)), answer


def code(match: re.Match[str], server: Server) -> str:
    """Return the commands of a block, changed to use the server and to fail on an HTTP error status."""
    address = server.url.removeprefix("http://")
    text = match["code"].replace("127.0.0.1:8000", address).replace("localhost:8000", address)
    if match["language"] == "python":
        return f"python - <<'END'\n{text}END"
    return text.replace("curl -s", "curl --fail-with-body -s")


@pytest.mark.slow
def test_tiny_recipe_is_trained_exported_and_served(tmp_path: Path, start: Callable[..., Server]) -> None:
    """Runs the README's three commands, the last one on a free port."""
    (match,) = blocks("tiny")
    *commands, serve = match["code"].strip().splitlines()
    for command in commands:
        run(command, tmp_path)
    words = shlex.split(serve)
    assert words[:3] == ["python", "-m", "service"]
    flags = [str(tmp_path / word) if word.startswith("runs/") else word for word in words[3:]]
    server = start(*flags[:-1], "0")
    answer = json.loads(run(f"curl -s {server.url}/v1/classify -H 'content-type: text/plain' -d '++ a +'", tmp_path))
    assert answer["results"][0]["label"] == "plus"


def test_settings_table_lists_every_setting() -> None:
    table = (ROOT / "docs" / "operate" / "settings.md").read_text()
    for name, field in Settings.model_fields.items():
        assert f"| `LONGDOC_{name.upper()}` | `--{name.replace('_', '-')}` | `{field.default}` |" in table, name
        assert str(field.description) in table, name


def test_links_of_documents_have_targets() -> None:
    for path in DOCUMENTS:
        for target, heading in re.findall(r"\]\(([^)#\s]*)#?([^)\s]*)\)", path.read_text()):
            if "://" not in target:
                linked = path.parent / target if target else path
                assert linked.exists(), f"{page_id(path)}: {target}"
                assert not heading or heading in anchors(linked), f"{page_id(path)}: {target}#{heading}"


def anchors(page: Path) -> set[str]:
    """Return the anchors of the headings as GitHub generates them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}
