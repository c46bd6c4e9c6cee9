"""Measurements of a server. Used by `benchmarks.peers.__main__`."""

import asyncio
import contextlib
import http.client
import json
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.lib.load import REFUSALS, Outcome, closed_loop, open_loop, post, run
from benchmarks.lib.servers import ROOT, free_port
from benchmarks.peers.catalogue import Peer
from benchmarks.peers.classifier import MAX_BATCH, MODEL, SERVER_DEADLINE_S, Classifier
from benchmarks.peers.processes import PeerFailed, Server, ask, idle_cpu, memory_mib, running

CONNECTIONS = 32
TOLERANCE = 1e-4
"""Maximum difference between a server's score and the expected one."""
WARM_UP_S = 2.0
PROBE_S = 4.0
"""Duration of a rough measurement of the capacity."""
IDLE_S = 10.0
DEADLINE_S = 1.0
"""Timeout of the clients under overload."""
TOO_LATE = (408, 504)
"""Statuses of requests that timed out in the server."""
FAST_S = 0.1
"""A server has recovered from overload when it answers one request this fast."""
MAX_RECOVERY_S = 30.0
STOP_S = 10.0
"""Grace period after SIGTERM, as in `docker stop`; then the server is killed."""
BEFORE_S, AFTER_S = 1.0, 2.0
"""Duration of the load before and after SIGTERM."""


@dataclass(frozen=True)
class Overload:
    """Outcome of offering twice a server's capacity."""

    offered: float
    """Requests per second."""
    in_time: float
    """Share of requests answered within DEADLINE_S; the four shares sum to 1."""
    late: float
    rejected: float
    failed: float
    with_retry_after: float | None
    """Share of the rejections with `Retry-After`; None without rejections."""
    recovered_after_s: float
    """Time from the end of the overload to a fast response, at most MAX_RECOVERY_S."""


@dataclass(frozen=True)
class Stop:
    """Outcome of SIGTERM under load, sent to the main process; the others end with it, as in a container."""

    in_flight: int
    lost: int
    """Number of requests in flight at SIGTERM without a response."""
    answered_for_s: float
    """Time after SIGTERM in which new requests were still answered, at most AFTER_S."""
    ended_after_s: float | None
    """Time until exit; None if it was killed."""


@dataclass(frozen=True)
class Measured:
    """Results of one server in one round."""

    start_s: float
    throughput: float
    """Responses per second when saturated."""
    saturated_p99_ms: float
    moderate_p50_ms: float
    moderate_p99_ms: float
    moderate_answered: float
    """Share of the requests answered at the common rate."""
    idle_cpu: float
    """CPU usage when idle, as a share of one core."""
    memory_mib: float
    overload: Overload
    stop: Stop


