"""Files of the shipped exports."""

from pathlib import Path

from artifact.loading import find_exports
from artifact.manifest import read_manifest
from tests.support.paths import EXPORTS


def files_for_cuda() -> list[Path]:
    """Every ONNX file that CUDA computes."""
    found = set[Path]()
    for folder in find_exports(EXPORTS):
        for graph in read_manifest(folder).graphs:
            assert graph.fixed_shapes is not None
            found.add(folder / graph.fixed_shapes.path)
            if not graph.fixed_shapes.for_all_batches:
                found |= {folder / file.path for file in graph.files_of("onnx").values()}
    return sorted(found)
