"""`python -m benchmarks.serving.node_failures`: requests lost when a node of a Ray cluster is killed under load.

A cluster of two nodes on this machine, each with one replica and one proxy. Clients send requests to both nodes in turn
and repeat a failed one once, at the other node. Under this load, one node is killed with all its processes. When the
other node has answered some more requests, the clients stop and the node is started again. Needs the environment of
`make test-ray`.
"""

import argparse
import contextlib
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import httpx
from tqdm import tqdm

from benchmarks.lib.benchmark import Benchmark
from benchmarks.lib.ray_cluster import RayCluster, versions_of_servers
from benchmarks.lib.record import Data, Record
from benchmarks.lib.servers import TEXT, document
from benchmarks.lib.table import table

BEFORE, AFTER = 100, 200
"""Requests that are answered before a node is killed, and after."""
ANSWERED_S = 120
"""Time limit in seconds of these answers."""


@dataclass
class Load:
    """Requests of all clients."""

    sent: int = 0
    """Requests, each counted once."""
    repeated: int = 0
    """Requests that were sent a second time."""
    lost: Counter[str] = field(default_factory=Counter)
    """Requests that were not answered with 200, by the outcome of their second attempt."""
    failed: Counter[str] = field(default_factory=Counter)
    """Failed first attempts, by outcome."""
    lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def answered(self) -> int:
        """Requests that were answered with 200."""
        return self.sent - self.lost.total()

    def wait_for_answers(self, more: int) -> None:
        """Wait until that many further requests have been answered. Raises: TimeoutError after ANSWERED_S."""
        enough, until = self.answered + more, time.monotonic() + ANSWERED_S
        while self.answered < enough:
            if time.monotonic() > until:
                raise TimeoutError(f"no {more} further requests were answered within {ANSWERED_S} s: {self}")
            time.sleep(0.01)

    def send_until(self, stop: threading.Event, urls: Sequence[str]) -> None:
        """Send requests to the nodes in turn; repeat a failed one once, at the next node."""
        with httpx.Client(timeout=30, trust_env=False) as client:
            turn = 0
            while not stop.is_set():
                outcomes = [_outcome(client, urls[turn % len(urls)])]
                if outcomes[0] != "200":
                    outcomes.append(_outcome(client, urls[(turn + 1) % len(urls)]))
                turn += 1
                with self.lock:
                    self.sent += 1
                    self.repeated += len(outcomes) - 1
                    self.failed.update(outcomes[:-1])
                    if outcomes[-1] != "200":
                        self.lost[outcomes[-1]] += 1


def _outcome(client: httpx.Client, url: str) -> str:
    """Send a document; return the status, or the kind of the failure."""
    try:
        response = client.post(f"{url}/v1/classify", content=document(4096), headers={"content-type": TEXT})
    except httpx.TransportError as error:
        return type(error).__name__
    return str(response.status_code)


@contextlib.contextmanager
def load(urls: Sequence[str], clients: int) -> Iterator[Load]:
    """Send requests to the nodes from several clients until the end of the block."""
    sending, stop = Load(), threading.Event()
    threads = [threading.Thread(target=sending.send_until, args=(stop, urls)) for _ in range(clients)]
    for thread in threads:
        thread.start()
    try:
        yield sending
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def kill_under_load(cluster: RayCluster, clients: int) -> Load:
    """Kill the second node of a cluster under load, and start it again without load; returns the requests."""
    try:
        with load(cluster.urls, clients) as sending:
            sending.wait_for_answers(BEFORE)
            cluster.command("kill", 1)
            sending.wait_for_answers(AFTER)
    finally:
        cluster.command("add", 1)
    return sending


def options(parser: argparse.ArgumentParser) -> None:
    """Add the command-line options."""
    parser.add_argument("--kills", type=int, default=10, help="default: %(default)s")
    parser.add_argument("--clients", type=int, default=4, help="default: %(default)s")


def measure(args: argparse.Namespace) -> Iterator[Data]:
    """Requests of every kill."""
    kills: list[Data] = []
    servers = versions_of_servers()
    with tempfile.TemporaryDirectory() as folder, RayCluster(Path(folder) / "log", 2) as cluster:
        for _ in tqdm(range(args.kills), desc="kills"):
            found = kill_under_load(cluster, args.clients)
            counts = {"sent": found.sent, "repeated": found.repeated, "lost": found.lost.total()}
            kills.append({**counts, "failed": dict(found.failed), "how_lost": dict(found.lost)})
            yield {"kills": kills, "servers": servers}


def report(record: Record) -> str:
    """Report with one row per kill, and their sum."""
    settings, kills = record.settings, record.data["kills"]

    def row(name: str, of: Sequence[Data]) -> list[str]:
        failed = sum((Counter(kill["failed"]) for kill in of), Counter[str]())
        kinds = ", ".join(f"{kind} {count}" for kind, count in failed.most_common())
        return [name, *(f"{sum(kill[key] for kill in of):,}" for key in ("sent", "repeated", "lost")), kinds]

    rows = [row(str(number), [kill]) for number, kill in enumerate(kills, 1)]
    servers = ", ".join(f"{name} {version}" for name, version in record.data["servers"].items())
    return (
        f"Two nodes with one replica and one proxy each, {settings['clients']} clients that send documents of 4,096 "
        "bytes to both nodes in turn and repeat a failed request once, at the other node. One node is killed (SIGKILL "
        f"to all its processes) when {BEFORE} requests have been answered; the load ends {AFTER} answers later. "
        f"Servers and clients share {record.hardware['cores']} cores. Servers: {servers}.\n\n"
        f"{table(['kill', 'sent', 'repeated', 'lost', 'first attempt failed with'], [*rows, row('all', kills)])}"
    )


BENCHMARK = Benchmark(
    program="benchmarks.serving.node_failures",
    title="Killed Ray nodes under load",
    description=__doc__,
    options=options,
    measure=measure,
    report=report,
    packages=("httpx",),
)

if __name__ == "__main__":
    BENCHMARK.main()
