"""Slow float64 versions of the paper's equations, written with loops over what they index.

`state` holds a layer's parameters and buffers under the names of its state_dict.

Reference: Wang et al. 2024, arXiv:2408.08567, eqs. (1) to (4), Algorithms 1 and 2, Figure 1, sec. IV-A. N-gram stem,
matcher and residual forecaster: the equations in their docstrings.
"""

import math
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from model.config import EncoderConfig, ForecasterConfig, MatcherConfig, StemConfig

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
    """Algorithm 2 on x (N, C), with BatchNorm's running statistics of each position; Table 7's without a kernel."""
    smooth = [fourier_convolution(x, state["kernel"], num_segments)] if "kernel" in state else []
    stem = conv1d(np.hstack([*smooth, x]), state["conv.weight"], state["conv.bias"])
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


def ngram_row(gram: bytes, num_buckets: int) -> int:
    """Row of the table for one n-gram, from 1: polynomial hash, then the upper bits of a multiplicative one."""
    letters = [byte + (32 if 65 <= byte <= 90 else 0) + 1 for byte in gram]
    value = sum(letter * 257**power for power, letter in enumerate(reversed(letters))) % (2**31 - 1)
    spread = (value * 2654435761 + len(gram) * 257) % 2**32
    return 1 + spread * num_buckets // 2**32


def ngram_rows(document: bytes, config: StemConfig) -> dict[tuple[int, int], int]:
    """(end, length) of every n-gram of a document -> its row of the table."""
    return {
        (end, n): ngram_row(document[end - n + 1 : end + 1], config.num_buckets)
        for end in range(len(document))
        for n in range(config.shortest, config.longest + 1)
        if n <= end + 1
    }


def stem(document: bytes, state: State, config: StemConfig, num_tokens: int) -> Array:
    """Tokens (T, C) of one document."""
    table = dict(enumerate(state["weight"]))
    tokens = np.zeros((num_tokens, state["weight"].shape[1]))
    for (end, _), row in ngram_rows(document, config).items():
        tokens[end // config.patch_length] += table[row]
    return tokens / (config.patch_length * (config.longest - config.shortest + 1))


def document_vector(document: bytes, state: State, config: MatcherConfig) -> Array:
    """Vector (C,) of one document."""
    x = stem(document, below(state, "stem"), config.stem, config.encoder.seq_len) * state["scale"]
    context = x
    for i in range(config.encoder.num_layers):
        context = block(context, below(state, f"blocks.{i}"), config.encoder)
    context = layer_norm(context, below(state, "norm"))
    count = math.ceil(len(document) / config.stem.patch_length)
    v = sum(x[t] + state["gate"] * context[t] for t in range(count)) / count
    v = (v - state["mean"]) / state["deviation"]
    return v / math.sqrt((v**2).mean() + 1e-6)


def matching_head(a: Array, b: Array, state: State) -> float:
    """Logit of one pair of vectors (C,)."""
    features = np.concatenate([a, b, a * b, a - b])
    hidden = np.maximum(linear(features[None], below(state, "mlp.0")), 0)
    bilinear = linear((a * b)[None], below(state, "bilinear"))
    return float((bilinear + linear(hidden, below(state, "mlp.3")))[0, 0])


def residual_forecast(x: Array, state: State, config: ForecasterConfig) -> Array:
    """Forecast (O, C) of one window x (N, C)."""
    channels = []
    for c, series in enumerate(x.T):
        change, scale = series - series[-1], math.sqrt(series.var(ddof=1) + 1.0)
        patches = (change / scale).reshape(-1, config.patch_length)
        e = linear(patches, below(state, "embedding")) + state["position_embedding"]
        for i in range(config.encoder.num_layers):
            e = block(e, below(state, f"blocks.{i}"), config.encoder)
        e = layer_norm(e, below(state, "norm")).reshape(1, -1)
        correction = linear(linear(e, below(state, "head.0")), below(state, "head.1"))[0]
        mapped = linear(change[None], below(state, "linear"))[0]
        channels.append(series[-1] + mapped + state["gate"][c] * scale * correction)
    return np.stack(channels, axis=1)


def paper_forecast(x: Array, state: State, config: ForecasterConfig) -> Array:
    """Algorithm 3 on one window x (N, C); returns (O, C)."""
    mean, scale = x.mean(axis=0), np.sqrt(x.var(axis=0, ddof=1) + 1)
    e = linear((x - mean) / scale, below(state, "embedding"))
    for i in range(config.encoder.num_layers):
        e = e + attention(e, below(state, f"layers.{i}"), config.encoder)
    return state["extrapolation"] @ linear(e, below(state, "post")) * scale + mean
