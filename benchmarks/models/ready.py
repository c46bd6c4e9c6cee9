"""Loads a model for evaluation: an export, or a run's best checkpoint."""

from pathlib import Path

import torch

from artifact.manifest import read_manifest, version_folder
from model.data.own import Files
from model.runs.load import Evaluable, load_export, load_trained
from model.tasks.graphs import GraphFunction, backend_function, module_functions


def load(folder: Path, files: Files) -> tuple[Evaluable, list[GraphFunction]]:
    """Task and data, and one function per graph: of an export by the serving backend, of a run by PyTorch."""
    if (folder / "best.pt").is_file():
        best = load_trained(folder, files)
        return best, module_functions(best.finished.graphs, torch.device("cpu"))
    folder = version_folder(folder)
    manifest = read_manifest(folder)
    functions = [backend_function(graph, folder, "cpu") for graph in manifest.graphs]
    return load_export(manifest, folder, files), functions
