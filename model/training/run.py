"""One training run: recipe -> run folder with checkpoints, metrics and a learning curve."""

from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import torch

from artifact.provenance import git_revision
from model.config.data import OWN
from model.config.run import RunConfig
from model.data.own import NO_FILES, HeldOut
from model.data.unlabelled import load_unlabelled
from model.errors import UserError, writing
from model.tasks import task_of
from model.tasks.base import BASELINE, FINGERPRINT, UNLABELLED, Task, TextTask
from model.tasks.classification import Classification
from model.training import checkpoint
from model.training.checkpoint import FINAL, Progress
from model.training.loop import Job, Trainer
from model.training.plot import plot_learning_curve, plot_stages
from model.training.provenance import hardware
from model.training.views import ViewTraining


@dataclass(frozen=True)
class Request:
    """Inputs of a training run."""

    recipe: RunConfig
    data: Path
    """Folder of the data sets, or a file or folder of user data."""
    runs: Path
    """Parent folder of the run folders."""
    device: torch.device
    is_resumed: bool
    """Whether to resume from the run's last checkpoint."""
    held_out: HeldOut = NO_FILES
    """Files of validation and test, for user data."""
    unlabelled: Path | None = None
    """File or folder of unlabelled documents, for user data."""

    @property
    def folder(self) -> Path:
        """Folder of this run."""
        return self.runs / f"{self.recipe.name}-seed{self.recipe.seed}"


def train(request: Request) -> Path:
    """Start or resume a run and train it to the end; returns its folder. Raises: UserError."""
    config, folder, device = request.recipe, request.folder, request.device
    progress, facts, state = _resumed(request) if request.is_resumed else (None, {}, None)
    if progress is None and folder.exists() and any(folder.iterdir()):
        raise UserError(
            f"{folder} exists; resume it with --resume, choose another name or folder (--set name=..., --runs ...), or "
            "remove it"
        )
    task = task_of(config)
    task.held_out = request.held_out
    if FINGERPRINT in facts:
        task.restore(facts)
    task.load(request.data)
    is_of_words = isinstance(task, Classification) and task.config.model.kind == "words"
    needed = config.training.batch_size * config.training.batches_per_step
    if not is_of_words and task.examples_per_epoch < needed:
        raise UserError(
            f"an epoch has fewer than {needed} examples, one step; lower training.batch_size or "
            "training.batches_per_step, or raise training.examples_per_epoch"
        )
    summary, *notes = task.describe().splitlines()
    print("\n".join((f"{summary}, on {device}", *notes)))
    unlabelled = _read_unlabelled(request, task) if isinstance(task, Classification) else []
    task.note_baseline()
    if baseline := task.facts.get(BASELINE):
        print(f"{baseline['name']}: validation {task.metric} {baseline['value']:.4f}")
    elif config.data.name == "own":
        print("no TF-IDF baseline: scikit-learn finds no words in the texts")
    torch.use_deterministic_algorithms(device.type == "cpu")
    progress = progress or _new_progress(request)
    if isinstance(task, Classification) and is_of_words:
        training = ViewTraining(task.config, task, folder, device, unlabelled)
        result = training(progress)
        if task.config.data.final_fit and not (folder / FINAL).exists():
            training.fit_on_all(request.data)
        with writing(path := folder / "stages.png"):
            plot_stages(result.history, task.metric, path)
    else:
        result = _train(request, task, progress, state)
        with writing(path := folder / "learning_curve.png"):
            plot_learning_curve(result.history, task.metric, path)
    last = result.history[-1]
    print(
        f"{folder}: best validation {task.metric} {result.best:.4f}, {last['examples_per_second']:.1f} {task.unit}/s, "
        f"peak memory {last['peak_memory_bytes'] / 2**20:.0f} MiB"
    )
    if baseline and result.best is not None and result.best < baseline["value"]:
        print(
            f"warning: validation {task.metric} {result.best:.4f} is below that of {baseline['name']}, "
            f"{baseline['value']:.4f}"
        )
    return folder


