import math
import re
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from model.config.recipes import find_recipe, load_recipe
from model.errors import UserError
from model.nn.forecaster import ResidualForecaster
from model.nn.matcher import Matcher
from model.tasks import task_of
from model.training.checkpoint import Progress, RunFolder
from model.training.learner import Learner, TrainingBatch
from model.training.loop import Trainer, defer_interrupt, duration, parameter_groups, peak_memory_bytes
from tests.support.commands import train


@pytest.mark.parametrize("recipe", ["synthetic", "synthetic-pairs", "synthetic-series"])
def test_parameter_groups_have_every_parameter_once_with_its_rate(recipe: str) -> None:
    model = task_of(load_recipe(find_recipe(recipe)), {"labels": ["a", "b"], "channels": ["a"]}).build()
    rates = type(model).rates if isinstance(model, (Matcher, ResidualForecaster)) else {}
    expected = {name: 0.5 * rates.get(name, 1.0) for name, _ in model.named_parameters()}
    if isinstance(model, ResidualForecaster):
        expected["linear.weight"] = expected["linear.bias"] = 0.5 * rates["linear"]
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    found = [(names[id(p)], group["lr"]) for group in parameter_groups(model, 0.5) for p in group["params"]]
    assert len(found) == len(names)
    assert dict(found) == expected


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0.1, "about a minute or less"),
        (60, "about a minute or less"),
        (61, "about 2 minutes"),
        (7100, "about 119 minutes"),
        (7200, "about 2 hours"),
        (86400, "about 24 hours"),
    ],
)
def test_duration_is_rounded(seconds: float, words: str) -> None:
    assert duration(seconds) == words


def test_duration_is_expected_after_the_first_steps(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    train("synthetic", tmp_path, "training.epochs=2")
    told = re.findall(r"^about .+ to train 2 epochs at most, plus validation$", capsys.readouterr().out, re.MULTILINE)
    assert len(told) == 1


class Regression(Learner):
    """Linear regression on 21 rows, the same ones in the same order in each epoch."""

    metric, unit = "loss", "row"

    def __init__(self, batch_size: int) -> None:
        self.batch_size, self.generator = batch_size, torch.Generator().manual_seed(0)
        self.rows = torch.randn(21, 4, generator=self.generator)

    @property
    def examples_per_epoch(self) -> int:
        return 21 // self.batch_size * self.batch_size

    def batches(self, epoch: int) -> Iterator[TrainingBatch]:
        del epoch
        for first in range(0, self.examples_per_epoch, self.batch_size):
            yield (self.rows[first : first + self.batch_size],)

    def loss(self, model: nn.Module, batch: TrainingBatch) -> Tensor:
        error: Tensor = model(batch[0][:, :3]) - batch[0][:, 3:]
        return (error**2).mean()

    def validate(self, model: nn.Module, device: torch.device) -> float:
        return float(self.loss(model, (self.rows.to(device),)).detach())


@pytest.mark.parametrize(("batch_size", "batches_per_step"), [(5, 2), (2, 5), (1, 10)])
def test_batches_of_a_step_count_like_one_batch(batch_size: int, batches_per_step: int, tmp_path: Path) -> None:
    def trained(size: int, number: int) -> tuple[Progress, Tensor]:
        settings = [f"training.batch_size={size}", f"training.batches_per_step={number}", "training.epochs=2"]
        config = load_recipe(find_recipe("synthetic"), settings)
        torch.manual_seed(0)
        model = nn.Linear(3, 1).double()
        task = Regression(size)
        task.rows = task.rows.double()
        trainer = Trainer(RunFolder(tmp_path, config, torch.device("cpu"), {}, {}), task, model, Progress())
        assert trainer.steps_per_epoch == 2
        return trainer(), model.weight.detach()

    (progress, weight), (expected_progress, expected) = trained(batch_size, batches_per_step), trained(10, 1)
    assert weight.numpy() == pytest.approx(expected.numpy(), rel=1e-12)
    for record, other in zip(progress.history, expected_progress.history, strict=True):
        assert record["training_loss"] == pytest.approx(other["training_loss"], rel=1e-12)


def test_untrained_model_without_a_finite_metric_is_an_error(tmp_path: Path) -> None:
    task = Regression(5)
    task.rows[0] = math.nan
    task.validates_initial_model = True
    folder = RunFolder(tmp_path, load_recipe(find_recipe("synthetic"), []), torch.device("cpu"), {}, {})
    with pytest.raises(UserError, match="validation loss of the untrained model is nan"):
        Trainer(folder, task, nn.Linear(3, 1), Progress())()
    assert not list(tmp_path.iterdir())


@pytest.fixture
def ctrl_c() -> Iterator[None]:
    """Install Python's default handler of SIGINT, which background jobs of a shell do not have."""
    previous = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, previous)


@pytest.mark.usefixtures("ctrl_c")
def test_ctrl_c_is_deferred_to_the_end_of_the_block() -> None:
    done = []

    def interrupted() -> None:
        with defer_interrupt():
            signal.raise_signal(signal.SIGINT)
            done.append("the rest")

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert done == ["the rest"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.usefixtures("ctrl_c")
def test_other_signal_handlers_are_not_replaced() -> None:
    received: list[int] = []

    def handle(number: int, _: object) -> None:
        received.append(number)

    signal.signal(signal.SIGINT, handle)
    with defer_interrupt():
        signal.raise_signal(signal.SIGINT)
        assert received == [signal.SIGINT]
    assert signal.getsignal(signal.SIGINT) is handle


def test_block_runs_in_another_thread() -> None:
    done = threading.Event()

    def run() -> None:
        with defer_interrupt():
            done.set()

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert done.is_set()


def test_peak_memory_does_not_decrease() -> None:
    before = peak_memory_bytes(torch.device("cpu"))
    held = torch.ones(2**22)
    assert peak_memory_bytes(torch.device("cpu")) >= before > 2**20
    assert held.sum() == 2**22
