"""The server process: uvicorn with its own signal handling, so that no accepted request is lost. Run by `__main__`."""

import asyncio
import contextlib
import errno
import gc
import importlib
import logging
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import uvicorn
import uvloop
from typing_extensions import override

from artifact.errors import BadExport
from service.http.protocol import GuardedProtocol
from service.metrics import Metrics
from service.runtime import Runtime
from service.settings import Settings

if TYPE_CHECKING:
    from fastapi import FastAPI

    from service.grpc.server import GrpcServer

log = logging.getLogger(__name__)

SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
"""Signals that stop the server. SIGHUP, which a closing terminal sends, has the effect of SIGTERM."""
KEEP_ALIVE_S = 65
"""Idle time of a connection before it is closed. It is longer than the 60 s of common load balancers, because they
should close first."""
BACKLOG = 4096
"""Maximum connections that the kernel queues until they are accepted; a client tries again after a second or more if
there are more. Linux allows 4096 by default."""
SWITCH_S = 0.0005
"""Time until the event loop releases the interpreter lock to a thread that has finished a batch. Python's default is
ten times as long, which under load is longer than a batch."""
YOUNG_OBJECTS = 20_000
"""New objects between two garbage collections; at Python's default of 700 there is one every few requests."""
MOST_ACCEPTED = 256
"""Maximum connections accepted per iteration of the event loop. uvloop accepts one: under overload, an iteration takes
long, and other clients would wait for seconds."""
ACCEPT_PAUSE_S = 0.01
"""Time until connections are accepted again after an error, usually because no file descriptor is free."""
OF_CONNECTION = (
    errno.ECONNABORTED, errno.EPROTO, errno.ENETDOWN, errno.ENETUNREACH, errno.EHOSTDOWN, errno.EHOSTUNREACH,
    errno.ENOPROTOOPT, errno.EOPNOTSUPP,
)  # fmt: skip
"""errno values of a connection that failed before it was accepted (accept(2), "Error handling")."""
ARRIVAL_S = 0.1
"""Time for the event loop to receive requests that clients sent just before the server stopped listening."""
LAST_REQUESTS_S = 2.0
"""Maximum time for open connections without a request to send their first one, after the server stopped listening."""


