"""Joint view of a matcher: reads the words of both documents together. Used by `model.nn.matcher`."""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from artifact.arrays import Doubles
from artifact.documents import ID_UNIT, WORD_FIELDS
from model.config.attentions import AttentionName
from model.config.encoder import DropoutConfig, EncoderConfig
from model.config.models import OPENING, JointViewConfig
from model.nn.attention.dba import DynamicBilinearCrossAttention
from model.nn.encoder import Blocks
from model.nn.lexical import Words
from model.nn.ops.integers import as_tensor, divide, lookup, remainder
from model.nn.stem import quantise_int8

KEYS = 2**24
"""Number of keys of words: float32 holds integers up to it exactly."""
HASHES_PER_KEY = 2**31 // KEYS
LAST = 2**62
"""Sorts after every word."""
VECTOR_STD = 0.1
"""Standard deviation of the initial vectors of words."""
SUM_SCALE = 16.0
"""Divisor of the sums over words, of which two documents share some dozens."""


class WordSketch(nn.Module):
    """One word for each of the `num_words` smallest keys of a document: WORD_FIELDS numbers of each.

    A key is the first 24 bits of a hash, that of the word's prefix or, if it has none, of the word. The numbers are the
    key, as a fraction; the word's id in the vocabulary times ID_UNIT, 0 for an unknown word; and the key of the whole
    word, negative unless the word is in the first OPENING bytes. Of several words with the same key, those in the
    opening come first, then the smallest key of the whole word. Keys ascend; zeros follow the last word. Keys are
    sampled alike in all documents: a key that two documents share is in both sketches, unless it is too large for one.
    Frequent words are left out.

    Shape:      words of B documents, M in all, B at most 8,192; returns (B, num_words, WORD_FIELDS) float32.
    Reference:  bottom-k sketches: Broder 1997, "On the resemblance and containment of documents", sec. 3. Not in the
                S3Attention paper.
    Note:       Different words or prefixes have equal keys with a probability of 2^-24.
    """

    is_frequent: Tensor

    def __init__(self, num_words: int, num_ngrams: int) -> None:
        super().__init__()
        self.num_words = num_words
        self.register_buffer("is_frequent", torch.zeros(1 + num_ngrams, dtype=torch.bool))

    def forward(self, words: Words, num_documents: int) -> Tensor:
        """Sketch (B, num_words, WORD_FIELDS) of the words (M,) of B documents."""
        ids, doc_index = words.ids[0], words.doc_index
        is_kept = (words.keys >= 0) & ~lookup(self.is_frequent, ids)
        key, whole = (divide(hashes, HASHES_PER_KEY) for hashes in (words.keys, words.hashes[0]))
        # Sorted by document, key, whether it is after the opening, and whole word: the first of equal keys counts.
        later = (words.position >= OPENING).long()
        code = ((doc_index * KEYS + key) * 2 + later) * KEYS + whole
        code, order = torch.where(is_kept, code, LAST).sort()
        # A document and key. `divide` is exact, since few of the bits of the difference differ from zero.
        group = divide(code - remainder(code, 2 * KEYS), 2 * KEYS)
        is_new = torch.cat((torch.ones_like(is_kept[:1]), group[1:] != group[:-1])) & lookup(is_kept, order)
        document = lookup(doc_index, order)
        # ONNX Runtime has no ScatterND of int64 on CUDA.
        counts = torch.zeros(num_documents, device=key.device).index_add(0, document, is_new.float()).long()
        number = is_new.long().cumsum(0) - 1 - lookup(counts.cumsum(0) - counts, document)
        num_places = num_documents * self.num_words
        end = as_tensor(num_places, document)
        target = torch.where(is_new & (number < self.num_words), document * self.num_words + number, end)
        key, whole = ((x + 1).float() / KEYS for x in (key, whole))
        found = torch.stack((key, ids.float() * ID_UNIT, torch.where(later > 0, -whole, whole)), dim=1)
        found = lookup(found, order)
        empty = torch.zeros(num_places + 1, WORD_FIELDS, device=found.device)
        sketch = empty.scatter(0, target.unsqueeze(1).expand(-1, WORD_FIELDS), found)[:-1]
        return torch.unflatten(sketch, 0, (num_documents, self.num_words))

    @torch.no_grad()
    def fill(self, is_frequent: NDArray[np.bool_]) -> None:
        """Set which n-grams of the vocabulary are left out, (R,), R at most num_ngrams."""
        self.is_frequent.zero_()
        self.is_frequent[1 : 1 + len(is_frequent)] = torch.from_numpy(is_frequent)


