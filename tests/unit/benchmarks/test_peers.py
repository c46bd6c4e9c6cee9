"""The load generator and the comparison with other servers: what they count, without any of the other servers."""

import asyncio
import json
from typing import cast

import pytest

from benchmarks.lib.load import Outcome, closed_loop, open_loop, post, run
from benchmarks.peers.__main__ import common_rate
from benchmarks.peers.catalogue import PEERS
from benchmarks.peers.measure import samples
from benchmarks.peers.processes import HERE
from tests.support.waiting import PATIENCE_S

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


class Answering(asyncio.Protocol):
    """A server that gives one answer to every request, in two pieces; none if it has none."""

    def __init__(self, answer: bytes, closes: bool) -> None:
        self.answer, self.closes = answer, closes

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        assert data.startswith(b"POST /path HTTP/1.1\r\n")
        if self.answer:
            self.transport.write(self.answer[:30])
            asyncio.get_running_loop().call_later(0.002, self.go_on)

    def go_on(self) -> None:
        self.transport.write(self.answer[30:])
        if self.closes:
            self.transport.close()


async def loaded(answer: bytes, *, is_open: bool, closes: bool = False, give_up_s: float = PATIENCE_S) -> Outcome:
    """What a short load finds."""
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Answering(answer, closes), "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/path"
    async with server:
        if is_open:
            return await open_loop(url, [post(url, b"{}")], rate=100, seconds=0.3, give_up_s=give_up_s)
        return await closed_loop(url, [post(url, b"{}")], connections=3, seconds=0.3, give_up_s=give_up_s)


@pytest.mark.parametrize("is_open", [True, False])
@pytest.mark.parametrize(
    "answer",
    [
        OK,
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nConnection: close\r\ncontent-length: 2\r\n\r\nok",
    ],
)
def test_every_answer_is_counted(answer: bytes, is_open: bool) -> None:
    outcome = run(loaded(answer, is_open=is_open))
    assert outcome.statuses() == {200: len(outcome.due)}
    assert not outcome.failures
    assert len(outcome.due) >= 3
    assert (outcome.latencies > 0).all()
    assert outcome.throughput <= len(outcome.due) / outcome.seconds


def test_an_answer_without_a_length_ends_with_its_connection() -> None:
    outcome = run(loaded(b"HTTP/1.1 200 OK\r\nserver: old\r\n\r\nok", is_open=False, closes=True))
    assert outcome.statuses() == {200: len(outcome.due)}


def test_refusals_are_counted_with_their_retry_after() -> None:
    answer = b"HTTP/1.1 429 Too Many Requests\r\nRetry-After: 1\r\ncontent-length: 0\r\n\r\n"
    outcome = run(loaded(answer, is_open=True))
    assert outcome.statuses() == {429: len(outcome.due)}
    assert outcome.has_retry_after.all()
    assert outcome.throughput == 0


def test_who_never_answers_is_given_up() -> None:
    outcome = run(loaded(b"", is_open=True, give_up_s=0.1))
    assert outcome.failures == {"late": len(outcome.due)}
    assert (outcome.ended > outcome.due).all()


def test_half_an_answer_is_none() -> None:
    outcome = run(loaded(OK[:-1], is_open=False, closes=True))
    assert outcome.failures == {"closed": len(outcome.due)}


def test_a_server_that_is_not_there() -> None:
    outcome = run(open_loop("http://127.0.0.1:1/", [b""], rate=100, seconds=0.1))
    assert outcome.failures == {"not connected": len(outcome.due)}


def test_common_rate() -> None:
    assert [common_rate([rate, 900.0]) for rate in (130.0, 41.0, 9.0, 0.5)] == [60.0, 20.0, 4.0, 1.0]


@pytest.mark.parametrize("name", PEERS)
def test_every_peer_is_pinned_and_asked_in_json(name: str) -> None:
    peer = PEERS[name]
    assert peer.version != "not pinned"
    for document in samples("x" * 64):
        assert json.dumps(document)[1:-1].encode() in peer.body(document)
    if peer.venv:
        text = (HERE / f"requirements-{peer.venv}.txt").read_text()
        lines = [line for line in text.splitlines() if not line.startswith("#")]
        assert all("==" in line for line in lines)
        assert any(line.startswith("onnxruntime==") for line in lines)
