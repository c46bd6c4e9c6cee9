"""Fit of the lexical view of a matcher: n-grams, their projection, and the weights of its head.

Used by `model.tasks.lexical_matching`.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from artifact.arrays import Doubles
from artifact.documents import cut, take
from model.config.models import OPENING, LexicalViewConfig
from model.data.splits import folds
from model.nn.matcher import ViewsMatcher
from model.nn.tower import Tower, TowerMatcher
from model.nn.words import WordHasher
from model.progress import progress
from model.tasks.ngrams import Counted, count
from model.tasks.occurrences import places
from model.tasks.regression import without_warnings

if TYPE_CHECKING:  # importing SciPy takes time that other commands need not wait for
    from scipy.sparse import csr_matrix

MIN_DOCUMENTS = 2
"""An n-gram counts if at least so many documents contain it."""
EXPONENTS = (1.0, 2.0)
"""Exponents of the inverse document frequency that are compared."""
MAX_PRODUCTS = 3_000
"""Maximum number of documents for which the products of all pairs of them are decomposed."""
STRENGTHS = (0.0, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1)
"""Inverse regularisation C of the weights of products and differences besides the cosine; 0 for the cosine alone."""
COSINE = 30.0
"""Standard deviation of the cosine as a feature; that of the others is 1. Its weight is hardly regularised."""
MAX_ITERATIONS = 300
FREQUENT = 0.3
"""The joint view does not read words that are in a larger share of the documents."""
SMALLEST = 1e-12
SMALLEST_SQUARE = 1e-6
"""Squared singular value below which a singular vector is a rounding error."""


class Choice(NamedTuple):
    """Hyperparameters that cross-validation chooses."""

    longest: int
    """Maximum length of an n-gram in words."""
    exponent: float
    """An n-gram's scale is its inverse document frequency to this power."""
    strength: float
    """One of STRENGTHS."""
    opening: bool = False
    """Whether the first OPENING bytes have a vector of their own."""

    def of(self, config: LexicalViewConfig) -> LexicalViewConfig:
        """The view with what was chosen."""
        return config.model_copy(update={"longest": self.longest, "opening": self.opening})


class Weights(NamedTuple):
    """Arguments of `LexicalHead.fill`."""

    products: Doubles
    """(P, P, dim), for P vectors of a document."""
    differences: Doubles
    """(P, dim)."""
    bias: Doubles
    """(1,)."""

    def logits(self, a: Doubles, b: Doubles) -> Doubles:
        """Logits (M,) of vectors a and b of length 1, (M, P, dim)."""
        differences = np.abs(a - b).reshape(len(a), -1) @ self.differences.ravel()
        found: Doubles = _products(a, b).reshape(len(a), -1) @ self.products.ravel() + differences + self.bias
        return found


@dataclass(frozen=True)
class Projection:
    """N-grams and their rows, the arguments of `LexicalView.fill`, from the singular vectors of documents."""

    hashes: NDArray[np.int64]
    """(R,)."""
    table: Doubles
    """(R, dim)."""
    vectors: Doubles
    """What these make of the documents, (documents, dim), of length 1, or zero."""

    def vectors_of(self, counted: Counted) -> Doubles:
        """Vectors (documents, dim) of other documents, or of their openings."""
        columns, is_there = places(counted.hashes, self.hashes)
        return _vectors(counted.of_ngrams(columns[is_there]), self.table[is_there])


@dataclass(frozen=True)
class FittedLexical:
    """A fitted lexical view, and its tower if it has one."""

    hashes: NDArray[np.int64]
    """(R,)."""
    table: Doubles
    """(R, dim)."""
    frequencies: Doubles
    """Share of the documents that contain each n-gram, (R,)."""
    weights: Weights
    tower: Tower | None = None

    def with_tower(self, trained: TowerMatcher) -> "FittedLexical":
        """The same view with a trained tower."""
        weights = trained.head.weight.detach().double().numpy()
        bias = trained.head.bias.detach().double().numpy()
        return replace(
            self, weights=Weights(weights[None, None], np.zeros((1, len(weights))), bias), tower=trained.tower
        )

    def fill(self, model: ViewsMatcher) -> None:
        """Copy the parameters into a model."""
        view = model.encoder.lexical
        view.fill(self.hashes, self.table)
        model.head.lexical.fill(*self.weights)
        if self.tower is not None:
            assert view.tower is not None
            view.tower.load_state_dict(self.tower.state_dict())
        if model.encoder.sketch is not None:
            model.encoder.sketch.fill(self.frequencies > FREQUENT)


