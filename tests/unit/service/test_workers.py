"""Supervision of workers, with simulated processes."""

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
from service.server import bind
from service.settings import Settings
from service.workers import ATTEMPTS, CANNOT_START, FOLDER, LOCK, supervise

FIRST_PID = 2**30
"""Larger than any process id."""


class Worker:
    """A simulated worker: the scenario runs when it is started; its sentinel becomes readable when it exits."""

    def __init__(self, world: "World", index: int, port: int, reason: Connection) -> None:
        self.index = index
        self.port = port
        self.reason = reason
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
    """Replaces multiprocessing and the signals to workers."""

    def __init__(self) -> None:
        self.started: list[Worker] = []
        self.created: list[Worker] = []
        self.signals: list[tuple[int, int]] = []
        """Index of a worker and the signal sent to it."""
        self.codes = {0: 0, 1: 0}
        """Exit code of a worker after a signal, by index."""
        self.stuck = set[int]()
        """Indices of workers that only SIGKILL stops."""
        self.required: list[Collection[str] | None] = []
        """Names of models that each started worker has to serve."""
        self.scenario: Callable[[Worker], None] = lambda worker: worker.end(0)

    def process(
        self,
        target: object,
        args: tuple[Settings, int, Path, int, Collection[str] | None, Connection],
        name: str,
    ) -> Worker:
        del target
        _, port, _, index, required, writer = args
        assert name == f"worker-{index}"
        self.created.append(Worker(self, index, port, writer))
        self.required.append(required)
        return self.created[-1]

    def kill(self, pid: int, number: int) -> None:
        """Replace `os.kill`."""
        worker = self.started[pid - FIRST_PID]
        self.signals.append((worker.index, number))
        if worker.index not in self.stuck or number == signal.SIGKILL:
            worker.end(self.codes[worker.index])

    def crash(self, times: int, code: int = -9, number: signal.Signals = signal.SIGTERM) -> None:
        """Let worker 1 end that many times; then this process gets a signal."""

        def scenario(worker: Worker) -> None:
            if worker.index == 1 and self.count(1) <= times:
                worker.end(code)
            elif worker.index == 1:
                stop(number)

        self.scenario = scenario

    def count(self, index: int) -> int:
        """Return how often a worker was started."""
        return sum(worker.index == index for worker in self.started)


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[World]:
    created = World()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(workers, "FIRST_PAUSE_S", 0.0)
    monkeypatch.setattr(resource_tracker, "ensure_running", lambda: None)
    monkeypatch.setattr(os, "kill", created.kill)
    context: Any = type("Context", (), {"Process": staticmethod(created.process)})
    monkeypatch.setattr(multiprocessing, "get_context", lambda method: {"spawn": context}[method])
    yield created
    for worker in created.created:
        worker.close()


SETTINGS = Settings(workers=2, port=0)


def stop(number: signal.Signals = signal.SIGTERM) -> None:
    """Send a signal to this process in the next iteration of the event loop."""
    asyncio.get_running_loop().call_soon(signal.raise_signal, number)


