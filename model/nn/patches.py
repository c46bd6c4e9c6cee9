"""Classifier over patches of byte n-grams, one of the two views that `model.nn.classifier` combines."""

from collections.abc import Iterable
from typing import ClassVar

import torch
from torch import Tensor, nn

from model.config.models import ClassifierConfig
from model.nn.encoder import masked_mean
from model.nn.ops.integers import divide
from model.nn.stem import ByteNgrams, NgramStem
from model.nn.tokens import SMALLEST, TokenClassifier, Tokens

INITIAL_DEVIATION = 0.05
"""Standard deviation of the sum over a patch, divided by the root of its number of n-grams, before training."""


class PatchClassifier(TokenClassifier):
    """Patches of bytes, as sums of the vectors of their n-grams, read by a `TokenClassifier`.

    x_t = P sum of the vectors of the n-grams that end in patch t / sqrt(p k); p bytes, k sizes of n-grams

    The amount that it reads is the number of bytes. The linear term is given standardised inputs (`standardise`): means
    of patches differ little between documents.

    Shape:      document (B, N) uint8, zero-padded, N a multiple of the patch length; lengths (B,) int32; returns
                (B, classes).
    Reference:  hashed vectors of byte n-grams of 3 to 8 bytes: Pagnoni et al. 2024, arXiv:2412.09871, sec. 3.2.1. There
                they are added to vectors of bytes; here an n-gram of size 1 in `byte_ngrams.sizes` is such a vector.
    """

    rates: ClassVar[dict[str, float]] = {"head": 3.0, "evidence": 3.0}
    """Learning rate multipliers by parameter prefix."""

    shift: Tensor
    """Mean of the mean token over the training documents."""

    def __init__(self, config: ClassifierConfig, num_classes: int) -> None:
        encoder, ngrams = config.required_encoder, config.byte_ngrams
        super().__init__(encoder, num_classes)
        assert config.vector_view is not None
        self.patch_length = config.vector_view.bytes_per_token
        self.stem = NgramStem(ngrams.sizes, ngrams.num_buckets, self.patch_length, encoder.seq_len, ngrams.dim)
        self.factor = (self.patch_length * len(ngrams.sizes)) ** 0.5
        nn.init.normal_(self.stem.weight[1:], std=INITIAL_DEVIATION)
        self.project = nn.Linear(ngrams.dim, encoder.dim, bias=False)
        nn.init.zeros_(self.evidence.weight)
        self.register_buffer("gain", torch.ones(encoder.dim))
        self.register_buffer("shift", torch.zeros(encoder.dim))

    def forward(self, document: Tensor, lengths: Tensor) -> Tensor:
        """Classify (B, N) bytes -> (B, classes) logits."""
        return self.classify(self.embed(self.stem.hasher.ngrams(document, lengths), lengths))

    def contributions(self, ngrams: Iterable[ByteNgrams], lengths: Tensor, num_stretches: int, stretch: int) -> Tensor:
        """Contributions (B, num_stretches, classes) of stretches of `stretch` bytes to the logits, without the bias."""
        return self.contributions_of(self.embed(ngrams, lengths, stretch), num_stretches)

    def embed(self, ngrams: Iterable[ByteNgrams], lengths: Tensor, stretch: int = 1) -> Tokens:
        """The tokens of documents of `lengths` bytes (B,), given as their n-grams."""
        x = self.project(self.stem.embed(self.stem.rows_of(ngrams)) * self.factor)  # (B, T, C)
        if self.training and self.token_dropout:
            x = x * (torch.rand(x.shape[:2], device=x.device) >= self.token_dropout).unsqueeze(-1)
        counts = divide(lengths.long() + (self.patch_length - 1), self.patch_length)
        stretches = divide(self.positions[: x.shape[1]] * self.patch_length, stretch)
        size = lengths.to(x.dtype).unsqueeze(1)
        return Tokens(x, counts, stretches.expand(x.shape[:2]), size / (size + self.prior))

    def standardised(self, vectors: Tensor) -> Tensor:
        """Input of the linear term, from patches or means of them (..., C)."""
        return self.gain * (vectors - self.shift)

    def evidence_of(self, vectors: Tensor) -> Tensor:
        """The linear term (..., classes) of patches (..., C)."""
        return (vectors - self.shift) @ (self.gain.unsqueeze(1) * self.evidence.weight.T)

    @torch.no_grad()
    def standardise(self, document: Tensor, lengths: Tensor, prior: float) -> None:
        """Set shift and gain from training documents (B, N), B of several hundred, and the prior in bytes.

        Reference:  Salimans and Kingma 2016, arXiv:1602.07868, sec. 3 (data-dependent initialisation).
        """
        x, counts, *_ = self.embed(self.stem.hasher.ngrams(document, lengths), lengths)
        means = masked_mean(x, counts)
        self.shift.copy_(means.mean(0))
        self.gain.copy_(1 / means.std(0).clamp(min=SMALLEST))
        self.prior.fill_(max(prior, SMALLEST))

    def quantise(self) -> None:
        """Quantise the table to int8. For export; the model cannot be trained after it."""
        self.stem.quantise()
