"""Lexical view of a document for pairs: a projection of its TF-IDF vector. Used by `model.nn.matcher`."""

import copy
import math
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from artifact.arrays import Doubles
from model.config.models import OPENING, LexicalViewConfig
from model.nn.ngrams import count_occurrences, find_hits
from model.nn.stem import quantise_int8
from model.nn.tower import Tower
from model.nn.vocabulary import Vocabulary
from model.nn.words import WordHasher

SMALLEST = 1e-12
"""Lower bound of squared lengths, so that a zero vector stays zero. A bound, because the exporter drops the addition of
so small a number."""


class Words(NamedTuple):
    """Words of documents, as in `WordHasher`."""

    hashes: Tensor
    """Of the n-grams that end at each word, (longest, M)."""
    ids: Tensor
    """Of the n-grams in the vocabulary, (longest, M)."""
    doc_index: Tensor
    """(M,)."""
    position: Tensor
    """(M,)."""
    keys: Tensor
    """Hash by which each word is compared, of its prefix or, if it has none, of the word, (M,)."""


class LexicalView(nn.Module):
    """Bytes -> projection of the TF-IDF vector of the document's word n-grams, with a mean square of 1.

    u = sum over the n-grams h of (1 + log k_h) s_h V_h;  out = sqrt(dim) u / |u|

    k_h is the number of occurrences of n-gram h in the document, s_h its scale and V_h its row of the right singular
    vectors of the training documents (model.tasks.lexical). Row h of the table holds s_h V_h. The vector of a document
    without a known n-gram is zero.

    With `opening`, the vector of the document's first OPENING bytes, read as a document, follows that of the document.
    With a tower, `out` is what it makes of these.

    Shape:      document (B, N) uint8, zero-padded, N at most max_length; lengths (B,) int32; returns (B, total_dim).
    Reference:  Deerwester et al. 1990, "Indexing by latent semantic analysis", JASIS 41(6). Not in the S3Attention
                paper.
    """

    step: Tensor
    """Factor of each row of `table`: the step of int8 after `quantise`, 1 before."""

    def __init__(self, config: LexicalViewConfig, prefix_length: int = 0) -> None:
        """Args: config: sizes; prefix_length: number of characters that `Words.keys` tells apart, 0 for all."""
        super().__init__()
        prefixes = (prefix_length,) if prefix_length else ()
        self.words = WordHasher(config.longest, config.max_length, prefixes=prefixes, skips_numbered=True)
        self.vocabulary = Vocabulary(config.num_ngrams)
        # Row 0 (no n-gram) stays zero.
        self.table = nn.Parameter(torch.zeros(1 + config.num_ngrams, config.dim), requires_grad=False)
        self.register_buffer("step", torch.ones(1 + config.num_ngrams), persistent=False)
        self.has_opening = config.opening
        self.tower = None if config.tower is None else Tower(config.tower, config.num_vectors, config.dim)
        self.has_fixed_shapes = False
        """As in `WordClassifier`."""

    def with_fixed_shapes(self) -> "LexicalView":
        """The same view, sharing its parameters, with fixed shapes."""
        other = copy.copy(self)
        other.has_fixed_shapes = True
        return other

    def forward(self, document: Tensor, lengths: Tensor) -> Tensor:
        """Project (B, N) bytes -> (B, total_dim)."""
        return self.project(document, lengths, self.find(document, lengths))

    def find(self, document: Tensor, lengths: Tensor) -> Words:
        """The words of (B, N) bytes."""
        hashes, doc_index, position = self.words(document, lengths, has_fixed_shapes=self.has_fixed_shapes)
        ngrams = hashes[: self.words.longest]
        ids, keys = self.vocabulary(ngrams.flatten()).reshape(ngrams.shape), hashes[0]
        if self.words.prefixes:
            keys = torch.where(hashes[-1] < 0, keys, hashes[-1])
        return Words(ngrams, ids, doc_index, position, keys)

    def project(self, document: Tensor, lengths: Tensor, words: Words) -> Tensor:
        """Project (B, N) bytes, whose words were found, -> (B, total_dim)."""
        u = self._sum(words, document.shape[0])
        if self.has_opening:
            opening = self.find(document[:, :OPENING], lengths.clamp(max=OPENING))
            u = torch.cat((u, self._sum(opening, document.shape[0])), dim=1)
        return u if self.tower is None else self.tower(u)

    def _sum(self, words: Words, num_documents: int) -> Tensor:
        """Projection (B, dim) of the words of B documents."""
        num_rows, places = self.table.shape[0], torch.zeros_like(words.position)
        hits = find_hits(words.ids, words.doc_index, places, has_fixed_shapes=self.has_fixed_shapes)
        counts = count_occurrences(hits, num_documents, num_rows, has_fixed_shapes=self.has_fixed_shapes)
        weights = self.step[hits.ids] * (1 + torch.log(counts)) / counts
        rows = nn.functional.embedding(hits.ids, self.table).float() * weights.unsqueeze(1)
        empty = torch.zeros(num_documents, self.table.shape[1], device=rows.device)
        u = empty.index_add(0, hits.doc_index, rows)  # (B, dim)
        return u * torch.rsqrt(u.square().mean(dim=1, keepdim=True).clamp(min=SMALLEST))

    @torch.no_grad()
    def fill(self, hashes: NDArray[np.int64], table: Doubles) -> None:
        """Set distinct hashes (R,) and their rows (R, dim), R at most num_ngrams, dim at most that of the view.

        Raises: ValueError if no perfect hash of the n-grams is found.
        """
        self.vocabulary.fill(hashes)
        self.table.zero_()
        self.table[1 : 1 + len(table), : table.shape[1]] = torch.from_numpy(table).to(self.table)

    @torch.no_grad()
    def quantise(self) -> None:
        """Quantise the table to int8 for export, with one step per row, since rows differ in length by their scale."""
        table, step = quantise_int8(self.table, dim=1)
        self.table = nn.Parameter(table, requires_grad=False)
        self.step.copy_(step)


