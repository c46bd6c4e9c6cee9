"""Forecasters against the listings of the paper, in float64."""

import cmath
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from model.config import EncoderConfig
from model.forecaster import ForecasterConfig, PaperForecaster, ResidualForecaster, instance_statistics
from model.ops.fourier import extrapolation_matrix

# Float64 sums of some hundred terms of order one.
RELATIVE = 1e-12


@pytest.fixture
def config() -> ForecasterConfig:
    encoder = EncoderConfig(
        seq_len=24, dim=8, num_heads=2, num_layers=2, ffn_dim=12, num_segments=4, num_rows=8, num_columns=4
    )
    return ForecasterConfig(encoder=encoder, num_channels=3, prediction_length=10)


@pytest.fixture
def x(config: ForecasterConfig) -> torch.Tensor:
    generator = torch.Generator().manual_seed(5)
    return torch.randn(4, config.encoder.seq_len, config.num_channels, dtype=torch.float64, generator=generator)


def listing(window: list[float], horizon: int, harmonics: int) -> list[float]:
    """Algorithm 4 step by step: DFT, the lowest frequencies, a sum of cosines after the window."""
    n = len(window)
    frequency = [k / n if k < (n + 1) // 2 else (k - n) / n for k in range(n)]
    kept = sorted(range(n), key=lambda k: abs(frequency[k]))[: 1 + 2 * harmonics]
    spectrum = [sum(v * cmath.exp(-2j * math.pi * k * t / n) for t, v in enumerate(window)) for k in range(n)]
    return [
        sum(abs(spectrum[k]) / n * math.cos(2 * math.pi * frequency[k] * t + cmath.phase(spectrum[k])) for k in kept)
        for t in range(n, n + horizon)
    ]


@pytest.mark.parametrize(("n", "harmonics"), [(24, 3), (25, 4), (96, 8), (16, 8)])
def test_extrapolation_equals_the_listing(n: int, harmonics: int) -> None:
    window = np.random.default_rng(n).standard_normal(n)
    ours = extrapolation_matrix(n, 30, harmonics).numpy() @ window
    assert ours == pytest.approx(listing(window.tolist(), 30, harmonics), abs=1e-11)


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 8), st.floats(-3, 3), st.floats(-3, 3), st.floats(-5, 5))
def test_sinusoids_on_the_grid_are_continued_exactly(k: int, sine: float, cosine: float, level: float) -> None:
    angle = 2 * np.pi * k * np.arange(96 + 40) / 96
    series = level + sine * np.sin(angle) + cosine * np.cos(angle)
    assert extrapolation_matrix(96, 40, 8).numpy() @ series[:96] == pytest.approx(series[96:], abs=1e-10)


def test_instance_statistics_add_one_to_the_unbiased_variance(x: torch.Tensor) -> None:
    mean, scale = instance_statistics(x)
    assert mean[:, 0].numpy() == pytest.approx(x.numpy().mean(1), rel=RELATIVE)
    assert scale[:, 0].numpy() == pytest.approx(np.sqrt(x.numpy().var(1, ddof=1) + 1), rel=RELATIVE)


def test_every_layer_changes_the_forecast(config: ForecasterConfig, x: torch.Tensor) -> None:
    model = PaperForecaster(config).double().eval()
    before = model(x)
    for layer in model.layers:
        saved = layer.out.bias.detach().clone()
        layer.out.bias.data += 1.0 + torch.arange(config.encoder.dim)
        assert (model(x) - before).abs().max() > 1e-3
        layer.out.bias.data = saved


def test_paper_forecaster_follows_shift_and_scale_of_the_listing(config: ForecasterConfig, x: torch.Tensor) -> None:
    """A constant added to a channel is added to its forecast: the mean is taken off and put back."""
    model = PaperForecaster(config).double().eval()
    assert torch.allclose(model(x + 7.0), model(x) + 7.0, rtol=0, atol=1e-10)


def test_residual_forecaster_starts_as_its_linear_map(config: ForecasterConfig, x: torch.Tensor) -> None:
    model = ResidualForecaster(config).double().eval()
    weight = torch.randn(config.prediction_length, config.encoder.seq_len, dtype=torch.float64)
    bias = torch.randn(config.prediction_length, dtype=torch.float64)
    model.set_linear(weight, bias)
    y = model(x)
    for b in range(len(x)):
        for c in range(config.num_channels):
            series = x[b, :, c]
            expected = series[-1] + weight @ (series - series[-1]) + bias
            assert torch.allclose(y[b, :, c], expected, rtol=0, atol=1e-11)


@pytest.mark.parametrize("kind", [PaperForecaster, ResidualForecaster])
def test_windows_and_channels_of_a_batch_do_not_mix(
    config: ForecasterConfig, x: torch.Tensor, kind: type[PaperForecaster] | type[ResidualForecaster]
) -> None:
    model = kind(config).double().eval()
    if isinstance(model, ResidualForecaster):
        model.gate.data.fill_(1.0)
        swapped = x.clone()
        swapped[:, :, 1] = 0.0
        assert torch.allclose(model(swapped)[:, :, 0], model(x)[:, :, 0], rtol=0, atol=1e-11)
    for b in range(len(x)):
        assert torch.allclose(model(x)[b], model(x[b : b + 1])[0], rtol=0, atol=1e-11)


@pytest.mark.parametrize("kind", [PaperForecaster, ResidualForecaster])
def test_gradient_reaches_every_parameter(
    config: ForecasterConfig, x: torch.Tensor, kind: type[PaperForecaster] | type[ResidualForecaster]
) -> None:
    model = kind(config)
    if isinstance(model, ResidualForecaster):
        model.gate.data.fill_(0.5)
    (model(x.float()) ** 2).sum().backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.abs().sum() > 0, name
