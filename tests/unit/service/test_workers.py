"""The supervision of workers, with workers that are no processes."""

import asyncio
import errno
import fcntl
import logging
import multiprocessing
import os
import signal
import socket
import tempfile
from collections.abc import Callable, Collection, Iterator
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest

from artifact.errors import BadExport
from service import workers
from service.metrics import SHARED
from service.settings import Settings
from service.workers import ATTEMPTS, CANNOT_START, FOLDER, LOCK, supervise

FIRST_PID = 2**30
"""Larger than that of any process."""


class Worker:
    """A worker that does what a scenario says when it is started; its sentinel is readable once it has ended."""

    def __init__(self, world: "World", index: int, listener: socket.socket, why: Connection) -> None:
        self.index = index
        self.listener = listener
        self.why = why
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
        self.deaf = set[int]()
        """Those that no signal ends but SIGKILL."""
        self.served: list[Collection[str] | None] = []
        """What each worker was told to have been served before."""
        self.scenario: Callable[[Worker], None] = lambda worker: worker.end(0)

    def process(
        self,
        target: object,
        args: tuple[Settings, socket.socket, Path, int, Collection[str] | None, Connection],
        name: str,
    ) -> Worker:
        del target
        _, listener, _, index, served, why = args
        assert name == f"worker-{index}"
        self.made.append(Worker(self, index, listener, why))
        self.served.append(served)
        return self.made[-1]

    def kill(self, pid: int, number: int) -> None:
        """Stand for `os.kill`."""
        worker = self.started[pid - FIRST_PID]
        self.signals.append((worker.index, number))
        if worker.index not in self.deaf or number == signal.SIGKILL:
            worker.end(self.codes[worker.index])

    def count(self, index: int) -> int:
        """How often a worker was started."""
        return sum(worker.index == index for worker in self.started)


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[World]:
    made = World()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
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
            worker.why.send("mood/1: model.onnx has another hash")
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
            worker.why.send("damaged")
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


def test_parent_gives_up_when_no_worker_comes_back(world: World) -> None:
    def scenario(worker: Worker) -> None:
        if world.count(worker.index) == 1:
            worker.end(-9)
        else:
            worker.why.send("mood/4: model.onnx has another hash")
            worker.end(CANNOT_START)

    world.scenario = scenario
    with pytest.raises(BadExport) as caught:
        supervise(SETTINGS)
    assert str(caught.value).startswith(f"no worker lives, after {ATTEMPTS} starts of each that did not last; worker ")
    assert str(caught.value).endswith("ended with code 2 (mood/4: model.onnx has another hash)")
    assert min(world.count(0), world.count(1)) == ATTEMPTS


def test_parent_does_not_give_up_while_a_worker_lives(world: World) -> None:
    def scenario(worker: Worker) -> None:
        if worker.index == 1 and world.count(1) <= 3 * ATTEMPTS:
            worker.end(-9)
        elif worker.index == 1:
            stop()

    world.scenario = scenario
    assert supervise(SETTINGS) == 0
    assert world.count(1) == 3 * ATTEMPTS + 1


def test_nobody_listens_while_no_worker_lives(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever connects is refused, and not kept waiting by a socket that the parent holds."""
    monkeypatch.setattr(workers, "FIRST_PAUSE_S", 3600.0)
    monkeypatch.setattr(workers, "LONGEST_PAUSE_S", 3600.0)
    refused = list[bool]()

    def look(address: tuple[str, int]) -> None:
        with socket.socket() as client:
            refused.append(client.connect_ex(address) == errno.ECONNREFUSED)
        signal.raise_signal(signal.SIGTERM)

    def scenario(worker: Worker) -> None:
        worker.listener.listen()
        worker.end(-9)
        if len(world.started) == 2:
            asyncio.get_running_loop().call_later(0.1, look, worker.listener.getsockname())

    world.scenario = scenario
    assert supervise(SETTINGS) == 0
    assert refused == [True]


def test_worker_that_is_started_again_is_told_what_was_served(world: World) -> None:
    def scenario(worker: Worker) -> None:
        if worker.index == 1 and world.count(1) == 1:
            worker.end(-9)
        elif worker.index == 1:
            stop()

    world.scenario = scenario
    supervise(SETTINGS)
    first, second, again = world.served
    assert (first, second) == (None, None)
    assert again is not None
    assert "imdb-s3" in again


def test_worker_that_does_not_end_is_killed(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "KILLED_S", 0.0)

    def scenario(worker: Worker) -> None:
        if worker.index == 1:
            stop()

    world.scenario, world.deaf = scenario, {0}
    world.codes[0] = -signal.SIGKILL
    assert supervise(Settings(workers=2, port=0, drain_delay_s=0, drain_timeout_s=0.001)) == 1
    assert (0, signal.SIGKILL) in world.signals


def test_hangup_is_passed_on_once(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A terminal that closes sends it, and its shell may send it too: a second signal would end the drain."""
    monkeypatch.setattr(workers, "KILLED_S", 0.0)

    def scenario(worker: Worker) -> None:
        if worker.index == 1:
            stop(signal.SIGHUP)
            asyncio.get_running_loop().call_soon(stop, signal.SIGHUP)

    world.scenario, world.deaf = scenario, {0, 1}
    assert supervise(Settings(workers=2, port=0, drain_delay_s=0.1, drain_timeout_s=0.001)) == 0
    assert [number for _, number in world.signals] == [signal.SIGHUP] * 2 + [signal.SIGKILL] * 2


def test_folder_of_a_parent_that_was_killed_is_removed_at_the_next_start(world: World, tmp_path: Path) -> None:
    left, other, held = (tmp_path / f"{FOLDER}{name}" for name in ("left", "other", "held"))
    for folder in (left, held):
        folder.mkdir()
        (folder / LOCK).touch()
    other.mkdir()

    def scenario(worker: Worker) -> None:
        if worker.index == 1:
            stop()

    world.scenario = scenario
    with (held / LOCK).open() as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        assert supervise(SETTINGS) == 0
    assert sorted(tmp_path.iterdir()) == [held, other]
