"""The classifier of words in exports/, from which the tests of backends compute batches."""

from pathlib import Path

import pytest

from artifact.exports import read_manifest, version_folder
from artifact.manifest import Graph
from tests.support.paths import EXPORTS


@pytest.fixture(scope="session")
def folder() -> Path:
    return version_folder(EXPORTS / "imdb-s3")


@pytest.fixture(scope="session")
def graph(folder: Path) -> Graph:
    return read_manifest(folder)


@pytest.fixture(scope="session")
def files(folder: Path, graph: Graph) -> dict[int, Path]:
    """The ONNX file of each bucket."""
    return {bucket: folder / file.path for bucket, file in graph.files_of("onnx").items()}