@dataclass(frozen=True)
class LabelledPairs:
    """Pairs of documents to learn from."""

    index: NDArray[np.int64]
    """Documents a and b of each pair, (M, 2)."""
    targets: Doubles
    """Degree to which they match, (M,), from 0 to 1."""

    def of(self, rows: NDArray[np.int64]) -> "LabelledPairs":
        """Only some of the pairs."""
        return LabelledPairs(self.index[rows], self.targets[rows])


def choose(texts: Sequence[bytes], pairs: LabelledPairs, config: LexicalViewConfig, seed: int) -> Choice:
    """The hyperparameters with the lowest cross-entropy of held-out pairs.

    Exponents are compared with single words, then longer n-grams with the best exponent, then vectors of openings with
    the best of these, if documents are longer. Openings triple the number of weights, so that only strengths up to the
    best one without them are tried. Folds are by the first document of the pairs; a fold without which all targets are
    0 or all are 1, or no n-gram is in several documents, is left out. If none is left, the choice is the cosine of
    single words. The projections are fitted without the documents that only held-out pairs have.

    Raises: ValueError if no n-gram is in several documents.
    """
    counted = _counted(texts, 1, config)
    every, folded = np.arange(len(pairs.targets)), list[_Fold]()
    for held_out in folds((pairs.targets >= 0.5).astype(np.int64), pairs.index[:, 0]):
        rest = np.setdiff1d(every, held_out)
        documents = np.unique(pairs.index[rest])
        has_both = (pairs.targets[rest] > 0).any() and (pairs.targets[rest] < 1).any()
        if has_both and len(_shared(counted.of_documents(documents)).hashes):
            folded.append(_Fold(pairs.of(held_out), pairs.of(rest), documents))
    if not folded:
        return Choice(1, EXPONENTS[0], STRENGTHS[0])
    targets, found = np.concatenate([fold.held_out.targets for fold in folded]), dict[Choice, float]()

    def compare(counted: Sequence[Counted], choice: Choice, strengths: Sequence[float] = STRENGTHS) -> None:
        logits = list[Doubles]()
        for fold in folded:
            logits.append(fold.logits(counted, choice.exponent, strengths, config.dim, seed))
            bar.update()
        for strength, one in zip(strengths, np.concatenate(logits, axis=1), strict=True):
            found[choice._replace(strength=strength)] = _cross_entropy(one, targets)

    has_openings = config.opening and any(len(text) > OPENING for text in texts)
    total = (len(EXPONENTS) + config.longest - 1 + has_openings) * len(folded)
    with progress(total=total, desc="lexical view", unit="fit", leave=False) as bar:
        for exponent in EXPONENTS:
            compare([counted], Choice(1, exponent, STRENGTHS[0]))
        best = min(found, key=found.__getitem__)
        for longest in range(2, config.longest + 1):
            compare([_counted(texts, longest, config)], best._replace(longest=longest))
        best = min(found, key=found.__getitem__)
        if has_openings:
            counted = _counted(texts, best.longest, config)
            both = [counted, _openings(texts, best.longest, config, counted)]
            compare(both, best._replace(opening=True), [one for one in STRENGTHS if one <= best.strength])
    return min(found, key=found.__getitem__)


