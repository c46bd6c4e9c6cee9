"""A model that is ready to compute: an export, or a run's best checkpoint."""

from pathlib import Path
from typing import Any

import torch

from artifact.manifest import ClassifierManifest, ForecasterManifest, newest_version, read_manifest
from model.config.stored import from_stored
from model.tasks import task_of
from model.tasks.base import Run, Task, backend_run, module_runs
from model.training import checkpoint


def load(folder: Path, data_dir: Path) -> tuple[Task[Any], list[Run]]:
    """Task of an export or a run, and its graphs: the first as it is served, the second by PyTorch."""
    if (folder / "best.pt").is_file():
        return _of_run(folder, data_dir)
    folder = newest_version(folder)
    manifest = read_manifest(folder)
    task = task_of(from_stored(manifest.training.recipe))
    if isinstance(manifest, ClassifierManifest):
        task.restore({"labels": list(manifest.labels)})
    if isinstance(manifest, ForecasterManifest):
        task.restore({key: getattr(manifest, key) for key in ("channels", "mean", "scale", "frequency")})
    return task, [backend_run(graph, folder, "cpu") for graph in manifest.graphs]


def _of_run(folder: Path, data_dir: Path) -> tuple[Task[Any], list[Run]]:
    config, _, facts, state = checkpoint.load(folder / "best.pt")
    task = task_of(config)
    task.restore(facts)
    model = task.build()
    checkpoint.load_weights(model, state, folder / "best.pt")
    task.finish(model.eval(), data_dir)
    return task, module_runs(task.graphs(model), torch.device("cpu"))
