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
        labels: classes (documents,), at least two different ones; or 1 and 0 for each class (documents, classes), each
            of which then has a regression of its own.
        strengths: values of C. What does not depend on C is computed once.
        weights: weight of each document, (documents,); 1 by default.

    The weights are combinations of the documents' features. For few documents, the regression is therefore fitted on
    the documents' coordinates in an orthonormal basis of their span, which gives the same weights faster.

    """
    from sklearn.linear_model import LogisticRegression

    if labels.ndim == 2:
        nothing = np.zeros((x.shape[0], 0))
        each = regressions_with_vectors(x, nothing, labels, [(strength, 0.0) for strength in strengths], weights)
        return [(own, bias) for own, _, bias in each]
    coordinates, weights_of = _in_span(x) if x.shape[0] <= min(MAX_DENSE, x.shape[1]) else (x, _identity)
    fitted = []
    for strength in strengths:
        regression = LogisticRegression(C=strength, max_iter=MAX_ITERATIONS, tol=TOLERANCE)
        with without_warnings():
            regression.fit(coordinates, labels, weights)
        found, bias = weights_of(regression.coef_.T), regression.intercept_
        fitted.append((found, bias) if len(bias) > 1 else (_halves(found), _halves(bias)))
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
        labels: as in `regressions`.
        strengths: inverse regularisations C of the weights of the features, 0 for no such weights, and of those of the
            projections. What does not depend on them is computed once.
        weights: weight of each document, (documents,); 1 by default.

    """
    documents, features = x.shape
    is_dense = documents <= min(MAX_DENSE, features) and x.nnz * DENSE_SPEED > documents**2
    coordinates, weights_of = _in_span(x) if is_dense and any(own for own, _ in strengths) else (x, _identity)
    both = (coordinates, coordinates.T if is_dense else x.T.tocsr())
    targets = labels if labels.ndim == 2 else _one_hot(labels)
    has_sigmoids = labels.ndim == 2 or targets.shape[1] == 1
    # one sigmoid after the other: together, they take several times as many steps
    blocks = np.split(targets, targets.shape[1], axis=1) if has_sigmoids else [targets]
    loss, fitted = _sigmoid_loss if has_sigmoids else _softmax_loss, []
    of_documents = np.ones(documents) if weights is None else weights
    for strength in strengths:
        parts = [
            _fit_with_vectors(both, projected, block.astype(np.float64), strength, of_documents, loss)
            for block in blocks
        ]
        own, shared, bias = (np.concatenate(part, axis=-1) for part in zip(*parts, strict=True))
        found = weights_of(own) if strength[0] else np.zeros((features, len(bias)))
        if labels.ndim == 2 or not has_sigmoids:
            fitted.append((found, shared, bias))
        else:  # two classes: one logit, half for each
            fitted.append((_halves(found), _halves(shared), _halves(bias)))
    return fitted


def regression_on_probabilities(
    x: "csr_matrix", probabilities: Doubles, strength: float, weights: Doubles | None = None
) -> tuple[Doubles, Doubles]:
    """Fit a multinomial logistic regression with inverse regularisation C to probabilities of the classes.

    Returns: weights (features, classes) and bias (classes,).

    Args:
        x: features (documents, features).
        probabilities: the targets (documents, classes); those of a document add up to 1.
        strength: C.
        weights: weight of each document, (documents,); 1 by default.

    """
    has_sigmoid = probabilities.shape[1] == 2
    targets = probabilities[:, 1:] if has_sigmoid else probabilities
    of_documents = np.ones(x.shape[0]) if weights is None else weights
    both, nothing, loss = (x, x.T.tocsr()), np.zeros((x.shape[0], 0)), _sigmoid_loss if has_sigmoid else _softmax_loss
    found, _, bias = _fit_with_vectors(both, nothing, targets, (strength, 0.0), of_documents, loss)
    return (_halves(found), _halves(bias)) if has_sigmoid else (found, bias)


def _fit_with_vectors(
    features: tuple[Any, Any],
    projected: Doubles,
    targets: Doubles,
    strengths: tuple[float, float],
    weights: Doubles,
    loss_of: Callable[[Doubles, Doubles], tuple[Doubles, Doubles]],
) -> tuple[Doubles, Doubles, Doubles]:
    """One of `regressions_with_vectors`, on features (documents, features) and their transpose."""
    from scipy.optimize import minimize

    x, transposed = features
    # The parameters are the weights divided by the roots of the strengths, which conditions the problem.
    root, vector_root = np.sqrt(strengths)
    dim, count = projected.shape[1], x.shape[1] if root else 0
    documents, columns = targets.shape

    def loss(parameters: Doubles) -> tuple[float, Doubles]:
        p = parameters.reshape(-1, columns)
        logits = vector_root * (projected @ p[:dim]) + p[-1]
        if count:
            logits += root * (x @ p[dim:-1])
        losses, residual = loss_of(logits, targets)
        value = float(weights @ losses + (p[:-1] ** 2).sum() / 2)
        residual = weights[:, None] * residual
        gradient = np.empty_like(p)
        gradient[:dim] = vector_root * (projected.T @ residual) + p[:dim]
        if count:
            gradient[dim:-1] = root * (transposed @ residual) + p[dim:-1]
        gradient[-1] = residual.sum(0)
        return value / documents, gradient.ravel() / documents

    start = np.zeros((dim + count + 1, columns))
    if columns == 1:  # of a rare label, the bias takes most of the steps from zero
        start[-1] = np.log((targets.sum() + 0.5) / (documents - targets.sum() + 0.5))
    found = minimize(
        loss,
        start.ravel(),
        jac=True,
        method="L-BFGS-B",
        options={"maxiter": MAX_ITERATIONS, "gtol": TOLERANCE, "ftol": RELATIVE_TOLERANCE},
    ).x.reshape(-1, columns)
    return root * found[dim:-1], vector_root * found[:dim], found[-1]


def _softmax_loss(logits: Doubles, targets: Doubles) -> tuple[Doubles, Doubles]:
    """Cross-entropy of each document, one class of several, and its gradient (documents, classes)."""
    highest = logits.max(1, keepdims=True)
    exponentials = np.exp(logits - highest)
    sums = exponentials.sum(1, keepdims=True)
    return (highest + np.log(sums)).ravel() - (logits * targets).sum(1), exponentials / sums - targets


def _sigmoid_loss(logits: Doubles, targets: Doubles) -> tuple[Doubles, Doubles]:
    """Binary cross-entropies of each document, summed, and their gradient (documents, classes)."""
    from scipy.special import expit

    return (np.logaddexp(0, logits) - logits * targets).sum(1), expit(logits) - targets


def _one_hot(labels: NDArray[np.int64]) -> NDArray[Any]:
    """1 for the class of each document, (documents, classes); of two classes, for the second one (documents, 1)."""
    names, label = np.unique(labels, return_inverse=True)
    return label[:, None] if len(names) == 2 else np.eye(len(names))[label]


def _halves(logit: Doubles) -> Doubles:
    """Parameters of two classes, from those of their only logit."""
    return np.concatenate((-logit, logit), axis=-1) / 2


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
