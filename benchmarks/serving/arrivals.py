"""Arrival times and document lengths for simulations: Poisson or bursty arrivals, fixed or mixed lengths."""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Kind = Literal["poisson", "bursty"]

MIX_MEDIAN = 980
"""Median length of the mix in bytes."""
MIX_SIGMA = 0.75
"""Standard deviation of the logarithm of its lengths."""
MIX_SHORTEST, MIX_LONGEST = 50, 14_000
"""Limits of its lengths in bytes; values outside are moved to them."""


@dataclass(frozen=True)
class Bursts:
    """A two-state Markov-modulated Poisson process: normal times and bursts, both of exponential duration."""

    factor: float = 2.0
    """Rate in a burst, as a multiple of the mean rate."""
    burst_s: float = 1.0
    """Mean duration of a burst in seconds."""
    share: float = 0.1
    """Share of the time in bursts; `factor * share` must be at most 1."""


def bursty(rate: float, seconds: float, bursts: Bursts, generator: np.random.Generator) -> NDArray[np.float64]:
    """Arrival times of a bursty process in seconds, ascending.

    Args:
        rate: mean arrivals per second.
        seconds: duration; no arrival is later.
        bursts: size and duration of the bursts.
        generator: source of random numbers.

    """
    rates = (rate * (1 - bursts.factor * bursts.share) / (1 - bursts.share), rate * bursts.factor)
    durations = (bursts.burst_s * (1 - bursts.share) / bursts.share, bursts.burst_s)
    parts, start, state = list[NDArray[np.float64]](), 0.0, int(generator.random() < bursts.share)
    while start < seconds:
        end = min(seconds, start + generator.exponential(durations[state]))
        count = generator.poisson(rates[state] * (end - start))
        parts.append(np.sort(generator.uniform(start, end, count)))
        start, state = end, 1 - state
    return np.concatenate(parts)


def mixed_lengths(count: int, generator: np.random.Generator) -> NDArray[np.int64]:
    """Lengths in bytes like those of film reviews: log-normal, with a median of 980 bytes and a mean of about 1,300."""
    lengths = generator.lognormal(np.log(MIX_MEDIAN), MIX_SIGMA, count)
    return np.clip(lengths, MIX_SHORTEST, MIX_LONGEST).astype(np.int64)
