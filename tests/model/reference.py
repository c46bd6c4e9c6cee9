"""Slow float64 versions of the paper's equations, written with loops over what they index.

`state` holds a layer's parameters and buffers under the names of its state_dict.

Reference: Wang et al. 2024, arXiv:2408.08567, eqs. (1) to (4), Algorithms 1 and 2, Figure 1, sec. IV-A.
"""

import math
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from model.config import EncoderConfig

Array = NDArray[np.float64]
State = Mapping[str, Array]


def below(state: State, prefix: str) -> State:
    """The part of a state that belongs to one sub-layer."""
    return {name.removeprefix(prefix + "."): array for name, array in state.items() if name.startswith(prefix + ".")}


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


def layer_norm(x: Array, state: State) -> Array:
    """Normalise the last axis."""
    centred = x - x.mean(axis=-1, keepdims=True)
    scaled = centred / np.sqrt((centred**2).mean(axis=-1, keepdims=True) + 1e-5)
    return scaled * state["weight"] + state["bias"]


def linear(x: Array, state: State) -> Array:
    """W x + b for each row of x (N, I)."""
    return np.array([state["weight"] @ row + state["bias"] for row in x])


def gelu(x: Array) -> Array:
    """X times the normal distribution function of x."""
    return x * np.array([0.5 * (1 + math.erf(value / math.sqrt(2))) for value in x.flat]).reshape(x.shape)


def smoother(x: Array, state: State, num_segments: int) -> Array:
    """Algorithm 2 on x (N, C), with BatchNorm's running statistics of each position."""
    smooth = fourier_convolution(x, state["kernel"], num_segments)
    stem = conv1d(np.hstack([smooth, x]), state["conv.weight"], state["conv.bias"])
    out = np.zeros_like(stem)
    for t in range(len(x)):
        scaled = (stem[t] - state["norm.running_mean"][t]) / math.sqrt(state["norm.running_var"][t] + 1e-5)
        out[t] = np.maximum(scaled * state["norm.weight"][t] + state["norm.bias"][t], 0)
    return out


def skeleton_head(q: Array, k: Array, v: Array, rows: Array, columns: Array) -> tuple[Array, Array]:
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


def skeleton_attention(q: list[Array], k: list[Array], v: list[Array], state: State) -> Array:
    """Algorithm 1 on the heads' q, k, v (N, D) each: half of each part, normalised over all heads together."""
    heads = [skeleton_head(*head, state["rows"], state["columns"]) for head in zip(q, k, v, strict=True)]
    row, column = (np.hstack([head[part] for head in heads]) for part in (0, 1))
    return layer_norm(row, below(state, "row_norm")) / 2 + layer_norm(column, below(state, "column_norm")) / 2


def attention(x: Array, state: State, config: EncoderConfig) -> Array:
    """Smoother, projections, skeleton attention, output projection on x (N, C)."""
    h = smoother(x, below(state, "smoother"), config.num_segments)
    q, k, v = np.split(linear(h, below(state, "qkv")), 3, axis=1)
    heads = [np.split(part, config.num_heads, axis=1) for part in (q, k, v)]
    return linear(skeleton_attention(*heads, below(state, "skeleton")), below(state, "out"))


def block(x: Array, state: State, config: EncoderConfig) -> Array:
    """Pre-norm block on x (N, C)."""
    x = x + attention(layer_norm(x, below(state, "attention_norm")), below(state, "attention"), config)
    hidden = gelu(linear(layer_norm(x, below(state, "mlp_norm")), below(state, "mlp.0")))
    return x + linear(hidden, below(state, "mlp.3"))


def encoder(document: bytes, state: State, config: EncoderConfig) -> Array:
    """Token vectors (N, C) of one document, padded here to seq_len."""
    tokens = [byte + 1 for byte in document] + [0] * (config.seq_len - len(document))
    embeddings = zip(tokens, state["position_embedding"], strict=True)
    x = np.array([state["byte_embedding.weight"][token] + position for token, position in embeddings])
    for i in range(config.num_layers):
        x = block(x, below(state, f"blocks.{i}"), config)
    return layer_norm(x, below(state, "norm"))


def classifier(document: bytes, state: State, config: EncoderConfig) -> Array:
    """Logits (classes,) of one document."""
    pooled = encoder(document, below(state, "encoder"), config).mean(axis=0)
    hidden = np.maximum(linear(pooled[None], below(state, "head.0")), 0)
    return linear(hidden, below(state, "head.2"))[0]
