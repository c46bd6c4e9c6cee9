"""Whether a request is taken: limits of the queue, and an estimate of when its turn would come."""

import math
from dataclasses import dataclass
from typing import NamedTuple

from artifact.errors import LongdocError
from service.batching.cost import CostModel
from service.batching.queue import FairQueue, Priority
from service.errors import Overloaded

LONGEST_RETRY_S = 60
HOPE = 0.5
"""Share of the time left that the estimated wait may be: estimates err, and under load everything becomes slower."""


@dataclass(frozen=True)
class Limits:
    """What may wait and run."""

    batch_rows: int
    """Rows of the longest bucket in one batch; of shorter ones as many more as have the same length together."""
    queue_rows: int
    """Rows that may wait."""
    queue_bytes: int
    """Bytes that may wait."""
    slots: int
    """Batches that may run at once."""


class Refusal(NamedTuple):
    """Why a request is not taken."""

    reason: str
    """For the metric."""
    error: LongdocError
    """For the client."""


class Admission:
    """Refuses requests that the queue has no room for, or that would be late."""

    def __init__(self, queue: FairQueue, cost: CostModel, limits: Limits) -> None:
        self._queue = queue
        self._cost = cost
        self._limits = limits

    def refusal(
        self, priority: Priority, left_s: float, rows: int, size: int, seconds: float, entering: int = 0
    ) -> Refusal | None:
        """Why a request cannot be taken now, if so.

        Args:
            priority: of the request.
            left_s: until the deadline.
            rows: of the request.
            size: of the rows, in bytes.
            seconds: estimated time to compute the rows on one slot.
            entering: requests that are ahead of it and do not wait yet.

        """
        queue, limits = self._queue, self._limits
        if not queue.waiting_rows and not entering:
            return None
        if queue.waiting_rows + rows > limits.queue_rows or queue.waiting_bytes + size > limits.queue_bytes:
            return Refusal("overloaded", Overloaded(f"{queue.waiting_rows} rows wait already", self.retry_after_s()))
        wait_s = self._wait_s(priority, seconds)
        if wait_s > HOPE * left_s:
            message = f"it would take about {wait_s:.1f} s, and {max(0.0, left_s):.1f} s are left"
            return Refusal("too_late", Overloaded(message, self.retry_after_s()))
        return None

    def refusal_unread(self, left_s: float, entering: int) -> Refusal | None:
        """Why no interactive request can be taken now, if so, before its rows are known.

        Args:
            left_s: until its deadline.
            entering: requests admitted that have not asked yet; they are taken to be like those before them.

        """
        if not self._queue.waiting_rows and entering < self._limits.slots:
            return None
        ahead = entering + 1
        return self.refusal(
            self._queue.interactive, left_s, ahead, 1, ahead * self._cost.request_seconds, entering=entering
        )

    def retry_after_s(self) -> int:
        """Seconds until what waits now is computed, from the measured time of a row."""
        queue, cost = self._queue, self._cost
        seconds = cost.seconds(queue.interactive.waiting) + cost.seconds(queue.bulk.waiting)
        return max(1, min(LONGEST_RETRY_S, math.ceil(seconds / self._limits.slots)))

    def _wait_s(self, priority: Priority, seconds: float) -> float:
        """Estimated time until rows that cost so much are computed, behind their priority and the other one's share."""
        other = self._queue.interactive if priority is self._queue.bulk else self._queue.bulk
        ahead = self._cost.seconds(priority.waiting) + seconds
        beside = min(self._cost.seconds(other.waiting), ahead * other.weight / priority.weight)
        return (ahead + beside) / self._limits.slots
