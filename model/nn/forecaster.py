"""S3Attention forecasters of multivariate series: the paper's model, and a linear map with a learned residual."""

from typing import ClassVar

import torch
from torch import Tensor, nn

from model.config.models import ForecasterConfig
from model.nn.attention.s3 import S3Attention
from model.nn.encoder import Blocks
from model.nn.ops.fourier import extrapolation_matrix


def instance_statistics(x: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and scale sqrt(var + 1) of each channel over the window, the variance unbiased.

    Shape:      x (B, N, C); returns twice (B, 1, C).
    Reference:  Wang et al. 2024, arXiv:2408.08567, Algorithm 3 (which adds 1.0, not a small epsilon).
    """
    return x.mean(1, keepdim=True), torch.sqrt(x.var(1, keepdim=True) + 1.0)


class PaperForecaster(nn.Module):
    """S3Attention over time on all channels jointly, followed by Fourier extrapolation.

    z = (x - mean) / scale;  e = W_in z;  e = e + S3Attention(e), num_layers times;  y = (E W_out e) scale + mean

    E is the `extrapolation_matrix`; mean and scale are the `instance_statistics`.

    Shape:      x (B, N, C), scaled by the training statistics; returns (B, O, C), O = prediction_length.
    Reference:  Wang et al. 2024, arXiv:2408.08567, Algorithms 3 and 4.
    Deviates:   the input is embedded once; the listing embeds it again in each layer, which discards the output of the
                layers before; test_every_layer_changes_the_forecast. `post`, which the listing does not define, is a
                linear map from width to channels. This is not the model that the authors released, which also has
                sinusoidal positions, ELU, no output projection, and as many harmonics as the horizon has steps.
    """

    extrapolation: Tensor

    rates: ClassVar[dict[str, float]] = {}

    def __init__(self, config: ForecasterConfig, num_channels: int) -> None:
        super().__init__()
        encoder = config.encoder
        generator = torch.Generator().manual_seed(encoder.sampling_seed)
        self.embedding = nn.Linear(num_channels, encoder.dim)
        self.layers = nn.ModuleList(S3Attention(encoder, generator) for _ in range(encoder.num_layers))
        self.post = nn.Linear(encoder.dim, num_channels)
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
    """Linear map on the series minus its last value, plus the output of a channel-independent S3Attention encoder.

    y = last + W (x - last) + b + gate * scale * (V_2 V_1 encoder(patches(z))),  z = (x - last) / scale

    W and b are the linear map, initialised with a baseline (`set_linear`); the gate is initialised with zero, so that
    training starts from that baseline. V_2 V_1 is the head, of low rank. Channels share all weights
    except the gate. `last` is the last value of each channel, `scale` is from `instance_statistics`.

    Shape:      x (B, N, C), scaled by the training statistics; returns (B, O, C), O = prediction_length.
    Reference:  encoder as in Wang et al. 2024, arXiv:2408.08567, Figure 1; instance scale as in Algorithm 3; patches,
                channel independence and a head over all tokens as in Nie et al. 2023, arXiv:2211.14730, sec. 3.1.
    Deviates:   linear map, patches, channel independence and linear head are not in the S3Attention paper. They replace
                its Fourier extrapolation, which repeats the window and cannot represent a trend.
    """

    rates: ClassVar[dict[str, float]] = {"linear": 0.02}
    """Learning rate multipliers by parameter prefix: the linear map starts at its optimum and should change little."""

    def __init__(self, config: ForecasterConfig, num_channels: int) -> None:
        super().__init__()
        encoder = config.encoder
        self.patch_shape = (encoder.seq_len, config.patch_length)
        self.embedding = nn.Linear(config.patch_length, encoder.dim)
        self.position_embedding = nn.Parameter(torch.zeros(encoder.seq_len, encoder.dim))
        self.blocks = Blocks(encoder)
        self.norm = nn.LayerNorm(encoder.dim)
        self.dropout = nn.Dropout(encoder.dropout.hidden)
        self.head = nn.Sequential(  # low rank: a full-rank head would mostly fit noise
            nn.Linear(encoder.seq_len * encoder.dim, config.head_dim),
            nn.Linear(config.head_dim, config.prediction_length),
        )
        self.gate = nn.Parameter(torch.zeros(num_channels))
        self.linear = nn.Linear(config.context_length, config.prediction_length)

    @torch.no_grad()
    def set_linear(self, weight: Tensor, bias: Tensor) -> None:
        """Initialise the linear map: weight (O, N), bias (O,)."""
        self.linear.weight.copy_(weight)
        self.linear.bias.copy_(bias)

    def forward(self, x: Tensor) -> Tensor:
        """Forecast (B, N, C) -> (B, O, C)."""
        last = x[:, -1:]
        _, scale = instance_statistics(x)
        series = ((x - last) / scale).transpose(1, 2).flatten(0, 1)  # (B C, N)
        patches = series.reshape(-1, *self.patch_shape)  # (B C, T, p)
        e = self.norm(self.blocks(self.embedding(patches) + self.position_embedding))  # (B C, T, d)
        correction = self.head(self.dropout(e.flatten(1)))  # (B C, O)
        correction = correction.unflatten(0, (-1, x.shape[2])).transpose(1, 2)  # (B, O, C)
        linear = self.linear((x - last).transpose(1, 2)).transpose(1, 2)  # (B, O, C)
        return last + linear + self.gate * scale * correction  # type: ignore[no-any-return]
