"""One training run: a recipe -> a run folder with checkpoints, metrics and a learning curve."""

from dataclasses import dataclass
from pathlib import Path

import torch

from artifact.provenance import git_revision
from model.config.run import RunConfig
from model.errors import UserError
from model.tasks import task_of
from model.training import checkpoint
from model.training.checkpoint import Progress
from model.training.loop import Fit, Job
from model.training.plot import learning_curve
from model.training.provenance import hardware


@dataclass(frozen=True)
class Request:
    """What is to be trained."""

    recipe: RunConfig
    data: Path
    """Folder of the data sets, or a file or folder of one's own."""
    runs: Path
    """Folder of run folders."""
    device: torch.device
    is_resumed: bool
    """Whether to go on from the run's last checkpoint."""

    @property
    def folder(self) -> Path:
        """Run folder."""
        return self.runs / f"{self.recipe.name}-seed{self.recipe.seed}"


def train(request: Request) -> Path:
    """Start or resume a run and train it to its end; returns its folder. Raises: UserError."""
    config, folder, device = request.recipe, request.folder, request.device
    progress, state = _resumed(request) if request.is_resumed else (None, None)
    if progress is None and folder.exists():
        raise UserError(
            f"{folder} exists; give --resume to go on with it, another name or place (--set name=..., --runs ...), or "
            "remove it"
        )
    task = task_of(config)
    task.load(request.data)
    if task.examples_per_epoch < config.training.batch_size:
        raise UserError(
            f"an epoch holds fewer than one batch, {config.training.batch_size}; lower training.batch_size or raise "
            "training.examples_per_epoch"
        )
    print(f"{task.describe()}, on {device}")
    torch.manual_seed(config.seed)
    torch.use_deterministic_algorithms(device.type == "cpu")
    model = task.build().to(device)
    if state is None:
        task.initialise(model, device)
    folder.mkdir(parents=True, exist_ok=True)
    progress = progress or Progress(device=hardware(device), revision=git_revision())
    result = Fit(Job(config, task, model, folder, device), progress, state)()
    learning_curve(result.history, task.metric, folder / "learning_curve.png")
    last = result.history[-1]
    print(
        f"{folder}: best validation {task.metric} {result.best:.4f}, {last['examples_per_second']:.1f} {task.unit}/s, "
        f"peak memory {last['peak_memory_bytes'] / 2**20:.0f} MiB"
    )
    return folder


def _resumed(request: Request) -> tuple[Progress, dict[str, object]]:
    """Progress and state of the last checkpoint. Raises: UserError if it is of another recipe."""
    path = request.folder / "last.pt"
    config, progress, _, state = checkpoint.load(path)
    if config != request.recipe:
        raise UserError(f"{path} was trained with another recipe; resume with that one or start anew")
    return progress, state
