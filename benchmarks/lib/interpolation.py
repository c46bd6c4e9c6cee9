"""Values between measured ones."""

from bisect import bisect_left
from collections.abc import Mapping


def linear(table: Mapping[int, float], at: int) -> float:
    """Interpolate in a table; continue its last segment beyond its end, and its first value before its start."""
    known = sorted(table)
    if at <= known[0] or len(known) == 1:
        return table[known[0]]
    above = min(bisect_left(known, at), len(known) - 1)
    low, high = known[above - 1], known[above]
    return table[low] + (table[high] - table[low]) * (at - low) / (high - low)
