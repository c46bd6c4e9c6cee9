"""Classifier over patches of hashed byte n-grams, one of the two views that `model.nn.classifier` combines."""

from collections.abc import Sequence
from typing import ClassVar

import torch
from torch import Tensor, nn

from model.config.encoder import EncoderConfig
from model.config.models import VectorViewConfig
from model.nn.ops.integers import divide, sum_rows
from model.nn.stem import table_rows
from model.nn.tokens import TokenClassifier, Tokens

INITIAL_DEVIATION = 0.05
"""Standard deviation of the vectors before training; 1 if a convolution reads them."""
KERNEL_BYTES = 8
"""Bytes that the convolution reads."""


class PatchClassifier(TokenClassifier):
    """Patches of bytes, as sums of the vectors of their n-grams, read by a `TokenClassifier`.

    x_t = W (sum of the vectors of the n-grams that end in patch t) / sqrt(p s) + b, p bytes, s sizes

    With `channels`, for single bytes, a convolution reads the sums e_i of the vectors at each byte in order instead:

    x_t = W max_{i in patch t} relu(conv(e)_i) + b

    N-grams are hashed into the rows of a table; those of a row share a vector. The bias b outweighs the sum of
    untrained vectors: without it, LN would enlarge them, and n-grams that training has not seen would count as much as
    others. The amount that the classifier reads is the number of bytes.

    Shape:      rows (B, N, s) int64 of the n-grams that end at each byte, 0 for none, N a multiple of the patch length;
                lengths (B,), bytes of each document; returns (B, classes).
    Reference:  patches of bytes with vectors of hashed byte n-grams of 3 to 8 bytes: Pagnoni et al. 2024,
                arXiv:2412.09871, sec. 3.2.1.
                A convolution over bytes and maxima: Zhang et al. 2015, arXiv:1509.01626, sec. 2.1 and 2.2.
    Deviates:   there, vectors of n-grams are added to those of single bytes. Here, a size of 1 stands for single bytes.
    """

    rates: ClassVar[dict[str, float]] = {"head": 3.0, "evidence": 3.0, "convolution": 2.5}
    """Learning rate multipliers by parameter prefix."""

    def __init__(
        self, encoder: EncoderConfig, config: VectorViewConfig, sizes: Sequence[int], num_classes: int
    ) -> None:
        super().__init__(encoder, config.num_buckets, num_classes, config.vector_dim)
        self.patch_length, self.sizes, self.num_buckets = config.bytes_per_token, tuple(sizes), config.num_buckets
        width, channels = config.vector_dim, config.channels
        self.convolution = nn.Conv1d(width, channels, KERNEL_BYTES) if channels else None
        self.project = nn.Linear(channels or width, encoder.dim)
        nn.init.normal_(self.vectors[1:], std=1.0 if channels else INITIAL_DEVIATION)
        nn.init.zeros_(self.evidence.weight)

    def rows(self, hashes: Tensor, length: int) -> Tensor:
        """Rows (B, N, s) of the table from hashes (s, B N) of documents of N bytes, as `ByteHasher` returns them."""
        found = [table_rows(hashes[i], n, self.num_buckets) * (hashes[i] >= 0) for i, n in enumerate(self.sizes)]
        return torch.unflatten(torch.stack(found, dim=-1), 0, (-1, length))

    def forward(self, rows: Tensor, lengths: Tensor) -> Tensor:
        """Classify documents given as rows (B, N, s) of their n-grams -> (B, classes) logits."""
        return self.classify(self.embed(rows, lengths))

    def contributions(
        self, rows: Tensor, lengths: Tensor, num_stretches: int, stretch_bytes: int | None, *, in_int8: bool
    ) -> Tensor:
        """Contributions (B, num_stretches, classes) of stretches to the logits, without the bias.

        `stretch_bytes`: length of stretches; None if documents have one.
        `in_int8`: whether the ONNX graph adds int8 vectors by MatMulInteger, as in `sum_rows`.
        """
        return self.contributions_of(self.embed(rows, lengths, stretch_bytes, in_int8=in_int8), num_stretches)

    def embed(
        self, rows: Tensor, lengths: Tensor, stretch_bytes: int | None = None, *, in_int8: bool = False
    ) -> Tokens:
        """The tokens of documents of `lengths` bytes (B,)."""
        found = self._patches(rows, in_int8=in_int8) if self.convolution is None else self._maxima(rows)
        x = self.project(found).reshape(rows.shape[0], -1, self.project.out_features)
        if self.training and self.token_dropout:
            x = x * (torch.rand(x.shape[:2], device=x.device) >= self.token_dropout).unsqueeze(-1)
        counts = divide(lengths.long() + (self.patch_length - 1), self.patch_length).clamp(min=1)
        stretch = None
        if stretch_bytes is not None:
            stretch = divide(self.positions[: x.shape[1]] * self.patch_length, stretch_bytes).expand(x.shape[:2])
        amount = lengths.to(x.dtype).unsqueeze(1)
        return Tokens(x, counts, stretch, amount / (amount + self.prior))

    def _patches(self, rows: Tensor, *, in_int8: bool) -> Tensor:
        """Sums of the vectors of each patch over the root of their number: (B, N, s) -> (B T, width)."""
        size = self.patch_length * rows.shape[2]
        summed: Tensor = self._sums(rows.reshape(-1, size), in_int8=in_int8) * (self.scale / size**0.5)
        return summed

    def _maxima(self, rows: Tensor) -> Tensor:
        """Maxima of the convolution in each patch: (B, N, s) -> (B T, channels).

        For each byte, the kernel reads 3 bytes before it, the byte and 4 after it; zeros outside the document.
        """
        assert self.convolution is not None
        summed = torch.unflatten(self._sums(rows.flatten(0, 1), in_int8=False) * self.scale, 0, (-1, rows.shape[1]))
        padded = nn.functional.pad(summed.mT, (KERNEL_BYTES // 2 - 1, KERNEL_BYTES // 2))
        channels: Tensor = self.convolution(padded).relu().mT
        return torch.unflatten(channels, 1, (-1, self.patch_length)).amax(dim=2).flatten(0, 1)

    def _sums(self, rows: Tensor, *, in_int8: bool) -> Tensor:
        """Sums of vectors, without `scale`: (M, K) -> (M, width)."""
        if self.training:  # same sum, without storing the gradient of each row
            summed: Tensor = nn.functional.embedding_bag(rows, self.vectors, mode="sum", padding_idx=0)
            return summed
        is_int8 = self.vectors.dtype == torch.int8
        return sum_rows(nn.functional.embedding(rows, self.vectors), in_int8=in_int8 and is_int8)
