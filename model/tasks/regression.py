"""Logistic regression on sparse features of documents."""

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from artifact.arrays import Doubles

if TYPE_CHECKING:  # importing SciPy takes time that other commands need not wait for
    from scipy.sparse import csr_matrix

MAX_ITERATIONS = 300
TOLERANCE = 1e-5
"""Largest element of the gradient below which a regression ends."""
RELATIVE_TOLERANCE = 1e-8
"""Relative change of the loss below which the regression with vectors ends."""
MAX_DENSE = 8_000
"""Number of documents up to which the regression is fitted in the span of the documents."""
DENSE_SPEED = 8
"""How much faster a dense product is than a sparse one with as many numbers, about."""
BLOCK = 4_096
"""Number of features whose products are computed at once."""
FREQUENT = 0.05
"""Share of the documents above which the sparse product of a feature takes longer than the dense one."""


@contextmanager
def without_warnings() -> Iterator[None]:
    """Hide warnings of scikit-learn about what is intended: a limit of iterations, and classes of few documents."""
    from sklearn.exceptions import ConvergenceWarning

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        warnings.filterwarnings("ignore", "The number of unique classes", UserWarning)
        yield


def balanced(labels: NDArray[np.int64]) -> Doubles:
    """Weight of each document N / (K N_c), for N documents of K classes, N_c of which are of its class c."""
    _, place, sizes = np.unique(labels, return_inverse=True, return_counts=True)
    weights: Doubles = (len(labels) / (len(sizes) * sizes))[place]
    return weights


def regressions(
    x: "csr_matrix", labels: NDArray[np.int64], strengths: Sequence[float], weights: Doubles | None = None
) -> list[tuple[Doubles, Doubles]]:
    """Fit a multinomial logistic regression for each inverse regularisation C in `strengths`.

    Returns: weights (features, classes) and bias (classes,) of each; the classes are those in `labels`, ascending.

    Args:
        x: features (documents, features).
        labels: classes (documents,), at least two different ones.
        strengths: values of C. What does not depend on C is computed once.
        weights: weight of each document, (documents,); 1 by default.

    The weights are combinations of the documents' features. For few documents, the regression is therefore fitted on
    the documents' coordinates in an orthonormal basis of their span, which gives the same weights faster.

    """
    from sklearn.linear_model import LogisticRegression

    coordinates, weights_of = _in_span(x) if x.shape[0] <= min(MAX_DENSE, x.shape[1]) else (x, _identity)
    fitted = []
    for strength in strengths:
        regression = LogisticRegression(C=strength, max_iter=MAX_ITERATIONS, tol=TOLERANCE)
        with without_warnings():
            regression.fit(coordinates, labels, weights)
        found, bias = weights_of(regression.coef_.T), regression.intercept_
        if len(bias) == 1:  # two classes: one logit, half for each
            found, bias = np.concatenate((-found, found), axis=1) / 2, np.array([-bias[0], bias[0]]) / 2
        fitted.append((found, bias))
    return fitted


def regressions_with_vectors(
    x: "csr_matrix",
    projected: Doubles,
    labels: NDArray[np.int64],
    strengths: Sequence[tuple[float, float]],
    weights: Doubles | None = None,
) -> list[tuple[Doubles, Doubles, Doubles]]:
    """Fit multinomial logistic regressions on features of documents and on projections of these features.

    Each of the two has a regularisation of its own: the weights of the features deviate from what the projections
    explain only as far as the labels ask for it.

    Returns: weights (features, classes) and (dim, classes), and bias (classes,) of each; the classes are those in
    `labels`, ascending.

    Args:
        x: features (documents, features).
        projected: projections of the features (documents, dim).
        labels: classes (documents,), at least two different ones.
        strengths: inverse regularisations C of the weights of the features, 0 for no such weights, and of those of the
            projections. What does not depend on them is computed once.
        weights: weight of each document, (documents,); 1 by default.

    """
    names, label = np.unique(labels, return_inverse=True)
    documents, features = x.shape
    is_dense = documents <= min(MAX_DENSE, features) and x.nnz * DENSE_SPEED > documents**2
    coordinates, weights_of = _in_span(x) if is_dense and any(own for own, _ in strengths) else (x, _identity)
    transposed = coordinates.T if is_dense else x.T.tocsr()
    fitted = []
    for strength, vector_strength in strengths:
        own, shared, bias = _fit_with_vectors(
            (coordinates, transposed),
            projected,
            label,
            len(names),
            (strength, vector_strength),
            np.ones(documents) if weights is None else weights,
        )
        fitted.append((weights_of(own) if strength else np.zeros((features, len(names))), shared, bias))
    return fitted


