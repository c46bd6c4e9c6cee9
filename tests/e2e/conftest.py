"""A real server process on a real socket, serving the repository's own exports."""

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from service.manifest import Manifest, newest_version, read_manifest
from tests.e2e.offline import Offline, OfflineForecaster, OfflineMatcher

ROOT = Path(__file__).parents[2]
EXPORTS = ROOT / "exports"
START_S = 60
SECRET = "my secret document, never to be echoed"


@dataclass
class Server:
    """`python -m service` with flags; `url` is known once it listens."""

    flags: list[str]
    log: Path
    process: subprocess.Popen[bytes] = field(init=False)
    url: str = field(init=False)

    def start(self) -> "Server":
        command = [sys.executable, "-m", "service", "--port", "0", *self.flags]
        environment = {k: v for k, v in os.environ.items() if not k.startswith("LONGDOC_")}
        with self.log.open("wb") as stream:
            self.process = subprocess.Popen(command, stderr=stream, stdout=stream, cwd=ROOT, env=environment)
        until = time.monotonic() + START_S
        while not (found := re.search(r"listening on (http://\S+)", self.text())):
            assert self.process.poll() is None, self.text()
            assert time.monotonic() < until, self.text()
            time.sleep(0.02)
        self.url = found[1]
        return self

    def text(self) -> str:
        return self.log.read_text() if self.log.exists() else ""

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        return self.process.wait(START_S)

    def rss_bytes(self) -> int:
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.search(r"VmRSS:\s+(\d+) kB", status)[1]) * 1024  # type: ignore[index]


@pytest.fixture(scope="session")
def export() -> Path:
    """The repository's classifier."""
    return newest_version(EXPORTS / "imdb-s3")


@pytest.fixture(scope="session")
def manifest(export: Path) -> Manifest:
    return read_manifest(export)


@pytest.fixture(scope="session")
def offline(export: Path) -> Offline:
    return Offline(export)


@pytest.fixture(scope="session")
def matcher() -> OfflineMatcher:
    """The repository's matcher."""
    return OfflineMatcher(newest_version(EXPORTS / "aan"))


@pytest.fixture(scope="session")
def forecaster() -> OfflineForecaster:
    """The forecaster that the shared server takes by default."""
    return OfflineForecaster(newest_version(EXPORTS / "ettm2"))


@pytest.fixture
def exports_copy(export: Path, tmp_path: Path) -> Path:
    """A folder of exports that a test may damage."""
    shutil.copytree(export, tmp_path / "exports" / export.parent.name / export.name)
    return tmp_path / "exports"


@pytest.fixture(scope="session")
def start(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Server]]:
    """Start servers; whatever still runs at the end is ended."""
    servers: list[Server] = []

    def begin(*flags: str) -> Server:
        server = Server(list(flags), tmp_path_factory.mktemp("server") / "log")
        servers.append(server)
        return server.start()

    yield begin
    for server in servers:
        if server.process.poll() is None:
            server.process.kill()
            server.process.wait()


@pytest.fixture(scope="session")
def server(start: Callable[..., Server]) -> Server:
    """One server for all tests that only ask."""
    return start("--drain-delay-s", "0", "--default-forecaster", "ettm2")


@pytest.fixture
def client(server: Server) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=server.url, timeout=30) as client:
        yield client
    assert "Traceback" not in server.text()
    assert "Warning" not in server.text()


def check_problem(response: httpx.Response, status: int, code: str) -> dict[str, Any]:
    """What every error of a native route has; its fields."""
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/problem+json"
    body: dict[str, Any] = response.json()
    assert (body["status"], body["code"]) == (status, code)
    assert body["request_id"] == response.headers["x-request-id"]
    assert body["title"]
    assert body["detail"]
    assert SECRET not in response.text
    return body


def sample(client: httpx.Client, name: str, **labels: str) -> float:
    """Sum of the samples of that name with these labels; 0 if there is none."""
    families = text_string_to_metric_families(client.get("/metrics").text)
    samples = (sample for family in families for sample in family.samples)
    return sum(s.value for s in samples if s.name == name and labels.items() <= s.labels.items())
