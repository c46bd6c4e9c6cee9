"""Slow float64 versions of all attentions except s3: one token and one head at a time, with exact inverses.

A document has no padding: tokens (l, C). `state` holds the parameters and buffers of a layer by name; options are those
of the layer. The equations are in the docstrings of model/nn/attention.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from model.config.attentions import DynamicBilinearOptions
from model.config.encoder import EncoderConfig
from tests.support.reference import Array, State, below, linear, softmax


@dataclass(frozen=True)
class Layer:
    """What a head needs besides its queries, keys and values."""

    state: State
    options: dict[str, Any]
    n: int
    """seq_len."""
    h: int
    """Index of the head."""


def gaussian(a: Array, b: Array) -> float:
    """exp(-|a - b|^2 / (2 sqrt(D)))."""
    return math.exp(-float(((a - b) ** 2).sum()) / (2 * math.sqrt(len(a))))


def kernel(a: Array, b: Array) -> Array:
    return np.array([[gaussian(x, y) for y in b] for x in a])


def softmax_head(q: Array, k: Array, v: Array, _: Layer) -> Array:
    return np.array([softmax(k @ row / math.sqrt(len(row))) @ v for row in q])


def kernelized_head(q: Array, k: Array, v: Array, _: Layer) -> Array:
    return np.array([sum(gaussian(row, key) * value for key, value in zip(k, v, strict=True)) for row in q])


def skyformer_head(q: Array, k: Array, v: Array, layer: Layer) -> Array:
    """Equation (5) on the lifted matrix, then its upper right block, eq. (6)."""
    length = len(q)
    lifted = np.vstack((q, k))
    chosen = [math.floor(place * length / layer.n) for place in layer.state["query_places"]]
    chosen += [length + math.floor(place * length / layer.n) for place in layer.state["key_places"]]
    columns = kernel(lifted, lifted[chosen])  # B S, (2l, d)
    middle = kernel(lifted[chosen], lifted[chosen]) + layer.options["gamma"] * np.eye(len(chosen))
    approximation = columns @ np.linalg.inv(middle) @ columns.T
    return approximation[:length, length:] @ v


def linformer_head(q: Array, k: Array, v: Array, layer: Layer) -> Array:
    rows = layer.options["projected_length"]
    keys = [sum(layer.state["key_projection"][i, t] * k[t] for t in range(len(k))) for i in range(rows)]
    values = [sum(layer.state["value_projection"][i, t] * v[t] for t in range(len(v))) for i in range(rows)]
    return softmax_head(q, np.array(keys), np.array(values), layer)


def nystrom_head(q: Array, k: Array, v: Array, layer: Layer) -> Array:
    length, count, scale = len(q), layer.options["num_landmarks"], 1 / math.sqrt(q.shape[1])
    starts = [i * length // count for i in range(count)]
    ends = [max((i + 1) * length // count, start + 1) for i, start in enumerate(starts)]
    q_marks, k_marks = (
        np.array([x[start:end].mean(axis=0) for start, end in zip(starts, ends, strict=True)]) for x in (q, k)
    )
    left, right = softmax(scale * q @ k_marks.T), softmax(scale * q_marks @ k.T)
    out = left @ np.linalg.pinv(softmax(scale * q_marks @ k_marks.T), rcond=1e-9) @ right @ v
    taps = layer.state["conv.weight"][layer.h, 0, :, 0]
    for t in range(length):
        for i, tap in enumerate(taps):
            if 0 <= (source := t + i - len(taps) // 2) < length:
                out[t] += tap * v[source]
    return out


def performer_head(q: Array, k: Array, v: Array, layer: Layer) -> Array:
    scale = q.shape[1] ** -0.25

    def features(x: Array) -> Array:
        mapped: Array = np.exp(layer.state["features"] @ (scale * x) - (scale * x) @ (scale * x) / 2)
        return mapped

    keys = np.array([features(key) for key in k])
    return np.array([(keys @ features(row)) @ v / (keys @ features(row)).sum() for row in q])


Head = Callable[[Array, Array, Array, Layer], Array]
HEADS: dict[str, Head] = {
    "kernelized": kernelized_head,
    "linformer": linformer_head,
    "nystrom": nystrom_head,
    "performer": performer_head,
    "skyformer": skyformer_head,
    "softmax": softmax_head,
}


def headed(x: Array, state: State, config: EncoderConfig) -> Array:
    """Multi-head attention on x (l, C), with the head function of HEADS that the config names."""
    parts = np.split(linear(x, below(state, "qkv")), 3, axis=1)
    q, k, v = (np.split(part, config.num_heads, axis=1) for part in parts)
    head = HEADS[config.attention]
    layers = [Layer(state, config.options.model_dump(), config.seq_len, h) for h in range(config.num_heads)]
    mixed = [head(q[layer.h], k[layer.h], v[layer.h], layer) for layer in layers]
    return linear(np.hstack(mixed), below(state, "out"))


def compressed(latent: Array, x: Array) -> Array:
    """Rows of softmax(Z x^T) x, one at a time."""
    return np.array([softmax(x @ row) @ x for row in latent])


def dba(x: Array, state: State, config: EncoderConfig) -> Array:
    """DBA on x (l, C)."""
    inner, count = state["inner.weight"], config.options_of(DynamicBilinearOptions).compressed_length
    q, k, v = np.split(linear(x, below(state, "qkv")), 3, axis=1)
    rows, columns = np.split(linear(x, below(state, "expand")), 2, axis=1)
    mixed = []
    for h in range(config.num_heads):
        part = slice(h * config.head_dim, (h + 1) * config.head_dim)
        latent, expand = state["latent"][h], slice(h * count, (h + 1) * count)
        low_q, low_k = compressed(latent, q[:, part]) @ inner.T, compressed(latent, k[:, part]) @ inner.T
        values = columns[:, expand].T @ v[:, part] / math.sqrt(len(x))
        mixed.append(rows[:, expand] @ softmax(low_q @ low_k.T / math.sqrt(len(inner))) @ values)
    return linear(np.hstack(mixed), below(state, "out"))


def dba_cross(x: Array, other: Array, state: State, config: EncoderConfig) -> Array:
    """DBA from x (l, C) to another sequence (m, C)."""
    inner, count = state["inner.weight"], config.options_of(DynamicBilinearOptions).compressed_length
    projected = linear(other, below(state, "other"))
    summary = np.array([softmax(projected @ row) @ other for row in state["latent"]])
    latents, k, v = np.split(linear(summary, below(state, "guide")), 3, axis=1)
    q, rows = linear(x, below(state, "query")), linear(x, below(state, "expand"))
    mixed = []
    for h in range(config.num_heads):
        part = slice(h * config.head_dim, (h + 1) * config.head_dim)
        low_q = compressed(latents[:, part], q[:, part]) @ inner.T
        weights = softmax(low_q @ (k[:, part] @ inner.T).T / math.sqrt(len(inner)))
        mixed.append(rows[:, h * count : (h + 1) * count] @ weights @ v[:, part])
    return linear(np.hstack(mixed), below(state, "out"))


WHOLE: dict[str, Callable[[Array, State, EncoderConfig], Array]] = {"dba": dba}
"""References of the attentions that are not one function of a head's queries, keys and values."""


def attention(x: Array, state: State, config: EncoderConfig) -> Array:
    """Return the output of the attention that the config names, for x (l, C)."""
    return WHOLE.get(config.attention, headed)(x, state, config)
