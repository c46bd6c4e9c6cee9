"""Many clients, overload, signals under load, clients that disconnect."""

import asyncio
import json
import resource
import signal
import socket
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from urllib.parse import urlsplit

import httpx
import pytest

from artifact.cores import cpu_count
from artifact.tasks.classification import ClassifierManifest
from tests.support.load import until_answered, until_refused
from tests.support.offline import Offline, agree, documents
from tests.support.offline import document as repeated
from tests.support.server import ControlledServer, Server
from tests.support.waiting import PATIENCE_S, wait_until
from tests.support.wire import Wire, request

TEXT = {"content-type": "text/plain"}
NEVER_S = "3600"
"""Longer than any test takes."""
DELAY_S = 40
"""Shorter than the keep-alive timeout, so that a jump of the clock closes no connection."""


@pytest.mark.parametrize(
    ("clients", "rounds"), [pytest.param(16, 10, id="quick"), pytest.param(64, 300, id="full", marks=pytest.mark.slow)]
)
def test_concurrent_clients_get_answers_to_their_own_documents(
    server: Server, offline: Offline, clients: int, rounds: int
) -> None:
    bodies = documents(40, 6000)
    expected = [offline(body) for body in bodies]

    async def ask(client: httpx.AsyncClient, first: int) -> None:
        """Post the next document as soon as the previous one is answered."""
        for number in range(first, first + rounds * clients, clients):
            index = number % len(bodies)
            response = await client.post("/v1/classify", content=bodies[index], headers=TEXT)
            assert response.status_code == 200, response.text
            assert agree(response.json()["results"][0], expected[index])

    async def scenario() -> None:
        async with server.async_client() as client:
            await asyncio.gather(*(ask(client, first) for first in range(clients)))

    asyncio.run(scenario())


def test_request_gets_429_when_the_queue_is_full(
    start_controlled: Callable[..., ControlledServer], manifest: ClassifierManifest
) -> None:
    queue_rows, refusals = 8, 5
    server = start_controlled("--max-queue-rows", str(queue_rows), "--drain-delay-s", "0")
    of_model = {"model": manifest.name}
    body = repeated(manifest.max_length + 1)  # two windows
    with ExitStack() as stack:
        with server.held():
            accepted = []
            for batches in range(1, cpu_count() + 1):
                accepted.append(stack.enter_context(server.begin(body)))
                server.wait_for_batches(batches)
            for waiting in range(2, queue_rows + 1, 2):
                accepted.append(stack.enter_context(server.begin(body)))
                server.wait_for(waiting, "longdoc_queue_depth", **of_model)
            for _ in range(refusals):
                refused = server.post("/v1/classify", content=body, headers=TEXT)
                assert (refused.status_code, refused.json()["code"]) == (429, "overloaded")
                assert int(refused.headers["retry-after"]) >= 1
        assert [wire.answer().status for wire in accepted] == [200] * len(accepted)
    assert server.metric("longdoc_requests_rejected_total", reason="overloaded", **of_model) == refusals
    assert server.stop() == 0


def test_deadlines_of_clients_are_counted_apart(
    start_controlled: Callable[..., ControlledServer], manifest: ClassifierManifest
) -> None:
    server, seconds = start_controlled("--drain-delay-s", "0"), DELAY_S // 2
    text = {"name": "text", "datatype": "BYTES", "shape": [1], "data": ["x"]}
    infer = {"inputs": [text], "parameters": {"timeout": seconds * 10**6}}
    timeout_ms, many = str(seconds * 1000), {"inputs": ["x"] * 40}
    sent = [
        request(x_request_timeout_ms=timeout_ms),
        request(body=json.dumps(many).encode(), content_type="application/json", x_request_timeout_ms=timeout_ms),
        request(f"/v2/models/{manifest.name}/infer", json.dumps(infer).encode()),
    ]
    with ExitStack() as stack, server.held():
        wires = [stack.enter_context(Wire(server.url)).send(one) for one in sent]
        server.wait_for(len(wires), "longdoc_requests_in_flight", model=manifest.name)
        server.advance(DELAY_S)
        assert [wire.answer().status for wire in wires] == [504] * len(wires)
    assert server.metric("longdoc_requests_rejected_total", reason="client_deadline") == len(wires)
    assert server.metric("longdoc_requests_rejected_total") == len(wires)
    assert server.stop() == 0


