import io
import json
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from matplotlib import image
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

import model.train
from model.classifier import TextClassifier
from model.data.documents import load_training
from model.training import checkpoint
from tests.model.commands import call

# Dropout and random crops make the run depend on every generator; 9 steps an epoch.
SETTINGS = [
    "training.epochs=2",
    "training.batch_size=48",
    "training.warmup_steps=4",
    "model.dropout.hidden=0.2",
    "data.crop=random",
]
STEPS = 9
RUN = "synthetic-seed0"
FILES = ["best.pt", "last.pt", "learning_curve.png", "metrics.jsonl"]


def train(runs: Path, *arguments: object, settings: list[str] = SETTINGS) -> int:
    overrides = [part for setting in settings for part in ("--set", setting)]
    return call("train", "synthetic", "--runs", runs, "--device", "cpu", *overrides, *arguments)


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    runs = tmp_path_factory.mktemp("runs")
    assert train(runs) == 0
    return runs / RUN


def outcome(folder: Path, name: str) -> dict[str, Any]:
    """What a checkpoint holds, less what was measured: times and memory."""
    config, progress, labels, state = checkpoint.load(folder / name)
    kept = {key: getattr(progress, key) for key in ("epoch", "step", "loss_sum", "best_accuracy")}
    return {
        "config": config,
        "labels": labels,
        **kept,
        "history": [results(record) for record in progress.history],
    } | state


def results(record: dict[str, float]) -> dict[str, float]:
    return {key: record[key] for key in ("epoch", "training_loss", "validation_accuracy")}


def metrics(folder: Path) -> list[dict[str, float]]:
    return [results(json.loads(line)) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def equal(left: Any, right: Any) -> bool:
    """Equality down to the bits of every tensor."""
    if isinstance(left, torch.Tensor):
        return isinstance(right, torch.Tensor) and left.dtype == right.dtype and torch.equal(left, right)
    if isinstance(left, dict):
        return left.keys() == right.keys() and all(equal(left[key], right[key]) for key in left)
    if isinstance(left, list):
        return len(left) == len(right) and all(map(equal, left, right))
    return bool(left == right)


@pytest.fixture
def _ctrl_c() -> Iterator[None]:
    """Python's own handler of SIGINT, which a shell's background jobs do not have."""
    previous = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, previous)


class Countdown:
    """Raises SIGINT, as Ctrl-C does, at the n-th call."""

    def __init__(self, n: int) -> None:
        self.left = n

    def __call__(self, *_: object, **__: object) -> None:
        self.left -= 1
        if self.left == 0:
            signal.raise_signal(signal.SIGINT)


@contextmanager
def before_batch(patch: pytest.MonkeyPatch, n: int) -> Iterator[None]:
    original, countdown = model.train.batches, Countdown(n)

    def batches(documents: Any, *arguments: Any) -> Iterator[Any]:
        for batch in original(documents, *arguments):
            if len(batch[0]) == 48:  # not the large one that initialises the head
                countdown()
            yield batch

    patch.setattr(model.train, "batches", batches)
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
    original, countdown = model.train.document_logits, Countdown(n)

    def document_logits(*arguments: Any) -> Any:
        countdown()
        return original(*arguments)

    patch.setattr(model.train, "document_logits", document_logits)
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


def case(interruption: Any, n: int, name: str, is_slow: bool = False) -> Any:
    return pytest.param(interruption, n, id=name, marks=[pytest.mark.slow] if is_slow else [])


