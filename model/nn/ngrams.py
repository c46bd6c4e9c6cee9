"""Linear classifier over the word n-grams of a document, one of the two views of `model.nn.classifier`.

Its counts of n-grams are also used by `model.nn.lexical`.
"""

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from model.nn.ops.integers import SPARE, as_tensor, divide, lookup, spread
from model.nn.vocabulary import Vocabulary

SMALLEST = 1e-12
"""Smallest prior."""
MAX_NGRAMS = 2**40
"""More than the n-grams of any batch."""


class Hits(NamedTuple):
    """K occurrences of n-grams of the vocabulary, in the order of the text, (K,) each."""

    ids: Tensor
    """Id of the n-gram, 1 ... num_ngrams; 0 for places that only fill a fixed shape."""
    doc_index: Tensor
    """Index of the document."""
    stretch: Tensor | None
    """Stretch of the document in which the n-gram ends; None if documents have one stretch."""


def find_hits(ids: Tensor, doc_index: Tensor, stretch: Tensor | None, *, has_fixed_shapes: bool = False) -> Hits:
    """Find the known n-grams among those that end at M words.

    With fixed shapes, K = rows * M.

    Args:
        ids: ids of the n-grams and prefixes of each word, as in `WordHasher`, mostly 0 for unknown ones, (rows, M).
        doc_index: index of the document of each word, (M,).
        stretch: stretch of its document in which each word ends, (M,), or None.
        has_fixed_shapes: whether unknown n-grams remain.

    """
    num_rows, flat = ids.shape[0], ids.T.flatten()
    if has_fixed_shapes:
        repeated = doc_index.unsqueeze(1).expand(-1, num_rows).flatten()
        return Hits(flat, repeated, None if stretch is None else stretch.unsqueeze(1).expand(-1, num_rows).flatten())
    is_known = flat.nonzero().squeeze(1)
    if torch.compiler.is_exporting():  # without a bound, the exporter derives one that exceeds an int64
        torch._check(is_known.shape[0] <= MAX_NGRAMS)
    word = divide(is_known, num_rows)
    return Hits(lookup(flat, is_known), lookup(doc_index, word), None if stretch is None else lookup(stretch, word))


def count_occurrences(
    hits: Hits, num_documents: int, num_rows: int, *, has_fixed_shapes: bool = False, dtype: torch.dtype = torch.float32
) -> Tensor:
    """How often the n-gram of each hit occurs in its document, (K,). Ids are below `num_rows`.

    Counted in places, each for an n-gram of a document. Memory for every n-gram would be slow: without fixed shapes,
    the number of a hit with the same id, from 0 to K - 1, stands for the id.
    """
    if has_fixed_shapes:
        first = num_documents * num_rows
        place, num_places = spread(hits.ids + hits.doc_index * num_rows, hits.ids > 0, first), first + SPARE
    else:
        num_hits = hits.ids.shape[0]
        number = torch.arange(num_hits, device=hits.ids.device).int()
        same = torch.zeros(num_rows, dtype=torch.int32, device=number.device).scatter(0, hits.ids, number)
        place, num_places = hits.doc_index * num_hits + lookup(same, hits.ids), num_documents * num_hits
    zeros = torch.zeros(num_places, dtype=dtype, device=place.device)
    return lookup(zeros.index_add(0, place, torch.ones_like(place, dtype=dtype)), place)


class NgramClassifier(nn.Module):
    """Linear classifier over the set of a document's word n-grams.

    logits = W x + b,  x_h = f_h s_h / sqrt(prior + sum over the document's n-grams g of (f_g s_g)^2)

    s are the scales of the n-grams. An n-gram that occurs k times in the document has f_h = 1, or with `sublinear`
    f_h = 1 + log k; n-grams outside the vocabulary do not count. The prior keeps the logits of documents of a few words
    moderate; most documents are far longer. Row h of the table holds s_h W_h and, in its last column, s_h^2.

    The view returns W x as a sum over stretches of the document: each of the k occurrences of n-gram h contributes
    x_h W_h / k to the stretch in which it ends.

    Shape:      hits of the n-grams (K,); shape, the numbers B of documents and S of stretches of each; returns
                (B, S, classes).
    Reference:  features: Wang and Manning 2012, "Baselines and Bigrams", sec. 2 (presence, scaled by evidence), with
                inverse document frequencies, sublinear counts and unit length as in TF-IDF; `model.tasks.ngrams` fits
                s, W, b and the prior. Not in the S3Attention paper.
    Note:       A row is divided by the number of occurrences, which avoids a sort of the n-grams.
    """

    prior: Tensor

    def __init__(self, num_ngrams: int, num_classes: int, *, sublinear: bool = False) -> None:
        super().__init__()
        self.sublinear = sublinear
        self.vocabulary = Vocabulary(num_ngrams)
        # Row 0 (no n-gram) stays zero.
        self.table = nn.Parameter(torch.zeros(1 + num_ngrams, num_classes + 1), requires_grad=False)
        self.bias = nn.Parameter(torch.zeros(num_classes), requires_grad=False)
        self.register_buffer("prior", torch.tensor(SMALLEST))

    def forward(self, hits: Hits, shape: tuple[int, int], *, has_fixed_shapes: bool = False) -> Tensor:
        """Contributions (B, S, classes) to the logits, without the bias, of documents given as hits."""
        num_documents, num_stretches = shape
        ids, doc_index, stretch = hits
        dtype = self.bias.dtype
        target = doc_index
        if stretch is not None:
            target = doc_index * (as_tensor(num_stretches, doc_index) if has_fixed_shapes else num_stretches) + stretch
        counts = count_occurrences(
            hits, num_documents, self.table.shape[0], has_fixed_shapes=has_fixed_shapes, dtype=dtype
        ).unsqueeze(1)
        found = nn.functional.embedding(ids, self.table).to(dtype)
        if self.sublinear:  # f_h s_h W_h and (f_h s_h)^2 instead of s_h W_h and s_h^2
            factors = 1 + torch.log(counts)
            found, counts = torch.cat((found[:, :-1], found[:, -1:] * factors), dim=1), counts / factors
        found = found / counts
        empty = torch.zeros(num_documents * num_stretches, found.shape[1], dtype=dtype, device=ids.device)
        summed = torch.unflatten(empty.index_add(0, target, found), 0, shape)
        squared_length = summed[:, :, -1:].sum(dim=1, keepdim=True)
        return summed[:, :, :-1] * torch.rsqrt(squared_length + self.prior)

    @torch.no_grad()
    def fill(
        self,
        hashes: NDArray[np.int64],
        scales: NDArray[np.float64],
        weights: NDArray[np.float64],
        bias: NDArray[np.float64],
        prior: float,
    ) -> None:
        """Set the fitted parameters: distinct hashes (R,), scales (R,), weights (R, classes), bias (classes,), prior.

        R is at most num_ngrams.

        Raises: ValueError if no perfect hash of the n-grams is found.
        """
        self.vocabulary.fill(hashes)
        rows = np.concatenate((scales[:, None] * weights, scales[:, None] ** 2), axis=1)
        self.table.zero_()
        self.table[1 : 1 + len(rows)] = torch.from_numpy(rows).to(self.table)
        self.bias.copy_(torch.from_numpy(bias))
        self.prior.fill_(max(prior, SMALLEST))

    @torch.no_grad()
    def quantise(self) -> None:
        """Store the table in half precision. For export."""
        self.table = nn.Parameter(self.table.half(), requires_grad=False)