def _pause_for_an_hour(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a worker that has ended start again in an hour."""
    for name in ("FIRST_PAUSE_S", "LONGEST_PAUSE_S"):
        monkeypatch.setattr(workers, name, 3600.0)


def test_every_worker_is_started_and_stopped_by_the_signal(world: World, caplog: pytest.LogCaptureFixture) -> None:
    world.crash(0)
    with caplog.at_level(logging.INFO):
        assert supervise(SETTINGS) == 0
    assert sorted(worker.index for worker in world.started) == [0, 1]
    assert world.signals == [(0, signal.SIGTERM), (1, signal.SIGTERM)]
    assert "SIGTERM: forwarded to 2 workers" in caplog.text
    assert "all workers have stopped" in caplog.text


def test_only_the_crashed_worker_is_restarted(world: World, caplog: pytest.LogCaptureFixture) -> None:
    world.crash(3, number=signal.SIGINT)
    assert supervise(SETTINGS) == 0
    assert (world.count(0), world.count(1)) == (1, 4)
    assert caplog.text.count("worker 1 ended with code -9; restarting it in 0 s") == 3
    assert {number for _, number in world.signals} == {signal.SIGINT}


def test_restart_delay_grows_with_each_crash_up_to_a_limit(
    world: World, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workers, "FIRST_PAUSE_S", 0.0001)
    monkeypatch.setattr(workers, "LONGEST_PAUSE_S", 0.001)

    world.crash(5, 1)
    supervise(SETTINGS)
    pauses = [record.getMessage().split(" in ")[1] for record in caplog.records if "restarting" in record.message]
    assert pauses == ["0.0001 s", "0.0003 s", "0.0007 s", "0.001 s", "0.001 s"]


def test_long_running_worker_is_restarted_at_once(
    world: World, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workers, "FIRST_PAUSE_S", 3600.0)
    monkeypatch.setattr(workers, "STEADY_S", -1.0)

    world.crash(1, 1)
    assert supervise(SETTINGS) == 0
    assert "restarting it in 0 s" in caplog.text


def test_signal_ends_the_restart_delay(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    _pause_for_an_hour(monkeypatch)

    def scenario(worker: Worker) -> None:
        if worker.index == 1:
            worker.end(1)
            asyncio.get_running_loop().call_later(0.01, signal.raise_signal, signal.SIGTERM)

    world.scenario = scenario
    assert supervise(SETTINGS) == 0
    assert world.count(1) == 1


def test_worker_that_cannot_start_stops_all_with_its_error(world: World) -> None:
    def scenario(worker: Worker) -> None:
        if worker.index == 1:
            worker.reason.send("mood/1: model.onnx has another hash")
            worker.end(CANNOT_START)

    world.scenario = scenario
    with pytest.raises(BadExport, match=r"mood/1: model\.onnx has another hash"):
        supervise(SETTINGS)
    assert (world.count(0), world.count(1)) == (1, 1)
    assert (0, signal.SIGINT) in world.signals


def test_worker_that_fails_while_it_stops_does_not_hurry_the_others(world: World) -> None:
    world.crash(0)
    world.codes[1] = CANNOT_START
    with pytest.raises(BadExport):
        supervise(SETTINGS)
    assert world.signals == [(0, signal.SIGTERM), (1, signal.SIGTERM)]


def test_worker_that_cannot_restart_does_not_stop_the_others(world: World, caplog: pytest.LogCaptureFixture) -> None:
    def scenario(worker: Worker) -> None:
        if worker.index == 1 and world.count(1) == 1:
            worker.end(1)
        elif worker.index == 1 and world.count(1) == 2:
            worker.reason.send("damaged")
            worker.end(CANNOT_START)
        elif worker.index == 1:
            stop()

    world.scenario = scenario
    assert supervise(SETTINGS) == 0
    assert world.count(1) == 3
    assert "worker 1 ended with code 2 (damaged); restarting it" in caplog.text


def test_worst_exit_code_of_the_workers_is_returned(world: World) -> None:
    world.crash(0)
    world.codes[1] = -signal.SIGKILL
    assert supervise(SETTINGS) == 1


def test_address_in_use_is_rejected_before_a_worker_is_started(world: World) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(OSError, match="cannot listen on"):
        supervise(Settings(workers=2, port=taken.getsockname()[1]))
    assert world.created == []


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_address_of_a_server_whose_workers_do_not_listen_yet_is_in_use(world: World, host: str) -> None:
    caught = list[str]()

    def scenario(worker: Worker) -> None:
        if worker.index == 1:
            with pytest.raises(OSError, match="cannot listen on") as error:
                supervise(Settings(workers=2, host=host, port=worker.port))
            caught.append(str(error.value))
            stop()

    world.scenario = scenario
    assert supervise(SETTINGS) == 0
    assert len(caught) == 1


def test_parent_exits_when_no_worker_can_be_restarted(world: World) -> None:
    def scenario(worker: Worker) -> None:
        if world.count(worker.index) == 1:
            worker.end(-9)
        else:
            worker.reason.send("mood/4: model.onnx has another hash")
            worker.end(CANNOT_START)

    world.scenario = scenario
    with pytest.raises(BadExport) as caught:
        supervise(SETTINGS)
    assert str(caught.value).startswith(f"no worker is running: each has failed {ATTEMPTS} times in a row; worker ")
    assert str(caught.value).endswith("ended with code 2 (mood/4: model.onnx has another hash)")
    assert min(world.count(0), world.count(1)) == ATTEMPTS


def test_parent_does_not_exit_while_a_worker_runs(world: World) -> None:
    world.crash(3 * ATTEMPTS)
    assert supervise(SETTINGS) == 0
    assert world.count(1) == 3 * ATTEMPTS + 1


def test_connections_are_refused_while_no_worker_runs(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The parent holds the address, but does not listen: clients need not wait."""
    _pause_for_an_hour(monkeypatch)
    refused = list[bool]()

    def look(address: tuple[str, int]) -> None:
        with socket.socket() as client:
            refused.append(client.connect_ex(address) == errno.ECONNREFUSED)
        signal.raise_signal(signal.SIGTERM)

    def scenario(worker: Worker) -> None:
        with bind("127.0.0.1", worker.port, shared=True) as listener:
            listener.listen()
            with socket.create_connection(listener.getsockname()):
                pass
        worker.end(-9)
        if len(world.started) == 2:
            asyncio.get_running_loop().call_later(0.1, look, ("127.0.0.1", worker.port))

    world.scenario = scenario
    assert supervise(SETTINGS) == 0
    assert refused == [True]


def test_restarted_worker_gets_the_names_that_it_has_to_serve(world: World) -> None:
    world.crash(1)
    supervise(SETTINGS)
    first, second, again = world.required
    assert (first, second) == (None, None)
    assert again is not None
    assert "imdb-s3" in again


def test_worker_that_does_not_stop_is_killed(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "KILL_DELAY_S", 0.0)

    world.crash(0)
    world.stuck, world.codes[0] = {0}, -signal.SIGKILL
    assert supervise(Settings(workers=2, port=0, drain_delay_s=0, drain_timeout_s=0.001)) == 1
    assert (0, signal.SIGKILL) in world.signals


def test_sighup_is_passed_on_once(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A terminal that closes and its shell may both send it: a second signal would abort the drain."""
    monkeypatch.setattr(workers, "KILL_DELAY_S", 0.0)

    def scenario(worker: Worker) -> None:
        if worker.index == 1:
            stop(signal.SIGHUP)
            asyncio.get_running_loop().call_soon(stop, signal.SIGHUP)

    world.scenario, world.stuck = scenario, {0, 1}
    assert supervise(Settings(workers=2, port=0, drain_delay_s=0.1, drain_timeout_s=0.001)) == 0
    assert [number for _, number in world.signals] == [signal.SIGHUP] * 2 + [signal.SIGKILL] * 2


def test_folder_of_a_killed_parent_is_removed_at_the_next_start(world: World, tmp_path: Path) -> None:
    left, other, held = (tmp_path / f"{FOLDER}{name}" for name in ("left", "other", "held"))
    for folder in (left, held):
        folder.mkdir()
        (folder / LOCK).touch()
    other.mkdir()

    world.crash(0)
    with (held / LOCK).open() as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        assert supervise(SETTINGS) == 0
    assert sorted(tmp_path.iterdir()) == [held, other]
