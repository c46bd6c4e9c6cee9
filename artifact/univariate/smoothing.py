"""Exponential smoothing of many series at once, and the Theta method that is built on it."""

from dataclasses import dataclass

import numpy as np

from artifact.arrays import Doubles

ALPHAS = np.array([0.03, 0.08, 0.16, 0.3, 0.5, 0.7, 0.85, 1.0])
"""Smoothing constants that `theta` tries."""


def decaying_sums(values: Doubles, decay: Doubles | float) -> Doubles:
    """Sums y[t] = values[t] + decay * y[t - 1] along the last axis.

    Computed by doubling: after k passes, y[t] holds the terms of 2^k steps. O(n log n) in whole-array operations.

    Shape:  values (..., n); decay broadcasts against (..., 1); returns (..., n).
    """
    sums, step = values.copy(), 1
    factor = np.asarray(decay, np.float64)
    while step < values.shape[-1]:
        sums[..., step:] += factor * sums[..., :-step]
        factor, step = factor * factor, 2 * step
    return sums


@dataclass(frozen=True)
class Theta:
    """Forecasts of the Theta method and what it found of each series."""

    forecast: Doubles
    """(B, horizon)."""
    line: Doubles
    """Regression line at the past and the future steps, (B, n + horizon)."""
    alpha: Doubles
    """Smoothing constant (B,)."""


def theta(values: Doubles, horizon: int) -> Theta:
    """Forecast with the Theta method: the mean of the regression line and of a smoothed series of twice its curvature.

    The smoothing constant of each series is the one of ALPHAS with the smallest squared one-step error.

    Shape:      values (B, n), none missing.
    Reference:  Assimakopoulos and Nikolopoulos 2000, doi:10.1016/S0169-2070(00)00066-2; smoothing starts at the first
                value.
    """
    n = values.shape[1]
    time = np.arange(n + horizon) - (n - 1) / 2
    slope = (values * time[:n]).sum(axis=1) / (np.square(time[:n]).sum() if n > 1 else 1.0)
    line = values.mean(axis=1, keepdims=True) + slope[:, None] * time
    curved = 2 * values - line[:, :n]
    drive = ALPHAS[:, None] * curved[:, None]  # (B, A, n)
    drive[..., 0] = curved[:, None, 0]
    level = decaying_sums(drive, 1 - ALPHAS[:, None])
    error = curved[:, None, 1:] - level[..., :-1]
    best = np.einsum("bat,bat->ba", error, error).argmin(axis=1)
    last = level[np.arange(len(values)), best, -1]
    return Theta((last[:, None] + line[:, n:]) / 2, line, ALPHAS[best])
