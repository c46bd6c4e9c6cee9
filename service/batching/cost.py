"""Measured compute time per row."""

import math
from collections.abc import Mapping

EARLIER_WEIGHT = 0.9
"""Weight of earlier measurements in a running mean."""
LONGEST_BATCH_S = 0.03
"""Upper bound of the estimated time of a batch: the next request has to wait for the batch."""
SHORTEST_BATCH_S = 0.001
"""Rows are split among slots only into batches of at least this estimated time."""


class CostModel:
    """Two kinds of running means: time to compute a row, for each bucket, and estimated time of an interactive request.

    The time of a bucket without a measurement is that of the nearest measured bucket, scaled by length; 0 if no bucket
    has been measured.
    """

    def __init__(self) -> None:
        self._row_seconds: dict[int, float] = {}
        self.request_seconds = 0.0
        """Running mean of the estimated time of an interactive request, on one slot."""

    def record_batch(self, bucket: int, row_seconds: float) -> None:
        """Add a batch to the running mean of its bucket, by its time per row."""
        before = self._row_seconds.get(bucket, row_seconds)
        self._row_seconds[bucket] = EARLIER_WEIGHT * before + (1 - EARLIER_WEIGHT) * row_seconds

    def record_request(self, seconds: float) -> None:
        """Add the estimated time of an interactive request to its running mean."""
        self.request_seconds += (1 - EARLIER_WEIGHT) * (seconds - self.request_seconds)

    def row_seconds(self, bucket: int) -> float:
        """Estimated time of one row."""
        measured = self._row_seconds
        if (seconds := measured.get(bucket)) is not None:
            return seconds
        if not measured:
            return 0.0
        nearest = min(measured, key=lambda other: max(other, bucket) / min(other, bucket))
        return measured[nearest] * bucket / nearest

    def seconds(self, rows: Mapping[int, int]) -> float:
        """Estimated time of rows on one slot; `rows` maps buckets to numbers of rows."""
        total, measured = 0.0, self._row_seconds
        for bucket, count in rows.items():  # counters keep a 0 for each bucket that was ever used
            if count:
                seconds = measured.get(bucket)
                total += count * (self.row_seconds(bucket) if seconds is None else seconds)
        return total

    def parts(self, bucket: int, rows: int, slots: int) -> int:
        """Into how many batches rows are split, at most one for each slot. One before a measurement."""
        return max(1, min(slots, int(rows * self.row_seconds(bucket) / SHORTEST_BATCH_S)))

    def max_rows(self, bucket: int) -> float:
        """Maximum rows of a batch that is to end within LONGEST_BATCH_S: at least 1, infinite before a measurement."""
        row_seconds = self.row_seconds(bucket)
        return max(1, int(LONGEST_BATCH_S / row_seconds)) if row_seconds else math.inf
