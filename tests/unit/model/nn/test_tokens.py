"""The shares that tokens have of a maximum. `test_patches` and `test_vectors` compare classifiers with references."""

import pytest
import torch

from model.nn.tokens import SHARE_TEMPERATURE, TokenClassifier, Tokens
from tests.support.configs import changed
from tests.support.numerics import same
from tests.unit.model.nn.test_vectors import ENCODER


def contributions_of(second: float) -> torch.Tensor:
    """Contributions (2,) of two tokens in a stretch each. Channel 0 is 1 in the first and `second` in the other one.

    All other channels are 0, and the head reads the maximum of channel 0 only.
    """
    model = TokenClassifier(changed(ENCODER, num_layers=0), 1, 1, 1).double().requires_grad_(False).eval()
    model.norm = torch.nn.Identity()  # type: ignore[assignment]  # so that the values are known
    model.head.weight.zero_()
    model.head.weight[0, ENCODER.dim] = 1.0
    model.evidence.weight.zero_()
    vectors = torch.zeros(1, 2, ENCODER.dim, dtype=torch.float64)
    vectors[0, :, 0] = torch.tensor([1.0, second])
    share = torch.ones(1, 1, dtype=torch.float64)
    tokens = Tokens(vectors, torch.tensor([2]), torch.tensor([[0, 1]]), share)
    return model.contributions_of(tokens, 2)[0, :, 0]


def test_equal_tokens_have_equal_shares_of_a_maximum() -> None:
    assert same(contributions_of(1.0), torch.tensor([0.5, 0.5]).double())


@pytest.mark.parametrize("second", [0.0, 0.5, 0.8])
def test_a_token_that_is_clearly_highest_has_the_whole_maximum(second: float) -> None:
    assert contributions_of(second)[0] == pytest.approx(1.0, abs=1e-4)


def test_rounding_to_float16_hardly_changes_the_shares() -> None:
    above, below = contributions_of(1 + 2**-11), contributions_of(1 - 2**-11)
    assert (above - below).abs().max() < 2**-10 / (4 * SHARE_TEMPERATURE) + 2**-10
