"""Where the time of one request went. Used by every task and recorded by the routes."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Timing:
    """Stages in seconds."""

    decode: float
    queue: float
    compute: float
