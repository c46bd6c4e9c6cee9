"""The service on Ray Serve, in a cluster of two nodes on this machine: same answers, nothing lost with a node."""

import contextlib
import json
import os
import re
import socket
import subprocess
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, Self

import httpx
import pytest

from tests.support.paths import ROOT
from tests.support.server import Server
from tests.support.waiting import wait_until

pytestmark = pytest.mark.ray

PYTHON = ROOT / ".venv" / "ray" / "bin" / "python"
ENVIRONMENT = {
    "PYTHONPATH": str(ROOT),
    "RAY_AUTH_MODE": "disabled",
    "RAY_USAGE_STATS_ENABLED": "0",
    # The many processes of a cluster start slowly on few cores.
    "RAY_SERVE_PROXY_READY_CHECK_TIMEOUT_S": "60",
    "RAY_SERVE_PROXY_HEALTH_CHECK_TIMEOUT_S": "60",
}
STOPPED_S = 120
CLIENTS = 4
BEFORE, AFTER = 100, 200
"""Requests that are answered before a node is killed, and after."""
TEXT, JSON, NDJSON = "text/plain", "application/json", "application/x-ndjson"
REVIEW = "A wonderful film, with a weak ending. " * 200
REQUESTS: dict[str, tuple[str, str, bytes, str]] = {
    "documents": ("POST", "/v1/classify", json.dumps({"inputs": [REVIEW, "Dull."], "detail": True}).encode(), JSON),
    "text": ("POST", "/v1/classify", REVIEW.encode(), TEXT),
    "lines": ("POST", "/v1/classify", b"".join(b'{"text": "%d films"}\n' % number for number in range(40)), NDJSON),
    "rank": ("POST", "/v1/rank", (ROOT / "docs" / "rank.json").read_bytes(), JSON),
    "forecast": ("POST", "/v1/forecast", (ROOT / "docs" / "series.json").read_bytes(), JSON),
    "models": ("GET", "/v1/models", b"", JSON),
    "one model": ("GET", "/v1/models/imdb-s3", b"", JSON),
    "ready": ("GET", "/v2/health/ready", b"", JSON),
    "OpenAPI": ("GET", "/openapi.json", b"", JSON),
    "no such route": ("GET", "/v1/nothing", b"", JSON),
    "wrong method": ("DELETE", "/v1/classify", b"", JSON),
    "not JSON": ("POST", "/v1/classify", b"{", JSON),
    "missing field": ("POST", "/v1/classify", b"{}", JSON),
    "unknown model": ("POST", "/v1/classify", b'{"inputs": ["a"], "model": "none"}', JSON),
    "too large": ("POST", "/v1/classify", b"x" * (9 << 20), TEXT),
}  # fmt: skip
VARIABLE = re.compile(rb'"(queue_ms|compute_ms|total_ms|duration_ms|loaded_at|loaded_s|load_seconds)":\s*"?[^,}"]*"?')
"""Times in answers."""
COMPARED_HEADERS = ("content-type", "x-content-type-options", "allow", "x-request-id")


def free_port() -> int:
    with closing(socket.socket()) as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


