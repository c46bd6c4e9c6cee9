"""Tests of units stand where their modules do, so that each is found from the other."""

from pathlib import Path

from tests.support.paths import ROOT

UNIT = ROOT / "tests" / "unit"
ELSEWHERE = {
    "docker/test_dashboard.py",  # the files in docker/
    "docker/test_settings.py",  # docker-compose.yml
    "test_imports.py",  # contracts in pyproject.toml
    "test_mirror.py",  # tests/unit itself
    "test_pages.py",  # README and docs/
    "test_requirements.py",  # requirements/
}
"""Tests of what is no module."""


def mirrors(test: Path) -> bool:
    """Whether a file is called after a module of its folder or after the folder, alone or with `_` and a part of it."""
    folder = ROOT / test.relative_to(UNIT).parent
    names = {path.stem.strip("_") for path in folder.glob("*.py") if path.stem != "__init__"} | {folder.name}
    name = test.stem.removeprefix("test_")
    return (folder / "__init__.py").is_file() and any(f"{name}_".startswith(f"{known}_") for known in names)


def test_files_are_named_after_modules() -> None:
    others = {str(path.relative_to(UNIT)) for path in UNIT.rglob("test_*.py") if not mirrors(path)}
    assert others == ELSEWHERE
