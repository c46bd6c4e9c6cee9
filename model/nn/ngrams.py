"""Linear classifier over the word n-grams of a document, one of the two views of `model.nn.classifier`."""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from model.nn.ops.integers import lookup
from model.nn.vocabulary import Vocabulary

SMALLEST = 1e-12
"""Smallest squared length of a document, for documents without known n-grams."""


class NgramClassifier(nn.Module):
    """Linear classifier over the set of a document's word n-grams.

    logits = W x + b,  x_h = s_h / sqrt(sum over the document's n-grams g of s_g^2)

    s are the scales of the n-grams. An n-gram counts once per document, however often it occurs; n-grams outside the
    vocabulary do not count. Row h of the table holds s_h W_h and, in its last column, s_h^2.

    Shape:      hashes (M, longest) int64 and doc_index (M,), as `WordHasher` returns them; num_documents, the number B
                of documents; returns (B, classes).
    Reference:  features: Wang and Manning 2012, "Baselines and Bigrams", sec. 2 (presence, scaled by evidence), with
                inverse document frequencies and unit length as in TF-IDF; `model.tasks.ngrams` fits s, W and b.
                Not in the S3Attention paper.
    Note:       Every occurrence adds row / (number of occurrences), which avoids a sort of the n-grams.
    """

    def __init__(self, num_ngrams: int, num_classes: int) -> None:
        super().__init__()
        self.vocabulary = Vocabulary(num_ngrams)
        # Row 0 (no n-gram) stays zero.
        self.table = nn.Parameter(torch.zeros(1 + num_ngrams, num_classes + 1), requires_grad=False)
        self.bias = nn.Parameter(torch.zeros(num_classes), requires_grad=False)

    def forward(self, hashes: Tensor, doc_index: Tensor, num_documents: int) -> Tensor:
        """Classify documents given as hashes of their n-grams -> (B, classes) logits."""
        rows = self.vocabulary(hashes.flatten())  # (M longest,)
        document = doc_index.unsqueeze(1).expand_as(hashes).flatten()
        place = document * self.table.shape[0] + rows
        dtype = self.bias.dtype
        zeros = torch.zeros(num_documents * self.table.shape[0], dtype=dtype, device=rows.device)
        occurrences = zeros.index_add(0, place, torch.ones_like(place, dtype=dtype))
        found = nn.functional.embedding(rows, self.table).to(dtype) / lookup(occurrences, place).unsqueeze(1)
        empty = torch.zeros(num_documents, found.shape[1], dtype=dtype, device=rows.device)
        summed = empty.index_add(0, document, found)
        return summed[:, :-1] * torch.rsqrt(summed[:, -1:].clamp(min=SMALLEST)) + self.bias

    @torch.no_grad()
    def fill(
        self,
        hashes: NDArray[np.int64],
        scales: NDArray[np.float64],
        weights: NDArray[np.float64],
        bias: NDArray[np.float64],
    ) -> None:
        """Set the fitted parameters: hashes (R,), scales (R,), weights (R, classes), bias (classes,); R <= num_ngrams.

        Raises: ValueError if no perfect hash of the n-grams is found.
        """
        self.vocabulary.fill(hashes)
        rows = np.concatenate((scales[:, None] * weights, scales[:, None] ** 2), axis=1)
        self.table.zero_()
        self.table[1 : 1 + len(rows)] = torch.from_numpy(rows).to(self.table)
        self.bias.copy_(torch.from_numpy(bias))

    @torch.no_grad()
    def quantise(self) -> None:
        """Store the table in half precision. For export."""
        self.table = nn.Parameter(self.table.half(), requires_grad=False)