class _Server(uvicorn.Server):
    """uvicorn.Server that accepts connections itself, with another shutdown and without signal handlers.

    At SIGTERM, the base class closes the socket at once, resets connections that have not sent a request yet, and
    raises the signal again. This class serves these connections first. It is to be run by `serve(sockets=[])`.

    Args:
        config: settings of uvicorn.
        listener: listening socket, which is closed in the end.

    """

    def __init__(self, config: uvicorn.Config, listener: socket.socket) -> None:
        super().__init__(config)
        self._listener = listener
        self._connecting = set[asyncio.Task[Any]]()
        self._pause: asyncio.TimerHandle | None = None
        """Ends the pause. It stays set until accepting succeeds, so that the log tells of an error once."""

    @override
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Do nothing: `_Lifecycle` handles the signals."""
        yield

    @override
    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen."""
        await super().startup(sockets)
        self._listener.setblocking(False)
        self._resume()

    @override
    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop listening, but serve the connections that the kernel has queued."""
        asyncio.get_running_loop().remove_reader(self._listener)
        if self._pause is not None:
            self._pause.cancel()
        with self._listener, contextlib.suppress(OSError):
            for _ in range(BACKLOG):
                if not self._accept():
                    break
        await asyncio.gather(*self._connecting, return_exceptions=True)
        if not self.force_exit:
            await asyncio.sleep(ARRIVAL_S)
            until = time.monotonic() + LAST_REQUESTS_S
            while self._has_unused_connection() and time.monotonic() < until and not self.force_exit:  # noqa: ASYNC110
                await asyncio.sleep(0.02)  # uvicorn has no event
        await super().shutdown(sockets)

    def _resume(self) -> None:
        asyncio.get_running_loop().add_reader(self._listener, self._accept_many)

    def _accept_many(self) -> None:
        """Accept connections that the kernel has queued; pause after an error."""
        try:
            for _ in range(MOST_ACCEPTED):
                if not self._accept():
                    break
        except OSError as error:
            if self._pause is None:
                log.warning("new connections have to wait: %s", error.strerror)
            loop = asyncio.get_running_loop()
            loop.remove_reader(self._listener)
            self._pause = loop.call_later(ACCEPT_PAUSE_S, self._resume)
        else:
            self._pause = None

    def _accept(self) -> bool:
        """Accept a connection; return whether one was queued. Raises: OSError that is not of the connection."""
        loop = asyncio.get_running_loop()
        try:
            connection, _ = self._listener.accept()
        except BlockingIOError:
            return False
        except OSError as error:
            if error.errno in OF_CONNECTION:
                return True
            raise
        connection.setblocking(False)
        connecting = loop.create_task(loop.connect_accepted_socket(self._protocol, connection))
        self._connecting.add(connecting)
        connecting.add_done_callback(self._connecting.discard)
        return True

    def _has_unused_connection(self) -> bool:
        """Whether a connection has not sent its first request yet."""
        connections: Collection[object] = self.server_state.connections
        return any(isinstance(each, GuardedProtocol) and not each.has_request for each in connections)

    def _protocol(self) -> GuardedProtocol:
        return GuardedProtocol(self.config, self.server_state, app_state=self.lifespan.state)


def serve(
    settings: Settings,
    listener: socket.socket | None = None,
    parent: int | None = None,
    required: Collection[str] | None = None,
    shared: Path | None = None,
) -> int:
    """Load the models, listen, serve until a signal, drain; return the exit code 0.

    If the backend crashes, the process ends in this call, with code 1.

    Args:
        settings: the settings of the server.
        listener: bound socket of a worker; by default a new one.
        parent: descriptor that becomes readable when the parent of a worker has ended.
        required: names of the models that a restarted worker has to serve; None at the first start.
        shared: folder of the metrics of all workers.

    Raises: OSError if an address is in use, or the certificate of gRPC is invalid; BadExport if no model can be served,
        a required model is damaged, or tracing or gRPC is misconfigured. They are raised before this process listens.

    """
    tune_interpreter()
    # FastAPI takes a third of the start: another thread imports it while the models are loaded.
    threading.Thread(target=importlib.import_module, args=("service.app",)).start()
    with (
        listener or bind(settings.host, settings.port) as bound,
        asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
    ):
        runtime = Runtime.load(settings, Metrics(shared), required)
        from service.app import create_app

        app = create_app(settings, runtime=runtime)
        grpc = None if settings.grpc_port is None else runner.run(_start_grpc(app, settings, runtime))
        try:
            bound.listen(BACKLOG)
        except OSError as error:  # another process had bound the address too (SO_REUSEADDR) and listened first
            raise cannot_listen(settings.host, settings.port, error) from None
        gc.freeze()  # exclude loaded models from garbage collection
        runner.run(_Lifecycle(app, settings, runtime, grpc).run(bound, parent))
        has_crashed = runtime.engine.crashed.is_set()
        # A normal exit would wait for threads that may never end, or stop one inside native code.
        if has_crashed or runtime.engine.is_computing or runtime.reloader.is_reading:
            logging.shutdown()
            os._exit(1 if has_crashed else 0)
    return 0


async def _start_grpc(app: "FastAPI", settings: Settings, runtime: Runtime) -> "GrpcServer":
    """Start the gRPC server. Raises: OSError; BadExport if a package is not installed."""
    try:
        from service.grpc.server import GrpcServer
    except ModuleNotFoundError as error:
        message = f"grpc_port is set and {error.name} is not installed; run pip install '.[grpc]'"
        raise BadExport(message, "backend") from None
    return await GrpcServer.start(app, settings, runtime)


def tune_interpreter() -> None:
    """Set how often the interpreter switches threads and collects garbage, for a process that serves."""
    sys.setswitchinterval(SWITCH_S)
    gc.set_threshold(YOUNG_OBJECTS)


def obeyed_signals() -> Sequence[signal.Signals]:
    """Signals that stop this process. SIGHUP is left out if it is ignored, for example because of `nohup`."""
    is_ignored = signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    return [number for number in SIGNALS if not (number == signal.SIGHUP and is_ignored)]


def bind(host: str, port: int, *, shared: bool = False) -> socket.socket:
    """Bind a socket to the address, without listening yet.

    Args:
        host: the host.
        port: the port; 0 picks a free one.
        shared: whether other processes of the same user can bind the address, too. The kernel then spreads new
            connections over the sockets that listen.

    Raises: OSError that names the address.

    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        if shared:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        raise cannot_listen(host, port, error) from None
    return listener


