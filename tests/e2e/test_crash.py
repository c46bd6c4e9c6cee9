"""A crashed, stuck or out-of-memory backend and a killed server: every request ends and exports stay intact."""

import asyncio
import hashlib
import json
import signal
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest

from tests.support.controlled import STUCK_S, TICK_S
from tests.support.offline import document
from tests.support.problems import check_problem
from tests.support.server import ControlledServer, Server, sample
from tests.support.waiting import wait_until
from tests.support.wire import Wire, request

TEXT = {"content-type": "text/plain"}
JSON = "application/json"


@pytest.fixture
def fragile(start_controlled: Callable[..., ControlledServer]) -> ControlledServer:
    """A server that has already computed a batch."""
    server = start_controlled("--drain-delay-s", "0")
    assert server.post("/v1/classify", content=b"x", headers=TEXT).status_code == 200
    return server


async def ask(server: Server, *bodies: bytes) -> list[httpx.Response]:
    async with server.async_client() as client:
        return await asyncio.gather(*(client.post("/v1/classify", content=body, headers=TEXT) for body in bodies))


def check_crash(server: ControlledServer, answers: list[httpx.Response]) -> None:
    """Check that every request got 503 and that the process has exited."""
    assert server.exit_code() == 1
    for answer in answers:
        check_problem(answer, 503, "not_ready")
        assert int(answer.headers["retry-after"]) >= 1
    assert "the backend crashed" in server.text()


def test_every_request_gets_a_response_when_the_backend_crashes(fragile: ControlledServer) -> None:
    bodies = [b"please exit"] * 4 + [document(2**14)] * 12
    with ThreadPoolExecutor(1) as pool, fragile.held():
        future = pool.submit(asyncio.run, ask(fragile, *bodies))
        fragile.wait_for(len(bodies), "longdoc_requests_in_flight")
    answers = future.result()
    check_crash(fragile, answers[:4])
    assert {answer.status_code for answer in answers[4:]} <= {200, 503}


def test_every_request_gets_a_response_when_a_batch_is_stuck(fragile: ControlledServer) -> None:
    bodies = [document(100)] * 4 + [document(2**14)] * 12
    fragile.hold()
    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(asyncio.run, ask(fragile, *bodies))
        fragile.wait_for(len(bodies), "longdoc_requests_in_flight")
        fragile.wait_for_batches(2)
        for _ in range(round(STUCK_S / TICK_S)):
            fragile.advance(TICK_S)
    check_crash(fragile, future.result())


def test_readiness_probe_behind_the_fatal_request_gets_503(fragile: ControlledServer) -> None:
    """The probe is pipelined on the same connection; the server answers it before the process exits."""
    with Wire(fragile.url) as wire:
        wire.send(request(body=b"please exit") + request("/v2/health/ready", None, "GET"))
        assert [wire.answer().status for _ in range(2)] == [503, 503]
    assert fragile.exit_code() == 1


def test_out_of_memory_fails_only_its_request(fragile: ControlledServer) -> None:
    failed, good = asyncio.run(ask(fragile, b"no memory", b"good"))
    check_problem(failed, 500, "inference_failed")
    assert good.status_code == 200
    with fragile.client() as client:
        assert client.get("/v2/health/ready").status_code == 200
        assert sample(client, "longdoc_inference_errors_total", kind="raised") == 1
        assert sample(client, "longdoc_requests_in_flight") == 0
    assert fragile.stop() == 0


def test_every_line_is_answered_when_the_backend_crashes(fragile: ControlledServer) -> None:
    lines = [{"text": "x"}, {"text": "please exit"}, {"text": "y"}]
    body = "\n".join(map(json.dumps, lines))
    headers = {"content-type": "application/x-ndjson"}
    answer = fragile.post("/v1/classify", content=body, headers=headers)
    codes = [json.loads(line).get("error", {}).get("code", "ok") for line in answer.text.splitlines()]
    assert codes[1] == "not_ready"
    assert set(codes) <= {"ok", "not_ready"}
    assert fragile.exit_code() == 1


