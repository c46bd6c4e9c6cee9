"""Text classifiers built on the encoder. Used by `model.tasks.classification`."""

import math
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from model.config.encoder import EncoderConfig
from model.config.models import ClassifierConfig
from model.nn.encoder import Blocks, ByteEncoder, masked_mean
from model.nn.words import WordStem

HEAD_DIM = 128
"""Hidden width of the head of `ByteClassifier`."""
NOISE = 0.1
"""Norm of the learned part of a row of the word stem's table after initialisation. This part is random, which lets rows
leave the span of the class directions."""


class ByteClassifier(nn.Module):
    """Byte encoder, mean over tokens, two-layer head.

    logits = W_2 relu(W_1 mean_n(encoder(x)))

    Shape:      document (B, N) uint8; lengths (B,) int32; returns (B, classes).
    Reference:  Wang et al. 2024, arXiv:2408.08567, sec. IV-A; the head is that of the published LRA code.
    Deviates:   the head is initialised from data (`standardise_head`); its shape is unchanged. In length-aware mode the
                mean is over real tokens; in mode `paper-masked` it is their sum / N, as in the released code; in mode
                `paper` it is over all N positions, as in the paper's listings, which have no mask.
    """

    def __init__(self, config: EncoderConfig, num_classes: int) -> None:
        super().__init__()
        self.mode = config.mode
        self.encoder = ByteEncoder(config)
        self.head = nn.Sequential(nn.Linear(config.dim, HEAD_DIM), nn.ReLU(), nn.Linear(HEAD_DIM, num_classes))

    def forward(self, document: Tensor, lengths: Tensor) -> Tensor:
        """Classify (B, N) bytes -> (B, classes) logits."""
        return self.head(self.pooled(document, lengths))  # type: ignore[no-any-return]

    def pooled(self, document: Tensor, lengths: Tensor) -> Tensor:
        """Mean of the encoder's output over tokens: (B, N) bytes -> (B, C)."""
        x = self.encoder(document, lengths)  # (B, N, C)
        if self.mode == "paper":
            return x.mean(dim=1)  # type: ignore[no-any-return]
        mean = masked_mean(x, lengths)
        if self.mode == "paper-masked":
            mean = mean * (lengths.to(x.dtype) / x.shape[1]).unsqueeze(1)
        return mean

    @torch.no_grad()
    def divide_logits(self, temperature: float) -> None:
        """Divide the logits by a temperature, folded into the weights."""
        last = self.head[2]
        assert isinstance(last, nn.Linear)
        last.weight.div_(temperature)
        last.bias.div_(temperature)

    @torch.no_grad()
    def standardise_head(self, document: Tensor, lengths: Tensor) -> None:
        """Initialise the head's first layer so that its inputs have mean 0 and standard deviation 1 on these documents.

        Means over tokens differ little between documents; with the default initialisation the accuracy stays at chance
        for thousands of steps.

        Shape:      document (B, N) uint8; lengths (B,) int32; B of several hundred.
        Reference:  Salimans and Kingma 2016, arXiv:1602.07868, sec. 3 (data-dependent initialisation).
        """
        pooled = self.pooled(document, lengths)  # (B, C)
        first = self.head[0]
        assert isinstance(first, nn.Linear)
        first.weight /= pooled.std(dim=0)
        first.bias.copy_(-first.weight @ pooled.mean(dim=0))


