"""Loads a model for evaluation: an export, or a run's best checkpoint."""

from pathlib import Path
from typing import Any

import torch

from artifact.exports import read_manifest, version_folder
from model.tasks.base import Run, Task, backend_run, module_runs
from model.training.trained import load_trained, task_of_export


def load(folder: Path, data_dir: Path) -> tuple[Task[Any], list[Run]]:
    """Task, and one function per graph: of an export by the serving backend, of a run by PyTorch."""
    if (folder / "best.pt").is_file():
        best = load_trained(folder, data_dir)
        return best.task, module_runs(best.task.graphs(best.model), torch.device("cpu"))
    folder = version_folder(folder)
    manifest = read_manifest(folder)
    return task_of_export(manifest, folder), [backend_run(graph, folder, "cpu") for graph in manifest.graphs]
