"""Forecaster of any series, which needs no training on it. Used by `model.tasks.any_series`."""

from typing import ClassVar

import torch
from torch import Tensor, nn

from artifact.univariate.features import CHANNELS, FUTURE, HORIZON, LEVELS, PATCH, WIDTH
from model.config.models import AnySeriesConfig
from model.nn.encoder import Blocks

RECENT = 64
"""Number of last values that a linear map reads."""
LARGEST = 3.0
"""Limit of asinh(x) of the values that are added to a forecast."""


class AnySeriesForecaster(nn.Module):
    """Quantiles of the future steps, read from their tokens after the blocks.

    x = [W_f future; W_p past] + P + MLP(statistics);  e = LN(blocks(x)), at the future tokens;
    q = W_q e + sum_c (W_c e) * c + W_r recent

    c are the channels of the future steps, such as the Theta forecast and the value one season before; `recent` are the
    last 64 values. All but W_q start at zero.

    Shape:      tokens (B, 1 + T, WIDTH), as `artifact.univariate.features.Prepared.tokens`, zero-padded; lengths (B,)
                int32, number of tokens of each series; returns (B, LEVELS, HORIZON), not ordered.
    Reference:  blocks: Wang et al. 2024, arXiv:2408.08567, Figure 1; patches: Nie et al. 2023, arXiv:2211.14730,
                sec. 3.1; training on generated series alone: Dooley et al. 2023, arXiv:2311.01933.
    Deviates:   the S3Attention paper trains a forecaster on the series that it forecasts.
    """

    rates: ClassVar[dict[str, float]] = {}

    def __init__(self, config: AnySeriesConfig) -> None:
        super().__init__()
        encoder = config.encoder
        self.future, self.past = nn.Linear(WIDTH, encoder.dim), nn.Linear(WIDTH, encoder.dim)
        self.statistics = nn.Sequential(
            nn.Linear(WIDTH, config.statistics_dim), nn.GELU(), nn.Linear(config.statistics_dim, encoder.dim)
        )
        self.position_embedding = nn.Parameter(0.02 * torch.randn(encoder.seq_len, encoder.dim))
        self.blocks = Blocks(encoder)
        self.norm = nn.LayerNorm(encoder.dim)
        self.quantiles = nn.Linear(encoder.dim, len(LEVELS) * PATCH)
        nn.init.normal_(self.quantiles.weight, std=0.01)
        self.shares, self.recent = nn.Linear(encoder.dim, WIDTH), nn.Linear(RECENT, HORIZON)
        for layer in (self.shares, self.recent):
            nn.init.zeros_(layer.weight)
            nn.init.zeros_(layer.bias)

    def forward(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        """Forecast (B, 1 + T, WIDTH) -> (B, LEVELS, HORIZON)."""
        future, past = tokens[:, 1 : 1 + FUTURE], tokens[:, 1 + FUTURE :]
        x = torch.cat((self.future(future), self.past(past)), dim=1)  # (B, T, C)
        x = x + self.position_embedding[: x.shape[1]] + self.statistics(tokens[:, :1])
        e = self.norm(self.blocks(x, lengths - 1)[:, :FUTURE])  # (B, FUTURE, C)
        q = (
            torch.unflatten(self.quantiles(e), 2, (len(LEVELS), PATCH)).transpose(1, 2).flatten(2)
        )  # (B, LEVELS, HORIZON)
        added = torch.unflatten(self.shares(e) * _sinh(future), 2, (CHANNELS, PATCH)).sum(2).flatten(1)  # (B, HORIZON)
        recent = _sinh(past[:, : RECENT // PATCH, :PATCH]).flatten(1)  # (B, RECENT)
        return q + (added + self.recent(recent)).unsqueeze(1)  # type: ignore[no-any-return]


def _sinh(x: Tensor) -> Tensor:
    """Inverse of the asinh of a feature, limited; ONNX's Sinh has no CUDA kernel."""
    x = x.clamp(-LARGEST, LARGEST)
    return (torch.exp(x) - torch.exp(-x)) / 2