@dataclass(frozen=True)
class _Fold:
    """A fold of the cross-validation."""

    held_out: LabelledPairs
    rest: LabelledPairs
    """The other pairs."""
    documents: NDArray[np.int64]
    """The documents of the other pairs, ascending."""

    def logits(
        self, counted: Sequence[Counted], exponent: float, strengths: Sequence[float], dim: int, seed: int
    ) -> Doubles:
        """Logits of the held-out pairs with each strength, (strengths, M).

        `counted` are the n-grams of the documents, and of their openings if these have vectors, too.
        """
        projection = project(_shared(counted[0].of_documents(self.documents)), exponent, dim, seed)
        vectors = _stacked(projection, [one.of_documents(self.documents) for one in counted])
        a, b = _of_pairs(vectors, np.searchsorted(self.documents, self.rest.index))
        fitted = fit_weights(a, b, self.rest.targets, strengths)
        used, index = np.unique(self.held_out.index, return_inverse=True)
        vectors = _stacked(projection, [one.of_documents(used) for one in counted])
        a, b = _of_pairs(vectors, index.reshape(self.held_out.index.shape))
        return np.stack([weights.logits(a, b) for weights in fitted])


def fit(
    texts: Sequence[bytes], pairs: LabelledPairs, config: LexicalViewConfig, choice: Choice, seed: int
) -> FittedLexical:
    """Fit the view and its head on all pairs. Raises: ValueError if no n-gram is in several documents."""
    counted = [_counted(texts, choice.longest, config)]
    projection = project(counted[0], choice.exponent, config.dim, seed)
    if choice.opening:
        counted.append(_openings(texts, choice.longest, config, counted[0]))
    a, b = _of_pairs(_stacked(projection, counted), pairs.index)
    (weights,) = fit_weights(a, b, pairs.targets, [choice.strength])
    frequencies = counted[0].document_sets().getnnz(axis=0) / len(texts)
    return FittedLexical(projection.hashes, projection.table, frequencies, weights)


