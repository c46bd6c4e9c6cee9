"""Forecasters compared with the listings of the paper, in float64."""

import numpy as np
import pytest
import torch
from torch import nn

from model.config.attentions import S3Options
from model.config.encoder import EncoderConfig
from model.config.models import ForecasterConfig
from model.nn.attention.s3 import S3Attention
from model.nn.forecaster import PaperForecaster, ResidualForecaster, instance_statistics
from tests.support import reference
from tests.support.configs import changed
from tests.support.numerics import close, expect_gradient_everywhere, randomise

Forecaster = PaperForecaster | ResidualForecaster

# Float64 sums of some hundred terms of order one.
RELATIVE = 1e-12
CONTEXT, CHANNELS = 24, 3


def paper() -> ForecasterConfig:
    encoder = EncoderConfig(
        mode="paper",
        seq_len=CONTEXT,
        dim=8,
        num_heads=2,
        num_layers=2,
        ffn_dim=12,
        options=S3Options(num_segments=4, num_rows=8, num_columns=4),
    )
    return ForecasterConfig(kind="paper", context_length=CONTEXT, prediction_length=10, encoder=encoder)


def residual() -> ForecasterConfig:
    """Return a config with patches of 4 steps and a head of rank 5."""
    encoder = changed(paper().encoder, seq_len=6, options=S3Options(num_segments=4, num_rows=5, num_columns=4))
    return changed(paper(), kind="residual", encoder=encoder, patch_length=4, head_dim=5)


def build(kind: str) -> Forecaster:
    return PaperForecaster(paper(), CHANNELS) if kind == "paper" else ResidualForecaster(residual(), CHANNELS)


@pytest.fixture
def x() -> torch.Tensor:
    return torch.randn(4, CONTEXT, CHANNELS, dtype=torch.float64, generator=torch.Generator().manual_seed(5))


def test_instance_statistics_add_one_to_the_unbiased_variance(x: torch.Tensor) -> None:
    mean, scale = instance_statistics(x)
    assert mean[:, 0].numpy() == pytest.approx(x.numpy().mean(1), rel=RELATIVE)
    assert scale[:, 0].numpy() == pytest.approx(np.sqrt(x.numpy().var(1, ddof=1) + 1), rel=RELATIVE)


def test_paper_forecaster_equals_reference(x: torch.Tensor) -> None:
    model = build("paper")
    state = randomise(model)
    for b in range(len(x)):
        assert close(model(x)[b], reference.paper_forecast(x[b].numpy(), state, paper()))


def test_residual_forecaster_equals_reference(x: torch.Tensor) -> None:
    config = residual()
    model = ResidualForecaster(config, CHANNELS)
    state = randomise(model)
    for b in range(len(x)):
        assert close(model(x)[b], reference.residual_forecast(x[b].numpy(), state, config))


def test_every_layer_changes_the_forecast(x: torch.Tensor) -> None:
    model = PaperForecaster(paper(), CHANNELS).double().eval()
    before = model(x)
    for layer in model.layers:
        assert isinstance(layer, S3Attention)
        saved = layer.out.bias.detach().clone()
        layer.out.bias.data += 1.0 + torch.arange(paper().encoder.dim)
        assert (model(x) - before).abs().max() > 1e-3
        layer.out.bias.data = saved


@pytest.mark.parametrize("kind", ["paper", "residual"])
def test_forecast_shifts_with_its_window(x: torch.Tensor, kind: str) -> None:
    """A constant added to a channel is added to its forecast: the mean or last value is subtracted and added back."""
    model = build(kind)
    randomise(model)
    assert torch.allclose(model(x + 7.0), model(x) + 7.0, rtol=0, atol=1e-10)


def test_initial_residual_forecaster_is_its_linear_map(x: torch.Tensor) -> None:
    model = ResidualForecaster(residual(), CHANNELS).double().eval()
    weight = torch.randn(10, CONTEXT, dtype=torch.float64)
    bias = torch.randn(10, dtype=torch.float64)
    model.set_linear(weight, bias)
    y = model(x)
    for b in range(len(x)):
        for c in range(CHANNELS):
            series = x[b, :, c]
            expected = series[-1] + weight @ (series - series[-1]) + bias
            assert torch.allclose(y[b, :, c], expected, rtol=0, atol=1e-11)


def test_residual_head_has_the_rank_of_the_recipe() -> None:
    model = ResidualForecaster(residual(), CHANNELS)
    randomise(model)
    first, second = model.head
    assert isinstance(first, nn.Linear)
    assert isinstance(second, nn.Linear)
    assert torch.linalg.matrix_rank(second.weight @ first.weight) == 5
    assert (second.weight @ first.weight).shape == (10, 6 * 8)


@pytest.mark.parametrize("kind", ["paper", "residual"])
def test_forecast_does_not_depend_on_the_rest_of_the_batch(x: torch.Tensor, kind: str) -> None:
    model = build(kind)
    randomise(model)
    for b in range(len(x)):
        assert torch.allclose(model(x)[b], model(x[b : b + 1])[0], rtol=0, atol=1e-11)


def test_residual_forecaster_treats_channels_independently(x: torch.Tensor) -> None:
    model = build("residual")
    randomise(model)
    swapped = x.clone()
    swapped[:, :, 1] = 0.0
    changed, before = model(swapped), model(x)
    assert torch.allclose(changed[:, :, [0, 2]], before[:, :, [0, 2]], rtol=0, atol=1e-11)
    assert not torch.allclose(changed[:, :, 1], before[:, :, 1])


@pytest.mark.parametrize("kind", ["paper", "residual"])
def test_gradient_reaches_every_parameter(x: torch.Tensor, kind: str) -> None:
    model = build(kind)
    if isinstance(model, ResidualForecaster):
        model.gate.data.fill_(0.5)
    (model(x.float()) ** 2).sum().backward()
    expect_gradient_everywhere(model)
