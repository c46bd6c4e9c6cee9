"""S3Attention forecasters of multivariate series: as published, and on top of a linear map."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from model.attention.s3 import S3Attention
from model.config import EncoderConfig
from model.encoder import Block
from model.ops.fourier import extrapolation_matrix


@dataclass(frozen=True)
class ForecasterConfig:
    """Shape of a forecaster; the paper publishes `num_harmonics` only."""

    encoder: EncoderConfig
    """Attention over the window, whose length is `encoder.seq_len`."""
    num_channels: int
    prediction_length: int
    num_harmonics: int = 8
    """Frequencies kept on either side of zero by Fourier extrapolation."""


def instance_statistics(x: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and scale sqrt(var + 1) of each channel over the window, the variance unbiased.

    Shape:      x (B, N, C); returns twice (B, 1, C).
    Reference:  Wang et al. 2024, arXiv:2408.08567, Algorithm 3 (1.0 is added, not a small number).
    """
    return x.mean(1, keepdim=True), torch.sqrt(x.var(1, keepdim=True) + 1.0)


class PaperForecaster(nn.Module):
    """S3Attention over time on all channels together, continued by its lowest frequencies.

    z = (x - mean) / scale;  e = W_in z;  e = e + S3Attention(e), num_layers times;  y = (E W_out e) scale + mean

    Shape:      x (B, N, C), standardised by the training data; returns (B, O, C).
    Reference:  Wang et al. 2024, arXiv:2408.08567, Algorithms 3 and 4.
    Deviates:   the input is embedded once; the listing embeds it again for each layer, which discards the layers
                before, test_every_layer_changes_the_forecast. `post`, which the listing does not define, is a linear
                map from width to channels.
    """

    extrapolation: Tensor

    def __init__(self, config: ForecasterConfig) -> None:
        super().__init__()
        encoder = config.encoder
        generator = torch.Generator().manual_seed(encoder.sampling_seed)
        self.embedding = nn.Linear(config.num_channels, encoder.dim)
        self.layers = nn.ModuleList(S3Attention(encoder, generator) for _ in range(encoder.num_layers))
        self.post = nn.Linear(encoder.dim, config.num_channels)
        matrix = extrapolation_matrix(encoder.seq_len, config.prediction_length, config.num_harmonics)
        self.register_buffer("extrapolation", matrix.float())

    def forward(self, x: Tensor) -> Tensor:
        """Forecast (B, N, C) -> (B, O, C)."""
        mean, scale = instance_statistics(x)
        e = self.embedding((x - mean) / scale)  # (B, N, d)
        for layer in self.layers:
            e = e + layer(e)
        return self.extrapolation @ self.post(e) * scale + mean  # type: ignore[no-any-return]


class ResidualForecaster(nn.Module):
    """Linear map on the series minus its last value, corrected by an S3Attention encoder of each channel alone.

    y = last + W (x - last) + b + gate * scale * (V post(encoder(z)) + c),  z = (x - mean) / scale

    The linear map starts as the least-squares solution (`set_linear`) and the gate at zero, so that training starts
    from the linear yardstick; channels share all weights but their gate.

    Shape:      x (B, N, C), standardised by the training data; returns (B, O, C).
    Reference:  encoder as in Wang et al. 2024, arXiv:2408.08567, Figure 1; instance statistics as in Algorithm 3.
    Deviates:   linear residual, channel independence and a linear horizon head are not in the paper: Fourier
                extrapolation repeats the window and knows no trend.
    """

    def __init__(self, config: ForecasterConfig) -> None:
        super().__init__()
        encoder = config.encoder
        generator = torch.Generator().manual_seed(encoder.sampling_seed)
        self.embedding = nn.Linear(1, encoder.dim)
        self.position_embedding = nn.Parameter(torch.zeros(encoder.seq_len, encoder.dim))
        self.blocks = nn.Sequential(*(Block(encoder, generator) for _ in range(encoder.num_layers)))
        self.norm = nn.LayerNorm(encoder.dim)
        self.post = nn.Linear(encoder.dim, 1)
        self.dropout = nn.Dropout(encoder.dropout.hidden)
        self.head = nn.Linear(encoder.seq_len, config.prediction_length)
        self.gate = nn.Parameter(torch.zeros(config.num_channels))
        self.linear = nn.Linear(encoder.seq_len, config.prediction_length)

    @torch.no_grad()
    def set_linear(self, weight: Tensor, bias: Tensor) -> None:
        """Start from a solved linear map: weight (O, N), bias (O,)."""
        self.linear.weight.copy_(weight)
        self.linear.bias.copy_(bias)

    def forward(self, x: Tensor) -> Tensor:
        """Forecast (B, N, C) -> (B, O, C)."""
        last = x[:, -1:]
        mean, scale = instance_statistics(x)
        series = ((x - mean) / scale).transpose(1, 2).flatten(0, 1).unsqueeze(-1)  # (B C, N, 1)
        e = self.norm(self.blocks(self.embedding(series) + self.position_embedding))  # (B C, N, d)
        correction = self.head(self.dropout(self.post(e).squeeze(-1)))  # (B C, O)
        correction = correction.unflatten(0, (-1, x.shape[2])).transpose(1, 2)  # (B, O, C)
        linear = self.linear((x - last).transpose(1, 2)).transpose(1, 2)  # (B, O, C)
        return last + linear + self.gate * scale * correction  # type: ignore[no-any-return]
