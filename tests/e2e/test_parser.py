"""Large bodies are parsed in processes of their own: expensive ones stop neither the server nor one another."""

import gzip
import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from tests.support.processes import children, is_running
from tests.support.server import Server
from tests.support.waiting import wait_until
from tests.support.wire import Wire, request

JSON = {"content_type": "application/json"}
LARGE = json.dumps({"inputs": "A delight. " * 30_000, "on_overflow": "head"}).encode()
"""A body that is parsed in the process for short ones."""
UNTERMINATED = b"," * 1_000_001 + b'"' + b'\\"' * 3_500_000
"""An endless string with millions of quotation marks. Each of them could be the start of a string."""
LINE = UNTERMINATED[:7_000_000]


@pytest.fixture
def parsing(start: Callable[..., Server]) -> Iterator[Server]:
    server = start("--models", "imdb-s3,ettm2", "--deadline-s", "3600", "--drain-delay-s", "0")
    yield server
    assert server.stop() == 0


@pytest.mark.parametrize("path", ["/v1/classify", "/v2/models/imdb-s3/infer"])
def test_unterminated_string_is_rejected_and_the_next_body_parsed(server: Server, path: str) -> None:
    body = gzip.compress(UNTERMINATED, 1)
    with Wire(server.url) as wire:
        assert wire.send(request(path, body, content_encoding="gzip", **JSON)).answer().status == 413
        assert wire.send(request(body=LARGE, **JSON)).answer().status == 200


def test_unterminated_line_of_a_client_that_hangs_up_is_parsed_quickly(server: Server) -> None:
    with Wire(server.url) as wire:
        head = request(body=None, content_type="application/x-ndjson", content_length="99999999")
        wire.send(head, LINE, b"\n")
    with Wire(server.url) as wire:
        assert wire.send(request(body=LARGE, **JSON)).answer().status == 200


def test_long_bodies_let_a_shorter_one_pass(parsing: Server) -> None:
    numbers = ",".join(["0.12345"] * 105_000)
    series = f'{{"series":[{",".join([f"[{numbers}]"] * 7)}]}}'.encode()  # 5.9 MB
    with Wire(parsing.url) as wire:
        assert wire.send(request(body=LARGE, **JSON)).answer().status == 200  # the process has started
    with ExitStack() as connections:
        others = [connections.enter_context(Wire(parsing.url)) for _ in range(12)]
        for other in others:
            other.send(request("/v1/forecast", series, **JSON))
        with Wire(parsing.url) as wire:
            assert wire.send(request(body=LARGE, **JSON)).answer().status == 200
        before = parsing.metric("longdoc_documents_total", model="ettm2")
        assert [other.answer().status for other in others] == [200] * 12
    assert before < 6, "over half of the long bodies were parsed before the shorter one"
    assert parsing.metric("longdoc_parser_jobs_total") == 14


def test_parser_ends_with_a_killed_server(start: Callable[..., Server]) -> None:
    server = start("--models", "imdb-s3")
    with Wire(server.url) as wire:
        assert wire.send(request(body=LARGE, **JSON)).answer().status == 200
    processes = list(children(server.process.pid))
    assert processes
    server.process.kill()
    wait_until(lambda: not any(map(is_running, processes)))
