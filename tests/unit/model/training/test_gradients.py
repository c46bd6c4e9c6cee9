"""Replayed steps, with a recorder for the CPU that computes where CUDA replays."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from model.config.recipes import find_recipe, load_recipe
from model.config.run import ClassificationRun
from model.nn.classifier import ByteClassifier
from model.tasks import task_of
from model.tasks.base import Batch
from model.tasks.classification import Classification
from model.training.checkpoint import Progress
from model.training.gradients import WARM_UP, Recorded, Replay
from model.training.loop import Job, Trainer

STEPS = 5


def task_with(*settings: str) -> Classification:
    """Return the task of synthetic documents, loaded."""
    task = task_of(load_recipe(find_recipe("synthetic"), ["training.batch_size=12", *settings]))
    assert isinstance(task, Classification)
    task.load(Path("absent"))
    return task


class Recorder:
    """In place of a CUDA graph: computes as often as before a recording, then at each replay."""

    def __init__(self) -> None:
        self.recorded = 0

    def __call__(self, compute: Replay) -> Replay:
        self.recorded += 1
        for _ in range(WARM_UP):
            compute()
        return compute


def trained(task: Classification, folder: Path, record: Callable[[Replay], Replay] | None) -> tuple[nn.Module, Tensor]:
    """Train some steps on a CPU, replayed if a recorder is given; return the model and the losses."""
    torch.manual_seed(0)
    model = task.build().train()
    device = torch.device("cpu")
    trainer = Trainer(Job(task.config, task, model, folder, device), Progress())
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
    task = task_with("model.encoder.dropout.hidden=0.2", "training.weight_decay=0.3", *settings)
    assert isinstance(task.config, ClassificationRun)
    recorder = Recorder()
    expected, losses = trained(task, tmp_path, None)
    found, replayed = trained(task, tmp_path, recorder)
    assert recorder.recorded == shapes
    assert isinstance(found, ByteClassifier)
    assert torch.equal(replayed, losses)
    for name, tensor in expected.state_dict().items():
        assert torch.equal(found.state_dict()[name], tensor), name


def test_shape_is_recorded_once_and_its_inputs_are_replaced() -> None:
    recorder, model = Recorder(), nn.Linear(3, 1)

    def compute(batch: Batch) -> Tensor:
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
    task = task_of(load_recipe(find_recipe(recipe)))
    task.load(Path("absent"))
    trainer = Trainer(Job(task.config, task, nn.Linear(1, 1), tmp_path, torch.device(device)), Progress())
    assert trainer.is_recorded is is_recorded
    assert isinstance(trainer.compute, Recorded) is is_recorded
