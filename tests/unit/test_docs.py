"""What README and docs name exists; tests/e2e/test_documents.py checks their links and code blocks."""

import ast
import importlib.util
import re
from pathlib import Path

import pytest

from benchmarks.lib.quote import PAGES
from tests.support.paths import ROOT


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_programs_named_in_pages_exist(page: Path) -> None:
    named = set(re.findall(r"benchmarks(?:\.[a-z0-9_]+)+", page.read_text()))
    assert sorted(name for name in named if importlib.util.find_spec(name) is None) == []


def test_paper_to_code_names_every_public_class_once() -> None:
    page = (ROOT / "docs" / "research" / "paper-to-code.md").read_text()
    modules = (ast.parse(path.read_text()) for path in (ROOT / "model" / "nn").rglob("*.py"))
    classes = [node.name for module in modules for node in module.body if isinstance(node, ast.ClassDef)]
    public = [name for name in classes if not name.startswith("_")]
    assert {name: page.count(f"`{name}`") for name in public} == dict.fromkeys(public, 1)


def test_calls_on_the_page_of_clients_are_in_the_programs_that_run_them() -> None:
    page = (ROOT / "docs" / "start" / "clients.md").read_text()
    programs = "".join(path.read_text() for path in (ROOT / "tests" / "support" / "clients").iterdir())
    tables = re.findall(r"^\| client \| how \|\n((?:\|.*\n)+)", page, re.MULTILINE)
    calls = [call for table in tables for call in re.findall(r"`([^`]+\([^`]+\))`", table)]
    assert len(calls) > 10
    assert [call for call in calls if squeezed(call) not in squeezed(programs)] == []


def squeezed(code: str) -> str:
    """Code without whitespace and trailing commas."""
    return re.sub(r"\s", "", code).replace(",)", ")")
