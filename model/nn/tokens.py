"""Classifier over tokens of documents: blocks, pooling, head. Used by `model.nn.vectors` and `model.nn.patches`."""

from typing import ClassVar, NamedTuple

import torch
from torch import Tensor, nn

from model.config.encoder import EncoderConfig
from model.nn.encoder import Blocks, masked_mean
from model.nn.stem import quantise_int8

SMALLEST = 1e-6
"""Smallest prior."""
SHARE_TEMPERATURE = 0.02
"""Softmax temperature of the shares of a maximum: a token that is lower by this much has 1/e of the highest one's."""


class Tokens(NamedTuple):
    """Tokens of documents, padded to T."""

    vectors: Tensor
    """(B, T, C)."""
    counts: Tensor
    """Number of real tokens of each document, (B,)."""
    stretch: Tensor | None
    """Stretch of each token, (B, T); None if documents have one stretch."""
    share: Tensor
    """k / (k + prior) of each document, (B, 1)."""


class TokenClassifier(nn.Module):
    """S3Attention blocks over tokens, mean and maximum over the tokens, linear.

    z = blocks(drop(x));
    logits = k / (k + prior) (W drop([mean_t LN(z_t); max_t LN(z_t)]) + V drop(gain mean_t x_t)) + b

    A subclass defines the tokens x_t, from vectors of n-grams, and the amount k of what it reads in a document. The
    prior keeps the logits of documents of a few words moderate; most documents are far longer.

    `contributions` returns the logits without b and dropout as a sum over stretches of the document. A token
    contributes its part of the means, and its share of the maximum of each channel, which is that of a softmax over
    the tokens with SHARE_TEMPERATURE: nearly all for the highest token. If it got all, rounding to float16 would decide
    between two tokens that are almost equal. The blocks mix tokens, so that a contribution also depends on the text of
    other stretches.

    Reference:  blocks: Wang et al. 2024, arXiv:2408.08567, Figure 1; mean and maximum: Howard and Ruder 2018,
                arXiv:1801.06146, sec. 3.3. The S3Attention paper reads bytes and pools by the mean.
    """

    rates: ClassVar[dict[str, float]] = {"head": 5.0, "evidence": 5.0, "vectors": 0.5}
    """Learning rate multipliers by parameter prefix."""

    positions: Tensor
    scale: Tensor
    """Factor of each column of `vectors`: the step of int8 after `quantise`, 1 before."""
    gain: Tensor
    """Factor of the mean token. For word n-grams, it gives it a standard deviation of 1 over the training documents."""
    prior: Tensor

    def __init__(self, encoder: EncoderConfig, num_rows: int, num_classes: int, width: int) -> None:
        """`num_rows` vectors of `width` numbers."""
        super().__init__()
        self.vectors = nn.Parameter(torch.zeros(1 + num_rows, width))  # row 0 (no n-gram): zero
        self.register_buffer("scale", torch.ones(width))
        self.register_buffer("gain", torch.ones(()))
        self.register_buffer("prior", torch.tensor(SMALLEST))
        self.register_buffer("positions", torch.arange(encoder.seq_len), persistent=False)
        self.token_dropout = 0.0
        """Probability of leaving out what a subclass reads: an n-gram, or a token."""
        self.dropout = nn.Dropout(encoder.dropout.embedding)
        self.blocks = Blocks(encoder)
        self.norm = nn.LayerNorm(encoder.dim)
        self.pooled_dropout = nn.Dropout(0.0)
        self.head = nn.Linear(2 * encoder.dim, num_classes)
        self.evidence = nn.Linear(encoder.dim, num_classes, bias=False)

    def classify(self, tokens: Tokens) -> Tensor:
        """Logits (B, classes) of documents given as tokens."""
        return self._without_bias(tokens) + self.head.bias

    def _without_bias(self, tokens: Tokens) -> Tensor:
        """Logits (B, classes) without the bias."""
        x, is_real = self._encode(tokens)
        highest = (x + lowest(is_real, x.dtype)).amax(dim=1)  # (B, C)
        pooled = torch.cat((masked_mean(x, tokens.counts), highest), dim=1)
        mean = masked_mean(tokens.vectors, tokens.counts)
        logits: Tensor = self.pooled_dropout(pooled) @ self.head.weight.T + self.evidence_of(self.dropout(mean))
        return tokens.share * logits

    def contributions_of(self, tokens: Tokens, num_stretches: int) -> Tensor:
        """Contributions (B, num_stretches, classes) to the logits, without the bias, of documents given as tokens."""
        if tokens.stretch is None:
            return self._without_bias(tokens).unsqueeze(1)
        x, is_real = self._encode(tokens)
        weight, channels = self.head.weight.T, x.shape[2]  # (2 C, classes)
        part_of_mean = is_real.to(x.dtype) / tokens.counts.unsqueeze(1)  # (B, T)
        masked = x + lowest(is_real, x.dtype)
        part_of_maximum = torch.softmax(masked / SHARE_TEMPERATURE, dim=1)  # (B, T, C)
        maxima = masked.amax(dim=1).unsqueeze(-1) * weight[channels:]  # (B, C, classes)
        means = x @ weight[:channels] + self.evidence_of(tokens.vectors)
        parts = means * part_of_mean.unsqueeze(-1) + part_of_maximum @ maxima  # (B, T, classes)
        stretches = torch.arange(num_stretches, device=x.device).unsqueeze(1)
        summed = (tokens.stretch.unsqueeze(1) == stretches).to(x.dtype) @ parts
        return tokens.share.unsqueeze(1) * summed

    def evidence_of(self, vectors: Tensor) -> Tensor:
        """The linear term (..., classes) of vectors, or of means of them (..., C)."""
        return vectors @ (self.gain * self.evidence.weight.T)

    def _encode(self, tokens: Tokens) -> tuple[Tensor, Tensor]:
        """LN(z) of tokens (B, T, C), and which tokens are real (B, T)."""
        x = self.norm(self.blocks(self.dropout(tokens.vectors), tokens.counts))
        return x, self.positions[: x.shape[1]] < tokens.counts.unsqueeze(1)

    def set_dropout(self, dropout: float, pooled: float, tokens: float) -> None:
        """Set the dropout probabilities; each round of training has its own.

        Args:
            dropout: probability for all layers, except the following two.
            pooled: probability for the pooled vector.
            tokens: probability of leaving out what the classifier reads: an n-gram, or a token.

        """
        for module in self.modules():
            if isinstance(module, nn.Dropout):
                module.p = dropout
        self.pooled_dropout.p, self.token_dropout = pooled, tokens

    @torch.no_grad()
    def set_prior(self, prior: float) -> None:
        """Set the prior, in the unit of the amount."""
        self.prior.fill_(max(prior, SMALLEST))

    @torch.no_grad()
    def quantise(self) -> None:
        """Quantise the vectors to int8, with one step per column. For export; the model cannot be trained after it."""
        table, step = quantise_int8(self.vectors)
        self.vectors = nn.Parameter(table, requires_grad=False)
        self.scale.copy_(step)


def lowest(is_real: Tensor, dtype: torch.dtype) -> Tensor:
    """Zero for real tokens, minus infinity for others, to be added: (B, T) -> (B, T, 1).

    ONNX Runtime replaces values by a condition more slowly than it adds.
    """
    return torch.where(is_real, 0.0, -torch.inf).to(dtype).unsqueeze(-1)
