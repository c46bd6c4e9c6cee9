"""Times of the stages of a request. Every task returns them, and the routes record them."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Timing:
    """Stages in seconds."""

    decode: float
    queue: float
    compute: float
