"""Stem (input layer) for words and word n-grams in raw bytes: documents -> tokens. Used by `model.nn.classifier`."""

from collections.abc import Iterator

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from model.config.models import WordStemConfig
from model.nn.stem import quantise_int8

MODULUS = 2**31 - 1
BASE = 1_000_003
"""Base of the polynomial hash of a word."""
JOIN = 69_621
"""Base of the polynomial hash of a word n-gram."""
HASH_MULTIPLIER = 2654435761
"""Multiplier of Knuth's multiplicative hash: 2^32 / golden ratio."""
APOSTROPHE = ord("'")
FOLDS = 5
"""Number of folds of the training documents."""
LEADING = 0xE0
"""Smallest first byte of a 3- or 4-byte UTF-8 character. Each starts a new word: many such scripts use no spaces."""


class WordStem(nn.Module):
    """Sum of the table rows of all word n-grams that end in each patch of a document.

    x_t = sum over words i that end in patch t and n = 1 ... longest of row(n-gram of the n words up to i)
    row(h) = E[h] + evidence_f[h] D

    D are the directions of the classes, E is learned, and evidence_f is the naive Bayes evidence of an n-gram, computed
    without fold f. A training document of fold f uses evidence_f: evidence from the document itself would leak its
    label. New documents use the evidence of all folds; `quantise` adds it to E after training.

    A word is a sequence of letters, digits and bytes above 127, or a punctuation mark; every 3- or 4-byte UTF-8
    character starts a new word. ASCII letters are lowercased, apostrophes are dropped. Each row of the table
    belongs to one n-gram, whose hash is stored as the row's tag; n-grams without a row count as zero.

    Shape:      document (B, N) uint8, zero-padded, N a multiple of patch_length and at most max_length;
                lengths (B,) int32; folds (B,) int64, given for training documents only; returns tokens
                (B, N / patch_length, C) and the number of rows summed (B,).
    Reference:  n-gram features hashed into a table: Joulin et al. 2017, arXiv:1607.01759, sec. 2; selection of the
                n-grams and their evidence: `choose_ngrams`; evidence from the other folds: stacked generalisation,
                Wolpert 1992.
                Not in the S3Attention paper, whose stem is one embedding per byte.
    Note:       The hash of a word is the difference of two prefix sums, so that all words are hashed in parallel.
    """

    value: Tensor
    is_part: Tensor
    is_mark: Tensor
    is_start: Tensor
    powers: Tensor
    inverses: Tensor
    positions: Tensor
    tags: Tensor
    evidence: Tensor
    directions: Tensor
    scale: Tensor

    def __init__(self, config: WordStemConfig, max_length: int, dim: int, num_classes: int) -> None:
        super().__init__()
        self.config = config
        self.is_quantised = False
        self.table = nn.Parameter(torch.zeros(1 + config.num_slots, dim))  # row 0 stays zero: no n-gram
        self.register_buffer("evidence", torch.zeros(FOLDS + 1, 1 + config.num_slots, num_classes))
        self.register_buffer("directions", torch.zeros(num_classes, dim))
        self.register_buffer("scale", torch.ones(dim))
        self.register_buffer("tags", torch.full((config.num_slots,), -1, dtype=torch.int32))
        code = torch.arange(256)
        is_upper = (code >= ord("A")) & (code <= ord("Z"))
        letters = code + (ord("a") - ord("A")) * is_upper
        is_word = (letters >= ord("a")) & (letters <= ord("z"))
        is_word |= (code >= ord("0")) & (code <= ord("9")) | (code > 127) | (code == APOSTROPHE)
        is_mark = (code > ord(" ")) & (code < 127) & ~is_word
        tables = {
            "value": (letters + 1)
            * (is_word | is_mark)
            * (code != APOSTROPHE),  # value of a byte in the hash; 0: skipped
            "is_part": is_word | is_mark,  # the byte belongs to a word
            "is_mark": is_mark,  # the byte is a word by itself
            "is_start": is_mark | (code >= LEADING),  # the byte starts a new word, even within letters
            "powers": _powers(BASE, max_length),
            "inverses": _powers(pow(BASE, -1, MODULUS), max_length),
            "positions": torch.arange(max_length),
        }
        for name, tensor in tables.items():
            self.register_buffer(name, tensor, persistent=False)

    def ngrams(self, document: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Hashes of the n-grams that end at each word, for all documents.

        Shape:  returns hashes (M, longest) int64, -1 if the n-gram would start before the document; index (M,) of the
                document and position (M,) of the last byte of each of the M words.
        """
        code = document.long()
        is_part = self.is_part[code] & (self.positions[: document.shape[1]] < lengths.unsqueeze(1))  # (B, N)
        goes_on = nn.functional.pad(is_part & ~self.is_start[code], (0, 1))[:, 1:]
        ends = (is_part & ~(goes_on & ~self.is_mark[code])).nonzero()  # (M, 2)
        doc_index, where = ends.unbind(1)

        value = self.value[code] * is_part  # (B, N)
        exponent = (value > 0).long().cumsum(1)
        sums = (value * self.powers[exponent] % MODULUS).cumsum(1)
        at = doc_index * document.shape[1] + where
        end_sum, end_exponent = sums.flatten()[at], exponent.flatten()[at]  # (M,)
        # (M,): whether the previous word is in the same document
        follows = nn.functional.pad(doc_index[1:] == doc_index[:-1], (1, 0))
        start_sum, start_exponent = _previous(end_sum) * follows, _previous(end_exponent) * follows
        word = (end_sum - start_sum) % MODULUS * self.inverses[start_exponent] % MODULUS

        ngram, is_complete, hashes = word, torch.ones_like(follows), []
        for n in range(1, self.config.longest + 1):
            if n > 1:
                is_complete = _previous(is_complete) & follows
                ngram = (_previous(ngram) * JOIN + word + n) % MODULUS
            hashes.append(torch.where(is_complete, ngram, -1))
        return torch.stack(hashes, dim=1), doc_index, where

    def rows(self, hashes: Tensor) -> Tensor:
        """Table row of each hash, 0 if it has none."""
        slots = self.slots(hashes)
        return (slots + 1) * (self.tags[slots] == hashes) * (hashes >= 0)

    def slots(self, hashes: Tensor) -> Tensor:
        """Slot of each hash, in 0 ... num_slots - 1."""
        return hashes * HASH_MULTIPLIER % 2**32 // (2**32 // self.config.num_slots)

    def forward(self, document: Tensor, lengths: Tensor, folds: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Embed (B, N) bytes -> (B, T, C), and the number of rows (B,)."""
        return self.embed(self.ngrams(document, lengths), document, folds)

    def embed(
        self, ngrams: tuple[Tensor, Tensor, Tensor], document: Tensor, folds: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Embed the n-grams that `ngrams` found in a document (B, N) -> (B, T, C), and the number of rows (B,)."""
        hashes, doc_index, where = ngrams
        rows = self.rows(hashes)  # (M, longest)
        batch, patches = document.shape[0], document.shape[1] // self.config.patch_length
        patch = doc_index * patches + where // self.config.patch_length  # (M,), ascending
        hits = (rows > 0).sum(1)
        count = torch.zeros(batch, dtype=hits.dtype, device=hits.device).index_add(0, doc_index, hits)
        if self.is_quantised:
            summed = self.table[rows].float().sum(1)  # (M, C)
            tokens = torch.zeros(batch * patches, summed.shape[1], device=summed.device).index_add(0, patch, summed)
            return (tokens * self.scale).reshape(batch, patches, -1), count
        if self.training:
            rows = rows * (torch.rand(rows.shape, device=rows.device) >= self.config.dropout)
        sizes = torch.bincount(patch, minlength=batch * patches) * rows.shape[1]
        starts = sizes.cumsum(0) - sizes
        fold = torch.full_like(doc_index, FOLDS) if folds is None else folds[doc_index]
        evidence_rows = rows + fold.unsqueeze(1) * len(self.table)
        evidence = nn.functional.embedding_bag(evidence_rows.flatten(), self.evidence.flatten(0, 1), starts, mode="sum")
        learned = nn.functional.embedding_bag(rows.flatten(), self.table, starts, mode="sum", padding_idx=0)
        tokens = learned + evidence @ self.directions
        if self.training:
            tokens = tokens / (1 - self.config.dropout)
        return tokens.reshape(batch, patches, -1), count

    @torch.no_grad()
    def quantise(self, projection: Tensor | None = None) -> None:
        """Add the evidence to the table and quantise it to int8, with one step per column.

        For export; the model cannot be trained after it. With a projection (K, C), each row is first replaced by its
        projection, so that tokens have K channels.
        """
        table = self.table + self.evidence[FOLDS] @ self.directions
        table, self.scale = quantise_int8(table if projection is None else table @ projection.T)
        self.table = nn.Parameter(table, requires_grad=False)
        self.is_quantised = True
        del self.evidence, self.directions

    @torch.no_grad()
    def fill(self, hashes: NDArray[np.int64], evidence: Tensor) -> None:
        """Assign rows to n-grams, one per slot, the first wins: hashes (R,), evidence (FOLDS + 1, R, classes)."""
        slots = self.slots(torch.from_numpy(hashes)).numpy()
        chosen, first = np.unique(slots, return_index=True)
        self.tags[chosen] = torch.from_numpy(hashes[first]).to(self.tags)
        self.evidence[:, chosen + 1] = evidence[:, first].to(self.evidence)


def choose_ngrams(
    documents: Iterator[tuple[NDArray[np.int64], int, int]], num_classes: int, limit: int
) -> tuple[NDArray[np.int64], Tensor]:
    """Select the n-grams that are most informative about the class, and compute their naive Bayes evidence.

    N-grams are ordered by G^2 = 2 sum_c n_hc log(n_hc N / (n_h N_c)). Of the N documents, N_c are of class c, n_h
    contain n-gram h, and n_hc are of class c and contain it. The evidence is r_hc = log((n_hc + a_c) / N_c) minus its
    mean over the K classes, with a_c = K N_c / N, so that an n-gram without occurrences has evidence zero. Evidence
    without a fold is computed from the other folds alone, and is zero for n-grams that those folds would not have
    selected.

    Shape:      documents: (distinct hashes of a document, its class, its fold); returns hashes (R,), R <= limit, and
                evidence (FOLDS + 1, R, classes): without each fold, then of all folds.
    Raises:     ValueError if no document contains a word.
    Reference:  G^2: Dunning 1993, "Accurate Methods for the Statistics of Surprise and Coincidence"; log-count ratios
                as features: Wang and Manning 2012, "Baselines and Bigrams", sec. 2.
    """
    keys, sizes = list[NDArray[np.int64]](), np.zeros((FOLDS, num_classes))
    for distinct, document_class, document_fold in documents:
        # One integer for a hash, a class and a fold.
        keys.append((distinct[distinct >= 0] * num_classes + document_class) * FOLDS + document_fold)
        sizes[document_fold, document_class] += 1
    triples, number = np.unique(np.concatenate(keys), return_counts=True)
    del keys
    hashes, index = np.unique(triples // (num_classes * FOLDS), return_inverse=True)
    label, fold = triples // FOLDS % num_classes, triples % FOLDS
    of_class = np.bincount(index * num_classes + label, weights=number, minlength=len(hashes) * num_classes)
    g_squared = _g_squared(of_class.reshape(-1, num_classes).astype(np.float64), sizes.sum(0))
    if not len(hashes):
        raise ValueError("no document contains a word")
    order = np.argsort(-g_squared, kind="stable")[:limit]
    place = np.full(len(hashes), -1)
    place[order] = np.arange(len(order))
    is_chosen = place[index] >= 0
    table = np.zeros((FOLDS, len(order), num_classes))
    table[fold[is_chosen], place[index[is_chosen]], label[is_chosen]] = number[is_chosen]
    evidence = []
    for f in range(FOLDS + 1):
        rest, class_sizes = table.sum(0) - (table[f] if f < FOLDS else 0), sizes.sum(0) - (sizes[f] if f < FOLDS else 0)
        class_sizes = np.maximum(class_sizes, 1)  # all documents of a small class may be in one fold
        ratio = np.log((rest + class_sizes / class_sizes.mean()) / class_sizes)
        needed = g_squared[order[-1]] * class_sizes.sum() / sizes.sum() if f < FOLDS else 0.0
        evidence.append((ratio - ratio.mean(1, keepdims=True)) * (_g_squared(rest, class_sizes) >= needed)[:, None])
    return hashes[order], torch.from_numpy(np.stack(evidence)).float()


def _g_squared(counts: NDArray[np.float64], class_sizes: NDArray[np.float64]) -> NDArray[np.float64]:
    """G^2 of n-grams: counts (R, classes) of documents that contain them, class_sizes (classes,) of all documents."""
    expected = counts.sum(1, keepdims=True) * class_sizes / class_sizes.sum()
    ratio = np.divide(counts, expected, out=np.ones_like(counts), where=counts > 0)
    g_squared: NDArray[np.float64] = 2 * (counts * np.log(ratio)).sum(1)
    return g_squared


def _previous(x: Tensor) -> Tensor:
    """Shift by one: the previous element, zero for the first."""
    return nn.functional.pad(x[:-1], (1, 0))


def _powers(base: int, count: int) -> Tensor:
    """Powers 0 ... count of `base` modulo MODULUS, shape (count + 1,)."""
    powers = [1]
    for _ in range(count):
        powers.append(powers[-1] * base % MODULUS)
    return torch.tensor(powers)
