"""Interface of the backends, and the sizes of their batches."""

from collections.abc import Mapping
from typing import Literal, Protocol

import numpy as np

from artifact.arrays import Array
from artifact.cores import cpu_count

Device = Literal["auto", "cpu", "cuda"]
BATCH_ROWS = {"cpu": 16, "cuda": 64}
"""Maximum rows of a batch in the longest bucket, by device; batches of shorter rows hold more."""
LOAD_LIMIT_S = 60.0
"""Time limit of each batch that is computed while an export is loaded."""
CUDA_BATCHES = 1
"""Concurrent batches on CUDA; see `artifact.backends.cuda`."""
Tensors = Mapping[str, Array]


class InferenceBackend(Protocol):
    """A loaded model. `run` may be called by several threads at once."""

    device: Literal["cpu", "cuda"]

    def run(self, inputs: Tensors, limit_s: float | None = None) -> dict[str, Array]:
        """Compute one padded batch.

        Args:
            inputs: tensors by name.
            limit_s: time limit. PyTorch has none: it cannot be stopped.

        Raises: TimeoutError; errors of the runtime, unchanged.

        """
        ...


def largest_error(got: Array, expected: Array) -> float:
    """Largest |got - expected| / max(1, max|expected|).

    Infinite if the shapes differ, `expected` is not floating-point, or one of them is not finite.
    """
    if got.shape != expected.shape or expected.dtype.kind != "f":
        return float("inf")
    if not (np.isfinite(got).all() and np.isfinite(expected).all()):
        return float("inf")
    return float(np.abs(got - expected).max(initial=0.0) / max(1.0, np.abs(expected).max(initial=0.0)))


def first_line(error: Exception) -> str:
    """First line of an error's message."""
    return str(error).partition("\n")[0]


def output_error(got: Array, expected: Array) -> float:
    """`largest_error` of an output (rows, ...), or of one (rows, stretches, classes) that a shorter bucket has cut.

    A row has zeros in the stretches that a shorter bucket lacks.
    """
    if got.ndim == expected.ndim == 3 and 0 < got.shape[1] < expected.shape[1]:
        got = np.pad(got, ((0, 0), (0, expected.shape[1] - got.shape[1]), (0, 0)))
    return largest_error(got, expected)


def batches_at_once(device: Literal["cpu", "cuda"]) -> int:
    """Number of concurrent batches: on a CPU one per core, because the activations of small batches fit the cache."""
    return CUDA_BATCHES if device == "cuda" else cpu_count()
