"""The queue of a model: order, counts and the share of each priority."""

import asyncio
from collections.abc import Iterator
from typing import Literal

import pytest

from service.batching.queue import BULK_WEIGHT, INTERACTIVE_WEIGHT, AcceptedRequest, FairQueue

SHORT, LONG = 8, 16


@pytest.fixture
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    """For futures; the loop does not run."""
    loop = asyncio.new_event_loop()
    yield loop
    loop.close()


class Queue(FairQueue):
    """A queue that creates the requests itself."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        super().__init__()

    def put(self, *rows: bytes, priority: Literal["interactive", "bulk"] = "interactive") -> AcceptedRequest:
        """Add a request, each row in the shortest bucket that it fits."""
        request = AcceptedRequest(
            list(rows),
            [SHORT if len(row) <= SHORT else LONG for row in rows],
            self.bulk if priority == "bulk" else self.interactive,
            0.0,
            1e9,
            self._loop.create_future(),
        )
        self.add(request)
        return request

    def pop(self) -> bytes | None:
        """Take the next row as a batch; None if none may run."""
        if (found := self.next()) is None:
            return None
        priority, bucket = found
        entry = priority.buckets[bucket].popleft()
        row = entry[1].rows[entry[2]]
        self.uncount(entry, bucket)
        self.charge(priority, bucket)
        return row


def test_rows_are_taken_in_order_of_arrival(loop: asyncio.AbstractEventLoop) -> None:
    queue = Queue(loop)
    queue.put(b"a", b"b" * LONG)
    queue.put(b"c")
    assert [queue.pop() for _ in range(4)] == [b"a", b"b" * LONG, b"c", None]


def test_rows_of_a_finished_request_are_skipped(loop: asyncio.AbstractEventLoop) -> None:
    queue = Queue(loop)
    ended = queue.put(b"a", b"b")
    queue.put(b"c")
    ended.future.cancel()
    queue.forget(ended)
    assert (queue.waiting_rows, queue.waiting_bytes, queue.interactive.waiting) == (1, 1, {SHORT: 1})
    assert (ended.rows, ended.outputs, ended.waiting_rows, ended.waiting_bytes) == ([], [], 0, 0)
    assert [queue.pop(), queue.pop()] == [b"c", None]


def test_priorities_share_by_weight(loop: asyncio.AbstractEventLoop) -> None:
    """One in five of the rows taken while both priorities wait is bulk, if all rows have the same length."""
    queue = Queue(loop)
    for _ in range(40):
        queue.put(b"i")
        queue.put(b"b", priority="bulk")
    first = [queue.pop() for _ in range(25)]
    assert first.count(b"i") == 25 * INTERACTIVE_WEIGHT / (INTERACTIVE_WEIGHT + BULK_WEIGHT)


def test_idle_priority_gets_no_credit(loop: asyncio.AbstractEventLoop) -> None:
    queue = Queue(loop)
    for _ in range(100):
        queue.put(b"i")
    for _ in range(50):
        queue.pop()
    for _ in range(50):
        queue.put(b"b", priority="bulk")
    assert [queue.pop() for _ in range(10)].count(b"b") <= 2
