"""HTTP load generator: closed loop (`closed_loop`) or open loop at a mean rate (`open_loop`).

    requests = [post(url, body) for body in bodies]
    outcome = run(closed_loop(url, requests, connections=32, seconds=10))
    print(outcome.throughput, outcome.quantile(0.99), outcome.statuses())

Requests are prepared bytes, sent in order and then again from the first, over keep-alive connections. Of responses only
status, length, `Retry-After` and `Connection` are parsed. Latency counts from the time a request was due, not from the
time it could be sent, so that a stalling server is measured correctly (no coordinated omission). Run a load in a
process that does nothing else.
"""

import asyncio
import gc
import time
from collections import Counter
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar, cast
from urllib.parse import urlsplit

import numpy as np
import uvloop
from numpy.typing import NDArray

T = TypeVar("T")

REFUSALS = (429, 503)
"""Statuses with which a server refuses a request."""
PAUSE_S = 0.02
"""Pause of a closed loop after a refusal or a broken connection; without it, the loop would spin and take CPU time
from the server."""


@dataclass(frozen=True)
class Outcome:
    """Results of all requests, in the order they ended. Times are in seconds since the load began."""

    started: float
    """Start of the load, on the clock of `time.monotonic`."""
    seconds: float
    """Duration in which requests were sent."""
    due: NDArray[np.float64]
    """Time at which each request was due."""
    ended: NDArray[np.float64]
    """Time at which each response was complete, or the request failed."""
    status: NDArray[np.int64]
    """Status code of each response; 0 without one."""
    has_retry_after: NDArray[np.bool_]
    """Whether each response had the header Retry-After."""
    failures: Counter[str]
    """Number of requests without a response: `late` (given up), `not connected`, `closed` (while waiting)."""

    @property
    def answered(self) -> NDArray[np.bool_]:
        """Mask of the requests answered with 200."""
        return np.equal(self.status, 200)

    @property
    def latencies(self) -> NDArray[np.float64]:
        """Latencies in seconds of the requests answered with 200."""
        return (self.ended - self.due)[self.answered]

    @property
    def throughput(self) -> float:
        """Responses with 200 per second, while requests were sent."""
        return float((self.answered & (self.ended <= self.seconds)).sum() / self.seconds)

    def quantile(self, q: float) -> float:
        """Quantile of the latencies in seconds; NaN without responses."""
        return float(np.quantile(self.latencies, q)) if self.answered.any() else float("nan")

    def percentiles_ms(self) -> list[float]:
        """Percentiles 0 to 100 of the latencies in ms, for a record; empty without responses."""
        if not self.answered.any():
            return []
        return [round(1e3 * float(value), 3) for value in np.quantile(self.latencies, np.linspace(0, 1, 101))]

    def statuses(self) -> dict[int, int]:
        """Number of responses by status."""
        return {status: count for status, count in sorted(Counter(self.status.tolist()).items()) if status}


def post(
    url: str, body: bytes, content_type: str = "application/json", headers: Mapping[str, str] | None = None
) -> bytes:
    """Bytes of a POST request."""
    parts = urlsplit(url)
    lines = [f"POST {parts.path or '/'}{'?' + parts.query if parts.query else ''} HTTP/1.1", f"host: {parts.netloc}"]
    lines += [f"content-type: {content_type}", f"content-length: {len(body)}"]
    lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
    return "\r\n".join([*lines, "", ""]).encode() + body


def run(load: Coroutine[Any, Any, T]) -> T:
    """Run a load on uvloop with garbage collection disabled."""
    gc.collect()
    gc.disable()
    try:
        return uvloop.run(load)
    finally:
        gc.enable()


async def closed_loop(
    url: str, requests: Sequence[bytes], *, connections: int, seconds: float, give_up_s: float = 30.0
) -> Outcome:
    """Closed loop: each connection sends its next request when the previous response is complete.

    Args:
        url: URL with the host and port to connect to.
        requests: requests to send, repeated in order.
        connections: number of concurrent requests.
        seconds: duration; requests in flight at its end are awaited, but do not count in the throughput.
        give_up_s: timeout of a request in seconds.

    """
    client = _Client(url, give_up_s)

    async def keep_asking(first: int) -> None:
        connection: _Connection | None = None
        index = first
        while (due := client.now()) < seconds:
            connection, status = await client.ask(connection, requests[index % len(requests)], due)
            index += connections
            if status == 0 or status in REFUSALS:
                await asyncio.sleep(PAUSE_S)
        if connection is not None:
            connection.close()

    await asyncio.gather(*(keep_asking(first) for first in range(connections)))
    return client.outcome(seconds)


async def open_loop(
    url: str,
    requests: Sequence[bytes],
    *,
    rate: float,
    seconds: float,
    give_up_s: float = 30.0,
    max_connections: int = 4096,
    seed: int = 0,
) -> Outcome:
    """Open loop: requests arrive as a Poisson process, independently of the responses.

    Args:
        url: URL with the host and port to connect to.
        requests: requests to send, repeated in order.
        rate: mean requests per second.
        seconds: duration; requests in flight at its end are awaited.
        give_up_s: timeout in seconds after the time a request was due; its connection is then closed.
        max_connections: maximum concurrent requests; more wait in the client, and their waiting time counts.
        seed: seed of the arrival times.

    """
    moments = poisson(rate, seconds, seed).tolist()  # before the clock of the client starts
    client = _Client(url, give_up_s)
    idle: list[_Connection] = []
    may_connect = asyncio.Semaphore(max_connections)
    tasks = set[asyncio.Task[None]]()

    async def ask(index: int, due: float) -> None:
        async with may_connect:
            connection = idle.pop() if idle else None  # most recently used, to keep few connections open
            connection, _ = await client.ask(connection, requests[index % len(requests)], due)
            if connection is not None:
                idle.append(connection)

    for index, due in enumerate(moments):
        if (wait := due - client.now()) > 0:
            await asyncio.sleep(wait)
        task = asyncio.create_task(ask(index, due))
        tasks.add(task)
        task.add_done_callback(tasks.discard)
    if tasks:
        await asyncio.wait(tasks)
    for connection in idle:
        connection.close()
    return client.outcome(seconds)