class Bench:
    """Runs one server at a time on some cores and loads it.

    Args:
        cores: cores of the servers.
        seconds: duration of each load.
        document: document to send.

    """

    def __init__(self, cores: set[int], seconds: float, document: str) -> None:
        self._cores = cores
        self._seconds = seconds
        self._document = document
        self._samples = samples(document)
        classifier = Classifier()
        self._expected = [classifier([sample])[0] for sample in self._samples]

    def capacity(self, peer: Peer, folder: Path) -> float:
        """Responses per second of a server whose answers are correct. Raises: PeerFailed."""
        with self._running(peer, folder, None) as (_, url, _):
            throughput = self._saturate(peer, url, PROBE_S).throughput
        if not throughput:
            raise PeerFailed("answers nothing under load")
        return throughput

    def measure(self, peer: Peer, folder: Path, rate: float, capacity: float) -> Measured:
        """Measure one server in one round. Raises: PeerFailed.

        Args:
            peer: the server.
            folder: `bin` folder of its environment.
            rate: requests per second that all servers can sustain.
            capacity: responses per second measured before. A bounded queue holds what the server answers in half its
                timeout; the overload is twice `capacity`, or twice the throughput of this round if that is higher.

        """
        queue = max(MAX_BATCH * len(self._cores), round(capacity * SERVER_DEADLINE_S / 2))
        with self._running(peer, folder, queue) as (server, url, start_s):
            saturated = self._saturate(peer, url, self._seconds)
            moderate = run(open_loop(url, [self._request(peer, url)], rate=rate, seconds=self._seconds))
            time.sleep(1)
            return Measured(
                start_s=start_s,
                throughput=saturated.throughput,
                saturated_p99_ms=1e3 * saturated.quantile(0.99),
                moderate_p50_ms=1e3 * moderate.quantile(0.5),
                moderate_p99_ms=1e3 * moderate.quantile(0.99),
                moderate_answered=float(moderate.answered.mean()),
                idle_cpu=idle_cpu(IDLE_S),
                memory_mib=memory_mib(),
                overload=self._overload(peer, url, 2 * max(saturated.throughput, capacity)),
                stop=run(self._stop(server, peer, url)),
            )

    @contextlib.contextmanager
    def _running(self, peer: Peer, folder: Path, queue: int | None) -> Iterator[tuple[Server, str, float]]:
        """Run a server that gives correct answers; yields it, its URL and the seconds until its first answer."""
        with tempfile.TemporaryDirectory(prefix="peer") as scratch, contextlib.ExitStack() as stack:
            exports = Path(scratch) / "exports"  # the one model that all servers load
            exports.mkdir()
            (exports / MODEL).symlink_to(ROOT / "exports" / MODEL)
            ports = [free_port() for _ in range(3)]
            names = {
                "bin": str(folder),
                "cores": str(len(self._cores)),
                "exports": str(exports),
                "folder": scratch,
                **{f"port{i}": str(port) for i, port in enumerate(ports)},
            }
            environment = {
                "PEERS_PORT": str(ports[0]),
                "PEERS_CORES": names["cores"],
                "PEERS_FOLDER": scratch,
                **({} if queue is None else {"PEERS_QUEUE": str(queue)}),
                **{name: value.format(**names) for name, value in peer.environment.items()},
            }
            command = [part.format(**names) for part in peer.command.split()]
            server = stack.enter_context(running(command, environment, self._cores, Path(scratch) / "log.txt"))
            url = f"http://127.0.0.1:{ports[0]}{peer.path}"
            start_s = server.wait_for_answer(url, peer.body(self._samples[0]))
            self._check(peer, url)
            yield server, url, start_s

    def _check(self, peer: Peer, url: str) -> None:
        """Check the server's answers against the expected ones. Raises: PeerFailed."""
        for sample, expected in zip(self._samples, self._expected, strict=True):
            status, content = ask(url, peer.body(sample))
            if status != 200:
                raise PeerFailed(f"answered {status} to a document of {len(sample)} characters")
            label, score = peer.answer(json.loads(content))
            if label != expected["label"] or abs(score - expected["score"]) > TOLERANCE:
                raise PeerFailed(f"answered {label} {score}, not {expected['label']} {expected['score']}")

    def _request(self, peer: Peer, url: str) -> bytes:
        return post(url, peer.body(self._document))

    def _saturate(self, peer: Peer, url: str, seconds: float) -> Outcome:
        """Saturate the server with a closed loop, after a warm-up."""
        requests = [self._request(peer, url)]
        run(closed_loop(url, requests, connections=CONNECTIONS, seconds=WARM_UP_S))
        return run(closed_loop(url, requests, connections=CONNECTIONS, seconds=seconds))

    def _overload(self, peer: Peer, url: str, rate: float) -> Overload:
        """Overload the server, then wait until it has recovered."""
        requests = [self._request(peer, url)]
        outcome = run(open_loop(url, requests, rate=rate, seconds=self._seconds, give_up_s=DEADLINE_S))
        rejected = np.isin(outcome.status, REFUSALS)
        late = np.isin(outcome.status, TOO_LATE).sum() + outcome.failures["late"]
        offered = len(outcome.status)
        return Overload(
            offered=offered / self._seconds,
            in_time=float(outcome.answered.mean()),
            late=float(late / offered),
            rejected=float(rejected.mean()),
            failed=float((offered - outcome.answered.sum() - rejected.sum() - late) / offered),
            with_retry_after=float(outcome.has_retry_after[rejected].mean()) if rejected.any() else None,
            recovered_after_s=recovered_after(url, peer.body(self._document)),
        )

    async def _stop(self, server: Server, peer: Peer, url: str) -> Stop:
        """Send SIGTERM under load."""
        load = closed_loop(
            url, [self._request(peer, url)], connections=CONNECTIONS, seconds=BEFORE_S + AFTER_S, give_up_s=STOP_S
        )
        loading = asyncio.create_task(load)
        await asyncio.sleep(BEFORE_S)
        signalled = time.monotonic()
        server.process.send_signal(signal.SIGTERM)
        ended_after_s = None
        with contextlib.suppress(subprocess.TimeoutExpired):
            await asyncio.to_thread(server.process.wait, STOP_S)
            ended_after_s = time.monotonic() - signalled
        await asyncio.to_thread(server.end)
        outcome = await loading
        at = signalled - outcome.started
        in_flight = (outcome.due <= at) & (outcome.ended > at)
        new = outcome.due[outcome.answered & (outcome.due > at)]
        return Stop(
            in_flight=int(in_flight.sum()),
            lost=int((in_flight & ~outcome.answered).sum()),
            answered_for_s=float(new.max(initial=at) - at),
            ended_after_s=ended_after_s,
        )


def samples(document: str) -> list[str]:
    """Eight test documents: all lengths, several scripts, and the document of the benchmark."""
    odd = [
        "a",
        "Ein schönes Fest — молодец, 映画は最高!",
        'quotes " and \\ and\nlines',
        "A dull, lifeless, boring mess of a film.",
    ]
    return [*odd, document, document[: len(document) // 2], document[-100:], 3 * document]


def recovered_after(url: str, body: bytes) -> float:
    """Seconds until the server answers a request fast again."""
    begun = time.monotonic()
    while (passed := time.monotonic() - begun) < MAX_RECOVERY_S:
        asked = time.monotonic()
        with contextlib.suppress(OSError, http.client.HTTPException):
            if ask(url, body)[0] == 200 and time.monotonic() - asked < FAST_S:
                break
        time.sleep(0.02)
    return passed
