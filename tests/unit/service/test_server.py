"""The server before it answers requests: address, exports, collector, connections."""

import asyncio
import contextlib
import errno
import gc
import os
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, NoReturn

import pytest
import uvicorn
import uvloop
from starlette.types import Receive, Scope, Send

from artifact.errors import BadExport
from artifact.loading import LoadedModel
from service import runtime
from service.http.protocol import GuardedProtocol
from service.server import MOST_ACCEPTED, SIGNALS, _Server, bind, obeyed_signals, serve
from service.settings import Settings
from tests.support.paths import ROOT
from tests.support.waiting import PATIENCE_S

COLLECTOR = "http://127.0.0.1:1"


@pytest.fixture
def port_in_use() -> Iterator[int]:
    """A port that another socket listens on."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener.getsockname()[1]


@pytest.fixture(autouse=True)
def _switch_interval() -> Iterator[None]:
    """Restore the switch interval and the garbage collection of the tests."""
    before, thresholds = sys.getswitchinterval(), gc.get_threshold()
    yield
    sys.setswitchinterval(before)
    gc.set_threshold(*thresholds)


def test_port_0_selects_a_free_port() -> None:
    with bind("127.0.0.1", 0) as listener:
        host, port = listener.getsockname()
        assert host == "127.0.0.1"
        assert port > 0
        assert listener.getsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR)


def test_error_names_the_address_in_use(port_in_use: int) -> None:
    with pytest.raises(OSError, match=rf"127.0.0.1 \(LONGDOC_HOST\), port {port_in_use} \(LONGDOC_PORT\)"):
        bind("127.0.0.1", port_in_use)


@pytest.mark.parametrize(("host", "family"), [("::1", socket.AF_INET6), ("127.0.0.1", socket.AF_INET)])
def test_socket_family_follows_the_address(
    monkeypatch: pytest.MonkeyPatch, host: str, family: socket.AddressFamily
) -> None:
    made = list[tuple[object, object]]()

    class Listener:
        """A socket without a network, because a container may have no IPv6."""

        def __init__(self, family: object) -> None:
            self.family = family

        def setsockopt(self, *option: int) -> None:
            """Accept any option."""

        def bind(self, address: object) -> None:
            made.append((self.family, address))

    monkeypatch.setattr(socket, "socket", Listener)
    bind(host, 1)
    monkeypatch.undo()
    assert made == [(family, (host, 1))]


def test_address_is_bound_before_exports_are_loaded(tmp_path: Path, port_in_use: int) -> None:
    with pytest.raises(OSError, match="LONGDOC_PORT"):
        serve(Settings(exports=tmp_path / "none", port=port_in_use))


def test_connections_are_refused_while_models_are_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    listener = bind("127.0.0.1", 0)

    def load(*_: object, **__: object) -> NoReturn:
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(listener.getsockname())
        raise BadExport("looked", "missing")

    monkeypatch.setattr(runtime, "load_models", load)
    with pytest.raises(BadExport, match="looked"):
        serve(Settings(exports=tmp_path), listener)


def test_error_names_an_address_taken_during_loading(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The system lets two sockets bind an address as long as neither listens."""
    with bind("127.0.0.1", 0) as other:
        port = other.getsockname()[1]

        def load(*_: object, **__: object) -> tuple[list[LoadedModel], dict[Path, BadExport]]:
            other.listen()
            return [], {}

        monkeypatch.setattr(runtime, "load_models", load)
        with pytest.raises(OSError, match=rf"port {port} \(LONGDOC_PORT\): Address already in use"):
            serve(Settings(exports=tmp_path, port=port))


def test_wrong_collector_is_rejected_before_the_server_listens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    listener = bind("127.0.0.1", 0)
    monkeypatch.setitem(sys.modules, "service.http.tracing", None)
    monkeypatch.setattr(runtime, "load_models", lambda *_, **__: ([], {}))
    monkeypatch.setattr(socket.socket, "listen", lambda *_: pytest.fail("listens"))
    with pytest.raises(BadExport, match=r"is not installed; run pip install '\.\[otel\]'"):
        serve(Settings.model_validate({"exports": tmp_path, "otlp_endpoint": COLLECTOR}), listener)


def test_missing_package_of_grpc_is_named_before_the_server_listens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    listener = bind("127.0.0.1", 0)
    monkeypatch.setitem(sys.modules, "service.grpc.server", None)
    monkeypatch.setattr(runtime, "load_models", lambda *_, **__: ([], {}))
    monkeypatch.setattr(socket.socket, "listen", lambda *_: pytest.fail("listens"))
    with pytest.raises(BadExport, match=r"is not installed; run pip install '\.\[grpc\]'"):
        serve(Settings.model_validate({"exports": tmp_path, "grpc_port": 0}), listener)