@pytest.mark.usefixtures("_ctrl_c")
@pytest.mark.parametrize(
    ("interruption", "n"),
    [
        case(before_batch, 1, "before the first step", is_slow=True),
        case(before_batch, 4, "between two steps"),
        case(before_batch, STEPS + 1, "between two epochs", is_slow=True),
        case(before_optimiser, STEPS + 3, "in a step, before the optimiser", is_slow=True),
        case(after_optimiser, 5, "in a step, after the optimiser"),
        case(after_optimiser, STEPS, "in the last step of an epoch", is_slow=True),
        case(in_validation, 1, "in validation"),
        case(in_save, 1, "while best.pt is written"),
        case(in_save, 3, "while the last epoch is saved", is_slow=True),
    ],
)
def test_train_resumed_equals_uninterrupted(
    interruption: Any,
    n: int,
    uninterrupted: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    with monkeypatch.context() as patch, interruption(patch, n):
        assert train(tmp_path) == 130
    assert capsys.readouterr().err.endswith("interrupted; --resume goes on\n")
    assert train(tmp_path, "--resume") == 0
    for name in ("last.pt", "best.pt"):
        assert equal(outcome(tmp_path / RUN, name), outcome(uninterrupted, name))
    assert metrics(tmp_path / RUN) == metrics(uninterrupted)


def test_train_depends_on_its_seed(uninterrupted: Path, tmp_path: Path) -> None:
    assert train(tmp_path, "--set", "seed=1") == 0
    other = outcome(tmp_path / "synthetic-seed1", "last.pt")
    assert not equal(other["model"], outcome(uninterrupted, "last.pt")["model"])


def test_train_steps_on_every_batch_while_the_rate_warms_up_and_falls(tmp_path: Path) -> None:
    rates: list[float] = []
    with removed(
        register_optimizer_step_post_hook(lambda optimiser, *_: rates.append(optimiser.param_groups[0]["lr"]))
    ):
        assert train(tmp_path) == 0
    highest = 1e-2  # of the recipe
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
        assert record["documents_per_second"] > 0
        assert record["peak_memory_bytes"] > 2**20
    assert records == checkpoint.load(uninterrupted / "last.pt")[1].history
    height, width, _ = image.imread(uninterrupted / "learning_curve.png").shape
    assert width > height > 100
    assert sorted(path.name for path in uninterrupted.iterdir()) == FILES


def test_best_checkpoint_loads_and_gives_its_recorded_accuracy(uninterrupted: Path) -> None:
    config, progress, labels, state = checkpoint.load(uninterrupted / "best.pt")
    assert labels == ["minus", "plus"]
    assert progress.best_accuracy == max(record["validation_accuracy"] for record in metrics(uninterrupted))
    classifier = TextClassifier(config.model, len(labels))
    checkpoint.load_weights(classifier, state, uninterrupted / "best.pt")
    validation = load_training(config.data, Path("absent")).validation
    accuracy = model.train.accuracy(classifier, validation, config.model.seq_len, torch.device("cpu"))
    assert accuracy == progress.best_accuracy


def test_train_resume_of_a_finished_run_changes_nothing(uninterrupted: Path, tmp_path: Path) -> None:
    shutil.copytree(uninterrupted, tmp_path / RUN)
    assert train(tmp_path, "--resume") == 0
    for name in ("last.pt", "best.pt", "metrics.jsonl"):
        assert (tmp_path / RUN / name).read_bytes() == (uninterrupted / name).read_bytes()


def test_train_refuses_a_folder_that_exists(uninterrupted: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = (uninterrupted / "last.pt").read_bytes()
    assert train(uninterrupted.parent) == 2
    assert capsys.readouterr().err == f"error: {uninterrupted} exists; give --resume to go on with it, or remove it\n"
    assert (uninterrupted / "last.pt").read_bytes() == before


def test_train_refuses_to_resume_with_another_recipe(uninterrupted: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert train(uninterrupted.parent, "--resume", "--set", "training.learning_rate=1e-3") == 2
    error = capsys.readouterr().err
    assert error.startswith(f"error: {uninterrupted}/last.pt was trained with another recipe;")
    assert error.count("\n") == 1


def test_train_refuses_to_resume_what_never_started(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert train(tmp_path, "--resume") == 2
    assert capsys.readouterr().err == f"error: {tmp_path / RUN}/last.pt does not exist\n"


@pytest.mark.parametrize("setting", ["training.batch_size=475", "data.validation_fraction=0.999999"])
def test_train_with_too_few_documents_is_an_error_and_leaves_no_folder(
    setting: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert train(tmp_path, settings=[setting]) == 2
    assert re.fullmatch(r"error: .*document.*\n", capsys.readouterr().err)
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


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without CUDA")
def test_train_on_cuda_without_one_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call("train", "synthetic", "--runs", tmp_path, "--device", "cuda") == 2
    assert capsys.readouterr().err == "error: --device cuda: no CUDA device is available\n"


def test_command_exits_2_with_one_line_for_a_mistake(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "model", "train", "nosuch", "--runs", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 2
    assert re.fullmatch(r"error: no recipe 'nosuch'; known: .*synthetic.*\n", done.stderr)
    assert done.stdout == ""
