"""The supervision of workers, with workers that are no processes."""

import asyncio
import logging
import multiprocessing
import os
import signal
import socket
from collections.abc import Callable, Iterator
from multiprocessing import resource_tracker
from pathlib import Path
from typing import Any

import pytest

from artifact.errors import BadExport
from service import workers
from service.metrics import SHARED
from service.settings import Settings
from service.workers import CANNOT_START, REFUSAL, supervise

FIRST_PID = 2**30
"""Larger than that of any process."""


class Worker:
    """A worker that does what a scenario says when it is started; its sentinel is readable once it has ended."""

    def __init__(self, world: "World", index: int, folder: Path) -> None:
        self.index = index
        self.folder = folder
        self.pid: int | None = None
        self.exitcode: int | None = None
        self.sentinel, self._end = os.pipe()
        self._world = world

    def start(self) -> None:
        self.pid = FIRST_PID + len(self._world.started)
        self._world.started.append(self)
        self._world.scenario(self)

    def end(self, code: int) -> None:
        self.exitcode = code
        os.write(self._end, b"x")

    def is_alive(self) -> bool:
        return self.exitcode is None

    def join(self) -> None:
        assert self.exitcode is not None

    def close(self) -> None:
        os.close(self.sentinel)
        os.close(self._end)


class World:
    """Stands for multiprocessing, and for the signals that reach workers."""

    def __init__(self) -> None:
        self.started: list[Worker] = []
        self.made: list[Worker] = []
        self.signals: list[tuple[int, int]] = []
        """Index of a worker and the signal it was sent."""
        self.codes = {0: 0, 1: 0}
        """What a worker that is sent a signal ends with, by index."""
        self.scenario: Callable[[Worker], None] = lambda worker: worker.end(0)

    def process(self, target: object, args: tuple[Settings, socket.socket, Path, int], name: str) -> Worker:
        del target
        _, _, folder, index = args
        assert name == f"worker-{index}"
        self.made.append(Worker(self, index, folder))
        return self.made[-1]

    def kill(self, pid: int, number: int) -> None:
        """Stand for `os.kill`."""
        worker = self.started[pid - FIRST_PID]
        self.signals.append((worker.index, number))
        worker.end(self.codes[worker.index])

    def count(self, index: int) -> int:
        """How often a worker was started."""
        return sum(worker.index == index for worker in self.started)


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    made = World()
    monkeypatch.setenv(SHARED, "before")  # which restores it
    monkeypatch.setattr(workers, "FIRST_PAUSE_S", 0.0)
    monkeypatch.setattr(resource_tracker, "ensure_running", lambda: None)
    monkeypatch.setattr(os, "kill", made.kill)
    context: Any = type("Context", (), {"Process": staticmethod(made.process)})
    monkeypatch.setattr(multiprocessing, "get_context", lambda method: {"spawn": context}[method])
    yield made
    for worker in made.made:
        worker.close()


SETTINGS = Settings(workers=2, port=0)


def stop(number: signal.Signals = signal.SIGTERM) -> None:
    """Have a signal sent to this process once the event loop goes on."""
    asyncio.get_running_loop().call_soon(signal.raise_signal, number)


def test_every_worker_is_started_and_ends_with_the_signal(world: World, caplog: pytest.LogCaptureFixture) -> None:
    def scenario(worker: Worker) -> None:
        if worker.index == 1:
            stop()

    world.scenario = scenario
    with caplog.at_level(logging.INFO):
        assert supervise(SETTINGS) == 0
    assert sorted(worker.index for worker in world.started) == [0, 1]
    assert world.signals == [(0, signal.SIGTERM), (1, signal.SIGTERM)]
    assert "SIGTERM: passed on to 2 workers" in caplog.text
    assert "all workers have stopped" in caplog.text


def test_worker_that_crashes_is_started_again_alone(world: World, caplog: pytest.LogCaptureFixture) -> None:
    def scenario(worker: Worker) -> None:
        if worker.index == 1 and world.count(1) < 4:
            worker.end(-9)
        elif worker.index == 1:
            stop(signal.SIGINT)

    world.scenario = scenario
    assert supervise(SETTINGS) == 0
    assert (world.count(0), world.count(1)) == (1, 4)
    assert caplog.text.count("worker 1 ended with code -9; it is started again in 0 s") == 3
    assert {number for _, number in world.signals} == {signal.SIGINT}


def test_pause_more_than_doubles_with_each_crash_up_to_the_longest(
    world: World, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workers, "FIRST_PAUSE_S", 0.0001)
    monkeypatch.setattr(workers, "LONGEST_PAUSE_S", 0.001)

    def scenario(worker: Worker) -> None:
        if worker.index == 1 and world.count(1) < 6:
            worker.end(1)
        elif worker.index == 1:
            stop()

    world.scenario = scenario
    supervise(SETTINGS)
    pauses = [record.getMessage().split(" in ")[1] for record in caplog.records if "started again" in record.message]
    assert pauses == ["0.0001 s", "0.0003 s", "0.0007 s", "0.001 s", "0.001 s"]


def test_worker_that_lived_long_is_started_again_at_once(
    world: World, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workers, "FIRST_PAUSE_S", 3600.0)
    monkeypatch.setattr(workers, "STEADY_S", -1.0)

    def scenario(worker: Worker) -> None:
        if worker.index == 1 and world.count(1) == 1:
            worker.end(1)
        elif worker.index == 1:
            stop()

    world.scenario = scenario
    assert supervise(SETTINGS) == 0
    assert "started again in 0 s" in caplog.text


def test_signal_ends_the_pause_before_the_next_start(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "FIRST_PAUSE_S", 3600.0)
    monkeypatch.setattr(workers, "LONGEST_PAUSE_S", 3600.0)

    def scenario(worker: Worker) -> None:
        if worker.index == 1:
            worker.end(1)
            asyncio.get_running_loop().call_later(0.01, signal.raise_signal, signal.SIGTERM)

    world.scenario = scenario
    assert supervise(SETTINGS) == 0
    assert world.count(1) == 1


def test_worker_that_cannot_start_stops_all_with_its_reason(world: World) -> None:
    def scenario(worker: Worker) -> None:
        if worker.index == 1:
            (worker.folder / REFUSAL).write_text("mood/1: model.onnx has another hash")
            worker.end(CANNOT_START)

    world.scenario = scenario
    with pytest.raises(BadExport, match=r"^mood/1: model\.onnx has another hash$"):
        supervise(SETTINGS)
    assert (world.count(0), world.count(1)) == (1, 1)
    assert (0, signal.SIGINT) in world.signals


def test_worker_that_cannot_start_again_does_not_stop_the_others(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    def scenario(worker: Worker) -> None:
        if worker.index == 1 and world.count(1) == 1:
            worker.end(1)
        elif worker.index == 1 and world.count(1) == 2:
            (worker.folder / REFUSAL).write_text("damaged")
            worker.end(CANNOT_START)
        elif worker.index == 1:
            stop()

    world.scenario = scenario
    assert supervise(SETTINGS) == 0
    assert world.count(1) == 3
    assert "worker 1 ended with code 2 (damaged); it is started again" in caplog.text


def test_worst_exit_code_counts(world: World) -> None:
    def scenario(worker: Worker) -> None:
        if worker.index == 1:
            stop()

    world.scenario, world.codes[1] = scenario, -signal.SIGKILL
    assert supervise(SETTINGS) == 1


def test_address_that_is_taken_is_refused_before_a_worker_is_started(world: World) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(OSError, match="cannot listen on"):
        supervise(Settings(workers=2, port=taken.getsockname()[1]))
    assert world.made == []
