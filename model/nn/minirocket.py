"""MiniRocket: features of a recording that need no training but quantiles. Used by `model.nn.series_classifier`."""

import math
from itertools import combinations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from artifact.recordings import GRID

TAPS, HEAVY = 9, 3
"""Taps of a kernel, and how many of them have the weight 2; the others have -1."""
KERNELS = tuple(combinations(range(TAPS), HEAVY))
"""Heavy taps of each of the 84 kernels."""
MAX_DILATIONS = 32
"""Most dilations of a kernel."""
MAX_CHANNELS = 9
"""Most channels that one kernel reads."""
GOLDEN = (math.sqrt(5) + 1) / 2


class Shares(nn.Module):
    """Shares of the steps at which the convolutions of a dilation exceed each of their biases.

    clamp(sum - bias, 0, 1) is 1 or 0, because sums and biases are integers.

    Shape:  series (B, C, N), integers; returns (B, 42 biases).
    """

    weight: Tensor
    bias: Tensor

    def __init__(self, num_channels: int, dilation: int, count: int, *, is_padded: bool) -> None:
        super().__init__()
        self.dilation, self.padding = dilation, TAPS // 2 * dilation if is_padded else 0
        self.register_buffer("weight", torch.zeros(len(KERNELS) // 2, num_channels, TAPS))
        self.register_buffer("bias", torch.zeros(len(KERNELS) // 2, count, 1))

    def forward(self, series: Tensor) -> Tensor:
        """Shares (B, C, N) -> (B, 42 biases)."""
        sums = nn.functional.conv1d(series, self.weight, dilation=self.dilation, padding=self.padding)
        return (sums.unsqueeze(2) - self.bias).clamp(0, 1).mean(3).flatten(1)  # exact up to the division of the mean


class MiniRocket(nn.Module):
    """Shares of the steps at which each convolution exceeds each of its biases.

    f = 1 / |T| sum over t in T of [sum over channels and taps of w_tap x(t + dilation (tap - 4)) > bias]

    T are all steps, with zeros outside the recording, for every second kernel; and the steps that need no such zeros
    for the others. Values are counted in units of `artifact.recordings.GRID`, so that sums are integers, and every
    backend computes the same ones.

    Shape:      x (B, N, C), multiples of GRID; returns (B, features).
    Reference:  Dempster et al. 2021, arXiv:2012.08791, sec. 3; several channels as in its published code.
    Deviates:   values and biases are rounded to a grid; features are in another order.
    """

    def __init__(self, num_channels: int, length: int, per_kernel: int) -> None:
        super().__init__()
        self.biases = dilations_of(length, per_kernel)
        """Dilation -> number of biases of each kernel."""
        self.shares = nn.ModuleList(
            Shares(num_channels, step, count, is_padded=is_padded)
            for step, count in self.biases.items()
            for is_padded in (True, False)
        )

    @property
    def num_features(self) -> int:
        """Number of features."""
        return len(KERNELS) * sum(self.biases.values())

    def forward(self, x: Tensor) -> Tensor:
        """Features (B, N, C) -> (B, features)."""
        series = x.transpose(1, 2) / GRID
        return torch.cat([shares(series) for shares in self.shares], dim=1)

    @torch.no_grad()
    def fit(self, recordings: NDArray[np.float32], seed: int) -> None:
        """Draw the channels of each kernel, and its biases: quantiles of its convolution of a random recording.

        Shape:  recordings (B, N, C), multiples of GRID.
        """
        generator = np.random.default_rng(seed)
        series, first = torch.from_numpy(recordings).transpose(1, 2) / GRID, 0
        channels = series.shape[1]
        for index, (step, count) in enumerate(self.biases.items()):
            levels = (np.arange(first + 1, first + 1 + len(KERNELS) * count) * GOLDEN % 1).reshape(-1, count)
            first += levels.size
            for kernel, taps in enumerate(kernels()):
                number = int(2 ** generator.uniform(0, math.log2(min(channels, MAX_CHANNELS) + 1)))
                weight = torch.zeros(channels, TAPS)
                weight[generator.choice(channels, number, replace=False)] = taps
                one = series[int(generator.integers(len(series)))].unsqueeze(0)
                output = nn.functional.conv1d(one, weight.unsqueeze(0), dilation=step, padding=TAPS // 2 * step)
                bias = np.floor(np.quantile(output.numpy(), levels[kernel]))
                shares = self.shares[2 * index + (kernel + index) % 2]
                shares.get_buffer("weight")[kernel // 2] = weight
                shares.get_buffer("bias")[kernel // 2, :, 0] = torch.from_numpy(bias)


def kernels() -> Tensor:
    """Weights of the kernels (84, 9)."""
    weights = torch.full((len(KERNELS), TAPS), -1.0)
    for kernel, heavy in enumerate(KERNELS):
        weights[kernel, list(heavy)] = 2.0
    return weights


def dilations_of(length: int, per_kernel: int) -> dict[int, int]:
    """Dilations for recordings of `length` steps -> number of biases of each kernel; together `per_kernel`.

    At most `MAX_DILATIONS` of them grow exponentially up to the largest at which a kernel fits into the recording.
    """
    count = min(per_kernel, MAX_DILATIONS)
    largest = math.log2((length - 1) / (TAPS - 1))
    steps, times = np.unique(np.logspace(0, largest, count, base=2).astype(int), return_counts=True)
    biases = (times * per_kernel / count).astype(int)
    rest = per_kernel - int(biases.sum())
    biases[:rest] += 1  # fewer than there are dilations, because each number was rounded down
    return dict(zip(steps.tolist(), biases.tolist(), strict=True))
