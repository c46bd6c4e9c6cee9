"""Statistics of one version of a model in this process since it was loaded, as plain numbers.

The metrics (`service.metrics`) are per model, over all of its versions and over all workers.
"""

import time
from dataclasses import dataclass


@dataclass(slots=True)
class Duration:
    """A number of events and their total time."""

    count: int = 0
    seconds: float = 0.0

    def add(self, seconds: float) -> None:
        """Add an event."""
        self.count += 1
        self.seconds += seconds


class Statistics:
    """Requests and batches of one version of a model."""

    def __init__(self) -> None:
        self.success = Duration()
        """Answered requests, from headers to response."""
        self.fail = Duration()
        """Requests that were rejected, cancelled or failed."""
        self.decode = Duration()
        """Conversion of documents to rows. This and the other stages count answered requests only."""
        self.queue = Duration()
        """Longest time that a row of a request was queued."""
        self.compute = Duration()
        """Time of the longest batch of a request."""
        self.encode = Duration()
        """Conversion of outputs to the response."""
        self.batches: dict[int, Duration] = {}
        """Number of rows -> computed batches of that size."""
        self.last_s = 0.0
        """Unix time of the last response or batch; 0 if there was none."""

    @property
    def rows(self) -> int:
        """Computed rows."""
        return sum(rows * batches.count for rows, batches in self.batches.items())

    @property
    def executions(self) -> int:
        """Computed batches."""
        return sum(batches.count for batches in self.batches.values())

    def answered(self, *, decode_s: float, queue_s: float, compute_s: float, encode_s: float, total_s: float) -> None:
        """Record an answered request with its stages."""
        self.decode.add(decode_s)
        self.queue.add(queue_s)
        self.compute.add(compute_s)
        self.encode.add(encode_s)
        self.success.add(total_s)
        self.last_s = time.time()

    def failed(self, seconds: float) -> None:
        """Record a request that was rejected, cancelled or failed after some time."""
        self.fail.add(seconds)

    def computed(self, rows: int, seconds: float) -> None:
        """Record a computed batch."""
        self.batches.setdefault(rows, Duration()).add(seconds)
        self.last_s = time.time()
