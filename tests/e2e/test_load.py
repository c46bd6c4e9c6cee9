"""Many clients, overload, signals under load, clients that leave."""

import asyncio
import random
import signal
import socket
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest

from service.manifest import Manifest
from tests.e2e.conftest import Server
from tests.e2e.offline import Offline, agree
from tests.e2e.offline import document as repeated

TEXT = {"content-type": "text/plain"}


def documents(count: int, longest: int) -> list[bytes]:
    """Different texts of different lengths."""
    generator = random.Random(7)
    texts = []
    for _ in range(count):
        start = generator.randrange(60)
        texts.append(repeated(longest + 64)[start : start + generator.randint(1, longest)])
    return texts


async def hammer(
    url: str, bodies: list[bytes], clients: int, seconds: float, check: Callable[[int, httpx.Response], None]
) -> None:
    """Closed loop: each client posts its next document as soon as it has an answer."""
    until = time.monotonic() + seconds
    limits = httpx.Limits(max_connections=clients, max_keepalive_connections=clients)

    async with httpx.AsyncClient(base_url=url, timeout=60, limits=limits) as client:

        async def one(first: int) -> None:
            index = first
            while time.monotonic() < until:
                response = await client.post("/v1/classify", content=bodies[index % len(bodies)], headers=TEXT)
                check(index % len(bodies), response)
                index += clients

        await asyncio.gather(*(one(i) for i in range(clients)))


@pytest.mark.parametrize(
    ("clients", "seconds"), [pytest.param(16, 3, id="quick"), pytest.param(64, 30, id="full", marks=pytest.mark.slow)]
)
def test_concurrent_clients_get_their_own_answers(
    server: Server,
    offline: Offline,
    clients: int,
    seconds: int,
) -> None:
    bodies = documents(40, 6000)
    expected = [offline(body) for body in bodies]
    answered = 0

    def check(index: int, response: httpx.Response) -> None:
        nonlocal answered
        assert response.status_code == 200, response.text
        assert agree(response.json()["results"][0], expected[index])
        answered += 1

    asyncio.run(hammer(server.url, bodies, clients, seconds, check))
    assert answered > 10 * seconds


def test_full_queue_is_answered_with_429(start: Callable[..., Server], manifest: Manifest) -> None:
    server = start("--max-queue-rows", "8", "--drain-delay-s", "0")
    codes: Counter[int] = Counter()

    def check(index: int, response: httpx.Response) -> None:
        del index
        codes[response.status_code] += 1
        if response.status_code == 429:
            assert int(response.headers["retry-after"]) >= 1
            assert response.json()["code"] == "overloaded"

    asyncio.run(hammer(server.url, [repeated(2 * manifest.max_length)], 48, 3, check))
    assert set(codes) == {200, 429}
    metrics = httpx.get(f"{server.url}/metrics").text
    rejected = f'longdoc_requests_rejected_total{{model="{manifest.name}",reason="overloaded"}}'
    assert f"{rejected} {float(codes[429])}" in metrics
    assert server.stop() == 0


async def until_refused(url: str, answers: Counter[str]) -> None:
    """Ask on new connections until the door is closed; count what came of each request that was sent."""
    while True:
        async with httpx.AsyncClient(timeout=60) as client:
            try:
                response = await client.post(f"{url}/v1/classify", content=repeated(2000), headers=TEXT)
            except httpx.ConnectError:
                answers["refused"] += 1
                return
            answers[str(response.status_code)] += 1
            if response.headers.get("connection") == "close":
                answers["told to close"] += 1
                await asyncio.sleep(0.05)


