import io
import json
import re
import shutil
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
from matplotlib import image
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from model.config.run import RunConfig
from model.runs.load import unfinished
from model.tasks import rows, task_of
from model.tasks.classification import ClassificationTask, PaperLearner
from model.tasks.forecasting import WindowLearner
from model.training import checkpoint
from model.training.checkpoint import Progress
from model.training.learner import TaskLearner
from tests.support.commands import call
from tests.support.disk import full_beyond

# Dropout and random crops make the run depend on every generator; 9 steps per epoch.
SETTINGS = [
    "training.epochs=2",
    "training.batch_size=48",
    "training.warmup_steps=4",
    "model.encoder.dropout.hidden=0.2",
    "data.crop=random",
]
STEPS = 9
RUN = "synthetic-seed0"
LEARNERS: dict[str, type[TaskLearner]] = {"synthetic": PaperLearner, "synthetic-series": WindowLearner}
FILES = [
    "best.pt",
    "evaluation.json",
    "last.pt",
    "learning_curve.png",
    "metrics.jsonl",
    "predictions.csv",
    "report.html",
]


def train(runs: Path, *arguments: object, recipe: str = "synthetic", settings: list[str] = SETTINGS) -> int:
    overrides = [part for setting in settings for part in ("--set", setting)]
    return call("train", recipe, "--runs", runs, "--device", "cpu", *overrides, *arguments)


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    runs = tmp_path_factory.mktemp("runs")
    assert train(runs) == 0
    return runs / RUN


def outcome(folder: Path, name: str) -> dict[str, Any]:
    """Return the content of a checkpoint without measured times and memory."""
    config, progress, facts, state = checkpoint.load(folder / name)
    kept = {key: getattr(progress, key) for key in ("epoch", "step", "loss_sum", "best")}
    return {
        "config": config,
        "facts": facts,
        **kept,
        "history": [results(record) for record in progress.history],
    } | state


def results(record: dict[str, float]) -> dict[str, float]:
    return {key: record[key] for key in record if key not in ("examples_per_second", "peak_memory_bytes")}


def metrics(folder: Path) -> list[dict[str, float]]:
    return [results(json.loads(line)) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def equal(left: Any, right: Any) -> bool:
    """Return whether both are equal, tensors bit by bit."""
    if isinstance(left, torch.Tensor):
        return isinstance(right, torch.Tensor) and left.dtype == right.dtype and torch.equal(left, right)
    if isinstance(left, dict):
        return left.keys() == right.keys() and all(equal(left[key], right[key]) for key in left)
    if isinstance(left, list):
        return len(left) == len(right) and all(map(equal, left, right))
    return bool(left == right)


@pytest.fixture
def _ctrl_c() -> Iterator[None]:
    """Install Python's default handler of SIGINT, which background jobs of a shell do not have."""
    previous = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, previous)


class Countdown:
    """Raises a signal, by default SIGINT, as Ctrl-C does, at the n-th call."""

    def __init__(self, n: int, number: signal.Signals = signal.SIGINT) -> None:
        self.left, self.number = n, number

    def __call__(self, *_: object, **__: object) -> None:
        self.left -= 1
        if self.left == 0:
            signal.raise_signal(self.number)


@contextmanager
def before_batch(patch: pytest.MonkeyPatch, n: int) -> Iterator[None]:
    original, countdown = PaperLearner.batches, Countdown(n)

    def batches(learner: PaperLearner, epoch: int) -> Iterator[Any]:
        for batch in original(learner, epoch):
            countdown()
            yield batch

    patch.setattr(PaperLearner, "batches", batches)
    yield


@contextmanager
def before_optimiser(_: pytest.MonkeyPatch, n: int) -> Iterator[None]:
    with removed(register_optimizer_step_pre_hook(Countdown(n))):
        yield


@contextmanager
def after_optimiser(_: pytest.MonkeyPatch, n: int) -> Iterator[None]:
    with removed(register_optimizer_step_post_hook(Countdown(n))):
        yield


