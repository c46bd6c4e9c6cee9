"""Files of the shipped exports."""

import zipfile
from pathlib import Path

import onnx

from artifact.exports import read_manifest
from artifact.loading import find_exports
from model.export.weights import SMALLEST
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


def repeated_weights(script: Path) -> list[str]:
    """Entries of a TorchScript file with weights that the ONNX file of the same graph also holds."""
    content = script.with_suffix(".onnx").read_bytes()
    with zipfile.ZipFile(script) as archive:
        entries = [entry for entry in archive.infolist() if entry.file_size >= SMALLEST]
        return [entry.filename for entry in entries if archive.read(entry) in content]


def has_attention(path: Path) -> bool:
    """Whether an ONNX file has weights of an attention layer."""
    graph = onnx.load(path, load_external_data=False).graph
    return any(".attention." in tensor.name for tensor in graph.initializer)
