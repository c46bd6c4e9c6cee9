"""Made-up series."""

import numpy as np
import pytest

from benchmarks.models.any_series.series import LongSet, Series


def waves(rows: int, seed: int = 0) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
    """Two noisy waves of 24 steps, one of them large."""
    generator = np.random.default_rng(seed)
    wave = np.sin(2 * np.pi * np.arange(rows) / 24)
    return np.stack([wave, 500 + 100 * wave], axis=1) + generator.normal(0, (0.2, 30), (rows, 2))


@pytest.fixture
def ett() -> LongSet:
    return LongSet("ETTh2", 24, (24, 96), ("a", "b/c"), waves(1_500))


def quarterly(name: str, values: list[float], steps: int, frequency: str = "quarterly") -> Series:
    """A series of M1 with a hold-out of some steps."""
    past, future = np.array(values[:-steps]), np.array(values[-steps:])
    return Series("M1", name, frequency, 4, past, future, float(np.abs(past[4:] - past[:-4]).mean()))
