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
MAX_CHANNELS = 9
"""Most channels that one kernel reads."""
GOLDEN = (math.sqrt(5) + 1) / 2


class MiniRocket(nn.Module):
    """Shares of the steps at which each convolution exceeds each of its biases.

    f = 1 / |T| sum over t in T of [sum over channels and taps of w_tap x(t + dilation (tap - 4)) > bias]

    T are all steps, with zeros outside the recording, for every second kernel; and the steps that need no such zeros
    for the others. All values are multiples of `artifact.recordings.GRID` and all biases lie between two of them, so
    that every backend compares alike.

    Shape:      x (B, N, C); returns (B, features).
    Reference:  Dempster et al. 2021, arXiv:2012.08791, sec. 3; several channels as in its published code.
    Deviates:   values are rounded to a grid.
    """

    def __init__(self, num_channels: int, length: int, per_kernel: int) -> None:
        super().__init__()
        self.length = length
        self.biases = dilations_of(length, per_kernel)
        """Dilation -> number of biases of each kernel."""
        for index, (step, count) in enumerate(self.biases.items()):
            inner = torch.zeros(length)
            inner[TAPS // 2 * step : length - TAPS // 2 * step] = 1
            is_inner = (torch.arange(len(KERNELS)) + index) % 2 == 1
            counted = torch.where(is_inner[:, None], inner, torch.ones(length))  # (84, N)
            self.register_buffer(f"weight_{index}", torch.zeros(len(KERNELS), num_channels, TAPS))
            self.register_buffer(f"bias_{index}", torch.zeros(len(KERNELS), count, 1))
            self.register_buffer(f"counted_{index}", counted.unsqueeze(2), persistent=False)

    @property
    def num_features(self) -> int:
        """Number of features."""
        return len(KERNELS) * sum(self.biases.values())

    def forward(self, x: Tensor) -> Tensor:
        """Features (B, N, C) -> (B, features)."""
        series, found = x.transpose(1, 2), list[Tensor]()
        for index, step in enumerate(self.biases):
            weight, bias, counted = (self.get_buffer(f"{name}_{index}") for name in ("weight", "bias", "counted"))
            output = nn.functional.conv1d(series, weight, dilation=step, padding=TAPS // 2 * step)  # (B, 84, N)
            exceeds = (output.unsqueeze(2) > bias).to(x.dtype)  # (B, 84, m, N)
            found.append((exceeds @ counted / counted.sum(1, keepdim=True)).flatten(1))  # exact up to the division
        return torch.cat(found, dim=1)

    @torch.no_grad()
    def fit(self, recordings: NDArray[np.float32], seed: int) -> None:
        """Draw the channels of each kernel, and its biases: quantiles of its convolution of a random recording.

        Shape:  recordings (B, N, C), on the grid.
        """
        generator = np.random.default_rng(seed)
        series, first = torch.from_numpy(recordings).transpose(1, 2), 0
        channels = series.shape[1]
        for index, (step, count) in enumerate(self.biases.items()):
            levels = (np.arange(first + 1, first + 1 + len(KERNELS) * count) * GOLDEN % 1).reshape(-1, count)
            first += levels.size
            weight = torch.zeros(len(KERNELS), channels, TAPS)
            bias = np.empty((len(KERNELS), count, 1), np.float32)
            for kernel, taps in enumerate(kernels()):
                number = int(2 ** generator.uniform(0, math.log2(min(channels, MAX_CHANNELS) + 1)))
                weight[kernel, generator.choice(channels, number, replace=False)] = taps
                one = series[int(generator.integers(len(series)))].unsqueeze(0)
                output = nn.functional.conv1d(one, weight[kernel : kernel + 1], dilation=step, padding=TAPS // 2 * step)
                found = np.quantile(output.numpy(), levels[kernel])
                bias[kernel, :, 0] = (np.floor(found / GRID) + 0.5) * GRID
            self.get_buffer(f"weight_{index}").copy_(weight)
            self.get_buffer(f"bias_{index}").copy_(torch.from_numpy(bias))


def kernels() -> Tensor:
    """Weights of the kernels (84, 9)."""
    weights = torch.full((len(KERNELS), TAPS), -1.0)
    for kernel, heavy in enumerate(KERNELS):
        weights[kernel, list(heavy)] = 2.0
    return weights


def dilations_of(length: int, per_kernel: int) -> dict[int, int]:
    """Dilations for recordings of `length` steps -> number of biases of each kernel; together `per_kernel`.

    They grow exponentially up to the largest at which a kernel fits into the recording.
    """
    count = min(per_kernel, MAX_DILATIONS)
    largest = math.log2((length - 1) / (TAPS - 1))
    steps, times = np.unique(np.logspace(0, largest, count, base=2).astype(int), return_counts=True)
    biases = (times * per_kernel / count).astype(int)
    rest = per_kernel - int(biases.sum())
    biases[:rest] += 1  # fewer than there are dilations, because each number was rounded down
    return dict(zip(steps.tolist(), biases.tolist(), strict=True))
