"""Several worker processes behind one port: they answer, count and stop together, and survive the death of another."""

import asyncio
import contextlib
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from service.workers import CANNOT_START
from tests.support.controlled import LAST_REQUESTS_S
from tests.support.load import until_answered, until_refused
from tests.support.offline import Offline, agree, documents
from tests.support.paths import ROOT
from tests.support.processes import children, is_running
from tests.support.refusals import check_last_line, check_refusal, run
from tests.support.server import Server
from tests.support.versions import NAME, NEW, OLD, flip_byte, new_version, publish
from tests.support.waiting import PATIENCE_S, wait_until

TEXT = {"content-type": "text/plain"}
WORKERS = 2
LOOK_S = 0.2

Start = Callable[..., Server]


def workers(server: Server) -> list[int]:
    """Return the worker processes, without the helper processes of multiprocessing."""
    found = []
    for child in children(server.process.pid):
        try:
            if b"spawn_main" in Path(f"/proc/{child}/cmdline").read_bytes():
                found.append(child)
        except OSError:  # the process has just exited
            pass
    return found


def sockets(pid: int) -> int:
    """Return the number of open sockets of a process."""
    count = 0
    for link in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # it has just been closed
            count += os.readlink(link).startswith("socket:")
    return count


def folder_of(server: Server) -> Path:
    """Return the folder of the workers' metrics files."""
    pids, found = set(map(str, workers(server))), set[Path]()
    for path in Path(tempfile.gettempdir()).glob("longdoc-workers-*/worker-*"):
        with contextlib.suppress(FileNotFoundError):  # of another server, which has stopped meanwhile
            if path.read_text() in pids:
                found.add(path.parent)
    (folder,) = found
    return folder


def classified(server: Server) -> float:
    return server.metric("longdoc_http_requests_total", route="/v1/classify", code="200")


@contextmanager
def several(start: Start, *flags: str, constants: Mapping[str, float] | None = None) -> Iterator[Server]:
    """A server all of whose workers are listening; it is stopped at the end."""
    server = start("--workers", str(WORKERS), "--drain-delay-s", "0", *flags, constants=constants)
    wait_until(lambda: server.text().count("listening on") == WORKERS)
    pids = [*children(server.process.pid), server.process.pid]
    yield server
    if server.process.poll() is None:
        assert server.stop() == 0
    wait_until(lambda: not any(map(is_running, pids)))


def post(server: Server, count: int) -> Counter[int]:
    """Send requests, each on a new connection, and count the responses by status."""
    return Counter(server.post("/v1/classify", content=b"x" * 50, headers=TEXT).status_code for _ in range(count))


def test_two_workers_share_the_requests_and_add_up_their_metrics(start: Start, offline: Offline) -> None:
    with several(start) as server:
        bodies = documents(30, 6000)
        for body in bodies:
            found = server.post("/v1/classify", content=body, headers=TEXT).json()["results"][0]
            assert agree(found, offline(body))
        assert post(server, 50) == {200: 50}
        assert classified(server) == 80
        assert server.metric("longdoc_documents_total", model=NAME) == 80
        assert server.metric("longdoc_request_duration_seconds_count", model=NAME) == 80
        assert server.metric("longdoc_model_ready", model=NAME) == 1
        assert server.metric("longdoc_requests_in_flight", model=NAME) == 0
        text = server.get("/metrics").text
        for index in range(WORKERS):
            assert f'longdoc_worker_resident_memory_bytes{{worker="{index}"}}' in text
        (started,) = re.findall(r"^process_start_time_seconds (\S+)", text, re.MULTILINE)
        assert all(
            float(started) <= float(other) for other in re.findall(r"^longdoc_worker_start\S+ (\S+)", text, re.M)
        )
        folder = folder_of(server)
        assert folder.is_dir()
        assert server.stop() == 0
        assert not folder.exists()
        assert "Traceback" not in server.text()


