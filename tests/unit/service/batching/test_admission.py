"""Which requests admission accepts."""

import asyncio
import math
from collections.abc import Iterator

import pytest

from service.batching.admission import (
    LONGEST_RETRY_S,
    MARGIN,
    SAFETY_FACTOR,
    Admission,
    ClientLimit,
    Limits,
    limited,
    server_limit,
)
from service.batching.cost import CostModel
from service.batching.queue import AcceptedRequest, FairQueue
from service.errors import Overloaded

BUCKET = 8
LIMITS = Limits(batch_rows=4, queue_rows=10, queue_bytes=100, slots=2)


class Waiting:
    """A queue of rows that cost a second each, and its admission."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.foreground, self.background = FairQueue(), FairQueue()
        self.cost = CostModel()
        self.cost.record_batch(BUCKET, 1.0)
        self.admission = Admission(self.foreground, self.background, self.cost, LIMITS)
        self._loop = loop

    def put(self, rows: int, size: int = 1, *, bulk: bool = False, background: bool = False) -> None:
        content, queue = [size * b"x"] * rows, self._queue(background)
        priority = queue.bulk if bulk else queue.interactive
        queue.add(AcceptedRequest(content, [BUCKET] * rows, priority, 0.0, 1e9, self._loop.create_future()))

    def reason(
        self,
        rows: int = 1,
        size: int = 1,
        left_s: float = 1000.0,
        *,
        bulk: bool = False,
        background: bool = False,
        is_line: bool = False,
    ) -> str | None:
        queue = self._queue(background)
        priority = queue.bulk if bulk else queue.interactive
        rejection = self.admission.rejection(queue, priority, left_s, rows, size, 1.0 * rows, is_line=is_line)
        assert rejection is None or isinstance(rejection.error, Overloaded)
        return rejection and rejection.reason

    def unread(self, left_s: float = 1000.0, *, is_long: bool = False) -> str | None:
        rejection = self.admission.rejection_without_rows(left_s, is_long=is_long)
        return rejection and rejection.reason

    def _queue(self, background: bool) -> FairQueue:
        return self.background if background else self.foreground


@pytest.fixture
def waiting() -> Iterator[Waiting]:
    loop = asyncio.new_event_loop()
    yield Waiting(loop)
    loop.close()


def test_request_of_any_size_is_accepted_when_the_queue_is_empty(waiting: Waiting) -> None:
    assert waiting.reason(rows=1000, size=1000, left_s=0.1) is None


def test_number_of_queued_rows_is_limited(waiting: Waiting) -> None:
    waiting.put(9)
    assert (waiting.reason(rows=1), waiting.reason(rows=2)) == (None, "overloaded")


def test_size_of_queued_rows_is_limited(waiting: Waiting) -> None:
    waiting.put(1, size=90)
    assert (waiting.reason(size=10), waiting.reason(size=11)) == (None, "overloaded")


def test_lines_of_uploads_fill_half_of_the_queue(waiting: Waiting) -> None:
    waiting.put(4, size=10)
    assert (waiting.reason(is_line=True), waiting.reason(rows=2, is_line=True)) == (None, "overloaded")
    assert (waiting.reason(size=10, is_line=True), waiting.reason(size=11, is_line=True)) == (None, "overloaded")
    assert waiting.reason(rows=6, size=60) is None


def test_request_that_would_miss_its_deadline_is_rejected(waiting: Waiting) -> None:
    """Five rows wait and one arrives: 6 s on two slots are 3 s, and SAFETY_FACTOR is the share that may be used."""
    waiting.put(5)
    longest = 3.0 / SAFETY_FACTOR
    assert (waiting.reason(left_s=longest), waiting.reason(left_s=longest - 0.1)) == (None, "too_late")


def test_deadline_of_a_client_is_counted_apart_while_that_of_the_server_can_be_met(waiting: Waiting) -> None:
    waiting.put(5)
    longest = 3.0 / SAFETY_FACTOR
    for server, reason in ((longest, "client_deadline"), (longest - 0.1, "too_late")):
        assert waiting.reason(left_s=limited(server, 0.001)) == reason
        assert waiting.unread(limited(server + 10, 0.001)) == "client_deadline"
    assert waiting.reason(left_s=limited(longest, 2 * longest)) is None


def test_limit_is_the_earlier_one_and_remembers_that_of_the_server() -> None:
    assert [type(limited(2.0, client)) for client in (math.inf, 2.0, 1.0)] == [float, float, ClientLimit]
    shorter = limited(limited(3.0, 2.0), 1.0)
    assert (shorter, server_limit(shorter), server_limit(3.0)) == (1.0, 3.0, 3.0)


def test_queued_rows_of_the_other_priority_count_by_their_share(waiting: Waiting) -> None:
    """The share of interactive rows is four fifths: while 2 s of them are computed, 0.5 s of bulk rows are too."""
    waiting.put(1)
    waiting.put(8, bulk=True)
    interactive = (2.0 + 0.5) / 2 / SAFETY_FACTOR
    assert (waiting.reason(left_s=interactive), waiting.reason(left_s=interactive - 0.01)) == (None, "too_late")
    bulk = (9.0 + 1.0) / 2 / SAFETY_FACTOR
    for left_s, reason in ((bulk, None), (bulk - 0.01, "too_late")):
        assert waiting.reason(left_s=left_s, bulk=True) == reason


def test_request_whose_rows_are_unknown_is_rejected_if_the_other_queue_is_full(waiting: Waiting) -> None:
    waiting.put(9, size=10, background=True)
    assert waiting.unread() is None
    waiting.put(1, size=10, background=True)
    assert waiting.unread() == "overloaded"


def test_limits_hold_for_both_queues_together(waiting: Waiting) -> None:
    waiting.put(4, size=10)
    waiting.put(5, size=10, background=True)
    for background in (False, True):
        assert waiting.reason(rows=1, background=background) is None
        assert waiting.reason(rows=2, background=background) == "overloaded"
        assert waiting.reason(size=11, background=background) == "overloaded"


def test_background_waits_for_the_foreground_and_not_the_reverse(waiting: Waiting) -> None:
    waiting.put(2)
    waiting.put(4, background=True)
    foreground, background = (2 + 1) / 2 / SAFETY_FACTOR, (2 + 4 + 1) / 2 / SAFETY_FACTOR
    assert (waiting.reason(left_s=foreground), waiting.reason(left_s=foreground - 0.01)) == (None, "too_late")
    for left_s, reason in ((background, None), (background - 0.01, "too_late")):
        assert waiting.reason(left_s=left_s, background=True) == reason
    assert waiting.admission.retry_after_s() == 3


def test_unread_request_is_accepted_if_the_queue_is_empty(waiting: Waiting) -> None:
    waiting.cost.record_request(1e6)
    assert waiting.unread(0.001) is None
    waiting.put(1)
    assert waiting.unread(0.001) is not None


def test_unread_request_is_assumed_to_cost_more_than_the_average(waiting: Waiting) -> None:
    for _ in range(200):
        waiting.cost.record_request(2.0)
    waiting.put(2)
    longest = (2 + MARGIN * 2.0) / 2 / SAFETY_FACTOR  # two queued rows and the request itself
    assert (waiting.unread(longest + 0.01), waiting.unread(longest - 0.01)) == (None, "too_late")


def test_unread_request_counts_as_one_row_of_a_full_queue(waiting: Waiting) -> None:
    waiting.put(9)
    assert waiting.unread() is None
    waiting.put(1)
    assert waiting.unread() == "overloaded"


def test_unread_long_request_waits_for_the_background(waiting: Waiting) -> None:
    waiting.put(4, background=True)
    longest = 4 / 2 / SAFETY_FACTOR
    assert (waiting.unread(longest - 0.01), waiting.unread(longest + 0.01, is_long=True)) == (None, None)
    assert waiting.unread(longest - 0.01, is_long=True) is not None


@pytest.mark.parametrize(("rows", "seconds"), [(0, 1), (1, 1), (5, 3), (10, 5), (1000, LONGEST_RETRY_S)])
def test_retry_after_is_the_time_to_compute_the_queue(waiting: Waiting, rows: int, seconds: int) -> None:
    waiting.put(rows - rows // 2)
    waiting.put(rows // 2, bulk=True)
    assert waiting.admission.retry_after_s() == seconds
    if rows == 10:
        rejection = waiting.admission.rejection(waiting.foreground, waiting.foreground.interactive, 1000.0, 1, 1, 1.0)
        assert rejection is not None
        assert isinstance(rejection.error, Overloaded)
        assert rejection.error.retry_after_s == seconds
