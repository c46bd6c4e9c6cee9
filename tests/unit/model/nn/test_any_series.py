import numpy as np
import pytest
import torch

from artifact.univariate.features import CONTEXT, FUTURE, HORIZON, LEVELS, PATCH, WIDTH, prepare
from model.config.attentions import S3Options
from model.config.encoder import EncoderConfig
from model.config.models import AnySeriesConfig
from model.nn.any_series import AnySeriesForecaster

TOKENS = FUTURE + CONTEXT // PATCH


@pytest.fixture
def model() -> AnySeriesForecaster:
    torch.manual_seed(0)
    options = S3Options(num_segments=4, num_rows=4, num_columns=4)
    encoder = EncoderConfig(seq_len=TOKENS, dim=16, num_heads=2, num_layers=2, ffn_dim=16, options=options)
    found = AnySeriesForecaster(AnySeriesConfig(kind="any-series", encoder=encoder)).eval()
    for layer in (found.shares, found.recent):  # zero before training
        torch.nn.init.normal_(layer.weight, std=0.1)
    return found


def _inputs(size: int, *lengths: int) -> tuple[torch.Tensor, torch.Tensor]:
    tokens, counts = np.zeros((len(lengths), size, WIDTH), np.float32), []
    for row, steps in enumerate(lengths):
        found = prepare(np.random.default_rng(steps).standard_normal((1, steps)).cumsum(axis=1), (4,)).tokens[0]
        tokens[row, : len(found)] = found
        counts.append(len(found))
    return torch.from_numpy(tokens), torch.tensor(counts, dtype=torch.int32)


@torch.no_grad()
def test_forecast_does_not_depend_on_padding_and_neighbours(model: AnySeriesForecaster) -> None:
    together = model(*_inputs(1 + TOKENS, 3, 64, 100, CONTEXT))
    assert together.shape == (4, len(LEVELS), HORIZON)
    for row, (size, steps) in enumerate(((21, 3), (21, 64), (29, 100))):
        assert torch.allclose(model(*_inputs(size, steps)), together[row], atol=1e-5)


def test_every_parameter_gets_a_gradient(model: AnySeriesForecaster) -> None:
    model(*_inputs(1 + TOKENS, 64, CONTEXT)).square().sum().backward()
    unused = [name for name, parameter in model.named_parameters() if not parameter.grad.abs().sum() > 0]  # type: ignore[union-attr]
    assert unused == []


@torch.no_grad()
def test_linear_parts_equal_their_equation(model: AnySeriesForecaster) -> None:
    """With constant shares and without other parts, a forecast is a sum of channels and a map of the last values."""
    for layer in (model.quantiles, model.shares):
        layer.weight.zero_()
        layer.bias.zero_()
    model.shares.bias[3 * PATCH :] = 0.5
    tokens, lengths = _inputs(29, 100)
    future = np.sinh(tokens[0, 1 : 1 + FUTURE].numpy().astype(float).clip(-3, 3))
    past = np.sinh(tokens[0, 1 + FUTURE : 9 + FUTURE, :PATCH].numpy().astype(float).clip(-3, 3)).reshape(-1)
    weight, bias = (parameter.numpy().astype(float) for parameter in (model.recent.weight, model.recent.bias))
    expected = 0.5 * future[:, 3 * PATCH :].reshape(-1) + weight @ past + bias
    assert model(tokens, lengths)[0].numpy() == pytest.approx(np.tile(expected, (len(LEVELS), 1)), abs=1e-4)