class RayCluster:
    """A cluster with a node, a replica and a proxy for each port; `tests/support/ray_cluster.py` runs it."""

    def __init__(self, log: Path, nodes: int) -> None:
        self.urls = [f"http://127.0.0.1:{free_port()}" for _ in range(nodes)]
        ports = [url.rpartition(":")[2] for url in self.urls]
        program = ("-m", "tests.support.ray_cluster")
        with log.open("wb") as stream:
            self.process = subprocess.Popen(
                [str(PYTHON), *program, str(ROOT / "exports"), *ports], env={**os.environ, **ENVIRONMENT},
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=stream, cwd=ROOT, text=True,
            )  # fmt: skip
        self._log = log
        self._wait_for("ready")

    def _wait_for(self, line: str) -> None:
        """Read lines until the expected one. Raises: AssertionError with the log if the program ends."""
        assert self.process.stdout is not None
        for found in self.process.stdout:
            if found == f"cluster: {line}\n":
                return
        self.process.communicate(timeout=STOPPED_S)
        raise AssertionError(self._log.read_text())

    def command(self, name: str, index: int) -> None:
        """`kill` a node, which ends all its processes at once, or `add` it again."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{name} {index}\n")
        self.process.stdin.flush()
        self._wait_for(name)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.communicate(timeout=STOPPED_S)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RayCluster]:
    with RayCluster(tmp_path_factory.mktemp("ray") / "log", 2) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with Server(tmp_path_factory.mktemp("plain") / "log", "--device", "cpu") as server:
        yield server


def answer_of(url: str, request: tuple[str, str, bytes, str]) -> tuple[int, bytes, dict[str, str]]:
    """Status, body without times, and headers."""
    method, path, body, kind = request
    headers = {"content-type": kind, "x-request-id": "the-same"}
    with httpx.Client(base_url=url, timeout=60, trust_env=False) as client:
        response = client.request(method, path, content=body, headers=headers)
    found = {name: response.headers[name] for name in COMPARED_HEADERS if name in response.headers}
    return response.status_code, VARIABLE.sub(b"", response.content), found


@pytest.mark.parametrize("name", REQUESTS)
def test_answers_are_those_of_the_plain_service(name: str, cluster: RayCluster, plain: Server) -> None:
    wanted = answer_of(plain.url, REQUESTS[name])
    for url in cluster.urls:
        assert answer_of(url, REQUESTS[name]) == wanted


def run_command(*flags: str, **options: Any) -> subprocess.Popen[str]:
    """Start `python -m service ray` with a Ray of its own, not on the cluster of the other tests."""
    command = [str(PYTHON), "-m", "service", "ray", *flags]
    environment = {**os.environ, **ENVIRONMENT, "RAY_ADDRESS": "local"}
    return subprocess.Popen(command, cwd=ROOT, env=environment, text=True, **options)


def test_command_serves_until_sigterm(tmp_path: Path) -> None:
    url, log = f"http://127.0.0.1:{free_port()}", tmp_path / "log"

    def is_ready() -> bool:
        assert process.poll() is None, log.read_text()
        with contextlib.suppress(httpx.TransportError):
            return httpx.get(f"{url}/v2/health/ready", trust_env=False).status_code == 200
        return False

    with log.open("wb") as stream:
        process = run_command("--port", url.rpartition(":")[2], "--device", "cpu", stdout=stream, stderr=stream)
    try:
        wait_until(is_ready, log.read_text)
        assert answer_of(url, REQUESTS["documents"])[0] == 200
        process.terminate()
        assert process.wait(STOPPED_S) == 0, log.read_text()
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (("--min-replicas", "3", "--max-replicas", "2"), "min_replicas is 3; it must be at most max_replicas, 2"),
        (("--model-control", "--max-replicas", "2"), "model_control: a request would reach one of the replicas only"),
        (("--otlp-endpoint", "http://collector:4318"), "otlp_endpoint: traces are not supported on Ray"),
        (("--replica-cores", "0"), "setting replica_cores = '0': Input should be greater than 0"),
    ],
)
def test_wrong_settings_are_named(flags: tuple[str, ...], said: str) -> None:
    process = run_command(*flags, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    _, errors = process.communicate(timeout=STOPPED_S)
    assert process.returncode == 2
    assert said in errors


def send_until(stop: threading.Event, urls: list[str], counts: Counter[str]) -> None:
    """Send requests to the nodes in turn; repeat a failed one once, at the next node."""
    with httpx.Client(timeout=30, trust_env=False) as client:
        sent = 0
        while not stop.is_set():
            outcomes = []
            for attempt in range(2):
                try:
                    url = urls[(sent + attempt) % len(urls)]
                    response = client.post(f"{url}/v1/classify", json={"inputs": [REVIEW]})
                    outcomes.append(str(response.status_code))
                except httpx.TransportError as error:
                    outcomes.append(type(error).__name__)
                if outcomes[-1] == "200":
                    break
            sent += 1
            counts["retried"] += len(outcomes) - 1
            counts[outcomes[-1]] += 1


def test_killed_node_loses_no_request_that_one_retry_does_not_save(cluster: RayCluster) -> None:
    counts, stop = Counter[str](), threading.Event()
    threads = [threading.Thread(target=send_until, args=(stop, cluster.urls, counts)) for _ in range(CLIENTS)]
    for thread in threads:
        thread.start()
    enough: Callable[[int], Callable[[], bool]] = lambda count: lambda: counts["200"] >= count  # noqa: E731
    try:
        wait_until(enough(BEFORE))
        cluster.command("kill", 1)
        wait_until(enough(counts["200"] + AFTER))
    finally:
        stop.set()
        for thread in threads:
            thread.join(60)
        cluster.command("add", 1)
    assert counts.keys() - {"retried"} == {"200"}, counts
    assert counts["retried"], "the killed node took no request"
