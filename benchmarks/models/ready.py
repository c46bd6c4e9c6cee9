"""Loads a model for evaluation: an export, or a run's best checkpoint."""

from pathlib import Path

import torch

from artifact.manifest import read_manifest, version_folder
from model.data.own import DataFiles
from model.runs.load import Evaluable, load_trained, prepare_export
from model.tasks.graphs import GraphFunction, backend_function, module_functions


def load(folder: Path, files: DataFiles) -> tuple[Evaluable, list[GraphFunction]]:
    """Task and data, and one function per graph: of an export by the serving backend, of a run by PyTorch."""
    if (folder / "best.pt").is_file():
        best = load_trained(folder, files)
        return best, module_functions(best.finished.graphs, torch.device("cpu"))
    folder = version_folder(folder)
    manifest = read_manifest(folder)
    functions = [backend_function(graph, folder, "cpu") for graph in manifest.graphs]
    return prepare_export(manifest, folder, files), functions
