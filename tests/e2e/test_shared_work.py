"""Requests that need no key are cheap: what they ask for is made once for all clients."""

import time
from collections.abc import Callable
from contextlib import ExitStack

import pytest

from service.routes.page import FOLDER
from tests.support.server import Server
from tests.support.wire import Answer, Wire, request

ONE_MODEL = ("--models", "imdb-s3", "--drain-delay-s", "0")
CLIENTS = 64
MANY = 400
ROUNDS = 3
SCRIPT = next((FOLDER / "assets").glob("*.js")).name
PATHS = [
    *("/metrics", "/openapi.json", "/docs", f"/assets/{SCRIPT}"),
    *(f"/static-offline-docs/{name}" for name in ("swagger-ui-bundle.js", "redoc.standalone.js")),
]


def get_at_once(server: Server, path: str, count: int) -> list[Answer]:
    """Send requests over as many connections; return the responses."""
    with ExitStack() as stack:
        wires = [stack.enter_context(Wire(server.url)) for _ in range(count)]
        for wire in wires:
            wire.send(request(path, None, "GET", accept_encoding="gzip"))
        answers = [wire.answer() for wire in wires]
    assert {answer.status for answer in answers} == {200}
    return answers


def cost_s(server: Server, path: str, count: int, rounds: int = 1) -> float:
    """Return the processor time that the server takes for requests at once, again and again."""
    before = server.cpu_s()
    for _ in range(rounds):
        get_at_once(server, path, count)
    return server.cpu_s() - before


def test_concurrent_first_requests_for_the_document_create_it_once(start: Callable[..., Server]) -> None:
    """One of them has disconnected meanwhile."""
    one, many = start(*ONE_MODEL), start(*ONE_MODEL)
    alone_s = cost_s(one, "/openapi.json", 1)
    Wire(many.url).send(request("/openapi.json", None, "GET")).close()
    assert cost_s(many, "/openapi.json", CLIENTS) < 4 * alone_s
    assert "Traceback" not in many.text()


@pytest.mark.parametrize("path", PATHS)
def test_repeated_request_costs_little_more_than_one_for_a_health_check(server: Server, path: str) -> None:
    """Writing the metrics of all models would cost 50 times as much, and compressing a script 40 times as much."""
    get_at_once(server, path, 1)
    health_s = cost_s(server, "/v2/health/live", MANY, ROUNDS)
    assert cost_s(server, path, MANY, ROUNDS) < 8 * health_s


def test_metrics_are_written_once_a_second_for_all_clients(server: Server) -> None:
    """The metrics count the requests for them, so each time they are written they differ."""
    began = time.monotonic()
    texts = {answer.body for _ in range(3) for answer in get_at_once(server, "/metrics", CLIENTS)}
    assert len(texts) <= time.monotonic() - began + 2


def test_metrics_are_compressed_for_clients_that_accept_it(server: Server) -> None:
    compressed = server.get("/metrics", headers={"accept-encoding": "gzip"})
    plain = server.get("/metrics", headers={"accept-encoding": "identity"})
    assert (compressed.headers["content-encoding"], plain.headers.get("content-encoding")) == ("gzip", None)
    assert int(compressed.headers["content-length"]) < int(plain.headers["content-length"]) / 5
    assert {line.partition(" ")[0] for line in compressed.text.splitlines()} <= {
        line.partition(" ")[0] for line in plain.text.splitlines()
    }


def test_scrape_shows_all_requests_that_were_answered_before(server: Server) -> None:
    """However soon it follows the scrape before."""
    counted = [server.metric("longdoc_documents_total")]
    for _ in range(2):
        assert server.post("/v1/classify", json={"inputs": ["a", "b"]}).status_code == 200
        counted.append(server.metric("longdoc_documents_total"))
    assert [after - counted[0] for after in counted] == [0, 2, 4]