def test_connections_that_come_together_are_spread_over_the_workers(start: Start) -> None:
    with several(start) as server, contextlib.ExitStack() as clients:
        before = list(map(sockets, workers(server)))
        address = urlsplit(server.url)
        for _ in range(64):
            clients.enter_context(socket.create_connection((address.hostname or "", address.port or 0)))
        wait_until(lambda: sum(map(sockets, workers(server))) - sum(before) == 64)
        own = [sockets(pid) - count for pid, count in zip(workers(server), before, strict=True)]
        assert min(own) >= 12, "the kernel chooses at random: fewer have a probability of 1 in 10 million"


def test_killed_worker_is_restarted_and_its_counts_are_kept(start: Start) -> None:
    with several(start) as server:
        first = workers(server)
        post(server, 40)
        before = classified(server)
        assert before == 40
        os.kill(first[0], signal.SIGKILL)
        wait_until(lambda: "code -9" in server.text())  # its threads have ended, too, so that its socket is closed
        lowest = before
        end = time.monotonic() + PATIENCE_S
        while server.text().count("listening on") < WORKERS + 1:
            assert time.monotonic() < end
            assert post(server, 1) == {200: 1}, "the other worker must answer meanwhile"
            now = classified(server)
            assert now > lowest
            lowest = now
        assert len(workers(server)) == WORKERS
        assert not set(workers(server)) <= set(first)
        post(server, 20)
        assert classified(server) == lowest + 20
        assert server.metric("longdoc_requests_in_flight") == 0
        assert server.metric("longdoc_model_ready", model=NAME) == 1


def test_sigterm_under_load_loses_no_request(start: Start) -> None:
    with several(start, constants={"service.server.LAST_REQUESTS_S": LAST_REQUESTS_S}) as server:

        async def scenario() -> Counter[str]:
            answers: Counter[str] = Counter()
            clients = [asyncio.create_task(until_refused(server, answers)) for _ in range(16)]
            await until_answered(answers, "200", 51)
            server.send_signal()
            await asyncio.wait_for(asyncio.gather(*clients), PATIENCE_S)
            return answers

        answers = asyncio.run(scenario())
        assert set(answers) <= {"200", "refused", "connection: close"}, answers
        assert answers["refused"] == 16
        assert server.exit_code() == 0
        assert "Traceback" not in server.text()


def test_ctrl_c_in_a_terminal_stops_all_processes(tmp_path: Path) -> None:
    """A terminal sends the signal to the whole process group."""
    log = tmp_path / "log"
    with log.open("wb") as stream:
        process = subprocess.Popen(
            [sys.executable, "-m", "service", "--port", "0", "--workers", str(WORKERS), "--drain-delay-s", "3600"],
            cwd=ROOT, stdout=stream, stderr=stream, start_new_session=True,
        )  # fmt: skip
    try:
        wait_until(lambda: log.read_text().count("listening on") == WORKERS)
        os.killpg(process.pid, signal.SIGINT)
        assert process.wait(PATIENCE_S) == 0
    finally:
        process.kill()
        process.wait()
    text = log.read_text()
    assert text.count("SIGINT: draining") == WORKERS
    assert "at once" not in text
    assert "Traceback" not in text


def test_workers_exit_when_their_parent_is_killed(start: Start) -> None:
    with several(start) as server:
        folder = folder_of(server)
        server.process.kill()
        server.process.wait()
    shutil.rmtree(folder, ignore_errors=True)  # another server may have removed it when it started


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signal_during_start_stops_the_server(tmp_path: Path, number: signal.Signals) -> None:
    log = tmp_path / "log"
    with log.open("wb") as stream:
        process = subprocess.Popen(
            [sys.executable, "-m", "service", "--port", "0", "--workers", str(WORKERS)],
            cwd=ROOT, stdout=stream, stderr=stream,
        )  # fmt: skip
    try:
        wait_until(lambda: len(list(children(process.pid))) > WORKERS)
        pids = list(children(process.pid))
        process.send_signal(number)
        assert process.wait(PATIENCE_S) == 0
        wait_until(lambda: not any(map(is_running, pids)))
    finally:
        process.kill()
        process.wait()
    assert "Traceback" not in log.read_text()


def test_signal_during_the_restart_delay_stops_the_server(start: Start) -> None:
    names = ("FIRST_PAUSE_S", "LONGEST_PAUSE_S", "STEADY_S")
    with several(start, constants={f"service.workers.{name}": 3600 for name in names}) as server:
        os.kill(workers(server)[0], signal.SIGKILL)
        wait_until(lambda: "restarting it in 3600 s" in server.text())
        assert server.stop() == 0