def cannot_listen(host: str, port: int, error: OSError) -> OSError:
    """An error that names the address and its settings."""
    return OSError(f"cannot listen on {host} (LONGDOC_HOST), port {port} (LONGDOC_PORT): {error.strerror}")


class _Lifecycle:
    """Runs the server until a signal, then drains it.

    - SIGTERM or SIGHUP: the server is no longer ready. Requests are still accepted for `drain_delay_s`; then the socket
      closes, and requests in flight have `drain_timeout_s` to finish.
    - SIGINT, a crash of the backend, or the end of a worker's parent: the same without the delay.
    - A second SIGTERM or SIGINT stops the server at once.
    """

    def __init__(self, app: "FastAPI", settings: Settings, runtime: Runtime, grpc: "GrpcServer | None") -> None:
        self._app = app
        self._grpc = grpc
        self._settings = settings
        self._runtime = runtime
        self._signals: asyncio.Queue[signal.Signals] = asyncio.Queue()

    async def run(self, listener: socket.socket, parent: int | None) -> None:
        """Serve on a bound socket until a signal."""
        config = uvicorn.Config(
            self._app,
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            http=GuardedProtocol,
            ws="none",
            lifespan="on",
            timeout_keep_alive=KEEP_ALIVE_S,
            timeout_graceful_shutdown=max(1, round(self._settings.drain_timeout_s)),
        )
        loop = asyncio.get_running_loop()
        for number in obeyed_signals():
            loop.add_signal_handler(number, self._signals.put_nowait, number)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)  # the parent blocks them while it starts a worker
        if parent is not None:
            loop.add_reader(parent, self._stop_orphan, parent)
        server = _Server(config, listener)
        host, port = listener.getsockname()[:2]
        serving = asyncio.create_task(server.serve(sockets=[]))
        stopping = asyncio.create_task(self._stop(server))
        if not self._settings.api_keys and host not in ("127.0.0.1", "::1"):
            log.warning("no api_keys are set: everyone who can reach %s can send requests", host)
        log.info("listening on http://%s:%d", f"[{host}]" if ":" in host else host, port)
        await serving
        if self._grpc is not None:  # a signal that comes while this waits ends all calls in `_stop`
            await (self._grpc.stop_now() if server.force_exit else self._grpc.stopped())
        stopping.cancel()
        if server.force_exit:  # uvicorn then leaves out the end of the application's lifespan
            await server.lifespan.shutdown()
        log.info("stopped")

    def _stop_orphan(self, parent: int) -> None:
        """Stop this worker, because its parent has ended."""
        asyncio.get_running_loop().remove_reader(parent)
        self._signals.put_nowait(signal.SIGINT)

    async def _stop(self, server: uvicorn.Server) -> None:
        """Drain at the first signal, or when the backend crashes; stop at once at the second signal."""
        crash = asyncio.create_task(self._runtime.engine.crashed.wait())
        signalled = asyncio.create_task(self._signals.get())
        await asyncio.wait((crash, signalled), return_when=asyncio.FIRST_COMPLETED)
        first = signalled.result() if signalled.done() else None
        log.info("%s: draining", first.name if first else "crash")
        self._runtime.engine.begin_drain()
        second: signal.Signals | None = None
        if first in (signal.SIGTERM, signal.SIGHUP):
            with contextlib.suppress(TimeoutError):
                second = await asyncio.wait_for(self._second_signal(), self._settings.drain_delay_s)
        server.should_exit = True
        if self._grpc is not None:
            self._grpc.begin_stop(self._settings.drain_timeout_s)
        # After a crash, the first signal is the one that stops the server at once.
        second = second or (await self._second_signal() if first else await signalled)
        log.warning("%s: stopping at once", second.name)
        server.force_exit = True
        self._runtime.must_stop_now.set()
        if self._grpc is not None:
            await self._grpc.stop_now()

    async def _second_signal(self) -> signal.Signals:
        """The next signal. SIGHUP is skipped: when a terminal closes, it and its shell may both send one."""
        while (number := await self._signals.get()) == signal.SIGHUP:
            pass
        return number
