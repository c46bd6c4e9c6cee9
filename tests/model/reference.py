"""Slow float64 versions of the paper's equations, written with loops over what they index.

Reference: Wang et al. 2024, arXiv:2408.08567, eqs. (1) to (4), Algorithms 1 and 2.
"""

import math

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def fourier_convolution(x: Array, kernel: Array, num_segments: int) -> Array:
    """Circular convolution, summed in the time domain, of X S (N, C) with the real kernel of L (N/2 + 1, C, 2)."""
    n, width = x.shape
    size = width // num_segments
    out = np.zeros((n, width))
    for c in range(width):
        first = c // size * size
        signal = x[:, first : first + size].mean(axis=1)
        time_kernel = np.fft.irfft(kernel[:, c, 0] + 1j * kernel[:, c, 1], n)
        for t in range(n):
            out[t, c] = sum(time_kernel[(t - u) % n] * signal[u] for u in range(n))
    return out


def conv1d(x: Array, weight: Array, bias: Array) -> Array:
    """Convolution over positions of x (N, I) with weight (O, I, 3), one zero on each side."""
    n = len(x)
    padded = np.vstack([np.zeros((1, x.shape[1])), x, np.zeros((1, x.shape[1]))])
    return np.array([bias + sum(weight[:, :, tap] @ padded[t + tap] for tap in range(3)) for t in range(n)])


def softmax(scores: Array) -> Array:
    """Softmax over the last axis."""
    e = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def layer_norm(x: Array, weight: Array, bias: Array) -> Array:
    """Normalise the last axis."""
    centred = x - x.mean(axis=-1, keepdims=True)
    return centred / np.sqrt((centred**2).mean(axis=-1, keepdims=True) + 1e-5) * weight + bias


def skeleton_attention(q: Array, k: Array, v: Array, rows: list[int], columns: list[int]) -> tuple[Array, Array]:
    """Row and column attention (before their LayerNorms) of one head, q, k, v (N, D)."""
    n, d = q.shape
    row = np.zeros((n, d))
    for i in range(n):
        weights = softmax(np.array([q[i] @ k[j] / math.sqrt(d) for j in rows]))
        row[i] = sum(w * v[j] for w, j in zip(weights, rows, strict=True))
    column = np.zeros((n, d))
    for a in range(d):
        weights = softmax(np.array([q[:, a] @ k[:, b] / math.sqrt(n) for b in columns]))
        column[:, a] = sum(w * v[:, b] for w, b in zip(weights, columns, strict=True))
    return row, column
