"""Admission: reject requests beyond the limits of the queue, or that are estimated to miss their deadline."""

import math
from dataclasses import dataclass
from typing import NamedTuple, Self

from service.batching.cost import CostModel
from service.batching.queue import FairQueue, PriorityClass
from service.errors import Overloaded, RetryableError

LONGEST_RETRY_S = 60
"""Maximum `Retry-After`."""
MARGIN = 2.0
"""Assumed cost of a request whose rows are not known, in average requests."""
LINES_SHARE = 0.5
"""Share of the queue up to which lines of uploads are admitted. They wait for room; without this limit they would keep
the queue full, and other requests would get 429."""
SAFETY_FACTOR = 0.5
"""Maximum estimated wait, as a share of the time left. Estimates err, and everything is slower under load."""


@dataclass(frozen=True)
class Limits:
    """Limits of a model's queue and batches."""

    batch_rows: int
    """Maximum full-length rows per batch; of shorter rows proportionally more."""
    queue_rows: int
    """Maximum queued rows."""
    queue_bytes: int
    """Maximum queued bytes."""
    slots: int
    """Batches computed concurrently in each lane."""
    short_bytes: int = 4096
    """Maximum bytes of a short request, which is computed in the foreground."""


class ClientLimit(float):
    """A deadline that the client set, or the time until it; takes the place of the server's own, which is later.

    A request that misses only this one is counted apart: it tells about the client, not about the load.
    """

    server: float
    """The server's own deadline, or the time until it."""

    def __new__(cls, client: float, server: float) -> Self:
        """Create a limit of a client from it and the server's own."""
        made = super().__new__(cls, client)
        made.server = server
        return made


def server_limit(limit: float) -> float:
    """The server's own part of a limit."""
    return limit.server if isinstance(limit, ClientLimit) else limit


def limited(limit: float, client: float) -> float:
    """A limit (a deadline, or the time until it) or the client's, whichever is earlier."""
    return ClientLimit(client, server_limit(limit)) if client < limit else limit


class Rejection(NamedTuple):
    """Why a request is rejected."""

    reason: str
    """Label `reason` of the metric of rejected requests."""
    error: RetryableError
    """Error for the client."""


class Admission:
    """Rejects requests that do not fit into the queues or are estimated to miss their deadline.

    Args:
        foreground: queue of the foreground.
        background: queue of the background.
        cost: measured times.
        limits: the limits of both queues together.

    """

    def __init__(self, foreground: FairQueue, background: FairQueue, cost: CostModel, limits: Limits) -> None:
        self._foreground, self._background = foreground, background
        self._cost = cost
        self._limits = limits

    def rejection(
        self,
        queue: FairQueue,
        priority: PriorityClass,
        left_s: float,
        rows: int,
        size: int,
        seconds: float,
        *,
        is_line: bool = False,
    ) -> Rejection | None:
        """Why a request is rejected; None if it is admitted.

        Args:
            queue: the queue of the request.
            priority: class of the request in the queue.
            left_s: seconds until its deadline; a ClientLimit if that is the client's.
            rows: number of rows of the request.
            size: bytes of these rows.
            seconds: estimated time to compute the rows on one slot.
            is_line: whether it has lines of an upload.

        """
        if (full := self._over_limits(rows, size, LINES_SHARE if is_line else 1.0)) is not None:
            return full
        if not self._foreground.waiting_rows + self._background.waiting_rows:
            return None
        wait_s = self._wait_s(queue, priority, seconds)
        if wait_s > SAFETY_FACTOR * left_s:
            message = (
                f"the estimated wait of {wait_s:.3g} s is over half of the {max(0.0, left_s):.3g} s to the deadline"
            )
            is_slow = wait_s > SAFETY_FACTOR * server_limit(left_s)
            return Rejection("too_late" if is_slow else "client_deadline", Overloaded(message, self.retry_after_s()))
        return None

    def rejection_without_rows(self, left_s: float, *, is_long: bool = False) -> Rejection | None:
        """As `rejection`, for an interactive request whose rows are not known yet.

        It is assumed to cost MARGIN times the average: one that costs a little more than the average would else be
        admitted here and rejected later, after its body was read and validated.

        Args:
            left_s: seconds until its deadline; a ClientLimit if that is the client's.
            is_long: whether it is known to be for the background.

        """
        queue = self._background if is_long else self._foreground
        # Rows and their sizes are not known: the request counts as one row of one byte.
        if not queue.waiting_rows:
            return self._over_limits(1, 1)
        return self.rejection(queue, queue.interactive, left_s, 1, 1, MARGIN * self._cost.request_seconds)

    def _over_limits(self, rows: int, size: int, share: float = 1.0) -> Rejection | None:
        """The rejection of rows beyond a share of the queue; an empty queue admits any number."""
        waiting_rows = self._foreground.waiting_rows + self._background.waiting_rows
        if not waiting_rows:
            return None
        waiting_bytes, limits = self._foreground.waiting_bytes + self._background.waiting_bytes, self._limits
        if waiting_rows + rows <= share * limits.queue_rows and waiting_bytes + size <= share * limits.queue_bytes:
            return None
        return Rejection("overloaded", Overloaded(f"{waiting_rows} rows wait already", self.retry_after_s()))

    def retry_after_s(self) -> int:
        """Seconds until the current queues are computed, estimated from the measured time per row."""
        seconds = self._seconds(self._foreground) + self._seconds(self._background)
        return max(1, min(LONGEST_RETRY_S, math.ceil(seconds / self._limits.slots)))

    def _seconds(self, queue: FairQueue) -> float:
        """Estimated time of all rows of a queue on one slot."""
        return self._cost.seconds(queue.interactive.waiting) + self._cost.seconds(queue.bulk.waiting)

    def _wait_s(self, queue: FairQueue, priority: PriorityClass, seconds: float) -> float:
        """Estimated time until a request is computed whose rows take `seconds` on one slot.

        The queued rows of its class are computed first. Meanwhile, the other class gets its share of the slots. The
        background also waits for the foreground; the measured time of its rows includes how long they were interrupted.
        """
        other = queue.interactive if priority is queue.bulk else queue.bulk
        own_s = self._cost.seconds(priority.waiting) + seconds
        other_s = min(self._cost.seconds(other.waiting), own_s * other.weight / priority.weight)
        if queue is self._background:
            other_s += self._seconds(self._foreground)
        return (own_s + other_s) / self._limits.slots
