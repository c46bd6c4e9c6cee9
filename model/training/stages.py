"""The stages of a training run, and those of a model that learns by gradients alone."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from model.config.training import TrainingConfig
from model.errors import UserError
from model.training import checkpoint
from model.training.checkpoint import FINAL, Progress, RunFolder
from model.training.learner import TaskLearner
from model.training.loop import Trainer
from model.training.plot import plot_history

MODEL = "model"
"""Name of the stage that writes best.pt and returns the progress of the run."""


@dataclass(frozen=True)
class Stage:
    """One step of a training run."""

    name: str
    run: Callable[..., Any]
    """Run folder and outputs of `inputs` -> output. What it computes is kept in the run folder; a complete stage of a
    resumed run reads it there, and a gradient stage resumes within."""
    inputs: tuple[str, ...] = ()
    """Names of earlier stages."""


def run_stages(stages: Sequence[Stage], folder: RunFolder, metric: str) -> Progress:
    """Run the stages in their order and plot the metrics of the run; returns its progress.

    Raises: UserError.
    """
    outputs: dict[str, Any] = {}
    for stage in stages:
        outputs[stage.name] = stage.run(folder, *(outputs[name] for name in stage.inputs))
    progress: Progress = outputs[MODEL]
    plot_history(progress.history, metric, folder.path)
    return progress


def gradient_stages(learner: TaskLearner, config: TrainingConfig, *, is_fitted_on_all: bool) -> list[Stage]:
    """The stages of a model that learns by gradients alone: training, and if wanted a fit on all splits.

    Raises: UserError if an epoch has no whole step.
    """
    check_steps(learner.examples_per_epoch, config)
    stages = [Stage(MODEL, partial(fit, learner))]
    return [*stages, Stage("final fit", partial(fit_on_all, learner), (MODEL,))] if is_fitted_on_all else stages


def check_steps(examples: int, config: TrainingConfig) -> None:
    """Check that an epoch has a whole step. Raises: UserError."""
    if examples < (needed := config.batch_size * config.batches_per_step):
        raise UserError(
            f"an epoch has fewer than {needed} examples, one step; lower training.batch_size or "
            "training.batches_per_step, or raise training.examples_per_epoch"
        )


def fit(learner: TaskLearner, folder: RunFolder) -> Progress:
    """Train a model, from the step of last.pt if there is one; writes best.pt. Prints a comparison with baselines."""
    torch.manual_seed(folder.config.seed)
    model, resumed = learner.build().to(folder.device), folder.resumed()
    if resumed is None:
        learner.initialise(model, folder.device)
        trainer = Trainer(folder, learner, model, folder.started())
    else:
        trainer = Trainer(folder, learner, model, resumed.progress, resumed.state)
    progress = trainer()
    checkpoint.load_best(model, folder.path)
    if comparison := learner.compare(model.eval(), folder.device):
        print(comparison)
    return progress


def fit_on_all(learner: TaskLearner, folder: RunFolder, progress: Progress) -> None:
    """Train a new model on the examples of all splits, for as many epochs as the best model had; writes final.pt."""
    path, key = folder.path / FINAL, f"validation_{learner.metric}"
    if path.exists():
        return
    epochs = next((int(record["epoch"]) for record in progress.history if record[key] == progress.best), 0)
    joined, size = learner.on_all()
    torch.manual_seed(folder.config.seed)
    model = joined.build().to(folder.device)
    joined.initialise(model, folder.device)
    Trainer(folder, joined, model, Progress()).fit(epochs)
    folder.save(FINAL, progress, {"model": model.state_dict()})
    print(f"{path}: trained on all {size}, {epochs} epochs")
