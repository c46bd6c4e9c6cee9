"""The package as `pip install` leaves it, used from another folder than the repository."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.paths import EXPORTS, ROOT

PACKAGES = ("artifact", "model", "service")

USE = """
import artifact
print(artifact.__file__)
print(artifact.load({export!r}).classify("A film to see twice.")["label"])
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the installed package and nothing else of the repository."""
    source, target = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("installed")
    for package in PACKAGES:
        shutil.copytree(ROOT / package, source / package, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    # Without isolation pip downloads nothing.
    options = ("--quiet", "--no-deps", "--no-build-isolation", "--no-compile", "--target", str(target))
    subprocess.run([sys.executable, "-m", "pip", "install", *options, str(source)], check=True)
    return target


def test_installed_package_answers_from_another_folder(installed: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", USE.format(export=str(EXPORTS / "imdb-s3"))],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(installed)},
        capture_output=True,
        text=True,
        check=True,
    )
    file, label = done.stdout.splitlines()
    assert Path(file).parent == installed / "artifact"
    assert label == "positive"


def test_client_is_installed_alone(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    shutil.copytree(ROOT / "client", source, ignore=shutil.ignore_patterns("__pycache__"))
    options = ("--quiet", "--no-deps", "--no-build-isolation", "--no-compile", "--target", str(target))
    subprocess.run([sys.executable, "-m", "pip", "install", *options, str(source)], check=True)
    program = "import sys, longdoc_client; print({'artifact', 'model', 'numpy', 'service', 'torch'} & set(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(target)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "set()\n"
    assert (target / "longdoc_client" / "py.typed").is_file()


@pytest.mark.parametrize("package", PACKAGES)
def test_installed_package_is_complete(installed: Path, package: str) -> None:
    def files(folder: Path) -> set[Path]:
        found = (path.relative_to(folder) for path in (folder / package).rglob("*") if path.is_file())
        return {path for path in found if "__pycache__" not in path.parts}

    assert files(installed) == files(ROOT)
