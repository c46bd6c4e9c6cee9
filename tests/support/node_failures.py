"""Kills a node of a Ray cluster while clients send requests, and counts those that are lost."""

import contextlib
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import httpx

from benchmarks.lib.servers import TEXT, document
from tests.support.ray_cluster import RayCluster

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
