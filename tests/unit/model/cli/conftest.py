"""A run, its export and its manifest."""

from pathlib import Path

import pytest

from artifact.manifest import ClassifierManifest, read_manifest
from tests.support.commands import export, train


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a short training run."""
    return train("synthetic", tmp_path_factory.mktemp("runs"), "training.epochs=1")


@pytest.fixture(scope="module")
def exported(run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The export of the run as version 1."""
    return export(run, tmp_path_factory.mktemp("exports"))


@pytest.fixture(scope="module")
def manifest(exported: Path) -> ClassifierManifest:
    manifest = read_manifest(exported)
    assert isinstance(manifest, ClassifierManifest)
    return manifest
