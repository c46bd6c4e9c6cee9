"""Logistic regressions of several strengths. `test_ngrams.py` tests that they are fitted."""

import numpy as np
import pytest
from scipy.sparse import csr_matrix

from model.tasks import regression
from model.tasks.regression import regressions


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("max_dense", [0, 2000], ids=["sparse", "dense"])
def test_strengths_are_fitted_independently(classes: int, max_dense: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(regression, "MAX_DENSE", max_dense)
    x, labels = np.random.default_rng(0).normal(size=(30, 50)), np.arange(30) % classes
    both = regressions(csr_matrix(x), labels, (1.0, 100.0))
    assert len(both) == 2
    for strength, (weights, bias) in zip((1.0, 100.0), both, strict=True):
        [(alone, alone_bias)] = regressions(csr_matrix(x), labels, (strength,))
        assert weights.shape == (50, classes)
        assert np.array_equal(weights, alone)
        assert np.array_equal(bias, alone_bias)
    assert np.abs(both[1][0]).max() > 2 * np.abs(both[0][0]).max()


@pytest.mark.parametrize("frequent", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("block", [1, 7, 64])
def test_products_do_not_depend_on_the_blocks(block: int, frequent: float, monkeypatch: pytest.MonkeyPatch) -> None:
    generator = np.random.default_rng(1)
    x = generator.normal(size=(9, 23)) * (generator.random((9, 23)) < 0.4)
    monkeypatch.setattr(regression, "BLOCK", block)
    monkeypatch.setattr(regression, "FREQUENT", frequent)
    assert regression._products(csr_matrix(x)) == pytest.approx(x @ x.T, abs=1e-12)
