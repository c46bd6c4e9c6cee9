"""Forecasts of the exported forecaster of any series: what a series is worth without training on it."""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import artifact
from artifact.arrays import Floats
from artifact.errors import BadExport
from artifact.series import IRREGULAR
from artifact.tasks.any_series import MAX_HORIZON, AnySeries
from artifact.univariate.features import CONTEXT
from model.data.series import ScaledSeries

EXPORT = Path("exports/any-series")
MOST_SERIES = 500
"""Maximum number of channels times windows: each takes a few milliseconds."""


def origins(rows: tuple[int, int], horizon: int, channels: int) -> NDArray[np.int64]:
    """First rows of windows of `horizon` rows, evenly spaced within `rows`, as many as MOST_SERIES allows."""
    last = rows[1] - horizon
    count = min(last - rows[0] + 1, max(1, MOST_SERIES // channels))
    return np.linspace(rows[0], last, max(0, count)).astype(np.int64)


def zero_shot(series: ScaledSeries, first_rows: NDArray[np.int64], horizon: int) -> Floats | None:
    """Forecast windows that begin at `first_rows` (B,), each from the rows before it: (B, horizon, channels).

    None if EXPORT has no usable forecaster of any series, or if the horizon is too long for it.
    """
    try:
        model = artifact.load(EXPORT, device="cpu")
    except BadExport:
        return None
    if horizon > MAX_HORIZON or not isinstance(model.task, AnySeries):
        return None
    pasts = [column for row in first_rows for column in series.values[max(0, row - CONTEXT) : row].T]
    frequency = None if series.frequency == IRREGULAR else series.frequency
    found = np.array(model.forecast(pasts, horizon=horizon, frequency=frequency)["forecast"], np.float32)
    return found.reshape(len(first_rows), -1, horizon).transpose(0, 2, 1)
