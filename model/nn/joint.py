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
from model.nn.ops.integers import as_tensor, divide, lookup, remainder
from model.nn.stem import quantise_int8

KEYS = 2**24
"""Number of keys of words: float32 holds integers up to it exactly."""
HASHES_PER_KEY = 2**31 // KEYS
LAST = 2**50
"""Sorts after every word."""
VECTOR_STD = 0.1
"""Standard deviation of the initial vectors of words."""
SUM_SCALE = 16.0
"""Divisor of the sums over words, of which two documents share some dozens."""


class WordSketch(nn.Module):
    """The distinct words of each document with the smallest hashes, at most `num_words`: WORD_FIELDS numbers of each.

    These are a key, the first 24 bits of the hash as a fraction; the id in the vocabulary times ID_UNIT, 0 for an
    unknown word; and whether the word occurs in the first OPENING bytes. Keys ascend; zeros follow the last word. Words
    with the smallest hashes are a sample that is the same in every document: a word that two documents share is in both
    samples or, if it has a large hash, may be in neither. Frequent words are left out.

    Shape:      hashes, ids, doc_index, position (M,), those of single words in `model.nn.words`; returns
                (B, num_words, WORD_FIELDS) float32.
    Reference:  bottom-k sketches: Broder 1997, "On the resemblance and containment of documents", sec. 3. Not in the
                S3Attention paper.
    Note:       Two different words have equal keys with a probability of 2^-24.
    """

    is_frequent: Tensor

    def __init__(self, num_words: int, num_ngrams: int) -> None:
        super().__init__()
        self.num_words = num_words
        self.register_buffer("is_frequent", torch.zeros(1 + num_ngrams, dtype=torch.bool))

    def forward(self, hashes: Tensor, ids: Tensor, doc_index: Tensor, position: Tensor, num_documents: int) -> Tensor:
        """Sketch (B, num_words, WORD_FIELDS) of the words (M,) of B documents."""
        is_kept = (hashes >= 0) & ~lookup(self.is_frequent, ids)
        key = divide(hashes, HASHES_PER_KEY) + 1  # (M,), from 1
        # Sorted by document, key, and whether it is after the opening: the first of equal keys is in it if any is.
        code = (doc_index * (2 * KEYS) + key) * 2 + (position >= OPENING).long()
        code, order = torch.where(is_kept, code, LAST).sort()
        word = divide(code, 2)
        is_new = torch.cat((torch.ones_like(is_kept[:1]), word[1:] != word[:-1])) & lookup(is_kept, order)
        document = lookup(doc_index, order)
        # ONNX Runtime has no ScatterND of int64 on CUDA.
        counts = torch.zeros(num_documents, device=key.device).index_add(0, document, is_new.float()).long()
        place = is_new.long().cumsum(0) - 1 - lookup(counts.cumsum(0) - counts, document)
        num_places = num_documents * self.num_words
        end = as_tensor(num_places, document)
        target = torch.where(is_new & (place < self.num_words), document * self.num_words + place, end)
        key, ids = lookup(key, order).float() / KEYS, lookup(ids, order).float() * ID_UNIT
        found = torch.stack((key, ids, (1 - remainder(code, 2)).float()), dim=1)
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

    x_i = W_2 gelu(W_1 f_i) + V[id_i];  y = x + attend(LN(x), the other's);  h = sum_i y_i + MLP(LN(y_i));
    logit = MLP(log(1 + |h_a|) sign(h_a), the same of h_b)

    f_i are the inverse document frequency of word i, whether it is in the opening, whether the other document contains
    it, and in its opening, this times the frequency, and which of the two documents it is. `attend` is the
    cross-attention of DBA, in both directions; or another attention over the words of both, one after the other; or
    absent.

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
        self.features = nn.Sequential(nn.Linear(6, dim), nn.GELU(), nn.Linear(dim, dim))
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
        words = a[..., 0] > 0, b[..., 0] > 0  # (B, num_words)
        keys = torch.where(words[0], a[..., 0], -1.0)  # zeros after the last words are not equal
        same = (keys.unsqueeze(2) == b[..., 0].unsqueeze(1)).float()  # (B, num_words, num_words)
        x = self._tokens(a, same @ _presence(b), 0.0)
        y = self._tokens(b, (_presence(a).transpose(1, 2) @ same).transpose(1, 2), 1.0)
        x, y = self._attend(x, y, words)
        h = torch.cat([_total(one + self.mlp(one), is_word) for one, is_word in zip((x, y), words, strict=True)], dim=1)
        h = h / SUM_SCALE
        return self.weight * self.out(h.sign() * torch.log1p(h.abs()))  # type: ignore[no-any-return]

    def _tokens(self, words: Tensor, others: Tensor, side: float) -> Tensor:
        """Vectors (B, num_words, dim) of words; `others` (B, num_words, 2): whether they are in the other document."""
        ids, in_opening = (words[..., 1] / ID_UNIT).long(), words[..., 2:]
        idf = nn.functional.embedding(ids, self.idf.unsqueeze(1))
        features = torch.cat((idf, in_opening, others, others[..., 1:] * idf, torch.full_like(idf, side)), dim=-1)
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


def _presence(words: Tensor) -> Tensor:
    """(B, num_words, 2): one, and whether each word is in the opening."""
    return torch.cat((torch.ones_like(words[..., :1]), words[..., 2:]), dim=-1)


def _total(x: Tensor, is_word: Tensor) -> Tensor:
    """Sum (B, dim) of the vectors (B, num_words, dim) of words."""
    return (x * is_word.unsqueeze(-1)).sum(dim=1)
