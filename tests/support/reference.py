"""Slow float64 versions of the paper's equations, written as loops.

`state` holds the parameters and buffers of a layer under the names of its state_dict.

Length-aware layers get one document without padding, tokens (l, C); in the other modes, they get it padded to seq_len.
`length` is its number of real tokens, which only mode `paper-masked` reads; default: all.

Reference: Wang et al. 2024, arXiv:2408.08567, eqs. (1) to (4), Algorithms 1 and 2, Figure 1, sec. IV-A. The equations
of n-gram stem, words, both views of words and of bytes, matcher and residual forecaster are in their docstrings.
"""

# ruff: noqa: RUF001
import math
import unicodedata
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from model.config.attentions import S3Options
from model.config.encoder import EncoderConfig
from model.config.models import ClassifierConfig, ForecasterConfig, MatcherConfig, StemConfig
from model.nn.tokens import SHARE_TEMPERATURE

Array = NDArray[np.float64]
State = Mapping[str, Array]


def below(state: State, prefix: str) -> State:
    """Return the part of a state that belongs to one sub-layer, without the prefix."""
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
    """Convolution over positions of x (N, I) with weight (O, I, k), k odd, (k - 1) / 2 zeros on each side."""
    size = weight.shape[2]
    zeros = np.zeros((size // 2, x.shape[1]))
    padded = np.vstack([zeros, x, zeros])
    return np.array([bias + sum(weight[:, :, tap] @ padded[t + tap] for tap in range(size)) for t in range(len(x))])


def softmax(scores: Array) -> Array:
    """Softmax over the last axis."""
    e = np.exp(scores - scores.max(axis=-1, keepdims=True))
    shares: Array = e / e.sum(axis=-1, keepdims=True)
    return shares


def layer_norm(x: Array, state: State) -> Array:
    """Normalise the last axis."""
    centred = x - x.mean(axis=-1, keepdims=True)
    scaled: Array = centred / np.sqrt((centred**2).mean(axis=-1, keepdims=True) + 1e-5)
    return scaled * state["weight"] + state["bias"]


def linear(x: Array, state: State) -> Array:
    """W x + b for each row of x (N, I)."""
    return np.array([state["weight"] @ row + state["bias"] for row in x])


def gelu(x: Array) -> Array:
    """X times the normal distribution function of x."""
    share: Array = np.array([0.5 * (1 + math.erf(value / math.sqrt(2))) for value in x.flat]).reshape(x.shape)
    return x * share


def smoother(x: Array, state: State, config: EncoderConfig) -> Array:
    """Algorithm 2 on x (N, C), with BatchNorm's running statistics of each position, or Table 7 without a kernel.

    Length-aware: convolution over the document padded with zeros to seq_len, and LayerNorm of each token.
    """
    padded = np.vstack([x, np.zeros((config.seq_len - len(x), x.shape[1]))])
    smooth = []
    if "kernel" in state:
        smooth = [fourier_convolution(padded, state["kernel"], config.options_of(S3Options).num_segments)[: len(x)]]
    stem = (
        smooth[0]
        if not config.options_of(S3Options).use_stem
        else conv1d(np.hstack([*smooth, x]), state["conv.weight"], state["conv.bias"])
    )
    if config.is_length_aware:
        return np.maximum(layer_norm(stem, below(state, "norm")), 0)
    out = np.zeros_like(stem)
    for t in range(len(x)):
        scaled = (stem[t] - state["norm.running_mean"][t]) / math.sqrt(state["norm.running_var"][t] + 1e-5)
        out[t] = np.maximum(scaled * state["norm.weight"][t] + state["norm.bias"][t], 0)
    return out


def skeleton_head(q: Array, k: Array, v: Array, rows: Iterable[int], columns: Iterable[int]) -> tuple[Array, Array]:
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


def sampled_rows(length: int, config: EncoderConfig) -> list[int]:
    """Indices of the tokens that row attention samples in a length-aware document: the middles of s1 equal parts."""
    num_rows = config.options_of(S3Options).num_rows
    return [math.floor((k + 0.5) * length / num_rows) for k in range(num_rows)]


def skeleton_attention(h: Array, state: State, config: EncoderConfig, length: int | None = None) -> Array:
    """Algorithm 1 on h (N, C): projections, then half of each part, normalised over all heads together.

    Masked: keys and values are zero at padding, the sampled ones included; their scores are zero, too.
    """
    rows = sampled_rows(len(h), config) if config.is_length_aware else state["rows"]
    q, k, v = np.split(linear(h, below(state, "qkv")), 3, axis=1)
    if config.mode == "paper-masked":
        k[length:], v[length:] = 0.0, 0.0
    of_heads = (np.split(x, config.num_heads, axis=1) for x in (q, k, v))
    heads = [skeleton_head(q, k, v, rows, state["columns"]) for q, k, v in zip(*of_heads, strict=True)]
    row, column = (np.hstack([head[part] for head in heads]) for part in (0, 1))
    return layer_norm(row, below(state, "row_norm")) / 2 + layer_norm(column, below(state, "column_norm")) / 2


def attention(x: Array, state: State, config: EncoderConfig, length: int | None = None) -> Array:
    """Smoother, skeleton attention, output projection on x (N, C). The smoother reads padding, masked or not."""
    h = smoother(x, below(state, "smoother"), config)
    options = config.options_of(S3Options)
    if options.use_rows or options.use_columns:
        h = skeleton_attention(h, below(state, "skeleton"), config, length)
    return linear(h, below(state, "out"))


def block(x: Array, state: State, config: EncoderConfig, length: int | None = None) -> Array:
    """Pre-norm block on x (N, C)."""
    x = x + attention(layer_norm(x, below(state, "attention_norm")), below(state, "attention"), config, length)
    hidden = gelu(linear(layer_norm(x, below(state, "mlp_norm")), below(state, "mlp.0")))
    return x + linear(hidden, below(state, "mlp.3"))


def encoder(document: bytes, state: State, config: EncoderConfig) -> Array:
    """Token vectors (N, C) of one document, padded here to seq_len unless length-aware."""
    padding = 0 if config.is_length_aware else config.seq_len - len(document)
    tokens = [byte + 1 for byte in document] + [0] * padding
    x = np.array(
        [state["byte_embedding.weight"][token] + state["position_embedding"][t] for t, token in enumerate(tokens)]
    )
    for i in range(config.num_layers):
        x = block(x, below(state, f"blocks.{i}"), config, len(document))
    return layer_norm(x, below(state, "norm"))


def classifier(document: bytes, state: State, config: EncoderConfig) -> Array:
    """Logits (classes,) of one document. Masked: padding counts as zero in the mean."""
    tokens = encoder(document, below(state, "encoder"), config)
    if config.mode == "paper-masked":
        tokens[len(document) :] = 0.0
    pooled = tokens.mean(axis=0)
    hidden = np.maximum(linear(pooled[None], below(state, "head.0")), 0)
    logits: Array = linear(hidden, below(state, "head.2"))[0]
    return logits


def byte_hash(gram: bytes) -> int:
    """Polynomial hash of an n-gram of bytes, in lower case."""
    letters = [byte + (32 if 65 <= byte <= 90 else 0) + 1 for byte in gram]
    value: int = sum(letter * 257**power for power, letter in enumerate(reversed(letters))) % (2**31 - 1)
    return value


def ngram_row(gram: bytes, num_buckets: int) -> int:
    """Row of the table for one n-gram, from 1: the upper bits of a multiplicative hash of its hash."""
    spread = (byte_hash(gram) * 2654435761 + len(gram) * 257) % 2**32
    return 1 + spread * num_buckets // 2**32


def ngram_rows(document: bytes, config: StemConfig) -> dict[tuple[int, int], int]:
    """Map (end, length) of every n-gram of a document to its row of the table."""
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


def words(document: bytes) -> list[str]:
    """Words of a document, in the form that is hashed."""
    return [word for word, _ in located_words(document)]


def located_words(document: bytes) -> list[tuple[str, int]]:
    """Words of a document, in the form that is hashed, and where the last character of each begins."""
    found: list[tuple[str, int]] = []
    last_letter = -1  # position of the last letter, if nothing but skipped bytes has followed
    for position, (kind, folded) in enumerate(characters(document)):
        if kind == "skipped":
            continue
        goes_on = kind == "letter" and 0 <= last_letter >= position - 8
        if kind in ("letter", "mark"):
            found.append((found.pop()[0] + folded if goes_on else folded, position))
        last_letter = position if kind == "letter" else -1
    return found


def characters(document: bytes) -> list[tuple[str, str]]:
    """For each byte of a document, kind and folded form of the character that begins there."""
    found = []
    for position, byte in enumerate(document):
        length = 1 + (byte >= 0xC0) + (byte >= 0xE0) + (byte >= 0xF0)
        rest = [other & 0x3F for other in document[position + 1 : position + length] if 0x80 <= other < 0xC0]
        code = byte & 0xFF >> length
        for bits in rest:
            code = code * 64 + bits
        if 0x80 <= byte < 0xC0:
            found.append(("skipped", ""))
        elif length == 1:
            found.append(character(chr(byte)))
        elif len(rest) < length - 1:  # the letter of Latin-1
            found.append(("letter", folded_letter(chr(byte))))
        elif length == 4:
            found.append(("mark", chr(code % 65536)))
        elif code < 128:  # a long form of ASCII, which UTF-8 forbids
            found.append(("letter", folded_letter(chr(max(byte, 128 + code)))))
        else:
            found.append(character(chr(code)))
    return found


SCRIPTS_WITHOUT_SPACES = (
    "CJK IDEOGRAPHIC MASU KANA HIRAGANA KATAKANA KATAKANA-HIRAGANA BOPOMOFO HANGUL YI THAI LAO TIBETAN MYANMAR KHMER"
)
"""First words of the names of their letters."""
QUOTES, APOSTROPHES = "«»“”„‟‹›″「」『』〝〞〟｢｣", "'‘’‚‛ʼ＇"
STOPS = {"−": "-", "。": ".", "｡": ".", "۔": ".", "।": ".", "、": ",", "､": ",", "،": ",", "؛": ";", "؟": "?"}


def character(char: str) -> tuple[str, str]:
    """Kind of a character (letter, mark, skipped or space) and its folded form, which is empty for apostrophes."""
    category, name = unicodedata.category(char), unicodedata.name(char, "")
    if char in APOSTROPHES:
        return "letter", ""
    if char == "\u200b" or category in ("Zs", "Zl", "Zp", "Cc", "Cs", "Cn"):
        return "space", ""
    if category == "Cf" or is_accent(char) or "SELECTOR" in name:
        return "skipped", ""
    usual = unicodedata.normalize("NFKD", char)
    if len(usual) == 1 and usual != char:
        return character(usual) if usual < "\U00010000" else ("mark", chr(ord(usual) % 65536))
    if category in ("Lu", "Ll", "Lt", "Lm", "Lo", "Mn", "Mc", "Me", "Nd", "Nl", "No"):
        script = next(word for word in name.split() if word not in ("COMBINING", "HALFWIDTH", "VERTICAL"))
        is_alone = script in SCRIPTS_WITHOUT_SPACES.split() and category[0] != "N"
        return "mark" if is_alone else "letter", folded_letter(char)
    if category == "Pd":
        return "mark", "-"
    if char in QUOTES:
        return "mark", '"'
    if char in STOPS:
        return "mark", STOPS[char]
    return "mark", usual[0] if usual.isascii() and not usual[0].isalnum() else char


def is_accent(char: str) -> bool:
    """Whether a character is in a block of combining marks for letters or symbols."""
    blocks = ("0300-036f", "1ab0-1aff", "1dc0-1dff", "20d0-20ff", "fe20-fe2f")
    return any(first <= f"{ord(char):04x}" <= last for first, last in (block.split("-") for block in blocks))


def folded_letter(letter: str) -> str:
    """Lower case of a letter without accents, in its usual form; the letter itself if that is more than one."""
    bare = "".join(part for part in unicodedata.normalize("NFKD", letter) if not is_accent(part)).casefold()
    candidates = (bare, letter.casefold(), letter.lower())
    return next((one for one in candidates if len(one) == 1 and (one.isalpha() or one.isnumeric())), letter)


def word_hash(word: str) -> int:
    """Polynomial hash of the letters of one word, each as a signed number of 16 bits."""
    values = [(ord(letter) + 32768) % 65536 - 32768 for letter in word]
    value: int = sum(value * 1_000_003**power for power, value in enumerate(values, start=1)) % (2**31 - 1)
    return value


def ngram_hash(ngram: Sequence[str]) -> int:
    """Hash of a sequence of words."""
    value = word_hash(ngram[0])
    for n, word in enumerate(ngram[1:], start=2):
        value = value * 69_621 + word_hash(word) + n
    return value % (2**31 - 1)


def prefix_hash(prefix: str) -> int:
    """Hash of the first characters of a word."""
    return (word_hash(prefix) * 48_271 + len(prefix)) % (2**31 - 1)


def word_ngrams(document: bytes, longest: int, *, prefixes: bool = False) -> list[list[int]]:
    """For each word, hashes of the n-grams of 1 ... longest words that end at it, and of its prefixes if wanted.

    -1 for those that would not fit.
    """
    found = words(document)
    sizes = (3, 4, 5) if prefixes else ()
    return [
        [ngram_hash(found[end - n : end]) if n <= end else -1 for n in range(1, longest + 1)]
        + [prefix_hash(found[end - 1][:size]) if size <= len(found[end - 1]) else -1 for size in sizes]
        for end in range(1, len(found) + 1)
    ]


def known_words(document: bytes, ngrams: Collection[int], longest: int) -> list[int]:
    """Number of words at which one of the n-grams ends, and of all words."""
    found = word_ngrams(document, longest)
    return [sum(any(value in ngrams for value in row) for row in found), len(found)]


def ngram_set(document: bytes, longest: int, *, prefixes: bool = False) -> set[int]:
    """Hashes of the different n-grams of a document."""
    return {value for row in word_ngrams(document, longest, prefixes=prefixes) for value in row if value != -1}


def ngram_factors(document: bytes, longest: int, *, sublinear: bool, prefixes: bool = False) -> dict[int, float]:
    """For each n-gram of a document, by its hash, how often it counts."""
    rows = word_ngrams(document, longest, prefixes=prefixes)
    counts = Counter(value for row in rows for value in row if value != -1)
    return {value: 1 + math.log(count) if sublinear else 1.0 for value, count in counts.items()}


def ngram_classifier(
    document: bytes,
    ngrams: Sequence[int],
    state: State,
    longest: int,
    *,
    sublinear: bool = False,
    prefixes: bool = False,
) -> Array:
    """Logits (classes,) of the n-gram view for one document; row 1 + i of the table belongs to ngrams[i]."""
    return linear_view(ngram_factors(document, longest, sublinear=sublinear, prefixes=prefixes), ngrams, state)


def linear_view(factors: Mapping[int, float], ngrams: Sequence[int], state: State) -> Array:
    """Logits (classes,) of the n-gram view, given how often each n-gram of the document counts."""
    known = [(factors[value], state["table"][1 + i]) for i, value in enumerate(ngrams) if value in factors]
    length = math.sqrt(state["prior"] + sum((factor * math.sqrt(row[-1])) ** 2 for factor, row in known))
    logits: Array = np.array(state["bias"])
    for factor, row in known:
        scale = math.sqrt(row[-1])
        logits = logits + row[:-1] / scale * (factor * scale / length)
    return logits


def ngram_contributions(
    document: bytes,
    ngrams: Sequence[int],
    state: State,
    longest: int,
    stretch_bytes: int,
    *,
    sublinear: bool = False,
    prefixes: bool = False,
) -> Array:
    """Contributions (stretches, classes) of the n-gram view for one document."""
    hashes = word_ngrams(document, longest, prefixes=prefixes)
    ends = [end for _, end in located_words(document)]
    factors = ngram_factors(document, longest, sublinear=sublinear, prefixes=prefixes)
    return linear_contributions(
        hashes, ends, factors, ngrams, state, math.ceil(len(document) / stretch_bytes), stretch_bytes
    )


def linear_contributions(
    hashes: Sequence[Sequence[int]],
    ends: Sequence[int],
    factors: Mapping[int, float],
    ngrams: Sequence[int],
    state: State,
    num_stretches: int,
    stretch_bytes: int,
) -> Array:
    """Contributions (num_stretches, classes) of the n-gram view, given the n-grams that end at each of some places."""
    counts = Counter(value for row in hashes for value in row)
    known = {value: state["table"][1 + i] for i, value in enumerate(ngrams) if value in counts}
    length = math.sqrt(state["prior"] + sum(factors[value] ** 2 * row[-1] for value, row in known.items()))
    found = np.zeros((num_stretches, len(state["bias"])))
    for end, values in zip(ends, hashes, strict=True):
        for value in values:
            if value in known:
                found[end // stretch_bytes] += known[value][:-1] * factors[value] / length / counts[value]
    return found


def located_ngrams(
    document: bytes, ngrams: Sequence[int], longest: int, stretch_bytes: int
) -> tuple[list[int], list[int]]:
    """Ids of the known n-grams of a document in order, and the stretch in which each ends; ngrams[i] has the id 1 + i.

    Of the n-grams that end at the same word, the shortest comes first.
    """
    ids, stretches = [], []
    for (_, end), values in zip(located_words(document), word_ngrams(document, longest), strict=True):
        for value in values:
            if value in ngrams:
                ids.append(1 + ngrams.index(value))
                stretches.append(end // stretch_bytes)
    return ids, stretches


def vector_tokens(
    ids: list[int], length: int, state: State, config: EncoderConfig, bytes_per_token: int
) -> tuple[Array, list[list[int]]]:
    """Vectors (n, C) of the tokens of one document, and the places of the n-grams of each token in `ids`."""
    known = [i for i, ngram in enumerate(ids) if ngram]
    count = max(1, min(len(known), math.ceil(length / bytes_per_token), config.seq_len))
    groups: list[list[int]] = [[] for _ in range(count)]
    for order, i in enumerate(known):
        groups[order * count // len(known)].append(i)
    tokens = np.zeros((count, state["vectors"].shape[1]))
    for t, group in enumerate(groups):
        for i in group:
            tokens[t] += state["vectors"][ids[i]] / len(group)
    return tokens, groups


def encoded_tokens(tokens: Array, state: State, config: EncoderConfig) -> Array:
    """Token vectors (n, C) after the blocks and the last norm."""
    for i in range(config.num_layers):
        tokens = block(tokens, below(state, f"blocks.{i}"), config)
    return layer_norm(tokens, below(state, "norm"))


def vector_classifier(ids: list[int], length: int, state: State, config: EncoderConfig, bytes_per_token: int) -> Array:
    """Logits (classes,) of the vector view for one document of `length` bytes, given the ids of its n-grams."""
    tokens, _ = vector_tokens(ids, length, state, config, bytes_per_token)
    x, weight = encoded_tokens(tokens, state, config), state["head.weight"]
    logits = np.zeros(len(weight))
    for label in range(len(logits)):
        for channel in range(x.shape[1]):
            logits[label] += weight[label, channel] * sum(x[:, channel]) / len(x)
            logits[label] += weight[label, x.shape[1] + channel] * max(x[:, channel])
            mean = sum(tokens[:, channel]) / len(tokens)
            logits[label] += state["evidence.weight"][label, channel] * state["gain"] * mean
    found: Array = document_share(ids, state) * logits + state["head.bias"]
    return found


def document_share(ids: list[int], state: State) -> float:
    """Factor of the logits of the vector view for one document, given the ids of its n-grams."""
    known = sum(i > 0 for i in ids)
    return float(known / (known + state["prior"]))


def share_of_maximum(values: Array, place: int) -> float:
    """The part of the maximum of `values` that one of them contributes."""
    highest = max(values)
    shares = [math.exp((value - highest) / SHARE_TEMPERATURE) for value in values]
    return float(highest * shares[place] / sum(shares))


def vector_contributions(
    ids: list[int],
    stretches: list[int],
    length: int,
    state: State,
    config: EncoderConfig,
    bytes_per_token: int,
    num_stretches: int,
) -> Array:
    """Contributions (num_stretches, classes) of the vector view for one document, given the stretch of each n-gram."""
    tokens, groups = vector_tokens(ids, length, state, config, bytes_per_token)
    x, weight = encoded_tokens(tokens, state, config), state["head.weight"]
    found = np.zeros((num_stretches, len(weight)))
    for t, group in enumerate(groups):
        stretch = sum(stretches[i] for i in group) // max(1, len(group))
        found[stretch] += weight[:, : x.shape[1]] @ x[t] / len(x)
        found[stretch] += state["gain"] * state["evidence.weight"] @ tokens[t] / len(x)
        for channel in range(x.shape[1]):
            found[stretch] += weight[:, x.shape[1] + channel] * share_of_maximum(x[:, channel], t)
    return document_share(ids, state) * found


def word_classifier(document: bytes, ngrams: Sequence[int], state: State, config: ClassifierConfig) -> Array:
    """Logits (classes,) of both views for one document; `ngrams` are the hashes of their rows from 1."""
    view, ngram_view = below(state, "ngram_view"), config.ngram_view
    kind = {"sublinear": ngram_view.sublinear, "prefixes": ngram_view.prefixes}
    first = ngram_classifier(document, ngrams, view, ngram_view.longest, **kind)
    logits: Array = state["weights"][0] * first
    if config.vector_view is not None:
        ids, _ = located_ngrams(document, ngrams, ngram_view.longest, 1)
        view, length = below(state, "vector_view"), len(document)
        second = vector_classifier(ids, length, view, config.required_encoder, config.vector_view.bytes_per_token)
        logits = logits + state["weights"][1] * second
    return logits


def word_contributions(
    document: bytes, ngrams: Sequence[int], state: State, config: ClassifierConfig, stretch_bytes: int
) -> Array:
    """Contributions (stretches, classes) of both views for one document; otherwise as `word_classifier`."""
    view, longest = below(state, "ngram_view"), config.ngram_view.longest
    kind = {"sublinear": config.ngram_view.sublinear, "prefixes": config.ngram_view.prefixes}
    first = ngram_contributions(document, ngrams, view, longest, stretch_bytes, **kind)
    found: Array = state["weights"][0] * first
    if config.vector_view is not None:
        second = vector_contributions(
            *located_ngrams(document, ngrams, longest, stretch_bytes),
            len(document),
            below(state, "vector_view"),
            config.required_encoder,
            config.vector_view.bytes_per_token,
            len(found),
        )
        found = found + state["weights"][1] * second
    return found


def byte_ngrams(document: bytes, sizes: Sequence[int]) -> list[list[int]]:
    """For each byte, hashes of the n-grams of these sizes that end at it, -1 for those that would not fit."""
    return [
        [byte_hash(document[end - n : end]) if n <= end else -1 for n in sizes] for end in range(1, len(document) + 1)
    ]


def byte_factors(document: bytes, sizes: Sequence[int], *, sublinear: bool) -> dict[int, float]:
    """For each n-gram of a document, by its hash, how often it counts."""
    counts = Counter(value for row in byte_ngrams(document, sizes) for value in row if value != -1)
    return {value: 1 + math.log(count) if sublinear else 1.0 for value, count in counts.items()}


def byte_rows(document: bytes, sizes: Sequence[int], num_buckets: int) -> list[list[int]]:
    """Rows of the table for the n-grams of these sizes that end at each byte, 0 for those that would not fit."""
    return [
        [ngram_row(document[end - n : end], num_buckets) if n <= end else 0 for n in sizes]
        for end in range(1, len(document) + 1)
    ]


def patch_tokens(rows: Sequence[Sequence[int]], state: State, patch_length: int) -> Array:
    """Patches (n, C) of one document, given the rows of the n-grams that end at each byte."""
    vectors = state["vectors"].copy()
    vectors[0] = 0
    sums = np.stack([vectors[list(found)].sum(axis=0) for found in rows])  # of each byte
    count = math.ceil(len(rows) / patch_length)
    if "convolution.weight" in state:
        parts = [convolved(sums, state, i) for i in range(count * patch_length)]
        found = np.stack([np.max(parts[i : i + patch_length], axis=0) for i in range(0, len(parts), patch_length)])
    else:
        parts = [sums[t * patch_length : (t + 1) * patch_length].sum(axis=0) for t in range(count)]
        found = np.stack(parts) / math.sqrt(patch_length * len(rows[0]))
    tokens: Array = found @ state["project.weight"].T + state["project.bias"]
    return tokens


def convolved(sums: Array, state: State, position: int) -> Array:
    """Rectified channels at a byte, of a convolution that reads 3 bytes before it, itself and 4 bytes after it."""
    found = state["convolution.bias"].copy()
    for offset in range(-3, 5):
        if 0 <= position + offset < len(sums):
            found += state["convolution.weight"][:, :, 3 + offset] @ sums[position + offset]
    return np.maximum(found, 0)


def patch_classifier(rows: Sequence[Sequence[int]], state: State, config: EncoderConfig, patch_length: int) -> Array:
    """Logits (classes,) of the view of patches for one document, given the rows of the n-grams of each byte."""
    tokens = patch_tokens(rows, state, patch_length)
    x, weight = encoded_tokens(tokens, state, config), state["head.weight"]
    logits = np.zeros(len(weight))
    for label in range(len(logits)):
        for channel in range(x.shape[1]):
            logits[label] += weight[label, channel] * sum(x[:, channel]) / len(x)
            logits[label] += weight[label, x.shape[1] + channel] * max(x[:, channel])
            mean = sum(tokens[:, channel]) / len(tokens)
            logits[label] += state["evidence.weight"][label, channel] * state["gain"] * mean
    found: Array = len(rows) / (len(rows) + state["prior"]) * logits + state["head.bias"]
    return found


def patch_contributions(
    rows: Sequence[Sequence[int]], state: State, config: EncoderConfig, patch_length: int, stretch_bytes: int
) -> Array:
    """Contributions (stretches, classes) of the view of patches for one document; otherwise as `patch_classifier`."""
    tokens = patch_tokens(rows, state, patch_length)
    x, weight = encoded_tokens(tokens, state, config), state["head.weight"]
    found = np.zeros((math.ceil(len(rows) / stretch_bytes), len(weight)))
    for t, token in enumerate(tokens):
        stretch = t * patch_length // stretch_bytes
        found[stretch] += weight[:, : x.shape[1]] @ x[t] / len(x)
        found[stretch] += state["evidence.weight"] @ (state["gain"] * token) / len(x)
        for channel in range(x.shape[1]):
            found[stretch] += weight[:, x.shape[1] + channel] * share_of_maximum(x[:, channel], t)
    contributions: Array = len(rows) / (len(rows) + state["prior"]) * found
    return contributions


def byte_classifier(document: bytes, ngrams: Sequence[int], state: State, config: ClassifierConfig) -> Array:
    """Logits (classes,) of both views of bytes for one document; `ngrams` are the hashes of their rows from 1."""
    sizes, sublinear = config.ngram_view.sizes, config.ngram_view.sublinear
    factors = byte_factors(document, sizes, sublinear=sublinear)
    logits: Array = state["weights"][0] * linear_view(factors, ngrams, below(state, "ngram_view"))
    if config.vector_view is not None:
        rows, view = byte_rows(document, sizes, config.vector_view.num_buckets), below(state, "vector_view")
        second = patch_classifier(rows, view, config.required_encoder, config.vector_view.bytes_per_token)
        logits = logits + state["weights"][1] * second
    return logits


def byte_contributions(
    document: bytes, ngrams: Sequence[int], state: State, config: ClassifierConfig, stretch_bytes: int
) -> Array:
    """Contributions (stretches, classes) of both views of bytes for one document; otherwise as `byte_classifier`."""
    sizes, sublinear = config.ngram_view.sizes, config.ngram_view.sublinear
    first = linear_contributions(
        byte_ngrams(document, sizes),
        range(len(document)),
        byte_factors(document, sizes, sublinear=sublinear),
        ngrams,
        below(state, "ngram_view"),
        math.ceil(len(document) / stretch_bytes),
        stretch_bytes,
    )
    found: Array = state["weights"][0] * first
    if config.vector_view is not None:
        rows, view = byte_rows(document, sizes, config.vector_view.num_buckets), below(state, "vector_view")
        patch_length = config.vector_view.bytes_per_token
        second = patch_contributions(rows, view, config.required_encoder, patch_length, stretch_bytes)
        found = found + state["weights"][1] * second
    return found


def g_square(held: Sequence[int], documents: Sequence[int]) -> float:
    """G^2 of an n-gram: in each class, how many documents contain it, and how many documents there are."""
    total = 0.0
    for count, size in zip(held, documents, strict=True):
        if count:
            total += 2 * count * math.log(count * sum(documents) / (sum(held) * size))
    return total


def document_vector(document: bytes, state: State, config: MatcherConfig) -> Array:
    """Vector (C,) of one document."""
    encoder, stem_config = config.required_encoder, config.required_stem
    x = stem(document, below(state, "stem"), stem_config, encoder.seq_len) * state["scale"]
    count = math.ceil(len(document) / stem_config.patch_length)
    context = x[:count] if encoder.is_length_aware else x
    for i in range(encoder.num_layers):
        context = block(context, below(state, f"blocks.{i}"), encoder, count)
    context = layer_norm(context, below(state, "norm"))
    v: Array = sum(x[t] + state["gate"] * context[t] for t in range(count)) / count
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
    mean: Array = x.mean(axis=0)
    scale: Array = np.sqrt(x.var(axis=0, ddof=1) + 1)
    e = linear((x - mean) / scale, below(state, "embedding"))
    for i in range(config.encoder.num_layers):
        e = e + attention(e, below(state, f"layers.{i}"), config.encoder)
    return state["extrapolation"] @ linear(e, below(state, "post")) * scale + mean
