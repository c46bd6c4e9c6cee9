"""Files of the shipped exports."""

from pathlib import Path

from artifact.loading import find_exports
from artifact.manifest import read_manifest
from tests.support.paths import EXPORTS


def files_for_cuda() -> list[Path]:
    """Every shipped ONNX file that CUDA uses."""
    found = set[Path]()
    for folder in find_exports(EXPORTS):
        manifest = read_manifest(folder)
        for graph in (*manifest.graphs, manifest.in_precision("float16")):
            assert graph.fixed_shapes is not None
            found |= {folder / path for path in (graph.fixed_shapes.path, *graph.cuda_files().values())}
    return sorted(found)
