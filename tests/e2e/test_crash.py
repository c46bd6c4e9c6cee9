"""A backend that is gone, stuck or out of memory, a server that is killed: nobody waits for ever, no file breaks."""

import asyncio
import hashlib
import json
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.e2e.conftest import Server, check_problem, sample
from tests.e2e.offline import document
from tests.e2e.rigged import RiggedServer
from tests.e2e.test_bulk import wait
from tests.e2e.test_load import begin

STUCK_S = 1.5
BREAKING = """
import os, sys, time
from service import batching
from service.__main__ import main
from service.backends.onnx import OnnxBackend

compute = OnnxBackend.run

def run(self, inputs):
    text = b"".join(value.tobytes() for value in inputs.values())
    if b"please exit" in text:
        raise SystemExit(7)
    if b"please hang" in text:
        time.sleep(3600)
    if b"no memory" in text:
        raise MemoryError
    return compute(self, inputs)

OnnxBackend.run = run
batching.STUCK_S = float(os.environ["STUCK_S"])
sys.exit(main())
"""
TEXT = {"content-type": "text/plain"}
JSON = "application/json"


def breaking(folder: Path, *flags: str, stuck_s: float = STUCK_S) -> RiggedServer:
    """A server that does what documents ask for."""
    return RiggedServer(folder / "log", *flags, python=("-c", BREAKING), variables={"STUCK_S": str(stuck_s)})


@pytest.fixture
def fragile(tmp_path: Path) -> Iterator[RiggedServer]:
    with breaking(tmp_path, "--drain-delay-s", "0") as server:
        assert httpx.post(f"{server.url}/v1/classify", content=b"x", headers=TEXT).status_code == 200
        yield server


async def ask(server: Server, *bodies: bytes) -> list[httpx.Response]:
    async with httpx.AsyncClient(base_url=server.url, timeout=30) as client:
        return await asyncio.gather(*(client.post("/v1/classify", content=body, headers=TEXT) for body in bodies))


@pytest.mark.parametrize("fatal", [b"please exit", b"please hang"])
def test_every_request_is_answered_and_the_process_ends(fragile: RiggedServer, fatal: bytes) -> None:
    bodies = [fatal] * 4 + [document(2**14)] * 12
    started = time.monotonic()
    answers = asyncio.run(ask(fragile, *bodies))
    assert fragile.process.wait(20) == 1
    assert time.monotonic() - started < STUCK_S + 10
    for answer in answers:
        if answer.status_code != 200:
            check_problem(answer, 503, "not_ready")
            assert int(answer.headers["retry-after"]) >= 1
    assert [answer.status_code for answer in answers[:4]] == [503] * 4
    assert "the backend crashed" in fragile.text()


def test_readiness_ends_with_the_backend(fragile: RiggedServer) -> None:
    """As long as a slow client keeps the process from ending, it says that it is not ready."""
    seen: list[int] = []

    def look() -> None:
        with httpx.Client(base_url=fragile.url, timeout=5) as client:
            while True:
                try:
                    seen.append(client.get("/v2/health/ready").status_code)
                except httpx.TransportError:
                    return

    watcher = threading.Thread(target=look)
    watcher.start()
    while not seen:
        time.sleep(0.01)
    (answer,) = asyncio.run(ask(fragile, b"please exit"))
    assert answer.status_code == 503
    assert fragile.process.wait(20) == 1
    watcher.join()
    assert seen[0] == 200
    assert seen == sorted(seen), "it was ready again"


def test_lack_of_memory_fails_its_request_only(fragile: RiggedServer) -> None:
    failed, good = asyncio.run(ask(fragile, b"no memory", b"good"))
    check_problem(failed, 500, "inference_failed")
    assert good.status_code == 200
    with httpx.Client(base_url=fragile.url) as client:
        assert client.get("/v2/health/ready").status_code == 200
        assert sample(client, "longdoc_inference_errors_total", kind="raised") == 1
        assert sample(client, "longdoc_requests_in_flight") == 0
    assert fragile.stop() == 0


