"""Real server processes on real sockets."""

import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from signal import Signals
from typing import Any, Literal, Self, get_args

import httpx
from prometheus_client.parser import text_string_to_metric_families

from tests.support.paths import ROOT
from tests.support.waiting import PATIENCE_S, wait_until
from tests.support.wire import Wire, request

Lane = Literal["foreground", "background"]
SERVICE = ("-m", "service")
UNLIMITED = httpx.Limits(max_connections=None, max_keepalive_connections=None)


class Server:
    """`python -m service` on a free port; it is listening once the constructor returns.

    Args:
        log: file for its output.
        flags: command line of the server.
        constants: new values of constants of the service, by module and name.
        program: arguments of the interpreter, by default `-m service`, or a program that changes the constants.
        variables: added to its environment, which has no other LONGDOC_... variable.
        descriptors: open files that it inherits.

    Raises: AssertionError, with its log, if it exits instead of listening.

    """

    def __init__(
        self,
        log: Path,
        *flags: str,
        constants: Mapping[str, float] | None = None,
        program: Sequence[str] = SERVICE,
        variables: Mapping[str, str] | None = None,
        descriptors: Sequence[int] = (),
    ) -> None:
        self.log = log
        if constants:
            program = ("-m", "tests.support.patched", ",".join(f"{name}={value}" for name, value in constants.items()))
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("LONGDOC_")}
        with log.open("wb") as stream:
            self.process = subprocess.Popen(
                [sys.executable, *program, "--port", "0", *flags],
                stdout=stream, stderr=stream, cwd=ROOT, env={**inherited, **(variables or {})}, pass_fds=descriptors,
            )  # fmt: skip
        try:
            self.url = wait_until(self._address, self.text)
        except BaseException:
            self.kill()
            raise

    def _address(self) -> str | None:
        assert self.process.poll() is None, self.text()
        found = re.search(r'(?:listening|running) on (http://[^\s"]+)', self.text())
        return found[1] if found else None

    def grpc_address(self) -> str:
        """Return host and port of gRPC."""
        found = re.search(r"listening on grpcs?://(\S+)", self.text())
        assert found is not None, self.text()
        return found[1]

    @property
    def host(self) -> str:
        """Address it listens on."""
        return self.url.removeprefix("http://").rpartition(":")[0]

    @property
    def port(self) -> int:
        """Port it listens on."""
        return int(self.url.rpartition(":")[2])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def text(self) -> str:
        """Return its output so far."""
        return self.log.read_text() if self.log.exists() else ""

    def send_signal(self, number: Signals = Signals.SIGTERM) -> None:
        """Send a signal."""
        self.process.send_signal(number)

    def exit_code(self) -> int:
        """Wait for the process to exit and return its exit code."""
        return self.process.wait(PATIENCE_S)

    def stop(self, number: Signals = Signals.SIGTERM) -> int:
        """Send a signal, wait for the process to exit and return the exit code."""
        self.send_signal(number)
        return self.exit_code()

    def drain(self) -> None:
        """Send SIGTERM and wait until the server logs it."""
        self.send_signal()
        wait_until(lambda: "SIGTERM: draining" in self.text(), self.text)

    def kill(self) -> None:
        """Kill the process if it still runs."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()

    def client(self) -> httpx.Client:
        """Return a client with its own connections, without a limit on their number."""
        return httpx.Client(base_url=self.url, timeout=PATIENCE_S, limits=UNLIMITED)

    def async_client(self) -> httpx.AsyncClient:
        """Return such a client for asyncio."""
        return httpx.AsyncClient(base_url=self.url, timeout=PATIENCE_S, limits=UNLIMITED)

    def get(self, path: str, **options: Any) -> httpx.Response:
        """Send GET on a new connection."""
        return httpx.get(f"{self.url}{path}", timeout=PATIENCE_S, **options)

    def post(self, path: str, **options: Any) -> httpx.Response:
        """Send POST on a new connection."""
        return httpx.post(f"{self.url}{path}", timeout=PATIENCE_S, **options)

    def begin(self, body: bytes, **headers: str) -> Wire:
        """Post a document to classify without waiting for the answer."""
        return Wire(self.url).send(request(body=body, **headers))

    def metric(self, name: str, **labels: str) -> float:
        """Return the sum of the samples of a metric with these labels; 0 if there is none."""
        with self.client() as client:
            return sample(client, name, **labels)

    def wait_for(self, value: float, name: str, **labels: str) -> None:
        """Wait until a metric has a value; it must not change after that."""
        wait_until(lambda: self.metric(name, **labels) == value, lambda: f"{name} = {self.metric(name, **labels)}")

    def wait_for_batches(self, count: float) -> None:
        """Wait until that many batches have started."""
        wait_until(lambda: self.metric("longdoc_batch_size_count") >= count)

    def rss_bytes(self) -> int:
        """Return its resident memory."""
        found = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{self.process.pid}/status").read_text())
        assert found is not None
        return int(found[1]) * 1024

    def cpu_s(self) -> float:
        """Return the processor time of the process so far, in seconds."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")

    def descriptors(self) -> int:
        """Return the number of its open files and connections."""
        return len(list(Path(f"/proc/{self.process.pid}/fd").iterdir()))


class ControlledServer(Server):
    """A server whose batches and clock are controlled by the test; see `tests.support.controlled`."""

    def __init__(self, log: Path, *flags: str, variables: Mapping[str, str] | None = None) -> None:
        self._channel, theirs = socket.socketpair()
        self._channel.settimeout(PATIENCE_S)
        with theirs:
            program = ("-m", "tests.support.controlled", str(theirs.fileno()))
            super().__init__(log, *flags, program=program, variables=variables, descriptors=[theirs.fileno()])

    def hold(self, *lanes: Lane) -> None:
        """Block batches that start from now on; in all lanes if none is named."""
        self._command(" ".join(("hold", *(lanes or get_args(Lane)))))

    def release(self) -> None:
        """Unblock the batches."""
        self._command("release")

    @contextmanager
    def held(self, *lanes: Lane) -> Iterator[None]:
        """Block batches that start inside the context, as `hold`."""
        self.hold(*lanes)
        try:
            yield
        finally:
            with suppress(OSError):  # the server may have exited
                self.release()

    def advance(self, seconds: float) -> None:
        """Make the clock of its event loop jump ahead."""
        self._command(f"advance {seconds}")

    def kill(self) -> None:
        """Kill the process if it still runs."""
        super().kill()
        self._channel.close()

    def _command(self, line: str) -> None:
        self._channel.sendall(line.encode() + b"\n")
        self._channel.recv(16)  # empty if the command ended the server


class Scrape:
    """The metrics at one time. A server answers one scrape a second, so tests read several metrics from each."""

    def __init__(self, client: httpx.Client) -> None:
        families = text_string_to_metric_families(client.get("/metrics").text)
        self._samples = [sample for family in families for sample in family.samples]

    def sum(self, name: str, **labels: str) -> float:
        """Return the sum of the samples of a metric with these labels; 0 if there is none."""
        return sum(s.value for s in self._samples if s.name == name and labels.items() <= s.labels.items())


def sample(client: httpx.Client, name: str, **labels: str) -> float:
    """Return the sum of the samples of one metric now, as `Scrape.sum`."""
    return Scrape(client).sum(name, **labels)