@contextmanager
def in_validation(patch: pytest.MonkeyPatch, n: int) -> Iterator[None]:
    original, countdown = rows.run_on_rows, Countdown(n)

    def run_on_rows(*arguments: Any) -> Any:
        countdown()
        return original(*arguments)

    patch.setattr(rows, "run_on_rows", run_on_rows)
    yield


@contextmanager
def in_save(patch: pytest.MonkeyPatch, n: int) -> Iterator[None]:
    original, countdown = torch.save, Countdown(n)

    def save(*arguments: Any) -> None:
        countdown()
        original(*arguments)

    patch.setattr(torch, "save", save)
    yield


@contextmanager
def removed(handle: Any) -> Iterator[None]:
    try:
        yield
    finally:
        handle.remove()


def case(interruption: Any, n: int, name: str) -> Any:
    return pytest.param(interruption, n, id=name)


@pytest.mark.usefixtures("_ctrl_c")
@pytest.mark.parametrize(
    ("interruption", "n"),
    [
        case(before_batch, 1, "before the first step"),
        case(before_batch, 4, "between two steps"),
        case(before_batch, STEPS + 1, "between two epochs"),
        case(before_optimiser, STEPS + 3, "in a step, before the optimiser"),
        case(after_optimiser, 5, "in a step, after the optimiser"),
        case(after_optimiser, STEPS, "in the last step of an epoch"),
        case(in_validation, 1, "in validation"),
        case(in_save, 2, "while best.pt is written"),
        case(in_save, 4, "while the last epoch is saved"),
    ],
)
def test_resumed_training_equals_uninterrupted_training(
    interruption: Any,
    n: int,
    uninterrupted: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    with monkeypatch.context() as patch, interruption(patch, n):
        assert train(tmp_path) == 130
    assert capsys.readouterr().err.endswith("interrupted; resume with --resume\n")
    assert train(tmp_path, "--resume") == 0
    for name in ("last.pt", "best.pt"):
        assert equal(outcome(tmp_path / RUN, name), outcome(uninterrupted, name))
    assert metrics(tmp_path / RUN) == metrics(uninterrupted)


def test_terminated_training_is_resumed_from_the_same_step(uninterrupted: Path, tmp_path: Path) -> None:
    before = signal.getsignal(signal.SIGTERM)
    with removed(register_optimizer_step_pre_hook(Countdown(STEPS + 3, signal.SIGTERM))):
        assert train(tmp_path) == 130
    assert signal.getsignal(signal.SIGTERM) == before
    progress = checkpoint.load(tmp_path / RUN / "last.pt")[1]
    assert (progress.epoch, progress.step) == (1, 3)
    assert train(tmp_path, "--resume") == 0
    assert equal(outcome(tmp_path / RUN, "last.pt"), outcome(uninterrupted, "last.pt"))


def test_best_checkpoint_holds_the_weights_alone(uninterrupted: Path) -> None:
    assert checkpoint.load(uninterrupted / "best.pt")[3].keys() == {"model"}
    assert checkpoint.load(uninterrupted / "last.pt")[3].keys() == {"model", "optimiser", "schedule", "generator"}


@pytest.mark.usefixtures("_ctrl_c")
@pytest.mark.parametrize(
    ("recipe", "settings"),
    [
        ("synthetic-pairs", ["training.batch_size=64", "model.encoder.dropout.hidden=0.2"]),
        ("synthetic-pairs", ["training.batch_size=16", "training.batches_per_step=3"]),
        ("synthetic-series", ["training.examples_per_epoch=80", "model.encoder.dropout.hidden=0.2"]),
    ],
)
def test_resumed_training_of_other_tasks_equals_uninterrupted_training(
    recipe: str, settings: list[str], tmp_path: Path
) -> None:
    runs = {name: tmp_path / name for name in ("whole", "resumed")}
    settings = ["training.epochs=2", *settings]
    assert train(runs["whole"], recipe=recipe, settings=settings) == 0
    with removed(register_optimizer_step_post_hook(Countdown(8))):
        assert train(runs["resumed"], recipe=recipe, settings=settings) == 130
    last = f"{recipe}-seed0/last.pt"
    assert checkpoint.load(runs["resumed"] / last)[1].step > 0
    assert train(runs["resumed"], "--resume", recipe=recipe, settings=settings) == 0
    whole, resumed = (folder / f"{recipe}-seed0" for folder in runs.values())
    for name in ("last.pt", "best.pt"):
        assert equal(outcome(resumed, name), outcome(whole, name))
    assert metrics(resumed) == metrics(whole)


def test_train_depends_on_its_seed(uninterrupted: Path, tmp_path: Path) -> None:
    assert train(tmp_path, "--set", "seed=1") == 0
    other = outcome(tmp_path / "synthetic-seed1", "last.pt")
    assert not equal(other["model"], outcome(uninterrupted, "last.pt")["model"])


def test_learning_rate_warms_up_and_decays_over_all_batches(tmp_path: Path) -> None:
    rates: list[float] = []
    with removed(
        register_optimizer_step_post_hook(lambda optimiser, *_: rates.append(optimiser.param_groups[0]["lr"]))
    ):
        assert train(tmp_path) == 0
    highest = 1e-2  # as in the recipe
    assert len(rates) == 2 * STEPS
    assert rates[:4] == pytest.approx([highest * share for share in (0.25, 0.5, 0.75, 1)])
    assert rates[4:] == sorted(rates[4:], reverse=True)
    assert rates[11] == pytest.approx(highest / 2)  # half of the 14 steps after the warm-up
    assert 0 < rates[-1] < 0.02 * highest


def test_train_writes_metrics_and_a_learning_curve(uninterrupted: Path) -> None:
    records = [json.loads(line) for line in (uninterrupted / "metrics.jsonl").read_text().splitlines()]
    assert [record["epoch"] for record in records] == [1, 2]
    assert records[0]["training_loss"] > records[1]["training_loss"]
    for record in records:
        assert 0.5 < record["validation_accuracy"] <= 1
        assert record["examples_per_second"] > 0
        assert record["peak_memory_bytes"] > 2**20
    assert records == checkpoint.load(uninterrupted / "last.pt")[1].history
    height, width, _ = image.imread(uninterrupted / "learning_curve.png").shape
    assert width > height > 100
    assert sorted(path.name for path in uninterrupted.iterdir()) == FILES


def test_best_checkpoint_has_its_recorded_accuracy(uninterrupted: Path) -> None:
    config, progress, facts, state = checkpoint.load(uninterrupted / "best.pt")
    assert facts == {"labels": ["minus", "plus"], "metric": "accuracy"}
    assert progress.best == max(record["validation_accuracy"] for record in metrics(uninterrupted))
    task = task_of(config, facts)
    assert isinstance(task, ClassificationTask)
    classifier = task.build()
    checkpoint.load_weights(classifier, state, uninterrupted / "best.pt")
    learner = PaperLearner(task, task.load(Path("absent")))
    assert learner.validate(classifier.eval(), torch.device("cpu")) == progress.best


@pytest.mark.parametrize(
    ("recipe", "values", "best"),
    [
        ("synthetic", [0.6, 0.8, 0.8, 0.7], 2),
        ("synthetic-series", [1.3, 1.2, 0.9, 0.9, 1.0], 2),
        ("synthetic-series", [1.0, 1.2, 1.0, 1.1, 1.3], 0),
    ],
    ids=["larger is better", "smaller is better", "the start is best"],
)
def test_best_checkpoint_is_the_first_of_the_best_epochs(
    recipe: str, values: list[float], best: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left, learner = iter(values), LEARNERS[recipe]
    monkeypatch.setattr(learner, "validate", lambda *_: next(left))
    settings = ["training.epochs=4", "training.examples_per_epoch=16", "training.warmup_steps=0"]
    assert train(tmp_path, recipe=recipe, settings=settings) == 0
    _, progress, _, _ = checkpoint.load(tmp_path / f"{recipe}-seed0" / "best.pt")
    assert list(left) == []
    assert (progress.epoch, len(progress.history)) == (best, best)
    assert progress.best == values[best if learner.validates_initial_model else best - 1]


@pytest.mark.usefixtures("without_report")
@pytest.mark.parametrize(
    ("recipe", "patience", "values", "epochs"),
    [
        ("synthetic", 0, [0.8, 0.7, 0.7, 0.7, 0.7, 0.7], 6),
        ("synthetic", 1, [0.6, 0.7, 0.7], 3),
        ("synthetic", 2, [0.6, 0.8, 0.8, 0.7], 4),
        ("synthetic", 2, [0.8, 0.7, 0.9, 0.8, 0.9], 5),
        ("synthetic", 2, [0.8, 0.7, 0.75], 3),
        ("synthetic", 3, [0.8, 0.7, 0.75, 0.7], 4),
        ("synthetic", 3, [0.1, 0.2, 0.3, 0.4, 0.5, 0.6], 6),
        ("synthetic", 9, [0.6, 0.5, 0.4, 0.3, 0.2, 0.1], 6),
        ("synthetic-series", 2, [1.5, 1.0, 0.9, 0.9, 1.2], 4),
        ("synthetic-series", 2, [1.5, 1.0, 1.2, 0.8, 0.9, 0.8], 5),
        ("synthetic-series", 1, [1.5, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4], 6),
    ],
)
def test_training_stops_when_patience_is_exhausted(
    recipe: str, patience: int, values: list[float], epochs: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first value of a series belongs to the initial model, which is no epoch."""
    left, learner = iter(values), LEARNERS[recipe]
    monkeypatch.setattr(learner, "validate", lambda *_: next(left))
    settings = ["training.epochs=6", "training.examples_per_epoch=16", "training.warmup_steps=0"]
    settings.append(f"training.patience={patience}")
    assert train(tmp_path, recipe=recipe, settings=settings) == 0
    assert list(left) == []
    folder = tmp_path / f"{recipe}-seed0"
    history = [
        record["validation_mse_to_linear" if learner.is_error else "validation_accuracy"] for record in metrics(folder)
    ]
    assert history == values[-epochs:]
    assert checkpoint.load(folder / "best.pt")[1].best == (min if learner.is_error else max)(values)
    assert train(tmp_path, "--resume", recipe=recipe, settings=settings) == 0
    assert len(metrics(folder)) == epochs
    assert unfinished(folder) == ""


def test_resuming_a_finished_run_changes_nothing(uninterrupted: Path, tmp_path: Path) -> None:
    shutil.copytree(uninterrupted, tmp_path / RUN)
    assert train(tmp_path, "--resume") == 0
    for name in ("last.pt", "best.pt", "metrics.jsonl"):
        assert (tmp_path / RUN / name).read_bytes() == (uninterrupted / name).read_bytes()


def test_train_rejects_an_existing_folder(uninterrupted: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = (uninterrupted / "last.pt").read_bytes()
    assert train(uninterrupted.parent) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"error: {uninterrupted} exists; resume it with --resume, choose another name or folder (")
    assert error.endswith("), or remove it\n")
    assert (uninterrupted / "last.pt").read_bytes() == before


@pytest.mark.parametrize("epoch", [1, 2])
def test_training_resumes_from_the_last_checkpoint_after_a_full_disk(
    epoch: int, uninterrupted: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    save = checkpoint.save

    def save_on_a_full_disk(path: Path, config: RunConfig, progress: Progress, facts: Any, state: Any) -> None:
        with full_beyond(1000) if progress.epoch == epoch else nullcontext():
            save(path, config, progress, facts, state)

    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, "save", save_on_a_full_disk)
        assert train(tmp_path) == 2
    assert re.search(rf"(^|\r)error: {tmp_path / RUN}/\w+\.pt cannot be written: .*\n$", capsys.readouterr().err)
    assert not list((tmp_path / RUN).glob("*.partial"))
    assert train(tmp_path, "--resume") == 0
    assert equal(outcome(tmp_path / RUN, "last.pt"), outcome(uninterrupted, "last.pt"))


@pytest.mark.parametrize("recipe", ["synthetic", "synthetic-series"])
def test_run_killed_in_its_first_epoch_is_unfinished(
    recipe: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A killed process saves nothing. Of a forecaster there is the initial model."""

    def killed(*_: object) -> Iterator[Any]:
        raise SystemExit

    settings = ["training.epochs=2"]
    with monkeypatch.context() as patch:
        patch.setattr(LEARNERS[recipe], "batches", killed)
        with pytest.raises(SystemExit):
            train(tmp_path, recipe=recipe, settings=settings)
    run = tmp_path / f"{recipe}-seed0"
    for command in (("evaluate", run), ("export", run, "--out", tmp_path / "exports")):
        capsys.readouterr()
        code = call(*command, "--device", "cpu")
        found = capsys.readouterr()
        if (run / "best.pt").is_file():
            assert code == 0
            assert f"warning: {run} was interrupted after 0 of 2 epochs" in found.out
        else:
            assert code == 2
            assert f"{run} has not finished training; repeat its `train` command with --resume" in found.err
    assert train(tmp_path, "--resume", recipe=recipe, settings=settings) == 0
    assert unfinished(run) == ""


def test_resume_with_another_recipe_is_rejected(uninterrupted: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert train(uninterrupted.parent, "--resume", "--set", "training.learning_rate=1e-3") == 2
    error = capsys.readouterr().err
    changed = "training.learning_rate 0.01, now 0.001"
    assert error.startswith(f"error: {uninterrupted}/last.pt was trained with another recipe ({changed}); resume with")
    assert error.count("\n") == 1


def test_resume_of_a_missing_run_is_rejected(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert train(tmp_path, "--resume") == 2
    assert capsys.readouterr().err == f"error: {tmp_path / RUN}/last.pt does not exist\n"


@pytest.mark.parametrize("setting", ["training.batch_size=475", "data.validation_fraction=0.999999"])
def test_training_with_too_few_documents_is_an_error_and_leaves_no_folder(
    setting: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert train(tmp_path, settings=[setting]) == 2
    assert re.fullmatch(r"error: .*document.*\n", capsys.readouterr().err)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("recipe", "setting"),
    [
        ("synthetic", "training.examples_per_epoch=5"),
        ("synthetic", "training.batches_per_step=1000"),
        ("synthetic-pairs", "training.batch_size=1000"),
        ("synthetic-pairs", "training.examples_per_epoch=5"),
        ("synthetic-series", "training.examples_per_epoch=5"),
    ],
)
def test_epoch_without_a_full_batch_is_an_error(
    recipe: str, setting: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert train(tmp_path, recipe=recipe, settings=[setting]) == 2
    assert re.search(r"(^|\r)error: .*an epoch has fewer than \d+ examples.*\n$", capsys.readouterr().err)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(lambda _: b"", id="empty"),
        pytest.param(lambda data: data[: len(data) // 2], id="half"),
        pytest.param(lambda data: data[:-1], id="one byte short"),
        pytest.param(lambda _: b"PK" + bytes(range(256)) * 8, id="noise"),
        pytest.param(lambda _: b"no checkpoint\n", id="text"),
        pytest.param(lambda _: saved(["a", "list"]), id="list"),
        pytest.param(lambda _: saved(torch.zeros(2)), id="tensor"),
        pytest.param(lambda _: saved({"config": {}}), id="other keys"),
        pytest.param(lambda _: saved({"code": Path("anything")}), id="more than tensors"),
    ],
)
def test_corrupt_checkpoint_is_one_clear_error(
    damage: Callable[[bytes], bytes], uninterrupted: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / RUN / "last.pt"
    path.parent.mkdir()
    path.write_bytes(damage((uninterrupted / "last.pt").read_bytes()))
    assert train(tmp_path, "--resume") == 2
    error = capsys.readouterr().err
    assert error.startswith(f"error: {path} is not a checkpoint: ")
    assert error.count("\n") == 1


def saved(value: object) -> bytes:
    stream = io.BytesIO()
    torch.save(value, stream)
    return stream.getvalue()


def test_checkpoint_of_another_shape_is_one_clear_error(
    uninterrupted: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    state = torch.load(uninterrupted / "last.pt", weights_only=True)
    state["model"]["head.2.bias"] = torch.zeros(3)
    (tmp_path / RUN).mkdir()
    torch.save(state, tmp_path / RUN / "last.pt")
    assert train(tmp_path, "--resume") == 2
    assert capsys.readouterr().err.startswith(f"error: {tmp_path / RUN}/last.pt does not fit its own recipe: ")