def test_lines_of_a_document_stream_are_answered_too(fragile: RiggedServer) -> None:
    lines = [{"text": "x"}, {"text": "please exit"}, {"text": "y"}]
    body = "\n".join(map(json.dumps, lines))
    headers = {"content-type": "application/x-ndjson"}
    answer = httpx.post(f"{fragile.url}/v1/classify", content=body, headers=headers, timeout=30)
    codes = [json.loads(line).get("error", {}).get("code", "ok") for line in answer.text.splitlines()]
    assert codes[1] == "not_ready"
    assert set(codes) <= {"ok", "not_ready"}
    assert fragile.process.wait(20) == 1


def test_signal_ends_a_server_whose_backend_hangs(tmp_path: Path) -> None:
    """Before it is known that it hangs."""
    flags = ("--drain-delay-s", "0", "--drain-timeout-s", "1")
    with breaking(tmp_path, *flags, stuck_s=600) as server, begin(server, b"please hang") as connection:
        wait(lambda: 'requests_in_flight{model="imdb-s3"} 1.0' in httpx.get(f"{server.url}/metrics").text)
        started = time.monotonic()
        server.process.send_signal(signal.SIGTERM)
        assert connection.recv(4096).startswith(b"HTTP/1.1 503 ")
        server.process.wait(15)
        assert time.monotonic() - started < 10


def contents(exports: Path) -> dict[str, str]:
    files = (path for path in exports.rglob("*") if path.is_file())
    return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def test_killed_server_leaves_the_exports_as_they_were(tmp_path: Path, exports_copy: Path) -> None:
    before = contents(exports_copy)
    flags = ("--exports", str(exports_copy), "--reload-s", "0.1")
    with RiggedServer(tmp_path / "first", *flags) as server:
        connections = [begin(server, document(2**18)) for _ in range(8)]
        time.sleep(0.2)
        server.process.kill()
        assert server.process.wait() == -signal.SIGKILL
        for connection in connections:
            connection.close()
    assert contents(exports_copy) == before
    port = server.url.rsplit(":", 1)[1]
    with RiggedServer(tmp_path / "second", *flags, "--port", port) as again:
        assert again.url == server.url
        assert httpx.post(f"{again.url}/v1/classify", content=b"x", headers=TEXT).status_code == 200
    assert contents(exports_copy) == before


def test_process_that_is_stopped_for_a_while_goes_on(fragile: RiggedServer) -> None:
    """As by `docker pause`, or a machine that is short of everything; what was late is forgotten."""
    with begin(fragile, document(2**17)):
        time.sleep(0.05)
        fragile.process.send_signal(signal.SIGSTOP)
        time.sleep(0.7 * STUCK_S)
        fragile.process.send_signal(signal.SIGCONT)
        headers = {**TEXT, "X-Request-Timeout-Ms": "500"}
        until = time.monotonic() + 10
        while httpx.post(f"{fragile.url}/v1/classify", content=b"x", headers=headers).status_code != 200:
            assert time.monotonic() < until


FAILING = """
import sys, time
from service.__main__ import main
from service.backends.onnx import OnnxBackend

compute = OnnxBackend.run

def run(self, inputs):
    text = b"".join(value.tobytes() for value in inputs.values())
    if b"please fail" in text:
        raise RuntimeError
    if b"please wait" in text:
        time.sleep(0.3)
    return compute(self, inputs)

OnnxBackend.run = run
sys.exit(main())
"""


@pytest.mark.parametrize(
    ("word", "headers", "status"),
    [(b"please fail", {}, 500), (b"please wait", {"x-request-timeout-ms": "150"}, 504)],
)
def test_failed_requests_leave_no_memory_behind(
    tmp_path: Path, word: bytes, headers: dict[str, str], status: int
) -> None:
    """Ten times what may be held at once; kept until Python looks for garbage, it would be a gigabyte."""
    body = json.dumps({"inputs": [(word + b" " * 10**6)[: 10**6].decode()] * 7, "on_overflow": "head"}).encode()
    with RiggedServer(tmp_path / "log", "--drain-delay-s", "0", python=("-c", FAILING)) as server:

        def fail(times: int) -> None:
            for _ in range(times):
                response = client.post("/v1/classify", content=body, headers={**headers, "content-type": JSON})
                assert response.status_code == status, response.text
                time.sleep(0.3 if status == 504 else 0)  # until the slot is free again

        with httpx.Client(base_url=server.url, timeout=30) as client:
            fail(5)
            before = server.rss_bytes()
            fail(40)
            assert server.rss_bytes() - before < 150 * 2**20
