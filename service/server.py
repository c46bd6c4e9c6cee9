"""The server process: uvicorn with signals of our own, so that nothing accepted is lost. Called by `__main__`."""

import asyncio
import contextlib
import gc
import logging
import os
import signal
import socket
import sys
import time
from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING

import uvicorn
import uvloop
from typing_extensions import override

from artifact.defaults import read_defaults
from artifact.errors import BadExport
from service.app import create_app
from service.engine.engine import Engine
from service.engine.loading import load_models
from service.engine.reload import Reloader
from service.http.protocol import BoundedProtocol
from service.metrics import SAMPLE_S, Metrics
from service.parser import Parser
from service.settings import Settings

if TYPE_CHECKING:
    from service.http.tracing import Tracing

log = logging.getLogger(__name__)

SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
"""Each ends the server; SIGHUP, sent when a terminal closes, as SIGTERM does."""
KEEP_ALIVE_S = 65
"""Longer than the 60 s after which common load balancers close, so that the side that sends closes first."""
BACKLOG = 2048
"""Connections the kernel holds before they are accepted; uvicorn's default."""
LAST_REQUESTS_S = 2.0
"""Time for connections made just before listening ended to send their request; over once all have."""
SWITCH_S = 0.0005
"""How long the event loop keeps the interpreter from a thread that has finished a batch; Python's default is ten times
that, which under load is longer than the batch."""
YOUNG_OBJECTS = 20_000
"""New objects before Python looks for garbage among them; at its default, 700, it looks every few requests."""
ARRIVAL_S = 0.1
"""Time for those connections to reach the event loop."""


class _Server(uvicorn.Server):
    """uvicorn closes at the first SIGTERM, resets who has connected but not asked yet, and raises the signal again."""

    def __init__(self, config: uvicorn.Config, listener: socket.socket) -> None:
        super().__init__(config)
        self._listener = listener.dup()

    @override
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave the signals to `_Lifecycle`."""
        yield

    @override
    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End listening without a reset for those whom the kernel has already connected."""
        for server in self.servers:
            server.close()
        with self._listener:
            self._listener.setblocking(False)
            waiting = list(self._accept_rest())
        for connection in waiting:
            await asyncio.get_running_loop().connect_accepted_socket(self._protocol, connection)
        if not self.force_exit:
            await asyncio.sleep(ARRIVAL_S)
            until = time.monotonic() + LAST_REQUESTS_S
            while self._somebody_is_silent() and time.monotonic() < until:  # noqa: ASYNC110  # uvicorn has no event
                await asyncio.sleep(0.02)
        await super().shutdown(sockets)

    def _somebody_is_silent(self) -> bool:
        """Whether a connection has not sent its first request yet."""
        return any(getattr(connection, "cycle", None) is None for connection in self.server_state.connections)

    def _accept_rest(self) -> Iterator[socket.socket]:
        with contextlib.suppress(BlockingIOError):
            while True:
                yield self._listener.accept()[0]

    def _protocol(self) -> asyncio.Protocol:
        return self.config.http_protocol_class(  # type: ignore[call-arg]  # the class is known at run time only
            config=self.config, server_state=self.server_state, app_state=self.lifespan.state
        )


def serve(
    settings: Settings,
    listener: socket.socket | None = None,
    parent: int | None = None,
    served: Collection[str] | None = None,
) -> int:
    """Load, listen, serve until a signal, drain; returns the exit code, 1 if the backend has crashed.

    Args:
        settings: of the server.
        listener: bound already, for a worker among several.
        parent: descriptor that becomes readable when the parent of a worker is gone.
        served: names of exports that were served before, for a worker that is started again.

    Raises: OSError, before models are loaded, if the address is taken; BadExport before anything listens.

    """
    sys.setswitchinterval(SWITCH_S)
    tracing = _create_tracing(settings)
    metrics = Metrics()
    with (
        listener or bind(settings.host, settings.port) as bound,
        asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
    ):
        models, refused = load_models(settings, metrics, served)
        defaults = read_defaults(settings.exports)
        try:
            bound.listen(BACKLOG)
        except OSError as error:  # another one was bound beside us, which the system allows, and listened first
            raise _cannot_listen(settings.host, settings.port, error) from None
        engine = Engine(models, settings, metrics, defaults)
        del models  # the engine lets the first ones go when newer ones are served
        gc.freeze()  # what was loaded stays: it need not be looked through for garbage
        gc.set_threshold(YOUNG_OBJECTS)
        reloader = Reloader(engine, settings, metrics, refused)
        is_sound = runner.run(_Lifecycle(settings, tracing).run(engine, metrics, reloader, bound, parent))
        # A thread that never comes back would keep the interpreter from ending, or be cut off inside of native code.
        if not is_sound or engine.is_computing or reloader.is_reading:
            logging.shutdown()
            os._exit(0 if is_sound else 1)
    return 0


