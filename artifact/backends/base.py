"""What every backend offers, and how batches are computed on it."""

from collections.abc import Mapping
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from artifact.cores import cpu_count

Device = Literal["auto", "cpu", "cuda"]
BATCH_ROWS = {"cpu": 16, "cuda": 64}
"""Rows of the longest bucket in one batch."""
CUDA_BATCHES = 2
"""One computes while the next one is copied."""
Array = NDArray[Any]
Tensors = Mapping[str, Array]


class InferenceBackend(Protocol):
    """A loaded model. `run` may be called by several threads at once."""

    device: Literal["cpu", "cuda"]

    def run(self, inputs: Tensors) -> dict[str, Array]:
        """Compute one padded batch; raises whatever the runtime raises."""
        ...


def largest_error(got: Array, expected: Array) -> float:
    """Largest |got - expected| / max(1, max|expected|); infinite for a NaN or another shape."""
    if got.shape != expected.shape or expected.dtype.kind != "f" or not np.isfinite(got).all():
        return float("inf")
    return float(np.abs(got - expected).max(initial=0.0) / max(1.0, np.abs(expected).max(initial=0.0)))


def batches_at_once(device: Literal["cpu", "cuda"]) -> int:
    """Batches to compute side by side: on a CPU one a core, since small ones keep their activations in the cache."""
    return CUDA_BATCHES if device == "cuda" else cpu_count()
