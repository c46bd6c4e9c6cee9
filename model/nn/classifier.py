"""Text classifiers on top of the encoder. Used by `model.tasks.classification`."""

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
NOISE = 0.1
"""Length of the random part of a row at the start, so that rows may leave the directions of the classes."""


class ByteClassifier(nn.Module):
    """Encoder, mean over positions (length-aware: over the real ones), two-layer head.

    logits = W_2 relu(W_1 mean_n(encoder(x)))

    Shape:      document (B, N) uint8; lengths (B,) int32; returns (B, classes).
    Reference:  Wang et al. 2024, arXiv:2408.08567, sec. IV-A; the head is that of the published LRA code.
    Deviates:   the head is initialised from data (`standardise_head`); its shape is unchanged.
    Note:       as published, padding is an ordinary input to smoother, attention and mean.
    """

    def __init__(self, config: EncoderConfig, num_classes: int) -> None:
        super().__init__()
        self.is_length_aware = config.is_length_aware
        self.encoder = ByteEncoder(config)
        self.head = nn.Sequential(nn.Linear(config.dim, HEAD_DIM), nn.ReLU(), nn.Linear(HEAD_DIM, num_classes))

    def forward(self, document: Tensor, lengths: Tensor) -> Tensor:
        """Classify (B, N) bytes -> (B, classes) logits."""
        return self.head(self.pooled(document, lengths))  # type: ignore[no-any-return]

    def pooled(self, document: Tensor, lengths: Tensor) -> Tensor:
        """Mean of the encoder's output: (B, N) bytes -> (B, C)."""
        x = self.encoder(document, lengths)  # (B, N, C)
        return masked_mean(x, lengths) if self.is_length_aware else x.mean(dim=1)

    @torch.no_grad()
    def divide_logits(self, temperature: float) -> None:
        """Divide every logit."""
        last = self.head[2]
        assert isinstance(last, nn.Linear)
        last.weight.div_(temperature)
        last.bias.div_(temperature)

    @torch.no_grad()
    def standardise_head(self, document: Tensor, lengths: Tensor) -> None:
        """Scale and shift the head's first layer so that its inputs have mean 0 and deviation 1 on these documents.

        The means over positions of two documents hardly differ; from the usual initialisation the classifier stays
        at chance for thousands of steps.

        Shape:      document (B, N) uint8; lengths (B,) int32; B of some hundreds.
        Reference:  Salimans and Kingma 2016, arXiv:1602.07868, sec. 3 (data-dependent initialisation).
        """
        pooled = self.pooled(document, lengths)  # (B, C)
        first = self.head[0]
        assert isinstance(first, nn.Linear)
        first.weight /= pooled.std(dim=0)
        first.bias.copy_(-first.weight @ pooled.mean(dim=0))


class WordClassifier(nn.Module):
    """Words in patches, an S3Attention encoder over the patches, linear head.

    logits = W (sum_t x_t / sqrt(m) + gate * mean_t LN(blocks(x / scale))) + b,  m: rows of the table in the document

    Before training, rows of the table are the evidence of naive Bayes in the directions of W, so that the first
    document is classified as naive Bayes would (`initialise`), and the gate is zero; `scale` makes the tokens'
    deviation 1.

    Shape:      document (B, N) uint8, zero-padded, N a multiple of patch_length and at most max_length;
                lengths (B,) int32; returns (B, classes).
    Reference:  blocks: Wang et al. 2024, arXiv:2408.08567, Figure 1; stem: model.nn.words.
    Deviates:   stem of words in patches instead of bytes; the sum of the stem's tokens goes past the encoder.
    """

    rates: ClassVar[dict[str, float]] = {"stem.table": 50.0, "head": 5.0}
    """Learning rates relative to the recipe's: a row of the table is seen in few steps only, and the encoder, which
    would learn the training documents by heart, is to follow slowly."""

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
        x, rows = self.stem(document, lengths, folds)  # (B, T, C), (B,)
        patches = (lengths + self.patch_length - 1) // self.patch_length  # (B,)
        pooled = x.sum(dim=1) * torch.rsqrt(rows.clamp(min=1).to(x.dtype)).unsqueeze(1)  # (B, C)
        if len(self.blocks):
            context = self.norm(self.blocks(self.dropout(x / self.token_scale), patches))  # (B, T, C)
            pooled = pooled + self.gate * masked_mean(context, patches)
        return self.head(pooled)  # type: ignore[no-any-return]

    @torch.no_grad()
    def initialise(self, hashes: NDArray[np.int64], evidence: Tensor, priors: Tensor) -> None:
        """Start as naive Bayes: what `choose` gave, and the share of each class (classes,)."""
        num_classes, dim = self.head.weight.shape
        directions = torch.randn(num_classes, dim) / math.sqrt(dim)
        if num_classes <= dim:
            directions = torch.linalg.qr(directions.T)[0].T
        else:  # of length 1, so that each class is nearest to its own
            directions /= directions.norm(dim=1, keepdim=True)
        self.head.weight.copy_(directions)
        self.head.bias.copy_(torch.log(priors))
        self.stem.directions.copy_(directions)
        self.stem.fill(hashes, evidence)
        self.stem.table[1:].normal_(std=NOISE / math.sqrt(dim))

    @torch.no_grad()
    def divide_logits(self, temperature: float) -> None:
        """Divide every logit."""
        self.head.weight.div_(temperature)
        self.head.bias.div_(temperature)

    @torch.no_grad()
    def standardise(self, document: Tensor, lengths: Tensor) -> None:
        """Set the scale of the tokens from training documents: (B, N) bytes, B of some hundreds."""
        tokens, _ = self.stem(document, lengths)
        self.token_scale.copy_(tokens.std().clamp(min=1e-6))