@pytest.mark.slow
def test_worker_that_fails_to_restart_does_not_stop_the_others(start: Start, exports_copy: Path) -> None:
    """The export is damaged while the workers serve it; a restarted worker cannot load it."""
    with several(start, "--exports", str(exports_copy), "--reload-s", "0") as server:
        model = exports_copy / NAME / str(OLD) / "model.onnx"
        flip_byte(model)
        os.kill(workers(server)[0], signal.SIGKILL)
        wait_until(lambda: server.text().count("restarting it in") >= 2)
        assert post(server, 5) == {200: 5}
        flip_byte(model)
        wait_until(lambda: server.text().count("listening on") == WORKERS + 1)
        assert post(server, 5) == {200: 5}


def test_restarted_workers_serve_the_version_before_a_damaged_one(start: Start, exports_copy: Path) -> None:
    with several(start, "--exports", str(exports_copy), "--reload-s", str(LOOK_S)) as server:
        folder = new_version(exports_copy)
        flip_byte(folder / "model.onnx")
        publish(folder)
        wait_until(lambda: server.text().count(f"refused: {NAME}/{NEW}") == WORKERS)
        for pid in workers(server):
            os.kill(pid, signal.SIGKILL)
        wait_until(lambda: server.text().count("listening on") == 2 * WORKERS, server.text)
        assert server.post("/v1/classify", json={"inputs": "x"}).json()["version"] == OLD


def test_parent_exits_when_no_worker_can_be_restarted(start: Start, exports_copy: Path) -> None:
    constants = {"service.workers.FIRST_PAUSE_S": 0.01, "service.workers.ATTEMPTS": 2}
    with several(start, "--exports", str(exports_copy), "--reload-s", "0", constants=constants) as server:
        flip_byte(exports_copy / NAME / str(OLD) / "model.onnx")
        for pid in workers(server):
            os.kill(pid, signal.SIGKILL)
        assert server.exit_code() == CANNOT_START
        check_last_line(server.text(), "no worker is running", "sha256")


def test_damaged_export_is_reported_in_one_line(exports_copy: Path) -> None:
    flip_byte(exports_copy / NAME / str(OLD) / "model.onnx")
    done = run("--port", "0", "--workers", str(WORKERS), "--exports", str(exports_copy))
    check_refusal(done, f"{NAME}/{OLD}", "sha256")
    assert done.stderr.count("error: ") == 1, done.stderr


def test_port_in_use_is_reported_in_one_line(server: Server) -> None:
    done = run("--port", server.url.rsplit(":", 1)[1], "--workers", str(WORKERS))
    check_refusal(done, "port", "in use")
    assert len(done.stderr.splitlines()) == 1


def test_new_version_is_served_by_all_workers(start: Start, exports_copy: Path) -> None:
    with several(start, "--exports", str(exports_copy), "--reload-s", str(LOOK_S)) as server:
        folder = new_version(exports_copy)
        stop = threading.Event()
        codes: Counter[int] = Counter()

        def ask() -> None:
            while not stop.is_set():
                codes.update(post(server, 1))

        client = threading.Thread(target=ask)
        client.start()
        try:
            wait_until(lambda: codes)
            publish(folder)
            wait_until(lambda: server.text().count(f"{NAME} {NEW}: serving") == WORKERS)
        finally:
            stop.set()
            client.join()
        assert set(codes) == {200}
        versions = {server.post("/v1/classify", json={"inputs": "x"}).json()["version"] for _ in range(20)}
        assert versions == {NEW}
        assert server.metric("longdoc_model_info", model=NAME, version=str(NEW)) == 1
        assert server.metric("longdoc_model_info", model=NAME, version=str(OLD)) == 0
        assert server.metric("longdoc_model_ready", model=NAME) == 1
        shutil.rmtree(exports_copy / NAME / str(OLD))
        os.kill(workers(server)[0], signal.SIGKILL)
        wait_until(lambda: server.text().count("listening on") == WORKERS + 1)
        assert server.metric("longdoc_model_info", model=NAME, version=str(NEW)) == 1