def test_fastapi_is_not_imported_before_the_server_starts() -> None:
    """Its import takes a third of the start, and runs while the models are loaded."""
    code = "import sys, service.__main__, service.server; print('fastapi' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, cwd=ROOT)
    assert done.stdout == "False\n"


async def _no_application(scope: Scope, receive: Receive, send: Send) -> None:
    del scope, receive, send
    raise AssertionError("no request was sent")


def test_many_connections_are_accepted_per_iteration_of_the_event_loop() -> None:
    async def iterations(listener: socket.socket, connections: int) -> int:
        async with serving(listener) as server:
            with connected(listener, connections):
                passed = 0
                while len(server.server_state.connections) < connections:
                    await asyncio.sleep(0)
                    passed += 1
        return passed

    with bind("127.0.0.1", 0) as listener, asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        listener.listen(MOST_ACCEPTED)
        assert runner.run(iterations(listener, MOST_ACCEPTED)) < 32  # uvloop takes as many as there are


class Exhausted(socket.socket):
    """A listening socket whose `accept` fails at first."""

    failures = 0
    """Number of times that it will fail."""
    error = errno.EMFILE
    calls = 0

    def accept(self) -> tuple[socket.socket, Any]:
        self.calls += 1
        if self.calls <= self.failures:
            raise OSError(self.error, os.strerror(self.error))
        return super().accept()


@pytest.fixture
def exhausted() -> Iterator[Exhausted]:
    with Exhausted() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield listener


@pytest.mark.parametrize("error", [errno.EMFILE, errno.EINVAL])
def test_event_loop_does_not_spin_while_connections_cannot_be_accepted(
    exhausted: Exhausted, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, error: int
) -> None:
    async def wait() -> None:
        async with serving(exhausted):
            with connected(exhausted, 3):
                while not exhausted.calls:  # noqa: ASYNC110  # the class has no event
                    await asyncio.sleep(0)
                for _ in range(1000):
                    await asyncio.sleep(0)
                assert exhausted.calls == 1

    monkeypatch.setattr("service.server.ACCEPT_PAUSE_S", 3600)
    exhausted.failures, exhausted.error = 10**9, error
    uvloop.run(wait())
    assert f"new connections have to wait: {os.strerror(error)}" in caplog.text


@pytest.mark.parametrize(
    ("error", "warnings"), [(errno.EMFILE, 1), (errno.EPERM, 1), (errno.ECONNABORTED, 0), (errno.EPROTO, 0)]
)
def test_connections_are_accepted_after_errors(
    exhausted: Exhausted, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, error: int, warnings: int
) -> None:
    async def wait() -> None:
        async with serving(exhausted) as server:
            with connected(exhausted, 5):
                while len(server.server_state.connections) < 5:  # noqa: ASYNC110  # uvicorn has no event
                    await asyncio.sleep(0)

    monkeypatch.setattr("service.server.ACCEPT_PAUSE_S", 0)
    exhausted.failures, exhausted.error = 3, error
    uvloop.run(wait())
    assert caplog.text.count("new connections have to wait") == warnings


@contextlib.asynccontextmanager
async def serving(listener: socket.socket) -> AsyncIterator[_Server]:
    """A server on a listening socket, stopped at the end of the block, which has PATIENCE_S."""
    config = uvicorn.Config(_no_application, lifespan="off", http=GuardedProtocol, log_config=None)
    server = _Server(config, listener)
    async with asyncio.timeout(PATIENCE_S):
        running = asyncio.create_task(server.serve(sockets=[]))
        while not server.started:  # noqa: ASYNC110  # uvicorn has no event
            await asyncio.sleep(0)
        try:
            yield server
        finally:
            server.should_exit = server.force_exit = True
            await running


@contextlib.contextmanager
def connected(listener: socket.socket, count: int) -> Iterator[None]:
    """Open connections to a listening socket."""
    with contextlib.ExitStack() as clients:
        for _ in range(count):
            clients.enter_context(socket.create_connection(listener.getsockname()))
        yield


def test_address_that_is_not_shared_is_in_use() -> None:
    with bind("127.0.0.1", 0, shared=True) as first:
        port = first.getsockname()[1]
        with bind("127.0.0.1", port, shared=True) as second:
            first.listen()
            second.listen()
            with pytest.raises(OSError, match="in use"):
                bind("127.0.0.1", port)


def test_ignored_sighup_stays_ignored() -> None:
    """`nohup` ignores it."""
    assert set(obeyed_signals()) == set(SIGNALS)
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        assert set(obeyed_signals()) == {signal.SIGTERM, signal.SIGINT}
    finally:
        signal.signal(signal.SIGHUP, before)