def _create_tracing(settings: Settings) -> "Tracing | None":
    """Traces, if they are asked for. Raises: BadExport if what makes them is not installed, or misconfigured."""
    if settings.otlp_endpoint is None:
        return None
    try:
        from service.http.tracing import Tracing

        return Tracing(str(settings.otlp_endpoint))
    except ModuleNotFoundError as error:
        message = f"otlp_endpoint is set and {error.name} is not installed; install longdoc-serve[otel]"
        raise BadExport(message, "backend") from None
    except ValueError as error:  # of a variable OTEL_...
        raise BadExport(
            f"otlp_endpoint is set, and the variables of OpenTelemetry are wrong: {error}", "backend"
        ) from None


def obeyed_signals() -> Sequence[signal.Signals]:
    """Signals that end this process: not SIGHUP where it was ignored from the start, as by `nohup`."""
    is_ignored = signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    return [number for number in SIGNALS if not (number == signal.SIGHUP and is_ignored)]


def bind(host: str, port: int) -> socket.socket:
    """Take the address; nobody can connect until the socket listens. Raises: OSError that names it."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        raise _cannot_listen(host, port, error) from None
    return listener


def _cannot_listen(host: str, port: int, error: OSError) -> OSError:
    """An error that tells where, and which settings say so."""
    return OSError(f"cannot listen on {host} (LONGDOC_HOST), port {port} (LONGDOC_PORT): {error.strerror}")


class _Lifecycle:
    """From the first request to the last.

    SIGTERM or SIGHUP: readiness ends at once, requests are answered for `drain_delay_s`, then the socket closes and
    what is in flight has `drain_timeout_s` to finish. SIGINT: the same without the delay. A second signal ends
    everything.
    A crash of the backend, or the end of a worker's parent, is handled like a SIGINT.
    """

    def __init__(self, settings: Settings, tracing: "Tracing | None") -> None:
        self._settings = settings
        self._tracing = tracing
        self._signals: asyncio.Queue[signal.Signals] = asyncio.Queue()

    async def run(
        self, engine: Engine, metrics: Metrics, reloader: Reloader, listener: socket.socket, parent: int | None
    ) -> bool:
        """Serve on a bound socket until a signal has been obeyed; whether the backend was sound to the end."""
        parser = Parser()
        app = create_app(engine, parser, self._settings, metrics)
        config = uvicorn.Config(
            self._tracing.around(app) if self._tracing else app,
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            http=BoundedProtocol,
            ws="none",
            lifespan="off",
            timeout_keep_alive=KEEP_ALIVE_S,
            timeout_graceful_shutdown=max(1, round(self._settings.drain_timeout_s)),
        )
        loop = asyncio.get_running_loop()
        for number in obeyed_signals():
            loop.add_signal_handler(number, self._signals.put_nowait, number)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)  # blocked by the parent of several workers
        if parent is not None:
            loop.add_reader(parent, self._orphaned, parent)
        server = _Server(config, listener)
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        beside = [asyncio.create_task(self._stop(engine, server))]
        if self._settings.reload_s:
            beside.append(asyncio.create_task(reloader.run()))
        if metrics.is_shared:
            beside.append(asyncio.create_task(_sample(metrics)))
        host, port = listener.getsockname()[:2]
        if not self._settings.api_keys and host not in ("127.0.0.1", "::1"):
            log.warning("no api_keys are set: whoever reaches %s may ask", host)
        log.info("listening on http://%s:%d", f"[{host}]" if ":" in host else host, port)
        await serving
        for task in beside:
            task.cancel()
        if not server.force_exit:
            try:
                await asyncio.wait_for(engine.drain(), self._settings.drain_timeout_s)
            except TimeoutError:
                log.error("requests were still in flight after drain_timeout_s = %g", self._settings.drain_timeout_s)
        engine.close()
        parser.close()
        if self._tracing and not server.force_exit:
            self._tracing.close()
        log.info("stopped")
        return not engine.crashed.is_set()

    def _orphaned(self, parent: int) -> None:
        """The parent of this worker is gone."""
        asyncio.get_running_loop().remove_reader(parent)
        self._signals.put_nowait(signal.SIGINT)

    async def _stop(self, engine: Engine, server: uvicorn.Server) -> None:
        """Obey the first signal gracefully, the second one at once."""
        crash = asyncio.create_task(engine.crashed.wait())
        signalled = asyncio.create_task(self._signals.get())
        await asyncio.wait((crash, signalled), return_when=asyncio.FIRST_COMPLETED)
        first = signalled.result() if signalled.done() else None
        log.info("%s: draining", first.name if first else "crash")
        engine.begin_drain()
        second: signal.Signals | None = None
        if first in (signal.SIGTERM, signal.SIGHUP):
            with contextlib.suppress(TimeoutError):
                second = await asyncio.wait_for(self._another(), self._settings.drain_delay_s)
        server.should_exit = True
        second = second or (await self._another() if first else await signalled)
        log.warning("%s: stopping at once", second.name)
        server.force_exit = True

    async def _another(self) -> signal.Signals:
        """The second signal: not SIGHUP, which a terminal that closes may send twice, by itself and by its shell."""
        while (number := await self._signals.get()) == signal.SIGHUP:
            pass
        return number


async def _sample(metrics: Metrics) -> None:
    """Show this worker's gauges to the others, until cancelled."""
    while True:
        metrics.sample()
        await asyncio.sleep(SAMPLE_S)
