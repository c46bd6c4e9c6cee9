"""Loads a model for evaluation: an export, or a run's best checkpoint."""

from pathlib import Path
from typing import Any

import torch

from artifact.manifest import read_manifest, version_folder
from model.tasks.graphs import GraphFunction, Task, backend_function, module_functions
from model.runs.load import load_trained, task_of_export


def load(folder: Path, data_dir: Path) -> tuple[Task[Any], list[Run]]:
    """Task, and one function per graph: of an export by the serving backend, of a run by PyTorch."""
    if (folder / "best.pt").is_file():
        best = load_trained(folder, data_dir)
        return best.task, module_functions(best.task.graphs(best.model), torch.device("cpu"))
    folder = version_folder(folder)
    manifest = read_manifest(folder)
    return task_of_export(manifest, folder), [backend_function(graph, folder, "cpu") for graph in manifest.graphs]
