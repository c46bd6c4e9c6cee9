"""Logistic regressions of several strengths. `test_ngrams.py` tests that they are fitted."""

import numpy as np
import pytest
from scipy.sparse import csr_matrix
from sklearn.linear_model import LogisticRegression

from model.tasks import regression
from model.tasks.regression import balanced, regression_on_probabilities, regressions, regressions_with_vectors


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


def test_few_documents_of_many_classes_give_no_warnings() -> None:
    """Warnings are errors in these tests."""
    [(weights, bias)] = regressions(csr_matrix(np.eye(30)), np.arange(30) % 20, (1.0,))
    assert weights.shape == (30, 20)
    assert len(bias) == 20


@pytest.mark.parametrize("frequent", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("block", [1, 7, 64])
def test_products_do_not_depend_on_the_blocks(block: int, frequent: float, monkeypatch: pytest.MonkeyPatch) -> None:
    generator = np.random.default_rng(1)
    x = generator.normal(size=(9, 23)) * (generator.random((9, 23)) < 0.4)
    monkeypatch.setattr(regression, "BLOCK", block)
    monkeypatch.setattr(regression, "FREQUENT", frequent)
    assert regression._products(csr_matrix(x)) == pytest.approx(x @ x.T, abs=1e-12)


def documents(classes: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Sparse features, their projections, and labels that depend on both."""
    generator = np.random.default_rng(classes)
    x = generator.normal(size=(40, 50)) * (generator.random((40, 50)) < 0.4)
    projected = x @ generator.normal(size=(50, 6))
    logits = x[:, :classes] + projected[:, :classes] / 3 + generator.gumbel(size=(40, classes))
    return x, projected, np.array([2, 5, 7])[logits.argmax(1)]  # any integers can be classes


def as_in_scikit_learn(x: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Weights (features, classes) and bias (classes,); of two classes, half of the logit for each."""
    fitted = LogisticRegression(C=1.0, tol=1e-10, max_iter=10_000).fit(x, labels)
    weights, bias = fitted.coef_.T, fitted.intercept_
    return (
        (np.hstack((-weights / 2, weights / 2)), np.hstack((-bias / 2, bias / 2)))
        if len(bias) == 1
        else (weights, bias)
    )


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize(("strength", "vector_strength"), [(1.0, 0.1), (0.3, 3.0), (0.0, 0.5)])
@pytest.mark.parametrize("max_dense", [0, 2000], ids=["sparse", "dense"])
def test_regression_with_vectors_equals_one_on_features_and_projections_side_by_side(
    classes: int, strength: float, vector_strength: float, max_dense: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each multiplied by the root of its strength; a strength of 0 leaves only the projections."""
    monkeypatch.setattr(regression, "TOLERANCE", 1e-9)
    monkeypatch.setattr(regression, "RELATIVE_TOLERANCE", 1e-15)
    monkeypatch.setattr(regression, "MAX_ITERATIONS", 5_000)
    monkeypatch.setattr(regression, "MAX_DENSE", max_dense)
    x, projected, labels = documents(classes)
    others = [(2.0, 2.0), (strength, vector_strength)]
    of_features, of_projections, bias = regressions_with_vectors(csr_matrix(x), projected, labels, others)[1]
    roots = np.sqrt([vector_strength] * 6 + [strength] * 50)
    weights, expected_bias = as_in_scikit_learn(np.hstack((projected, x)) * roots, labels)
    weights = weights * roots[:, None]
    assert of_projections == pytest.approx(weights[:6], abs=1e-5)
    assert of_features == pytest.approx(weights[6:], abs=1e-5)
    assert bias - bias.mean() == pytest.approx(expected_bias - expected_bias.mean(), abs=1e-5)
    assert of_features.any() == (strength > 0)


def test_a_small_strength_leaves_to_features_what_the_projections_do_not_explain() -> None:
    x, projected, labels = documents(3)
    strengths = [(0.01, 100.0)]
    [(with_projections, of_projections, _)] = regressions_with_vectors(csr_matrix(x), projected, labels, strengths)
    [(alone, none, _)] = regressions_with_vectors(csr_matrix(x), 0 * projected, labels, strengths)
    assert not none.any()
    assert of_projections.any()
    assert np.abs(with_projections).sum() < 0.8 * np.abs(alone).sum()


def test_balanced_weights_are_the_same_in_sum_for_each_class() -> None:
    weights = balanced(np.array([7, 2, 2, 2]))
    assert weights == pytest.approx([2, 2 / 3, 2 / 3, 2 / 3])
    assert balanced(np.arange(5)) == pytest.approx(np.ones(5))


@pytest.mark.parametrize("classes", [2, 3])
def test_weight_of_a_document_counts_like_copies_of_it(classes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("TOLERANCE", 1e-9), ("RELATIVE_TOLERANCE", 1e-15), ("MAX_ITERATIONS", 5_000)):
        monkeypatch.setattr(regression, name, value)
    x, projected, labels = documents(classes)
    times = 1 + np.arange(len(labels)) % 3
    rows = np.repeat(np.arange(len(labels)), times)
    for found, expected in zip(
        regressions(csr_matrix(x), labels, [1.0], times.astype(np.float64))[0],
        regressions(csr_matrix(x[rows]), labels[rows], [1.0])[0],
        strict=True,
    ):
        assert found == pytest.approx(expected, abs=1e-4)
    strengths = [(1.0, 0.5)]
    for found, expected in zip(
        regressions_with_vectors(csr_matrix(x), projected, labels, strengths, times.astype(np.float64))[0],
        regressions_with_vectors(csr_matrix(x[rows]), projected[rows], labels[rows], strengths)[0],
        strict=True,
    ):
        assert found == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize("max_dense", [0, 2000], ids=["sparse", "dense"])
def test_each_of_any_number_of_labels_has_a_regression_of_its_own(
    max_dense: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(regression, "MAX_DENSE", max_dense)
    generator = np.random.default_rng(0)
    x = generator.normal(size=(40, 60)) * (generator.random((40, 60)) < 0.4)
    targets = (x[:, :3] + generator.normal(size=(40, 3)) > 0).astype(np.int64)
    [(weights, bias)] = regressions(csr_matrix(x), targets, (3.0,))
    for column, target in enumerate(targets.T):
        alone = LogisticRegression(C=3.0, tol=1e-8, max_iter=1000).fit(x, target)
        assert weights[:, column] == pytest.approx(alone.coef_[0], abs=2e-3)
        assert bias[column] == pytest.approx(alone.intercept_[0], abs=2e-3)


@pytest.mark.parametrize("classes", [2, 3])
def test_probabilities_are_fitted_like_documents_of_each_class_with_their_weights(
    classes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(regression, "TOLERANCE", 1e-9)
    monkeypatch.setattr(regression, "RELATIVE_TOLERANCE", 1e-15)
    x, *_ = documents(classes)
    generator = np.random.default_rng(1)
    probabilities, weights = generator.dirichlet(np.ones(classes), len(x)), generator.uniform(0.5, 2, len(x))
    found, bias = regression_on_probabilities(csr_matrix(x), probabilities, 3.0, weights)
    repeated, labels = np.repeat(x, classes, axis=0), np.tile(np.arange(classes), len(x))
    of_each = (probabilities * weights[:, None]).ravel()
    expected = LogisticRegression(C=3.0, tol=1e-10, max_iter=10_000).fit(repeated, labels, of_each)
    logits, difference = x @ found + bias, expected.decision_function(x)
    if classes == 2:
        assert logits == pytest.approx(np.stack((-difference / 2, difference / 2), axis=1), abs=1e-4)
    else:
        assert logits - logits.mean(1, keepdims=True) == pytest.approx(
            difference - difference.mean(1, keepdims=True), abs=1e-4
        )