def test_duration_leaves_out_a_slow_upload(server: Server, manifest: ClassifierManifest) -> None:
    def total() -> float:
        return server.metric("longdoc_request_duration_seconds_sum", model=manifest.name)

    before = total()
    with Wire(server.url) as wire:
        wire.send(request(body=b"", content_length="3", expect="100-continue"))
        assert wire.answer().status == 100, "the server reads the body"
        time.sleep(0.3)
        sent_at = time.perf_counter()
        wire.send(b"abc")
        assert wire.answer().status == 200
        elapsed_s = time.perf_counter() - sent_at
    assert total() - before <= elapsed_s


def test_full_model_rejects_from_the_headers_although_another_is_free(
    start_controlled: Callable[..., ControlledServer], manifest: ClassifierManifest
) -> None:
    queue_rows, of_model = 2, {"model": manifest.name}
    server = start_controlled("--models", "imdb-s3,scotus", "--max-queue-rows", str(queue_rows), "--drain-delay-s", "0")
    with ExitStack() as stack:
        with server.held():
            accepted = []
            for batches in range(1, cpu_count() + 1):
                accepted.append(stack.enter_context(server.begin(b"x")))
                server.wait_for_batches(batches)
            accepted += [stack.enter_context(server.begin(b"x")) for _ in range(queue_rows)]
            server.wait_for(queue_rows, "longdoc_queue_depth", **of_model)
            in_json = request(body=b'{"inputs": "x"}', content_type="application/json")
            for sent in (request(body=b"", content_length="9"), in_json):
                with Wire(server.url) as wire:
                    refused = wire.send(sent).answer()
                assert (refused.status, int(refused.headers["retry-after"]) >= 1) == (429, True)
            other = Wire(server.url).send(request("/v1/classify?model=scotus"))
            accepted.append(stack.enter_context(other))
            server.wait_for(1, "longdoc_requests_in_flight", model="scotus")
        assert [wire.answer().status for wire in accepted] == [200] * len(accepted)
    assert server.metric("longdoc_requests_rejected_total", **of_model) == 2
    assert server.metric("longdoc_requests_cancelled_total") == 0


@pytest.mark.parametrize(
    ("has_delay", "backend"),
    [
        pytest.param(False, "onnx", id="at once"),
        pytest.param(True, "onnx", id="after a delay"),
        pytest.param(False, "torchscript", id="torchscript"),
    ],
)
def test_sigterm_under_load_loses_no_request(
    start_controlled: Callable[..., ControlledServer], *, has_delay: bool, backend: str
) -> None:
    server = start_controlled("--drain-delay-s", str(DELAY_S if has_delay else 0), "--backend", backend)

    async def scenario() -> Counter[str]:
        answers: Counter[str] = Counter()
        clients = [asyncio.create_task(until_refused(server, answers)) for _ in range(16)]
        await until_answered(answers, "200", 17)
        await asyncio.to_thread(server.drain)
        if has_delay:
            ready = await asyncio.to_thread(server.get, "/v2/health/ready")
            assert ready.status_code == 503
            assert int(ready.headers["retry-after"]) >= 1
            await until_answered(answers, "connection: close", 16)
            await asyncio.to_thread(server.advance, DELAY_S)
        await asyncio.wait_for(asyncio.gather(*clients), PATIENCE_S)
        return answers

    answers = asyncio.run(scenario())
    assert server.exit_code() == 0
    assert set(answers) <= {"200", "refused", "connection: close"}, answers
    assert answers["refused"] == 16


def can_connect(server: Server) -> bool:
    address = urlsplit(server.url)
    with socket.socket() as client:
        return client.connect_ex((address.hostname, address.port)) == 0


def test_sigint_stops_without_the_drain_delay(start: Callable[..., Server]) -> None:
    server = start("--drain-delay-s", NEVER_S)
    assert server.stop(signal.SIGINT) == 0


def test_second_signal_stops_at_once_under_load(start_controlled: Callable[..., ControlledServer]) -> None:
    server = start_controlled("--drain-delay-s", NEVER_S, "--drain-timeout-s", NEVER_S)
    server.hold()
    with ExitStack() as connections:
        for _ in range(5):
            connections.enter_context(server.begin(repeated(2**20)))
        lines = b"".join(b'{"text": "line %d"}\n' % number for number in range(200))
        connections.enter_context(server.begin(lines, content_type="application/x-ndjson"))
        wait_until(lambda: server.metric("longdoc_queue_depth") > 100)
        server.drain()
        assert server.stop() == 0
    assert "crashed" not in server.text()


