"""Classifier of recordings in two views: MiniRocket with a linear layer, and an encoder over patches.

Used by `model.tasks.series_classification`.
"""

import math
from typing import ClassVar

import torch
from torch import Tensor, nn

from model.config.models import SeriesClassifierConfig
from model.nn.encoder import Blocks, masked_mean
from model.nn.minirocket import MiniRocket

FLAT = 0.02
"""Smallest standard deviation, in that of the training recordings, to which a channel of a recording is scaled."""
STEM = 32
"""Channels between the convolutions of the stem."""


class PatchStem(nn.Module):
    """Tokens of a recording: two convolutions, which together step by a patch and read the patches beside it.

    Their inputs are the channels, also scaled by their mean and deviation in the recording; and the differences of both
    between neighbouring steps.

    Shape:      series (B, N, C), zero beyond the `lengths` (B,); returns (B, T, dim), T = ceil(N / patch_length).
    Reference:  overlapping patches: Nie et al. 2023, arXiv:2211.14730, sec. 3.1.
    """

    positions: Tensor
    difference_scale: Tensor

    def __init__(self, config: SeriesClassifierConfig, num_channels: int) -> None:
        super().__init__()
        dim, (step, second_step) = config.encoder.dim, config.strides
        self.first_step = step
        self.first = nn.Conv1d(4 * num_channels, STEM, 2 * step + 5, stride=step, padding=step + 2)
        self.norm = nn.BatchNorm1d(STEM)
        self.second = nn.Conv1d(STEM, dim, 2 * second_step + 1, stride=second_step, padding=second_step)
        self.register_buffer("positions", torch.arange(config.length), persistent=False)
        self.register_buffer("difference_scale", torch.ones(2 * num_channels))

    def inputs(self, series: Tensor, lengths: Tensor) -> Tensor:
        """Channels of the first convolution before their differences are scaled: (B, N, C) -> (B, N, 4 C)."""
        is_real = (self.positions < lengths.unsqueeze(1)).unsqueeze(2)  # (B, N, 1)
        count = lengths.to(series.dtype).reshape(-1, 1, 1)
        mean = series.sum(1, keepdim=True) / count
        centred = (series - mean) * is_real
        deviation = ((centred * centred).sum(1, keepdim=True) / count).sqrt().clamp(min=FLAT)
        both = torch.cat((series, centred / deviation), dim=2)
        before = torch.cat((both[:, :1], both[:, :-1]), dim=1)
        return torch.cat((both, (both - before) * is_real), dim=2)

    def forward(self, series: Tensor, lengths: Tensor) -> Tensor:
        """Tokens (B, N, C) -> (B, T, dim)."""
        values, differences = self.inputs(series, lengths).chunk(2, dim=2)
        x = torch.cat((values, differences / self.difference_scale), dim=2).transpose(1, 2)
        x = nn.functional.gelu(self.norm(self.first(x)))  # (B, STEM, N / first_step)
        is_real = self.positions[: x.shape[2]] * self.first_step < lengths.unsqueeze(1)
        return self.second(x * is_real.unsqueeze(1)).transpose(1, 2)  # type: ignore[no-any-return]


class SeriesEncoder(nn.Module):
    """Logits of a recording from the encoder over its patches.

    e = LN(blocks(stem(x) + P));  z = W [mean(e), max(e), softmax(w e) e]

    Shape:      series (B, N, C), zero beyond the `lengths` (B,); returns (B, classes).
    Reference:  blocks: Wang et al. 2024, arXiv:2408.08567, Figure 1; the task: Qin et al. 2022, arXiv:2211.16368,
                Table 3.
    Deviates:   DBA's classifier reads every step as a token.
    """

    rates: ClassVar[dict[str, float]] = {}
    positions: Tensor

    def __init__(self, config: SeriesClassifierConfig, num_channels: int, num_classes: int) -> None:
        super().__init__()
        encoder = config.encoder
        self.patch_length = config.patch_length
        self.num_tokens = config.num_tokens
        self.stem = PatchStem(config, num_channels)
        self.position_embedding = nn.Parameter(0.02 * torch.randn(encoder.seq_len, encoder.dim))
        self.dropout = nn.Dropout(encoder.dropout.hidden)
        self.blocks = Blocks(encoder)
        self.norm = nn.LayerNorm(encoder.dim)
        self.attention = nn.Linear(encoder.dim, 1)
        self.head = nn.Linear(3 * encoder.dim, num_classes)
        self.register_buffer("positions", torch.arange(encoder.seq_len), persistent=False)

    def forward(self, series: Tensor, lengths: Tensor) -> Tensor:
        """Classify (B, N, C) -> (B, classes)."""
        counts = (lengths + self.patch_length - 1) // self.patch_length
        x = self.stem(series, lengths)[:, : self.num_tokens]
        x = self.dropout(x + self.position_embedding[: self.num_tokens])
        e = self.norm(self.blocks(x, counts))  # (B, T, dim)
        is_padding = (self.positions[: self.num_tokens] >= counts.unsqueeze(1)).unsqueeze(2)
        e = e.masked_fill(is_padding, 0.0)
        weights = torch.softmax(self.attention(e).masked_fill(is_padding, -math.inf), dim=1)
        pooled = (masked_mean(e, counts), e.masked_fill(is_padding, -math.inf).amax(1), (weights * e).sum(1))
        return self.head(self.dropout(torch.cat(pooled, dim=1)))  # type: ignore[no-any-return]


class SeriesClassifier(nn.Module):
    """Sum of the logits of both views, each with a weight that training fits.

    Shape:      stretched (B, N, C), series (B, N, C) and lengths (B,), as `artifact.recordings.unpack_rows`; returns
                (B, classes).
    """

    weights: Tensor
    """(2,): weights of the views."""

    def __init__(self, config: SeriesClassifierConfig, num_channels: int, num_classes: int) -> None:
        super().__init__()
        self.rocket = MiniRocket(num_channels, config.length, config.features_per_kernel)
        self.linear = nn.Linear(self.rocket.num_features, num_classes)
        self.encoder = SeriesEncoder(config, num_channels, num_classes)
        self.register_buffer("weights", torch.ones(2))

    def forward(self, stretched: Tensor, series: Tensor, lengths: Tensor) -> Tensor:
        """Classify (B, N, C) -> (B, classes)."""
        first, second = self.linear(self.rocket(stretched)), self.encoder(series, lengths)
        return self.weights[0] * first + self.weights[1] * second  # type: ignore[no-any-return]