def _openings(texts: Sequence[bytes], longest: int, config: LexicalViewConfig, whole: Counted) -> Counted:
    """The n-grams of the first bytes of each window of the documents, which `whole` counts."""
    length = config.max_length
    windows = [
        take(text, spans)[:OPENING] for text in texts for spans in cut(len(text), length, length // 8, "windows")
    ]
    found = count(WordHasher(longest, OPENING), windows, OPENING, 0)
    return replace(found, means=whole.means, groups=whole.groups)


def _stacked(projection: Projection, counted: Sequence[Counted]) -> Doubles:
    """Vectors (documents, P, dim) of documents, and of their openings if `counted` has these, too."""
    return np.stack([projection.vectors_of(one) for one in counted], axis=1)


def _counted(texts: Sequence[bytes], longest: int, config: LexicalViewConfig) -> Counted:
    """The most frequent n-grams of the documents. Raises: ValueError if no n-gram is in several documents."""
    hasher = WordHasher(longest, config.max_length)
    counted = _shared(count(hasher, texts, config.max_length, config.max_length // 8))
    if not len(counted.hashes):
        raise ValueError("no word is in several documents")
    documents = counted.document_sets().getnnz(axis=0)
    return counted.of_ngrams(np.sort(np.argsort(-documents, kind="stable")[: config.num_ngrams]))


def _shared(counted: Counted) -> Counted:
    """Only the n-grams in at least MIN_DOCUMENTS documents."""
    return counted.of_ngrams(np.flatnonzero(counted.document_sets().getnnz(axis=0) >= MIN_DOCUMENTS))


def project(counted: Counted, exponent: float, dim: int, seed: int) -> Projection:
    """Up to `dim` singular vectors of the documents' n-grams, scaled by their inverse document frequency to a power."""
    documents = counted.document_sets()
    frequency = documents.getnnz(axis=0)
    scales = (np.log((1 + documents.shape[0]) / (1 + frequency)) + 1) ** exponent
    features, _ = counted.features(np.arange(len(scales)), scales, 0.0, sublinear=True)
    table = scales[:, None] * _directions(features, min(dim, *features.shape), seed)
    return Projection(counted.hashes, table, _vectors(counted, table))


def _directions(features: "csr_matrix", rank: int, seed: int) -> Doubles:
    """The first right singular vectors (R, rank) of documents (documents, R), fewer if the others are zero.

    The largest singular values come first.

    Reference:  Halko, Martinsson and Tropp 2011, arXiv:0909.4061 (randomised decomposition, of many documents).
    """
    if (number := features.shape[0]) > MAX_PRODUCTS:
        from sklearn.utils.extmath import randomized_svd

        directions: Doubles = randomized_svd(features, rank, random_state=seed)[2].T
        return directions
    from scipy.linalg import eigh

    squares, left = eigh((features @ features.T).toarray(), subset_by_index=(number - rank, number - 1))
    squares, left = squares[::-1], left[:, ::-1]
    kept = squares > SMALLEST_SQUARE
    directions = features.T @ (left[:, kept] / np.sqrt(squares[kept]))
    return np.asarray(directions)


def _vectors(counted: Counted, table: Doubles) -> Doubles:
    """Vectors (documents, dim) as the served model computes them.

    One of each window as in `LexicalView`, then their mean, scaled to length 1.
    """
    counts = counted.windows.copy()
    counts.data = 1 + np.log(counts.data.astype(np.float64))
    return _unit(counted.means @ _unit(counts @ table))


def _of_pairs(vectors: Doubles, index: NDArray[np.int64]) -> tuple[Doubles, Doubles]:
    """Vectors (M, P, dim) of both documents of pairs (M, 2)."""
    return vectors[index[:, 0]], vectors[index[:, 1]]


def _products(a: Doubles, b: Doubles) -> Doubles:
    """Products (M, P, P, dim) of each vector of one document with each of the other, from vectors (M, P, dim)."""
    return a[:, :, None] * b[:, None]


def fit_weights(a: Doubles, b: Doubles, targets: Doubles, strengths: Sequence[float]) -> list[Weights]:
    """Weights of products and differences for each inverse regularisation C, from vectors a and b (M, P, dim).

    A logistic regression, whose regularisation pulls the weights towards scaled cosines. A target t between 0 and 1
    counts as a match of weight t and no match of weight 1 - t.

    Raises: ValueError if all targets are 0 or all are 1.
    """
    from sklearn.linear_model import LogisticRegression

    products, differences = _products(a, b), np.abs(a - b)
    shapes, number = (products.shape[1:], differences.shape[1:]), len(targets)
    cosines = products.sum(3).reshape(number, -1)
    products, differences = products.reshape(number, -1), differences.reshape(number, -1)
    scales = [
        COSINE / np.maximum(SMALLEST, cosines.std(0)),
        *(1 / max(SMALLEST, x.std()) for x in (products, differences)),
    ]
    means = cosines.mean(0), differences.mean(0)
    features = np.concatenate(
        ((cosines - means[0]) * scales[0], products * scales[1], (differences - means[1]) * scales[2]), axis=1
    )
    is_shared = (targets > 0) & (targets < 1)
    rows = np.concatenate((np.arange(len(targets)), np.flatnonzero(is_shared)))
    labels = np.concatenate((targets > 0, np.zeros(is_shared.sum(), np.bool_)))
    weights = np.concatenate((np.where(is_shared, targets, 1.0), 1 - targets[is_shared]))
    ends, found = np.cumsum([x.shape[1] for x in (cosines, products, differences)]), list[Weights]()
    for strength in strengths:
        num_features = ends[-1] if strength else ends[0]
        regression = LogisticRegression(C=strength or 1.0, max_iter=MAX_ITERATIONS)
        with without_warnings():
            regression.fit(features[rows, :num_features], labels, weights)
        w = np.zeros(ends[-1])
        w[:num_features] = regression.coef_[0]
        of_cosines, of_products, of_differences = (
            part * scale for part, scale in zip(np.split(w, ends[:-1]), scales, strict=True)
        )
        bias = regression.intercept_ - of_cosines @ means[0] - of_differences @ means[1]
        of_products = of_products.reshape(shapes[0]) + of_cosines.reshape(*shapes[0][:2], 1)
        found.append(Weights(of_products, of_differences.reshape(shapes[1]), bias))
    return found


def _unit(x: Doubles) -> Doubles:
    found: Doubles = x / np.maximum(np.linalg.norm(x, axis=1, keepdims=True), SMALLEST)
    return found


def _cross_entropy(logits: Doubles, targets: Doubles) -> float:
    return float((np.logaddexp(0, logits) - targets * logits).mean())