def test_signal_stops_a_server_whose_backend_hangs(start_controlled: Callable[..., ControlledServer]) -> None:
    """The signal arrives before the batch counts as stuck."""
    server = start_controlled("--drain-delay-s", "0", "--drain-timeout-s", "1")
    server.hold()
    with server.begin(b"x") as wire:
        server.wait_for(1, "longdoc_requests_in_flight")
        server.send_signal()
        assert wire.answer().status == 503
        assert server.exit_code() == 0


def test_sighup_drains_the_server(fragile: ControlledServer) -> None:
    """The kernel and the shell each send SIGHUP when a terminal closes; its default action is to kill the process."""
    with fragile.held(), fragile.begin(b"x") as wire:
        fragile.wait_for(1, "longdoc_requests_in_flight")
        fragile.send_signal(signal.SIGHUP)
        wait_until(lambda: "SIGHUP: draining" in fragile.text())
        fragile.send_signal(signal.SIGHUP)
        fragile.release()
        assert wire.answer().status == 200
    assert fragile.exit_code() == 0


def contents(exports: Path) -> dict[str, str]:
    files = (path for path in exports.rglob("*") if path.is_file())
    return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def test_killed_server_does_not_change_the_exports(
    start_controlled: Callable[..., ControlledServer], exports_copy: Path
) -> None:
    before = contents(exports_copy)
    flags = ("--exports", str(exports_copy), "--reload-s", "0.1")
    first = start_controlled(*flags)
    first.hold()
    with ExitStack() as connections:
        for _ in range(8):
            connections.enter_context(first.begin(document(2**18)))
        first.wait_for(8, "longdoc_requests_in_flight")
        first.kill()
    assert contents(exports_copy) == before
    again = start_controlled(*flags)
    assert again.post("/v1/classify", content=b"x", headers=TEXT).status_code == 200
    assert contents(exports_copy) == before


def test_paused_process_continues_and_enforces_deadlines(fragile: ControlledServer) -> None:
    """After `docker pause` or a suspended machine, requests past their deadline get 504; the others are answered."""
    late_ms, patient_ms = (str(1000 * round(seconds)) for seconds in (STUCK_S, 4 * STUCK_S))
    fragile.hold()
    with (
        fragile.begin(b"a", x_request_timeout_ms=late_ms) as late,
        fragile.begin(b"b", x_request_timeout_ms=patient_ms) as patient,
    ):
        fragile.wait_for(2, "longdoc_requests_in_flight")
        fragile.send_signal(signal.SIGSTOP)
        with ThreadPoolExecutor(1) as pool:
            advancing = pool.submit(fragile.advance, 2 * STUCK_S)
            fragile.send_signal(signal.SIGCONT)
            advancing.result()
        assert late.answer().status == 504
        fragile.release()
        assert patient.answer().status == 200
    assert fragile.post("/v1/classify", content=b"x", headers=TEXT).status_code == 200


@pytest.mark.parametrize("status", [500, 504])
def test_failed_requests_free_their_memory_at_once(
    start_controlled: Callable[..., ControlledServer], status: int
) -> None:
    """Until the garbage collector frees them, the bodies would add up to 105 MB, more than the memory may grow."""
    text = (b"please fail" if status == 500 else b"").ljust(10**6).decode()
    body = json.dumps({"inputs": [text] * 7, "on_overflow": "head"}).encode()
    headers = {"content-type": JSON, "x-request-timeout-ms": "600000"}
    server = start_controlled("--drain-delay-s", "0")

    def fail_at_once() -> httpx.Response:
        return client.post("/v1/classify", content=body, headers=headers)

    def fail_late() -> httpx.Response:
        batches = server.metric("longdoc_batch_size_count")
        with server.held():
            future = pool.submit(fail_at_once)
            server.wait_for_batches(batches + 1)
            server.advance(600)  # so several of these jumps stay below STUCK_S: a batch may outlive its round
            return future.result()

    with server.client() as client, ThreadPoolExecutor(1) as pool:
        fail = fail_at_once if status == 500 else fail_late
        assert [fail().status_code for _ in range(5)] == [status] * 5
        before = server.rss_bytes()
        assert [fail().status_code for _ in range(15)] == [status] * 15
        assert server.rss_bytes() - before < 50 * 2**20