@pytest.mark.parametrize("delay", ["0", "1"])
def test_sigterm_under_load_loses_nothing(start: Callable[..., Server], delay: str) -> None:
    server = start("--drain-delay-s", delay)

    async def scenario() -> Counter[str]:
        answers: Counter[str] = Counter()
        clients = [asyncio.create_task(until_refused(server.url, answers)) for _ in range(16)]
        while answers["200"] <= 16:  # noqa: ASYNC110  # counted by tasks that know of no event
            await asyncio.sleep(0.05)
        server.process.send_signal(signal.SIGTERM)
        if delay == "1":
            await asyncio.sleep(0.3)
            async with httpx.AsyncClient() as client:
                ready = await client.get(f"{server.url}/v2/health/ready")
                assert ready.status_code == 503
                assert int(ready.headers["retry-after"]) >= 1
        await asyncio.wait_for(asyncio.gather(*clients), 30)
        return answers

    answers = asyncio.run(scenario())
    assert server.process.wait(30) == 0
    assert answers["200"] > 16
    assert set(answers) <= {"200", "refused", "told to close"}, answers
    assert answers["refused"] == 16
    if delay == "1":
        assert answers["told to close"]


def test_sigint_ends_without_delay(start: Callable[..., Server]) -> None:
    server = start("--drain-delay-s", "30")
    started = time.monotonic()
    assert server.stop(signal.SIGINT) == 0
    assert time.monotonic() - started < 10


def begin(server: Server, body: bytes) -> socket.socket:
    """Send a document and do not wait for its answer."""
    host, port = server.url.removeprefix("http://").split(":")
    connection = socket.create_connection((host, int(port)), timeout=30)
    head = f"POST /v1/classify HTTP/1.1\r\nHost: x\r\nContent-Type: text/plain\r\nContent-Length: {len(body)}\r\n\r\n"
    connection.sendall(head.encode() + body)
    return connection


def test_second_signal_ends_at_once_even_under_load(start: Callable[..., Server]) -> None:
    server = start("--drain-delay-s", "30", "--drain-timeout-s", "30")
    with ExitStack() as connections:
        for _ in range(5):
            connections.enter_context(begin(server, repeated(2**20)))
        time.sleep(0.3)
        server.process.send_signal(signal.SIGTERM)
        time.sleep(0.3)
        began = time.monotonic()
        assert server.stop(signal.SIGTERM) == 0
        assert time.monotonic() - began < 5


def test_request_that_outlasts_the_drain_is_told_so(start: Callable[..., Server]) -> None:
    server = start("--drain-delay-s", "0", "--drain-timeout-s", "1", "--max-queue-rows", "100000")
    with ExitStack() as stack:
        connections = [stack.enter_context(begin(server, repeated(2**20))) for _ in range(8)]
        time.sleep(0.5)
        assert server.stop() == 0
        answers = [connection.recv(65536).decode() for connection in connections]
    for answer in answers:
        assert answer.startswith(("HTTP/1.1 200 ", "HTTP/1.1 503 ")), answer
        assert answer.startswith("HTTP/1.1 200 ") or "retry-after: " in answer.lower()
    assert any(answer.startswith("HTTP/1.1 503 ") for answer in answers)
    assert "Traceback" not in server.text()


def test_client_that_leaves_frees_the_queue(server: Server, manifest: Manifest) -> None:
    name = f'longdoc_requests_cancelled_total{{model="{manifest.name}",stage="queue"}}'
    with ExitStack() as connections:
        for _ in range(8):
            connections.enter_context(begin(server, repeated(2**20)))
        time.sleep(0.2)
    empty = f'longdoc_queue_depth{{model="{manifest.name}"}} 0.0'
    until = time.monotonic() + 30
    while name not in (text := httpx.get(f"{server.url}/metrics").text) or empty not in text:
        assert time.monotonic() < until, text
        time.sleep(0.1)
    assert 'code="499"' in text
    assert "Traceback" not in server.text()


def test_abandoned_upload_holds_nothing(server: Server) -> None:
    def descriptors() -> int:
        return len(list(Path(f"/proc/{server.process.pid}/fd").iterdir()))

    host, port = server.url.removeprefix("http://").split(":")
    before = descriptors()
    for _ in range(50):
        with socket.create_connection((host, int(port))) as connection:
            connection.sendall(
                b"POST /v1/classify HTTP/1.1\r\nHost: x\r\nContent-Type: text/plain\r\nContent-Length: 9000\r\n\r\nabc"
            )
    assert httpx.post(f"{server.url}/v1/classify", content=b"x", headers=TEXT).status_code == 200
    until = time.monotonic() + 10
    while descriptors() > before + 2:
        assert time.monotonic() < until, "connections stay open"
        time.sleep(0.1)
