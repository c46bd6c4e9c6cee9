"""Times of the stages of a request. Every task returns them, and the routes record them."""

from typing import NamedTuple


class Timing(NamedTuple):
    """Stages in seconds."""

    decode: float
    """Conversion of documents to rows."""
    queue: float
    """Longest time that a row of the request was queued."""
    compute: float
    """Longest batch of the request; if its rows are computed in chunks, the sum of the longest batch of each chunk."""
