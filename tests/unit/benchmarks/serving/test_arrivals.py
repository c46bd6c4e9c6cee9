"""Arrival times and lengths: rates, order, limits."""

import numpy as np
import pytest

from benchmarks.serving.arrivals import MIX_LONGEST, MIX_MEDIAN, MIX_SHORTEST, Bursts, bursty, mixed_lengths


def test_bursty_arrivals_have_the_mean_rate_and_are_ascending() -> None:
    times = bursty(100, 2000, Bursts(), np.random.default_rng(0))
    assert len(times) / 2000 == pytest.approx(100, rel=0.05)
    assert (np.diff(times) >= 0).all()
    assert 0 <= times[0] < times[-1] < 2000


def test_counts_of_bursty_arrivals_vary_more_than_poisson_counts() -> None:
    counts, _ = np.histogram(bursty(100, 1000, Bursts(), np.random.default_rng(0)), 1000)
    assert counts.var() > 3 * counts.mean()


def test_bursts_of_factor_one_are_poisson() -> None:
    counts, _ = np.histogram(bursty(100, 1000, Bursts(factor=1), np.random.default_rng(0)), 1000)
    assert counts.var() == pytest.approx(counts.mean(), rel=0.2)


def test_mixed_lengths_are_within_their_limits() -> None:
    lengths = mixed_lengths(10_000, np.random.default_rng(0))
    assert lengths.min() >= MIX_SHORTEST
    assert lengths.max() <= MIX_LONGEST
    assert np.median(lengths) == pytest.approx(MIX_MEDIAN, rel=0.05)
    assert lengths.mean() == pytest.approx(1300, rel=0.05)
