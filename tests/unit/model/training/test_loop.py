import signal
import threading
from collections.abc import Iterator

import pytest
import torch

from model.config.recipes import find_recipe, load_recipe
from model.nn.classifier import WordClassifier
from model.nn.forecaster import ResidualForecaster
from model.nn.matcher import Matcher
from model.tasks import task_of
from model.training.loop import parameter_groups, peak_memory_bytes, undivided


@pytest.mark.parametrize("recipe", ["synthetic", "synthetic-pairs", "synthetic-series", "imdb-s3"])
def test_parameter_groups_hold_every_parameter_once_at_its_rate(recipe: str) -> None:
    task = task_of(load_recipe(find_recipe(recipe)))
    task.restore({"labels": ["a", "b"], "channels": ["a"]})
    model = task.build()
    rates = type(model).rates if isinstance(model, (Matcher, ResidualForecaster)) else {}
    expected = {name: 0.5 * rates.get(name, 1.0) for name, _ in model.named_parameters()}
    if isinstance(model, ResidualForecaster):
        expected["linear.weight"] = expected["linear.bias"] = 0.5 * rates["linear"]
    if isinstance(model, WordClassifier):
        expected |= {"stem.table": 0.5 * 50, "head.weight": 0.5 * 5, "head.bias": 0.5 * 5}
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    found = [(names[id(p)], group["lr"]) for group in parameter_groups(model, 0.5) for p in group["params"]]
    assert len(found) == len(names)
    assert dict(found) == expected


@pytest.fixture
def ctrl_c() -> Iterator[None]:
    """Python's own handler of SIGINT, which a shell's background jobs do not have."""
    previous = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, previous)


@pytest.mark.usefixtures("ctrl_c")
def test_ctrl_c_waits_until_the_block_has_ended() -> None:
    done = []

    def interrupted() -> None:
        with undivided():
            signal.raise_signal(signal.SIGINT)
            done.append("the rest")

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert done == ["the rest"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.usefixtures("ctrl_c")
def test_handlers_of_others_are_left_alone() -> None:
    received: list[int] = []

    def handle(number: int, _: object) -> None:
        received.append(number)

    signal.signal(signal.SIGINT, handle)
    with undivided():
        signal.raise_signal(signal.SIGINT)
        assert received == [signal.SIGINT]
    assert signal.getsignal(signal.SIGINT) is handle


def test_block_runs_in_another_thread() -> None:
    done = threading.Event()

    def run() -> None:
        with undivided():
            done.set()

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert done.is_set()


def test_peak_memory_does_not_fall() -> None:
    before = peak_memory_bytes(torch.device("cpu"))
    held = torch.ones(2**22)
    assert peak_memory_bytes(torch.device("cpu")) >= before > 2**20
    assert held.sum() == 2**22
