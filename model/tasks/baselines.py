"""What a forecaster has to beat: repeat the last value, and a linear map solved in closed form."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from model.data.series import Floats

CHUNK = 2000
"""Windows handled at once."""
RIDGE = 1e-6
"""Added to the diagonal of the normal equations, times the number of rows: for solvability, not tuned."""

Doubles = NDArray[np.float64]


@dataclass(frozen=True)
class LinearMap:
    """forecast = last + W (series - last) + b, one map for all channels."""

    weight: Doubles
    """(context, prediction)."""
    bias: Doubles
    """(prediction,)."""


def solve_linear_map(windows: Floats, context_length: int) -> LinearMap:
    """Least squares over every window and channel.

    Shape:  windows (W, C, context + prediction), in scaled units.
    """
    size = context_length + 1
    gram, moment = np.zeros((size, size)), np.zeros((size, windows.shape[2] - context_length))
    for first in range(0, len(windows), CHUNK):
        rows = _centred(windows[first : first + CHUNK], context_length)
        inputs = np.hstack([rows[:, :context_length], np.ones((len(rows), 1))])
        gram += inputs.T @ inputs
        moment += inputs.T @ rows[:, context_length:]
    gram += RIDGE * gram[-1, -1] * np.eye(size)
    solution: Doubles = np.linalg.solve(gram, moment).astype(np.float64)
    return LinearMap(solution[:-1], solution[-1])


def errors(windows: Floats, context_length: int, linear: LinearMap | None) -> tuple[float, float]:
    """MSE and MAE over all windows, channels and steps; None repeats the last value."""
    squared = absolute = 0.0
    for first in range(0, len(windows), CHUNK):
        rows = _centred(windows[first : first + CHUNK], context_length)
        error = rows[:, context_length:]
        if linear is not None:
            error = error - (rows[:, :context_length] @ linear.weight + linear.bias)
        squared += float((error**2).sum())
        absolute += float(np.abs(error).sum())
    count = windows.shape[0] * windows.shape[1] * (windows.shape[2] - context_length)
    return squared / count, absolute / count


def _centred(windows: Floats, context_length: int) -> Doubles:
    """Rows (W C, context + prediction) in float64, minus the last value of the context."""
    rows = windows.reshape(-1, windows.shape[2]).astype(np.float64)
    return rows - rows[:, context_length - 1 : context_length]