def poisson(rate: float, seconds: float, seed: int = 0) -> NDArray[np.float64]:
    """Times in seconds at which the requests of `open_loop` are due, ascending."""
    generator = np.random.default_rng(seed)
    times = np.cumsum(generator.exponential(1 / rate, size=int(rate * seconds + 10 * (rate * seconds) ** 0.5 + 10)))
    return times[times < seconds]


class _Client:
    """Sends requests and records their results."""

    def __init__(self, url: str, give_up_s: float) -> None:
        parts = urlsplit(url)
        self._host, self._port = parts.hostname or "", parts.port or 80
        self._give_up_s = give_up_s
        self._started = time.monotonic()
        self._records: list[tuple[float, float, int, bool]] = []
        self._failures = Counter[str]()

    def now(self) -> float:
        """Seconds since the load began."""
        return time.monotonic() - self._started

    async def ask(
        self, connection: "_Connection | None", request: bytes, due: float
    ) -> tuple["_Connection | None", int]:
        """Send a request over `connection`, or over a new one if it is None or closed.

        Returns: the connection if it can be used again; the status of the answer, 0 without one.
        """
        status, has_retry_after, failure = 0, False, ""
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(due + self._give_up_s - self.now()):
                if connection is None or connection.is_closed:
                    _, connection = await loop.create_connection(_Connection, self._host, self._port)
                status, has_retry_after = await connection.ask(request)
        except TimeoutError:
            failure = "late"
        except _Closed:
            failure = "closed"
        except OSError:
            failure = "not connected"
        if failure:
            self._failures[failure] += 1
            if connection is not None:
                connection.close()
        self._records.append((due, self.now(), status, has_retry_after))
        return connection if connection is not None and not connection.is_closed else None, status

    def outcome(self, seconds: float) -> Outcome:
        """Results of all requests so far."""
        due, ended, status, has_retry_after = zip(*self._records, strict=True) if self._records else ((),) * 4
        return Outcome(
            started=self._started,
            seconds=seconds,
            due=np.array(due, np.float64),
            ended=np.array(ended, np.float64),
            status=np.array(status, np.int64),
            has_retry_after=np.array(has_retry_after, np.bool_),
            failures=self._failures,
        )


class _Closed(Exception):
    """The connection was closed before the response was complete."""


class _Connection(asyncio.Protocol):
    """One connection with at most one request in flight."""

    def __init__(self) -> None:
        self.is_closed = False
        self._transport: asyncio.Transport | None = None
        self._answer: asyncio.Future[tuple[int, bool]] | None = None
        self._received = bytearray()
        self._head: _Head | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Store the transport."""
        self._transport = cast(asyncio.Transport, transport)

    def connection_lost(self, exc: Exception | None) -> None:
        """Finish the response; one without a length ends with its connection."""
        del exc
        self.is_closed = True
        if self._head is not None and self._head.ends_with_connection:
            self._finish(self._head)
        elif self._answer is not None and not self._answer.done():
            self._answer.set_exception(_Closed())

    async def ask(self, request: bytes) -> tuple[int, bool]:
        """Send a request; returns its status and whether `Retry-After` is set. Raises: _Closed."""
        if self.is_closed or self._transport is None:
            raise _Closed
        self._answer = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        return await self._answer

    def data_received(self, data: bytes) -> None:
        """Parse the data received so far."""
        received = self._received
        received += data
        if self._head is None:
            end = received.find(b"\r\n\r\n")
            if end < 0:
                return
            self._head = _Head(bytes(received[:end]).lower())
            del received[: end + 4]
        if self._head.is_complete(received):
            self._finish(self._head)

    def _finish(self, head: "_Head") -> None:
        self._received.clear()
        self._head = None
        if head.closes:
            self.close()
        if self._answer is not None and not self._answer.done():
            self._answer.set_result((head.status, head.has_retry_after))

    def close(self) -> None:
        """Close immediately."""
        self.is_closed = True
        if self._transport is not None:
            self._transport.abort()


class _Head:
    """The relevant headers of a response, parsed from lower-case bytes."""

    def __init__(self, text: bytes) -> None:
        self.status = int(text[9:12])
        self.has_retry_after = b"\r\nretry-after:" in text
        self.closes = b"\r\nconnection: close" in text
        _, found, rest = text.partition(b"\r\ncontent-length:")
        self.length = int(rest.partition(b"\r\n")[0]) if found else None
        self.is_chunked = b"\r\ntransfer-encoding: chunked" in text
        self.ends_with_connection = self.length is None and not self.is_chunked

    def is_complete(self, body: bytearray) -> bool:
        """Whether the body is complete; a chunked body by its terminator, because responses are not pipelined."""
        if self.length is not None:
            return len(body) >= self.length
        return self.is_chunked and body.endswith(b"0\r\n\r\n")