def _train(request: Request, task: Task[Any], progress: Progress, state: dict[str, Any] | None) -> Progress:
    """Train a model with one stage, and again on the rows of all splits if the recipe asks for it."""
    config, folder, device = request.recipe, request.folder, request.device
    torch.manual_seed(config.seed)
    model = task.build().to(device)
    if state is None:
        task.initialise(model, device)
    folder.mkdir(parents=True, exist_ok=True)
    job = Job(config, task, model, folder, device)
    result = Trainer(job, progress, state)()
    best = folder / "best.pt"
    checkpoint.load_weights(model, checkpoint.load(best)[3], best)
    if comparison := task.compare(model.eval(), device):
        print(comparison)
    if isinstance(task, TextTask) and task.config.data.final_fit and not (folder / FINAL).exists():
        _fit_on_all(job, task, result, request.data)
    return result


def _fit_on_all(job: Job, task: TextTask[Any], progress: Progress, data: Path) -> None:
    """Train a new model on the rows of all splits, for as many epochs as the best model had; writes final.pt.

    Raises: UserError.
    """
    key = f"validation_{task.metric}"
    epochs = next((int(record["epoch"]) for record in progress.history if record[key] == progress.best), 0)
    joined = task.join_splits(data)
    torch.manual_seed(job.config.seed)
    model = task.build().to(job.device)
    task.initialise(model, job.device)
    Trainer(replace(job, model=model), Progress()).fit(epochs)
    checkpoint.save(job.folder / FINAL, job.config, progress, task.facts, {"model": model.state_dict()})
    print(f"{job.folder / FINAL}: trained on all {joined}, {epochs} epochs")


def _read_unlabelled(request: Request, task: Classification) -> list[bytes]:
    """Read the unlabelled documents of a run and note their fingerprint, which a resumed run compares.

    Raises: UserError.
    """
    if not task.config.data.unlabelled:
        return []
    texts = load_unlabelled(task.config.data, request.data, task.data, request.unlabelled, task.held_out)
    found = sha256(b"".join(sha256(text).digest() for text in texts)).hexdigest()
    if task.facts.setdefault(UNLABELLED, found) != found:
        raise UserError(f"{request.unlabelled or request.data} has other unlabelled documents than this run began with")
    print(f"{len(texts):,} unlabelled documents that are not in the labelled data")
    return texts


def _new_progress(request: Request) -> Progress:
    """Progress of a run that starts; it keeps the absolute paths of user data."""
    progress = Progress(device=hardware(request.device), revision=git_revision())
    if request.recipe.data.name in OWN:
        paths = (request.data, request.held_out.validation, request.held_out.test)
        progress.data, progress.validation, progress.test = (str(path.absolute()) if path else "" for path in paths)
    return progress


def _resumed(request: Request) -> tuple[Progress, dict[str, Any], dict[str, Any]]:
    """Progress, facts (what the task noted about its data) and state of the last checkpoint.

    Raises: UserError if its recipe differs.
    """
    path = request.folder / "last.pt"
    config, progress, facts, state = checkpoint.load(path)
    if config != request.recipe:
        found, expected = _flat(config.to_dict()), _flat(request.recipe.to_dict())
        changes = [
            f"{key} {found.get(key)}, now {expected.get(key)}"
            for key in sorted(found.keys() | expected.keys())
            if found.get(key) != expected.get(key)
        ]
        raise UserError(
            f"{path} was trained with another recipe ({'; '.join(changes)}); resume with that recipe and the same "
            "files, or start a new run"
        )
    return progress, facts, state


def _flat(table: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested keys as dotted keys."""
    flat: dict[str, Any] = {}
    for key, value in table.items():
        flat |= _flat(value, f"{prefix}{key}.") if isinstance(value, dict) else {prefix + key: value}
    return flat
