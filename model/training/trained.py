"""What a run has trained, as it is measured and exported."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn

from model.config.run import RunConfig
from model.tasks import task_of
from model.tasks.base import Task
from model.training import checkpoint
from model.training.checkpoint import Progress


@dataclass(frozen=True)
class Trained:
    """The best checkpoint of a run: its model on the CPU, calibrated, in evaluation mode."""

    config: RunConfig
    progress: Progress
    task: Task[Any]
    model: nn.Module


def load_trained(folder: Path, data: Path) -> Trained:
    """Read best.pt of a run folder; `data` is what the model is calibrated on. Raises: UserError naming the file."""
    path = folder / "best.pt"
    config, progress, facts, state = checkpoint.load(path)
    task = task_of(config)
    task.restore(facts)
    model = task.build()
    checkpoint.load_weights(model, state, path)
    model.eval()
    task.finish(model, data)
    return Trained(config, progress, task, model)
