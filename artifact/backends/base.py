"""What every backend offers. Used by `service.engine.engine` and `model.cli.export`."""

from collections.abc import Mapping
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

Device = Literal["auto", "cpu", "cuda"]
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