def test_drain_needs_no_free_descriptor(start_controlled: Callable[..., ControlledServer]) -> None:
    server = start_controlled("--drain-delay-s", "0", "--drain-timeout-s", NEVER_S)
    with server.begin(b"in flight") as wire, server.held():
        server.wait_for(1, "longdoc_requests_in_flight")
        limits = resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE)
        resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE, (1, limits[1]))
        server.drain()
        wait_until(lambda: not can_connect(server))
        server.release()
        assert wire.answer().status == 200
    assert server.exit_code() == 0


def test_connections_are_refused_while_the_last_requests_end(
    start_controlled: Callable[..., ControlledServer],
) -> None:
    """A socket that still listened would keep them waiting until the process ends."""
    server = start_controlled("--drain-delay-s", "0", "--drain-timeout-s", NEVER_S)
    server.hold()
    with server.begin(b"in flight") as wire:
        server.wait_for(1, "longdoc_requests_in_flight")
        server.process.send_signal(signal.SIGTERM)
        wait_until(lambda: not can_connect(server))
        server.release()
        assert wire.answer().status == 200
    assert server.exit_code() == 0


def test_request_that_outlasts_the_drain_gets_503(start_controlled: Callable[..., ControlledServer]) -> None:
    server = start_controlled("--drain-delay-s", "0", "--drain-timeout-s", "1")
    server.hold()
    with ExitStack() as stack:
        wires = [stack.enter_context(server.begin(repeated(6000))) for _ in range(8)]
        server.wait_for(8, "longdoc_requests_in_flight")
        assert server.stop() == 0
        answers = [wire.answer() for wire in wires]
    assert [answer.status for answer in answers] == [503] * 8
    assert all("retry-after" in answer.headers for answer in answers)
    assert "Traceback" not in server.text()


@pytest.mark.parametrize("name", ["imdb-s3", "scotus"])
def test_short_document_does_not_wait_for_long_ones(controlled: ControlledServer, name: str) -> None:
    """`imdb-s3` reads a long document in windows, `scotus` as one row."""
    parameters, long = {"model": name}, cpu_count() + 3
    with ThreadPoolExecutor(long) as threads, controlled.client() as client:

        def ask(length: int) -> int:
            body = repeated(length)
            return client.post("/v1/classify", params=parameters, content=body, headers=TEXT).status_code

        with controlled.held("background"):
            answers = [threads.submit(ask, 60_000) for _ in range(long)]
            controlled.wait_for(long, "longdoc_requests_in_flight", model=name)
            assert ask(1000) == 200
            assert not any(answer.done() for answer in answers)
        assert [answer.result() for answer in answers] == [200] * long


@pytest.mark.parametrize("backend", ["onnx", "torchscript"])
def test_disconnect_frees_the_queue(
    start_controlled: Callable[..., ControlledServer], manifest: ClassifierManifest, backend: str
) -> None:
    server = start_controlled("--drain-delay-s", "0", "--backend", backend)
    of_model = {"model": manifest.name}
    clients = cpu_count() + 8
    with server.held():
        with ExitStack() as connections:
            for _ in range(clients):
                connections.enter_context(server.begin(repeated(6000)))
            server.wait_for(clients, "longdoc_requests_in_flight", **of_model)
            wait_until(lambda: server.metric("longdoc_queue_depth", **of_model))
        server.wait_for(clients, "longdoc_requests_cancelled_total", **of_model)
        assert server.metric("longdoc_requests_cancelled_total", stage="queue", **of_model) > 0
        assert server.metric("longdoc_queue_depth", **of_model) == 0
        server.wait_for(clients, "longdoc_http_requests_total", code="499")
    assert server.post("/v1/classify", content=b"x", headers=TEXT).status_code == 200
    assert "Traceback" not in server.text()


def test_abandoned_upload_closes_its_connection(server: Server) -> None:
    before = server.descriptors()
    for _ in range(50):
        with server.begin(b"abc", content_length="9000"):
            pass
    assert server.post("/v1/classify", content=b"x", headers=TEXT).status_code == 200
    wait_until(lambda: server.descriptors() <= before + 2, server.descriptors)
