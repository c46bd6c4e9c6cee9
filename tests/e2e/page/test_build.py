"""The built page in `service/page/` is the one that the source in `page/` gives."""

import json
import subprocess
from pathlib import Path

import pytest

from service.routes.page import FOLDER
from tests.support.paths import ROOT

pytestmark = pytest.mark.page

SOURCE = ROOT / "page"


def npm(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["npm", *arguments], cwd=SOURCE, capture_output=True, text=True, check=False)


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_built_page_equals_its_source(tmp_path: Path) -> None:
    done = npm("run", "build", "--", "--outDir", str(tmp_path / "built"))
    assert done.returncode == 0, done.stdout + done.stderr
    assert files(tmp_path / "built") == files(FOLDER), "`make page` builds it"


def test_source_is_formatted_and_its_types_are_correct() -> None:
    done = npm("run", "check")
    assert done.returncode == 0, done.stdout + done.stderr


def test_packages_are_pinned_and_name_no_registry() -> None:
    manifest = json.loads((SOURCE / "package.json").read_text())
    lock = json.loads((SOURCE / "package-lock.json").read_text())["packages"]
    asked = {**manifest["dependencies"], **manifest["devDependencies"]}
    assert {name: lock[f"node_modules/{name}"]["version"] for name in asked} == asked
    assert all("resolved" not in package for package in lock.values())
    assert all("integrity" in package for path, package in lock.items() if path)
