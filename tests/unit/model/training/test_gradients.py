"""Replayed steps, with a recorder for the CPU that computes where CUDA replays."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from model.config.recipes import find_recipe, load_recipe
from model.config.run import RunConfig
from model.nn.classifier import PaperClassifier
from model.tasks import task_of
from model.tasks.classification import ClassificationTask
from model.tasks.matching import MatchingTask
from model.training.checkpoint import Progress, RunFolder
from model.training.gradients import WARM_UP, Recorded, Replay
from model.training.learner import TaskLearner, TrainingBatch
from model.training.loop import Trainer

STEPS = 5


def learner_of(recipe: str, *settings: str) -> TaskLearner:
    """Return what a recipe of generated data learns from."""
    task = task_of(load_recipe(find_recipe(recipe), settings))
    data: Any = task.load(Path("absent"))
    task = task.with_facts_of(data)
    assert isinstance(task, ClassificationTask | MatchingTask)
    return task.learner(data)


class Recorder:
    """In place of a CUDA graph: computes as often as before a recording, then at each replay."""

    def __init__(self) -> None:
        self.recorded = 0

    def __call__(self, compute: Replay) -> Replay:
        self.recorded += 1
        for _ in range(WARM_UP):
            compute()
        return compute


def trained(
    learner: TaskLearner, config: RunConfig, folder: Path, record: Callable[[Replay], Replay] | None
) -> tuple[nn.Module, Tensor]:
    """Train some steps on a CPU, replayed if a recorder is given; return the model and the losses."""
    torch.manual_seed(0)
    model = learner.build().train()
    device = torch.device("cpu")
    trainer = Trainer(RunFolder(folder, config, device, {}, {}), learner, model, Progress())
    if record is not None:
        trainer.compute, trainer.is_recorded = Recorded(trainer._add_gradients, model, device, record), True
    batches = [batches for batches, _ in zip(trainer._batches(0), range(STEPS), strict=False)]
    assert len(batches) == STEPS
    return model, torch.tensor([trainer._step(step) for step in batches])


@pytest.mark.parametrize(
    ("settings", "shapes"),
    [
        (("model.encoder.mode=paper-masked",), 1),
        (("model.encoder.mode=paper-masked", "training.batches_per_step=2"), 1),
        (("model.encoder.mode=length-aware", "training.batches_per_step=2"), 2),
    ],
)
def test_replayed_steps_are_those_of_eager_training(
    settings: tuple[str, ...], shapes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Statistics, random numbers and the gradients of other batches of a step included."""
    monkeypatch.setattr("model.config.models.SHORTEST_BUCKET", 32)
    settings = ("training.batch_size=12", "model.encoder.dropout.hidden=0.2", "training.weight_decay=0.3", *settings)
    learner, config = learner_of("synthetic", *settings), load_recipe(find_recipe("synthetic"), settings)
    recorder = Recorder()
    expected, losses = trained(learner, config, tmp_path, None)
    found, replayed = trained(learner, config, tmp_path, recorder)
    assert recorder.recorded == shapes
    assert isinstance(found, PaperClassifier)
    assert torch.equal(replayed, losses)
    for name, tensor in expected.state_dict().items():
        assert torch.equal(found.state_dict()[name], tensor), name


def test_shape_is_recorded_once_and_its_inputs_are_replaced() -> None:
    recorder, model = Recorder(), nn.Linear(3, 1)

    def compute(batch: TrainingBatch) -> Tensor:
        loss: Tensor = model(batch[0]).sum()
        loss.backward()
        return loss.detach()

    replayed = Recorded(compute, model, torch.device("cpu"), recorder)
    for rows in (2, 4, 2, 2, 4):
        batch = torch.randn(rows, 3)
        model.zero_grad(set_to_none=False)
        assert replayed((batch,)) == model(batch).sum()
        assert torch.equal(model.weight.grad, batch.sum(0, keepdim=True))  # type: ignore[arg-type]
    assert recorder.recorded == 2


@pytest.mark.parametrize(
    ("recipe", "device", "is_recorded"),
    [("synthetic", "cuda", True), ("synthetic", "cpu", False), ("synthetic-pairs", "cuda", False)],
)
def test_steps_are_replayed_on_cuda_if_their_shapes_are_fixed(
    recipe: str, device: str, tmp_path: Path, *, is_recorded: bool
) -> None:
    folder = RunFolder(tmp_path, load_recipe(find_recipe(recipe)), torch.device(device), {}, {})
    trainer = Trainer(folder, learner_of(recipe), nn.Linear(1, 1), Progress())
    assert trainer.is_recorded is is_recorded
    assert isinstance(trainer.compute, Recorded) is is_recorded
