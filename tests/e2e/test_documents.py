"""README and docs are run: every code block is marked `<!-- test: run -->`, `output`, `python` or `parse`."""

import ast
import json
import re
import shlex
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from service.settings import Settings
from tests.support.blocks import BLOCK, run
from tests.support.paths import ROOT
from tests.support.server import Server

DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
LOCAL = "http://127.0.0.1:8000"


def blocks(*marks: str) -> list[re.Match[str]]:
    return [m for path in DOCUMENTS for m in BLOCK.finditer(path.read_text()) if m["mark"] in marks]


def test_every_block_is_marked() -> None:
    found = [m for path in DOCUMENTS for m in BLOCK.finditer(path.read_text())]
    assert len(found) > 5
    for match in found:
        assert match["mark"] in {"run", "output", "parse", "python", "tiny"}, match["code"]


def test_parsed_blocks_name_what_exists() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for match in blocks("parse"):
        if match["language"] == "python":
            ast.parse(match["code"])
            continue
        subprocess.run(["bash", "-n", "-c", match["code"]], check=True)
        for line in match["code"].splitlines():
            words = shlex.split(line, comments=True)
            if words[:1] == ["make"]:
                assert words[1] in targets, line
            if words[:4] == ["python", "-m", "model", "train"] and words[4] != "--task":
                assert (ROOT / "model" / "recipes" / f"{words[4]}.toml").is_file(), line


def test_readme_answers_are_real(server: Server) -> None:
    """Each `run` block's output equals the `output` block after it, floats as far as backends agree."""
    readme = (ROOT / "README.md").read_text()
    checked = 0
    found = list(BLOCK.finditer(readme))
    for match, following in zip(found, [*found[1:], None], strict=True):
        if match["mark"] != "run":
            continue
        is_python = match["language"] == "python"
        code = f"python - <<'END'\n{match['code']}END" if is_python else match["code"]
        answer = run(code.replace(LOCAL, server.url).replace("localhost:8000", server.url), ROOT)
        if following is not None and following["mark"] == "output":
            read = ast.literal_eval if is_python else json.loads
            assert same(read(answer), read(following["code"])), answer
            checked += 1
    assert checked


def test_python_runs() -> None:
    found = blocks("python")
    assert found
    for match in found:
        run(f"python - <<'END'\n{match['code']}END", ROOT)


def same(a: object, b: object) -> bool:
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(same(a[k], b[k]) for k in a)
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, float):
        # Forecasts are in the units of the data, where backends differ by more than 1e-5.
        return a == pytest.approx(b, rel=1e-4, abs=1e-5)
    return a == b


@pytest.mark.slow
def test_tiny_recipe_goes_from_training_to_an_answer(tmp_path: Path, start: Callable[..., Server]) -> None:
    """The README's three commands, the last one on a free port."""
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


def test_settings_table_is_complete() -> None:
    table = (ROOT / "docs" / "settings.md").read_text()
    for name, field in Settings.model_fields.items():
        assert f"| `LONGDOC_{name.upper()}` | `--{name.replace('_', '-')}` | `{field.default}` |" in table, name
        assert str(field.description) in table, name


def test_links_of_documents_lead_somewhere() -> None:
    for path in DOCUMENTS:
        for target in re.findall(r"\]\(([^)#\s]+)\)", path.read_text()):
            if "://" not in target:
                assert (path.parent / target).exists(), f"{path.name}: {target}"
