"""The tower of a matcher, compared with references in double precision."""

import numpy as np
import pytest
import torch
from scipy.special import erf

from model.config.models import LexicalViewConfig, TowerConfig
from model.config.training import TrainingConfig
from model.nn.lexical import LexicalHead, LexicalView
from model.nn.tower import Tower, TowerHead, TowerMatcher

TOWER = TowerConfig(dim=4, hidden_dim=5, training=TrainingConfig(epochs=1, batch_size=2, learning_rate=1e-3))
CONFIG = LexicalViewConfig(num_ngrams=64, dim=6, opening=True, tower=TOWER, max_length=512)


def matcher() -> TowerMatcher:
    """A tower and its head with random parameters, without dropout."""
    torch.manual_seed(0)
    model = TowerMatcher(CONFIG).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_()
    model.tower.standardise(torch.randn(20, 12) * 3 + 1)
    return model


def expected(tower: Tower, u: np.ndarray) -> np.ndarray:
    """Vector of length 1 of one document."""
    state = {name: value.double().numpy() for name, value in tower.state_dict().items()}
    x = (u - state["mean"]) * state["scale"]
    hidden = state["mlp.0.weight"] @ x + state["mlp.0.bias"]
    gelu = hidden * (1 + erf(hidden / np.sqrt(2))) / 2
    y = state["linear.weight"] @ x + state["linear.bias"] + state["mlp.3.weight"] @ gelu
    unit: np.ndarray = y / np.linalg.norm(y)
    return unit


def test_vectors_equal_the_reference() -> None:
    tower, u = matcher().tower, torch.randn(7, 12)
    with torch.inference_mode():
        found = tower(u).double().numpy()
    assert np.square(found).mean(axis=1) == pytest.approx(np.ones(7), abs=1e-5)
    for vector, row in zip(found / 2, u.double().numpy(), strict=True):  # sqrt(4) times a vector of length 1
        assert vector == pytest.approx(expected(tower, row), abs=1e-5)


def test_initial_product_is_the_sum_of_the_products_of_both_vectors() -> None:
    tower = Tower(TOWER, num_vectors=2, dim=6).eval()
    a, b = torch.randn(2, 3, 2, 6)
    a[..., 4:], b[..., 4:] = 0.0, 0.0  # dimensions beyond those of the tower
    with torch.inference_mode():
        found = torch.nn.functional.cosine_similarity(tower(a.flatten(1)), tower(b.flatten(1)))
    sums = torch.nn.functional.cosine_similarity(a.sum(1), b.sum(1))
    assert torch.allclose(found, sums, atol=1e-5)


def test_standardised_vectors_have_mean_0_and_deviation_1() -> None:
    tower, u = Tower(TOWER, num_vectors=2, dim=6), torch.randn(500, 12) * 3 + 1
    tower.standardise(u)
    x = (u - tower.mean) * tower.scale
    assert torch.allclose(x.mean(0), torch.zeros(12), atol=1e-5)
    assert x.std(0).mean().item() == pytest.approx(1, abs=1e-5)


def test_document_is_the_mean_of_its_windows() -> None:
    model, windows = matcher(), torch.randn(4, 12)
    with torch.inference_mode():
        found = model(windows, torch.tensor([0, 1, 1, 1])).double().numpy()
    units = [expected(model.tower, row) for row in windows.double().numpy()]
    mean = np.mean(units[1:], axis=0)
    assert found[0] == pytest.approx(units[0], abs=1e-5)
    assert found[1] == pytest.approx(mean / np.linalg.norm(mean), abs=1e-5)


def test_logits_between_vectors_are_those_of_pairs() -> None:
    head = TowerHead(4)
    torch.nn.init.normal_(head.weight)
    a, b = torch.randn(3, 4), torch.randn(5, 4)
    between = head.between(a, b)
    for i, j in np.ndindex(3, 5):
        product = (a[i] * b[j]).double() @ head.weight.double() + head.bias.double()
        assert between[i, j].item() == pytest.approx(product.item(), abs=1e-5)
        assert head(a[i : i + 1], b[j : j + 1]).item() == pytest.approx(product.item(), abs=1e-5)


def test_view_with_a_tower_has_its_vectors_and_one_product() -> None:
    view, head = LexicalView(CONFIG).eval(), LexicalHead(CONFIG)
    document, lengths = torch.zeros(2, 512, dtype=torch.uint8), torch.full((2,), 512, dtype=torch.int32)
    assert view(document, lengths).shape == (2, 4)
    assert (head.products.shape, head.differences.shape) == ((4,), (4,))


def test_tower_wider_than_the_projections_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"tower\.dim must be at most dim = 6, not 7"):
        LexicalViewConfig(dim=6, tower=TOWER.model_copy(update={"dim": 7}))