def _fit_with_vectors(
    features: tuple[Any, Any],
    projected: Doubles,
    label: NDArray[np.int64],
    classes: int,
    strengths: tuple[float, float],
    weights: Doubles,
) -> tuple[Doubles, Doubles, Doubles]:
    """One of `regressions_with_vectors`, on features (documents, features) and their transpose; classes from 0."""
    from scipy.optimize import minimize

    x, transposed = features
    # The parameters are the weights divided by the roots of the strengths, which conditions the problem.
    root, vector_root = np.sqrt(strengths)
    dim, count = projected.shape[1], x.shape[1] if root else 0
    columns = 1 if classes == 2 else classes  # two classes have one logit
    one_hot = label[:, None].astype(np.float64) if columns == 1 else np.eye(classes)[label]

    def loss(parameters: Doubles) -> tuple[float, Doubles]:
        p = parameters.reshape(-1, columns)
        logits = vector_root * (projected @ p[:dim]) + p[-1]
        if count:
            logits += root * (x @ p[dim:-1])
        full = np.concatenate((np.zeros_like(logits), logits), axis=1) if columns == 1 else logits
        highest = full.max(1, keepdims=True)
        exponentials = np.exp(full - highest)
        sums = exponentials.sum(1, keepdims=True)
        losses = (highest + np.log(sums)).ravel() - (logits * one_hot).sum(1)
        value = float(weights @ losses + (p[:-1] ** 2).sum() / 2)
        residual = weights[:, None] * ((exponentials / sums)[:, -columns:] - one_hot)
        gradient = np.empty_like(p)
        gradient[:dim] = vector_root * (projected.T @ residual) + p[:dim]
        if count:
            gradient[dim:-1] = root * (transposed @ residual) + p[dim:-1]
        gradient[-1] = residual.sum(0)
        return value / len(label), gradient.ravel() / len(label)

    found = minimize(
        loss,
        np.zeros((dim + count + 1) * columns),
        jac=True,
        method="L-BFGS-B",
        options={"maxiter": MAX_ITERATIONS, "gtol": TOLERANCE, "ftol": RELATIVE_TOLERANCE},
    ).x.reshape(-1, columns)
    if columns == 1:  # half of the logit for each class
        found = np.concatenate((-found, found), axis=1) / 2
    return root * found[dim:-1], vector_root * found[:dim], found[-1]


def _in_span(x: "csr_matrix") -> tuple[Doubles, Callable[[Doubles], Doubles]]:
    """Coordinates of the documents in an orthonormal basis of their span, (documents, rank).

    Also returns the function from weights of the coordinates (rank, classes) to those of the features.
    """
    squares, vectors = np.linalg.eigh(_products(x))
    is_positive = squares > squares[-1] * 1e-10
    lengths, vectors = np.sqrt(squares[is_positive]), vectors[:, is_positive]
    return (
        vectors * lengths,
        lambda weights: x.T @ ((vectors / lengths) @ weights),
    )  # the basis: x.T @ (vectors / lengths)


def _identity(weights: Doubles) -> Doubles:
    return weights


def _products(x: "csr_matrix") -> Doubles:
    """Inner products of all documents, (documents, documents).

    In dense blocks for features in many documents: with thousands of them, the sparse product takes minutes.
    """
    columns = x.tocsc()
    is_frequent = np.diff(columns.indptr) > FREQUENT * x.shape[0]
    rare, frequent = columns[:, ~is_frequent].tocsr(), columns[:, is_frequent]
    products: Doubles = (rare @ rare.T).toarray()
    for first in range(0, frequent.shape[1], BLOCK):
        block = frequent[:, first : first + BLOCK].toarray()
        products += block @ block.T
    return products
