"""The load generator: what it counts, with a server that gives fixed responses."""

import asyncio
from typing import cast
from unittest.mock import patch

import pytest

from benchmarks.lib import load
from benchmarks.lib.load import Outcome, closed_loop, open_loop, post, run
from tests.support.waiting import PATIENCE_S

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


class Clock:
    """Stands in for `time` in a closed loop; a second passes with every response."""

    now_s = 0

    def monotonic(self) -> float:
        return self.now_s


class FixedServer(asyncio.Protocol):
    """A server that sends the same response to every request, in two pieces, or no response if it is empty."""

    def __init__(self, answer: bytes, closes: bool, clock: Clock) -> None:
        self.answer, self.closes, self.clock = answer, closes, clock

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        assert data.startswith(b"POST /path HTTP/1.1\r\n")
        if self.answer:
            self.transport.write(self.answer[:30])
            asyncio.get_running_loop().call_later(0.002, self.send_rest)

    def send_rest(self) -> None:
        self.clock.now_s += 1
        self.transport.write(self.answer[30:])
        if self.closes:
            self.transport.close()


async def loaded(answer: bytes, *, is_open: bool, closes: bool = False, give_up_s: float = PATIENCE_S) -> Outcome:
    """Return the outcome of a short load."""
    loop, clock = asyncio.get_running_loop(), Clock()
    server = await loop.create_server(lambda: FixedServer(answer, closes, clock), "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/path"
    async with server:
        if is_open:
            return await open_loop(url, [post(url, b"{}")], rate=100, seconds=0.3, give_up_s=give_up_s)
        with patch.object(load, "time", clock):
            return await closed_loop(url, [post(url, b"{}")], connections=3, seconds=30, give_up_s=give_up_s)


@pytest.mark.parametrize("is_open", [True, False])
@pytest.mark.parametrize(
    "answer",
    [
        OK,
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nConnection: close\r\ncontent-length: 2\r\n\r\nok",
    ],
)
def test_every_response_is_counted(answer: bytes, is_open: bool) -> None:
    outcome = run(loaded(answer, is_open=is_open))
    assert outcome.statuses() == {200: len(outcome.due)}
    assert not outcome.failures
    assert len(outcome.due) > 3
    assert (outcome.latencies > 0).all()
    assert outcome.throughput <= len(outcome.due) / outcome.seconds


def test_response_without_a_length_ends_with_its_connection() -> None:
    outcome = run(loaded(b"HTTP/1.1 200 OK\r\nserver: old\r\n\r\nok", is_open=False, closes=True))
    assert outcome.statuses() == {200: len(outcome.due)}


def test_rejections_are_counted_with_their_retry_after() -> None:
    answer = b"HTTP/1.1 429 Too Many Requests\r\nRetry-After: 1\r\ncontent-length: 0\r\n\r\n"
    outcome = run(loaded(answer, is_open=True))
    assert outcome.statuses() == {429: len(outcome.due)}
    assert outcome.has_retry_after.all()
    assert outcome.throughput == 0


def test_request_without_a_response_times_out() -> None:
    outcome = run(loaded(b"", is_open=True, give_up_s=0.1))
    assert outcome.failures == {"late": len(outcome.due)}
    assert (outcome.ended > outcome.due).all()


def test_truncated_response_counts_as_a_failure() -> None:
    outcome = run(loaded(OK[:-1], is_open=False, closes=True))
    assert outcome.failures == {"closed": len(outcome.due)}
