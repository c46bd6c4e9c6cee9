"""Whether a request is taken."""

import asyncio
from collections.abc import Iterator

import pytest

from service.batching.admission import HOPE, LONGEST_RETRY_S, Admission, Limits
from service.batching.cost import CostModel
from service.batching.queue import FairQueue, Priority, Ticket
from service.errors import Overloaded

BUCKET = 8
LIMITS = Limits(batch_rows=4, queue_rows=10, queue_bytes=100, slots=2)


class Waiting:
    """A queue of rows that cost a second each, and its admission."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.queue = FairQueue(LIMITS.slots, lambda: 0.0)
        self.cost = CostModel()
        self.cost.measured(BUCKET, 1.0)
        self.admission = Admission(self.queue, self.cost, LIMITS)
        self._loop = loop

    def put(self, rows: int, size: int = 1, priority: Priority | None = None) -> None:
        content = [size * b"x"] * rows
        waiting = priority or self.queue.interactive
        ticket = Ticket(content, waiting, 0.0, 1e9, self._loop.create_future(), [None] * rows, rows)
        self.queue.add(ticket, [BUCKET] * rows)

    def reason(
        self, rows: int = 1, size: int = 1, left_s: float = 1000.0, priority: Priority | None = None
    ) -> str | None:
        refusal = self.admission.refusal(priority or self.queue.interactive, left_s, rows, size, 1.0 * rows)
        assert refusal is None or isinstance(refusal.error, Overloaded)
        return refusal and refusal.reason


@pytest.fixture
def waiting() -> Iterator[Waiting]:
    loop = asyncio.new_event_loop()
    yield Waiting(loop)
    loop.close()


def test_request_of_any_size_is_taken_when_nothing_waits(waiting: Waiting) -> None:
    assert waiting.reason(rows=1000, size=1000, left_s=0.1) is None


def test_rows_that_wait_are_bounded(waiting: Waiting) -> None:
    waiting.put(9)
    assert (waiting.reason(rows=1), waiting.reason(rows=2)) == (None, "overloaded")


def test_bytes_that_wait_are_bounded(waiting: Waiting) -> None:
    waiting.put(1, size=90)
    assert (waiting.reason(size=10), waiting.reason(size=11)) == (None, "overloaded")


def test_request_that_would_be_late_is_refused(waiting: Waiting) -> None:
    """Five rows wait and one comes: 6 s on two slots are 3 s, of which HOPE is the share allowed."""
    waiting.put(5)
    longest = 3.0 / HOPE
    assert (waiting.reason(left_s=longest), waiting.reason(left_s=longest - 0.1)) == (None, "too_late")


def test_other_priority_counts_by_its_share(waiting: Waiting) -> None:
    """Interactive work is four fifths: 2 s of it take 0.5 s of bulk beside them."""
    waiting.put(1)
    waiting.put(8, priority=waiting.queue.bulk)
    interactive = (2.0 + 0.5) / 2 / HOPE
    assert (waiting.reason(left_s=interactive), waiting.reason(left_s=interactive - 0.01)) == (None, "too_late")
    bulk = (9.0 + 1.0) / 2 / HOPE
    for left_s, reason in ((bulk, None), (bulk - 0.01, "too_late")):
        assert waiting.reason(left_s=left_s, priority=waiting.queue.bulk) == reason


def test_unread_request_is_taken_while_nothing_waits_and_a_slot_is_free(waiting: Waiting) -> None:
    waiting.cost.requested(1e6)
    assert waiting.admission.refusal_unread(0.001, LIMITS.slots - 1) is None
    assert waiting.admission.refusal_unread(0.001, LIMITS.slots) is not None


def test_unread_request_is_behind_those_that_were_let_in(waiting: Waiting) -> None:
    for _ in range(200):
        waiting.cost.requested(2.0)
    waiting.put(2)
    longest = (2 + 2 * 2.0) / 2 / HOPE  # two rows that wait, one request ahead and the request itself
    assert waiting.admission.refusal_unread(longest + 0.01, 1) is None
    refusal = waiting.admission.refusal_unread(longest - 0.01, 1)
    assert refusal is not None
    assert refusal.reason == "too_late"
    full = waiting.admission.refusal_unread(1000.0, 8)
    assert full is not None
    assert full.reason == "overloaded"


@pytest.mark.parametrize(("rows", "seconds"), [(0, 1), (1, 1), (5, 3), (10, 5), (1000, LONGEST_RETRY_S)])
def test_client_is_told_when_what_waits_is_computed(waiting: Waiting, rows: int, seconds: int) -> None:
    waiting.put(rows - rows // 2)
    waiting.put(rows // 2, priority=waiting.queue.bulk)
    assert waiting.admission.retry_after_s() == seconds
    if rows == 10:
        refusal = waiting.admission.refusal(waiting.queue.interactive, 1000.0, 1, 1, 1.0)
        assert refusal is not None
        assert isinstance(refusal.error, Overloaded)
        assert refusal.error.retry_after_s == seconds