class JointView(nn.Module):
    """Logit that two documents match, from their words and which of these the other document contains.

    x_i = W_2 gelu(W_1 f_i) + V[id_i];  y = x + attend(LN(x), the other's);
    h = sum_i (y_i + MLP_1(LN(y_i))) / SUM_SCALE;  logit = weight * MLP_2(log(1 + |h_a|) sign(h_a), the same of h_b)

    f_i are idf_i, the inverse document frequency of word i; whether it is in the opening; whether its key is in the
    other document, and in its opening, and this times idf_i; and which of the two documents it is. If keys are of
    prefixes, also whether the word of the same key in the other document is the same, and this times idf_i. `attend` is
    the cross-attention of DBA, in both directions, or absent. With another attention, blocks over the words of both
    documents, one after the other, replace x.

    Shape:      a, b (B, num_words, WORD_FIELDS), as in `WordSketch`; returns (B, 1).
    Reference:  cross-attention: Qin et al. 2022, arXiv:2211.16368, eq. (14); sums over a set: Zaheer et al. 2017,
                "Deep sets", NeurIPS.
    Deviates:   the tokens of DBA's cross-attention are two modalities; here they are two documents.
    """

    idf: Tensor
    """log f / log f_min of each n-gram of the vocabulary, f the share of documents that contain it; 1 for unknown ones.
    """
    weight: Tensor
    """Factor of the logit."""
    step: Tensor
    """Factor of each column of `vectors`: the step of int8 after `quantise`, 1 before."""

    def __init__(self, config: JointViewConfig, num_ngrams: int) -> None:
        super().__init__()
        dim, hidden = config.dim, 2 * config.dim
        self.has_prefixes = config.prefix_length > 0
        self.has_fixed_shapes = config.attention != "none"  # which has parameters for each place
        """Whether all places of the sketches are read; if not, only those up to the last word of the batch."""
        num_features = 8 if self.has_prefixes else 6
        self.features = nn.Sequential(nn.Linear(num_features, dim), nn.GELU(), nn.Linear(dim, dim))
        self.vectors = nn.Parameter(torch.randn(1 + num_ngrams, dim) * VECTOR_STD)
        self.register_buffer("weight", torch.ones(()))
        self.register_buffer("step", torch.ones(dim), persistent=False)
        self.register_buffer("idf", torch.ones(1 + num_ngrams))
        self.cross = self.blocks = None
        if config.attention == "dba":
            self.cross_norm, self.cross = nn.LayerNorm(dim), DynamicBilinearCrossAttention(_encoder(config, "dba"))
        elif config.attention != "none":
            self.blocks = Blocks(_encoder(config, config.attention))
        self.mlp = nn.Sequential(nn.LayerNorm(dim), nn.Linear(dim, hidden), nn.GELU(), nn.Linear(hidden, dim))
        last = nn.Linear(config.hidden_dim, 1)
        nn.init.zeros_(last.weight)
        nn.init.zeros_(last.bias)
        dropout = nn.Dropout(config.dropout)
        self.out = nn.Sequential(nn.Linear(hidden, config.hidden_dim), nn.GELU(), dropout, last)

    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        """Logit (B, 1) of the sketches a and b, both (B, num_words, WORD_FIELDS)."""
        if not self.has_fixed_shapes:
            a, b = _without_empty_places(a, b)
        words = a[..., 0] > 0, b[..., 0] > 0  # (B, num_words)
        keys = torch.where(words[0], a[..., 0], -1.0)  # zeros after the last words are not equal
        same = (keys.unsqueeze(2) == b[..., 0].unsqueeze(1)).float()  # (B, num_words, num_words)
        of_a, of_b = same @ _presence(b), (_presence(a).transpose(1, 2) @ same).transpose(1, 2)
        if self.has_prefixes:
            same_word = same * (a[..., 2].abs().unsqueeze(2) == b[..., 2].abs().unsqueeze(1))
            of_a = torch.cat((of_a, same_word.sum(2).unsqueeze(2)), dim=2)
            of_b = torch.cat((of_b, same_word.sum(1).unsqueeze(2)), dim=2)
        x, y = self._tokens(a, of_a, 0.0), self._tokens(b, of_b, 1.0)
        x, y = self._attend(x, y, words)
        h = torch.cat([_total(one + self.mlp(one), is_word) for one, is_word in zip((x, y), words, strict=True)], dim=1)
        h = h / SUM_SCALE
        return self.weight * self.out(h.sign() * torch.log1p(h.abs()))  # type: ignore[no-any-return]

    def _tokens(self, words: Tensor, others: Tensor, side: float) -> Tensor:
        """Vectors (B, num_words, dim) of words.

        `others` (B, num_words, 2 or 3) says whether their keys are in the other document, in its opening, and whether
        the whole words are in it.
        """
        ids = (words[..., 1] / ID_UNIT).long()
        idf = nn.functional.embedding(ids, self.idf.unsqueeze(1))
        parts = idf, _in_opening(words), others, others[..., 1:] * idf, torch.full_like(idf, side)
        features = torch.cat(parts, dim=-1)
        vectors = nn.functional.embedding(ids, self.vectors).float() * self.step
        return self.features(features) + vectors  # type: ignore[no-any-return]  # nn.Module.__call__

    def _attend(self, x: Tensor, y: Tensor, words: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        """Add what the words of each document take from those of the other."""
        if self.cross is not None:
            of_x, of_y = self.cross_norm(x), self.cross_norm(y)
            is_first = torch.arange(x.shape[1], device=x.device) == 0  # softmax needs a token
            of_a, of_b = (is_word | is_first for is_word in words)
            return x + self.cross(of_x, of_y, of_a, of_b), y + self.cross(of_y, of_x, of_b, of_a)
        if self.blocks is not None:
            x, y = self.blocks(torch.cat((x, y), dim=1)).chunk(2, dim=1)
        return x, y

    @torch.no_grad()
    def fill(self, frequencies: Doubles) -> None:
        """Set the inverse document frequencies of n-grams: the share of the documents that contain each, (R,)."""
        rarest = frequencies.min()
        idf = np.log(frequencies) / np.log(rarest) if rarest < 1 else np.ones_like(frequencies)
        self.idf[0] = 1.0
        self.idf[1 : 1 + len(idf)] = torch.from_numpy(idf)

    @torch.no_grad()
    def quantise(self) -> None:
        """Quantise the vectors to int8, with one step per column. For export."""
        table, step = quantise_int8(self.vectors)
        self.vectors = nn.Parameter(table, requires_grad=False)
        self.step.copy_(step)


def _encoder(config: JointViewConfig, attention: AttentionName) -> EncoderConfig:
    """Sizes of the attention between the words of two documents."""
    return EncoderConfig(
        attention=attention,
        seq_len=2 * config.num_words,
        dim=config.dim,
        num_heads=2,
        num_layers=1,
        ffn_dim=2 * config.dim,
        dropout=DropoutConfig(hidden=config.dropout),
    )


def _without_empty_places(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """The first places of the sketches, as many as the one with the most words has, at least one.

    A tracer records a slice up to a tensor, but not `item`.
    """
    longest = torch.maximum(*((words[..., 0] > 0).sum(1).max() for words in (a, b))).clamp(min=1)
    if torch.jit.is_tracing():  # type: ignore[attr-defined,no-untyped-call]
        return a[:, :longest], b[:, :longest]
    count: int = longest.item()  # type: ignore[assignment]  # with int(), the exporter would need its value
    torch._check(count >= 1)  # the exporter needs bounds
    torch._check(count <= a.shape[1])
    return a[:, :count], b[:, :count]


def _presence(words: Tensor) -> Tensor:
    """(B, num_words, 2): one, and whether each word is in the opening."""
    return torch.cat((torch.ones_like(words[..., :1]), _in_opening(words)), dim=-1)


def _in_opening(words: Tensor) -> Tensor:
    """(B, num_words, 1): whether each word is in the opening."""
    return (words[..., 2:] > 0).float()


def _total(x: Tensor, is_word: Tensor) -> Tensor:
    """Sum (B, dim) of the vectors (B, num_words, dim) of words."""
    return (x * is_word.unsqueeze(-1)).sum(dim=1)
