"""Unit tests mirror the tree of modules, so that module and test are found from each other."""

from pathlib import Path

from tests.support.paths import ROOT

UNIT = ROOT / "tests" / "unit"
ELSEWHERE = {
    "deploy/test_chart.py",  # the Helm chart
    "docker/test_dashboard.py",  # the files in docker/
    "docker/test_settings.py",  # docker-compose.yml
    "test_docs.py",  # README and docs/
    "test_imports.py",  # contracts in pyproject.toml
    "test_mirror.py",  # tests/unit itself
    "test_registries.py",  # docs/develop/extend.md
    "test_requirements.py",  # requirements/
    "test_security.py",  # docs/operate/security.md
    "test_suites.py",  # marks of tests, and the Makefile
}
"""Tests that belong to no module."""


def mirrors(test: Path) -> bool:
    """Return whether a test is named after a module of its folder or the folder, possibly with `_` and a suffix."""
    folder = ROOT / test.relative_to(UNIT).parent
    names = {path.stem.strip("_") for path in folder.glob("*.py") if path.stem != "__init__"} | {folder.name}
    name = test.stem.removeprefix("test_")
    return (folder / "__init__.py").is_file() and any(f"{name}_".startswith(f"{known}_") for known in names)


def test_unit_tests_are_named_after_modules() -> None:
    others = {str(path.relative_to(UNIT)) for path in UNIT.rglob("test_*.py") if not mirrors(path)}
    assert others == ELSEWHERE
