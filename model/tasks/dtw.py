"""Nearest neighbours by dynamic time warping, the classic baseline for labelled series."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from artifact.arrays import Floats

BAND = 0.1
"""Width of the Sakoe-Chiba band, as a share of the longest recording."""
MOST_CELLS = 2e10
"""Most cells of all warping matrices; a core computes some 1e9 in a second."""


def nearest_neighbours(train: Sequence[Floats], test: Sequence[Floats]) -> tuple[NDArray[np.int64] | None, str]:
    """Index of the nearest training recording of each test recording (steps, channels); or None and why not.

    Reference:  dependent warping with a band: Sakoe & Chiba 1978, doi:10.1109/TASSP.1978.1163055.
    """
    longest = max(map(len, (*train, *test)))
    cells = len(train) * len(test) * longest**2
    if cells > MOST_CELLS:
        return None, f"1-NN DTW would take {cells:.0e} cells, more than {MOST_CELLS:.0e}"
    from dtaidistance import dtw_ndim  # other commands need not wait for it

    everything = [values.astype(np.float64) for values in (*train, *test)]
    block = ((0, len(train)), (len(train), len(everything)))
    window = max(1, round(BAND * longest)) + 1
    distances = dtw_ndim.distance_matrix_fast(everything, block=block, window=window, parallel=False)
    nearest: NDArray[np.int64] = distances[: len(train), len(train) :].argmin(axis=0)
    return nearest, ""