class WordClassifier(nn.Module):
    """Word stem, S3Attention encoder over its patches, linear head.

    logits = W (sum_t x_t / sqrt(m) + gate * mean_t LN(blocks(x / token_scale))) + b

    x are the tokens of the stem, which sums m rows of its table for a document. Each row is a learned part plus fixed
    naive Bayes evidence in the initial directions of W, one per class. `initialise` sets the evidence and makes the
    learned part small and random. The gate starts at zero, so that the initial model is a naive Bayes classifier up to
    this noise. `token_scale` normalises the tokens to standard deviation 1.

    Shape:      document (B, N) uint8, zero-padded, N a multiple of patch_length and at most max_length;
                lengths (B,) int32; folds (B,) int64, the fold of each training document (see `WordStem`), not given for
                new documents; returns (B, classes).
    Reference:  blocks: Wang et al. 2024, arXiv:2408.08567, Figure 1; stem: model.nn.words.
    Deviates:   stem of words in patches instead of bytes; the sum of the stem's tokens bypasses the encoder. The mean
                is over real tokens; the released code zeroes padding tokens before a mean over all positions.
    """

    rates: ClassVar[dict[str, float]] = {"stem.table": 50.0, "head": 5.0}
    """Learning rate multipliers by parameter prefix. The table has the highest, because a row receives gradients in few
    steps. Parameters without an entry have 1, such as the encoder, which would overfit at a higher rate."""

    token_scale: Tensor

    def __init__(self, config: ClassifierConfig, num_classes: int) -> None:
        super().__init__()
        encoder = config.encoder
        self.patch_length = config.stem.patch_length
        self.stem = WordStem(config.stem, config.max_length, encoder.dim, num_classes)
        self.dropout = nn.Dropout(encoder.dropout.embedding)
        self.blocks = Blocks(encoder)
        self.norm = nn.LayerNorm(encoder.dim)
        self.gate = nn.Parameter(torch.zeros(encoder.dim))
        self.head = nn.Linear(encoder.dim, num_classes)
        self.register_buffer("token_scale", torch.ones(()))

    def forward(self, document: Tensor, lengths: Tensor, folds: Tensor | None = None) -> Tensor:
        """Classify (B, N) bytes -> (B, classes) logits."""
        return self.from_ngrams(self.stem.ngrams(document, lengths), document, lengths, folds)

    def from_ngrams(
        self, ngrams: tuple[Tensor, Tensor, Tensor], document: Tensor, lengths: Tensor, folds: Tensor | None = None
    ) -> Tensor:
        """Classify from the n-grams that the stem found in (B, N) bytes -> (B, classes) logits."""
        x, num_rows = self.stem.embed(ngrams, document, folds)  # (B, T, C), (B,)
        patches = (lengths + self.patch_length - 1) // self.patch_length  # (B,)
        pooled = x.sum(dim=1) * torch.rsqrt(num_rows.clamp(min=1).to(x.dtype)).unsqueeze(1)  # (B, C)
        if len(self.blocks):
            context = self.norm(self.blocks(self.dropout(x / self.token_scale), patches))  # (B, T, C)
            pooled = pooled + self.gate * masked_mean(context, patches)
        return self.head(pooled)  # type: ignore[no-any-return]

    @torch.no_grad()
    def initialise(self, hashes: NDArray[np.int64], evidence: Tensor, priors: Tensor) -> None:
        """Initialise as naive Bayes, plus noise: hashes and evidence from `choose_ngrams`, priors (classes,)."""
        num_classes, dim = self.head.weight.shape
        directions = torch.randn(num_classes, dim) / math.sqrt(dim)
        if num_classes <= dim:
            directions = torch.linalg.qr(directions.T)[0].T
        else:  # unit length, so that each class is nearest to its own direction
            directions /= directions.norm(dim=1, keepdim=True)
        self.head.weight.copy_(directions)
        self.head.bias.copy_(torch.log(priors))
        self.stem.directions.copy_(directions)
        self.stem.fill(hashes, evidence)
        self.stem.table[1:].normal_(std=NOISE / math.sqrt(dim))  # learned part; row 0 stays zero

    @torch.no_grad()
    def divide_logits(self, temperature: float) -> None:
        """Divide the logits by a temperature, folded into the weights."""
        self.head.weight.div_(temperature)
        self.head.bias.div_(temperature)

    @torch.no_grad()
    def quantise(self) -> None:
        """Quantise the stem for export. Without blocks, first multiply its rows by the head: one number per class."""
        if len(self.blocks):
            self.stem.quantise()
            return
        self.stem.quantise(self.head.weight)
        num_classes = len(self.head.bias)
        head = nn.Linear(num_classes, num_classes).to(self.head.weight)
        head.weight.copy_(torch.eye(num_classes))
        head.bias.copy_(self.head.bias)
        self.head = head

    @torch.no_grad()
    def standardise(self, document: Tensor, lengths: Tensor) -> None:
        """Set `token_scale` from training documents: (B, N) bytes, B of several hundred."""
        tokens, _ = self.stem(document, lengths)
        self.token_scale.copy_(tokens.std().clamp(min=1e-6))
