"""Hashed byte n-grams, and a stem of them: bytes -> tokens. Used by `model.nn.matcher` and `model.nn.classifier`."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from model.nn.ops.integers import lookup, remainder, sum_rows

NUM_BYTES = 256
BASE = 257
"""Base of the polynomial hash."""
MODULUS = 2**31 - 1
HASH_MULTIPLIER = 2654435761
"""Multiplier of Knuth's multiplicative hash: 2^32 / golden ratio."""


class ByteNgrams(NamedTuple):
    """The byte n-grams of one length in documents, (B, N) each."""

    size: int
    """Length n in bytes."""
    values: Tensor
    """Hash of bytes i-n+1 ... i, from 0 to MODULUS - 1."""
    is_real: Tensor
    """Whether the n-gram neither starts before the document nor ends after it."""


class ByteHasher(nn.Module):
    """Hashes the byte n-grams of several lengths that end at each byte.

    With `fold_case`, ASCII letters are folded to lower case.

    Shape:      document (B, N) uint8, zero-padded, N at most num_bytes; lengths (B,) int32; returns hashes (k, B N)
                int64 for the k sizes, ascending, -1 for no n-gram; and doc_index and position (B N,), the document of
                each byte and its place in it.
    Reference:  polynomial hash modulo a Mersenne prime: Karp and Rabin 1987, "Efficient randomized pattern-matching
                algorithms".
    """

    fold: Tensor
    positions: Tensor

    def __init__(self, sizes: Sequence[int], num_bytes: int, *, fold_case: bool = True) -> None:
        super().__init__()
        self.sizes = tuple(sizes)
        fold = torch.arange(NUM_BYTES)
        if fold_case:
            fold[ord("A") : ord("Z") + 1] += ord("a") - ord("A")
        self.register_buffer("fold", fold, persistent=False)
        self.register_buffer("positions", torch.arange(num_bytes), persistent=False)

    @property
    def device(self) -> torch.device:
        """Where it computes."""
        return self.positions.device

    @property
    def lengths(self) -> Sequence[int]:
        """Length of the n-grams in each row of the hashes."""
        return self.sizes

    def ngrams(self, document: Tensor, lengths: Tensor) -> Iterator[ByteNgrams]:
        """The n-grams of each size in (B, N) bytes."""
        letters = lookup(self.fold, document.long()) + 1  # (B, N)
        positions = self.positions[: document.shape[1]]
        value = letters
        for n in range(1, self.sizes[-1] + 1):
            if n > 1:  # hash of bytes i-n+1 ... i from that of bytes i-n+1 ... i-1
                value = torch.cat((torch.zeros_like(value[:, :1]), value[:, :-1]), dim=1)
                value = remainder(value * BASE + letters, MODULUS)
            if n in self.sizes:
                yield ByteNgrams(n, value, (positions >= n - 1) & (positions < lengths.unsqueeze(1)))

    def forward(self, document: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Hash the n-grams of (B, N) bytes."""
        hashes = [torch.where(one.is_real, one.values, -1).flatten() for one in self.ngrams(document, lengths)]
        documents = torch.arange(document.shape[0], device=document.device).unsqueeze(1).expand(document.shape)
        places = self.positions[: document.shape[1]].expand(document.shape)
        return torch.stack(hashes), documents.flatten(), places.flatten()


def table_rows(hashes: Tensor, size: int, num_buckets: int) -> Tensor:
    """Rows from 1 to num_buckets, a power of two, of the n-grams of `size` bytes with these hashes; any for -1."""
    spread = remainder(hashes * HASH_MULTIPLIER + size * BASE, 2**32)
    return spread // (2**32 // num_buckets) + 1


class NgramStem(nn.Module):
    """Mean embedding of the byte n-grams that end in each patch of a document.

    x_t = 1 / (p k) sum over the p positions i of patch t and the k lengths n of E[hash_n(bytes i-n+1 ... i)]

    ASCII letters are folded to lower case. One n-gram of each length ends at every byte; n-grams that would start
    before the document or end after it count as zero.

    Shape:      document (B, T p) uint8, zero-padded; lengths (B,) int32; returns (B, T, C).
    Reference:  hashed n-gram features: Joulin et al. 2017, arXiv:1607.01759, sec. 2; not in the S3Attention paper,
                whose stem is one embedding for each byte and position.
    """

    scale: Tensor

    def __init__(self, sizes: Sequence[int], num_buckets: int, patch_length: int, num_tokens: int, dim: int) -> None:
        super().__init__()
        self.num_buckets, self.patch_length = num_buckets, patch_length
        self.hasher = ByteHasher(sizes, num_tokens * patch_length)
        self.weight = nn.Parameter(torch.zeros(1 + num_buckets, dim))  # row 0 stays zero: no n-gram
        self.register_buffer("scale", torch.ones(dim), persistent=False)
        self.avoids_int8 = False
        """Whether the export avoids MatMulInteger, which is faster on a CPU but has no CUDA kernel."""

    def rows(self, document: Tensor, lengths: Tensor) -> Tensor:
        """Table row of every n-gram, 0 for none: (B, N) bytes -> (B, N, k)."""
        rows = []
        for n, values, is_real in self.hasher.ngrams(document, lengths):
            rows.append(table_rows(values, n, self.num_buckets) * is_real)
        return torch.stack(rows, dim=-1)

    def forward(self, document: Tensor, lengths: Tensor) -> Tensor:
        """Embed (B, T p) bytes -> (B, T, C)."""
        rows = self.rows(document, lengths)  # (B, N, k)
        batch, _, count = rows.shape
        size = self.patch_length * count
        rows = rows.reshape(-1, size)  # (B T, p k)
        if self.training:  # same sum, without storing the gradient of each row
            summed = nn.functional.embedding_bag(rows, self.weight, mode="sum", padding_idx=0)
        else:
            in_int8 = self.weight.dtype == torch.int8 and not self.avoids_int8
            summed = sum_rows(nn.functional.embedding(rows, self.weight), in_int8=in_int8)
        return (summed * self.scale).reshape(batch, -1, self.weight.shape[1]) / size

    @torch.no_grad()
    def quantise(self) -> None:
        """Quantise the table to int8 for export, with one step per column: 1/127 of its largest absolute value."""
        table, step = quantise_int8(self.weight)
        self.weight = nn.Parameter(table, requires_grad=False)
        self.scale.copy_(step)

    @torch.no_grad()
    def initialise(self, frequencies: Tensor, count: int) -> None:
        """Initialise with a random projection of TF-IDF: row h ~ N(0, idf_h^2), idf_h = log((1 + D) / (1 + D_h)).

        The inner product of two sums of rows then approximates that of their TF-IDF vectors.

        Shape:      frequencies (num_buckets,): number D_h of documents with an n-gram in the row; count: number D of
                    documents.
        Reference:  Achlioptas 2003, doi:10.1016/S0022-0000(03)00025-4 (random projections preserve inner products).
        """
        idf = torch.log((1 + count) / (1 + frequencies.float()))
        self.weight[1:] = torch.randn_like(self.weight[1:]) * idf.unsqueeze(1)


def quantise_int8(table: Tensor, dim: int = 0) -> tuple[Tensor, Tensor]:
    """Quantise a table (R, C) to int8, with one step per column (`dim` 0) or per row (`dim` 1).

    Returns the table and the step (C,) or (R,), 1/127 of the largest absolute value along `dim`.
    """
    step = table.abs().amax(dim, keepdim=True).clamp(min=1e-12) / 127
    return (table / step).round().to(torch.int8), step.squeeze(dim)