class LexicalHead(nn.Module):
    """Logit that two documents match, from their lexical views.

    logit = sum_ij p_ij (a_i * b_j) + sum_i d_i |a_i - b_i| + c,  with each vector divided by its length

    Without an opening, or with a tower, each document has one vector; if all weights in p are equal and d is zero, the
    logit is a scaled cosine. With an opening and no tower, each document has two, and there are four products.

    Shape:      a, b (B, total_dim); returns (B, 1).
    """

    def __init__(self, config: LexicalViewConfig) -> None:
        super().__init__()
        self.num_vectors = config.num_vectors if config.tower is None else 1
        sizes = config.total_dim * self.num_vectors, config.total_dim
        self.products, self.differences = (nn.Parameter(torch.zeros(size), requires_grad=False) for size in sizes)
        self.bias = nn.Parameter(torch.zeros(1), requires_grad=False)

    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        """Logit (B, 1) of the vectors a and b, both (B, total_dim), which may be means over windows."""
        a, b = (torch.unflatten(x, -1, (self.num_vectors, -1)) for x in (a, b))
        a, b = (x * torch.rsqrt(x.square().sum(dim=-1, keepdim=True).clamp(min=SMALLEST)) for x in (a, b))
        products = (a.unsqueeze(-2) * b.unsqueeze(-3)).flatten(-3)
        logit = products @ self.products + (a - b).abs().flatten(-2) @ self.differences + self.bias
        return logit.unsqueeze(-1)

    @torch.no_grad()
    def fill(self, products: Doubles, differences: Doubles, bias: Doubles) -> None:
        """Set the fitted weights (P, P, R) of products, (P, R) of differences, R at most dim, and the bias (1,).

        P is the number of vectors of a document. Row i, j of the products belongs to vector i of the first document and
        j of the second.
        """
        for parameter, values in ((self.products, products), (self.differences, differences)):
            *shape, count = values.shape
            padded = torch.zeros(*shape, parameter.numel() // math.prod(shape), dtype=parameter.dtype)
            padded[..., :count] = torch.from_numpy(values)
            parameter.copy_(padded.flatten())
        self.bias.copy_(torch.from_numpy(bias))
