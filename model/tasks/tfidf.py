"""TF-IDF baselines of scikit-learn, fitted on the training split of user data. Used by the tasks that read text."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from artifact.arrays import Doubles
from artifact.documents import softmax
from model.data.pairs import MATCH
from model.data.sampling import sample
from model.data.splits import folds
from model.progress import progress
from model.tasks.link import SIGMOIDS
from model.tasks.regression import balanced, regressions

if TYPE_CHECKING:  # importing scikit-learn takes seconds, which other commands need not wait for
    from scipy.sparse import csr_matrix
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.multiclass import OneVsRestClassifier

MAX_DOCUMENTS = 20_000
MAX_BYTES = 50_000_000
"""Maximum number and size of the documents to fit on; of more, a random sample is used."""
CLASSIFIER = "TF-IDF and logistic regression"
LABELS = "TF-IDF and logistic regression one against the rest"
CERTAIN = 30.0
"""Logit of a label that all training documents have; less than 0 if none has it."""
MATCHER = "TF-IDF cosine"
DEFAULTS = "scikit-learn's defaults"
VECTORIZERS: dict[str, dict[str, Any]] = {DEFAULTS: {}, "sublinear_tf, min_df=2": {"sublinear_tf": True, "min_df": 2}}
"""Settings of earlier runs, and of pairs, by their description."""
STRENGTHS = {DEFAULTS: (1.0,), "sublinear_tf, min_df=2": (10.0,)}
"""Inverse regularisation C of classifiers of earlier runs, by the description of the vectorizer."""
TUNED: dict[str, dict[str, Any]] = {
    "words, sublinear": {"sublinear_tf": True, "dtype": np.float32},
    "words 1-2, sublinear": {"ngram_range": (1, 2), "sublinear_tf": True, "min_df": 2, "dtype": np.float32},
    "characters 2-5, sublinear": {
        "analyzer": "char_wb",
        "ngram_range": (2, 5),
        "sublinear_tf": True,
        "max_features": 2**19,
        "dtype": np.float32,
    },
}
"""Settings of the vectorizers of classifiers, by their description."""
CLASSIFIERS = VECTORIZERS | TUNED
TUNED_STRENGTHS = (1.0, 3.0, 10.0, 30.0, 100.0, 300.0)
"""Values of C that are compared."""
TUNING_DOCUMENTS = 2_000
TUNING_BYTES = 16_000_000
"""Maximum number and size of the documents on which they are compared; of more, a random sample is used."""
LABEL_SETTINGS = {f"sublinear_tf, min_df=2, C={strength:g}": strength for strength in (1.0, 3.0, 10.0, 30.0, 100.0)}
"""C of each setting for any number of labels, by its description."""
VALUE = re.compile(r"TF-IDF .*: (\d\.\d{4})")

Metric = Callable[[Any, NDArray[Any]], float]
"""Scores and labels -> a value in [0, 1]; larger is better."""


@dataclass(frozen=True)
class Baseline:
    """A fitted baseline."""

    name: str
    """Its kind and settings."""
    setting: str
    """Key of CLASSIFIERS; of a classifier, with C."""
    value: float
    """Validation metric."""
    scores: Callable[..., Doubles]
    """Texts -> scores (documents, classes), of any number of labels logits; or texts and pairs of their indices (M, 2)
    -> cosines (M,)."""
    threshold: float = 0.0
    """For pairs: cosine from which two documents belong together, chosen on validation."""
    thresholds: Doubles | None = None
    """For any number of labels: probability from which each label applies, chosen on validation."""


def note(name: str, value: float) -> str:
    """Text of `compared_with` in a result: name and value of the baseline."""
    return f"{name}: {value:.4f}"


def value_of(compared_with: str) -> float | None:
    """Value in a text of `note`; None for any other text."""
    found = VALUE.fullmatch(compared_with)
    return float(found[1]) if found else None


def fit_classifier(
    train: tuple[Sequence[bytes], Sequence[int]],
    validation: tuple[Sequence[bytes], Sequence[int]],
    num_classes: int,
    metric: Metric,
    settings: Sequence[str] = tuple(TUNED),
    *,
    groups: Sequence[str] = (),
    is_balanced: bool = False,
) -> Baseline | None:
    """Fit TF-IDF and logistic regression with the best of the settings.

    The settings and their C are compared on the folds of the training texts on which training chooses its own settings,
    of at most TUNING_DOCUMENTS and TUNING_BYTES of them. Validation only gives the value.

    Args:
        train: texts and labels, at most MAX_DOCUMENTS and MAX_BYTES of which are used.
        validation: texts and labels.
        num_classes: number of labels.
        metric: metric of scores (documents, classes) and labels.
        settings: keys of CLASSIFIERS, and `, C=VALUE` for one that is chosen already.
        groups: group of each training text, if there are groups.
        is_balanced: whether each class weighs the same.

    Returns None if no setting finds a word in the training texts.

    """
    chosen = sample(list(map(len, train[0])), MAX_DOCUMENTS, MAX_BYTES)
    texts, labels = [_decode(train[0][i]) for i in chosen], np.array([train[1][i] for i in chosen])
    candidates = dict(map(_candidates, settings))
    if len(present := np.unique(labels)) < 2:
        return None
    if sum(map(len, candidates.values())) > 1:
        group = np.unique([groups[i] for i in chosen], return_inverse=True)[1] if groups else np.arange(len(labels))
        candidates = _best(texts, labels, group, num_classes, metric, candidates, is_balanced=is_balanced)
    for name, (strength, *_) in candidates.items():
        if (vectorizer := _fitted(name, texts)) is not None:
            weights = balanced(labels) if is_balanced else None
            (fitted,) = regressions(vectorizer.transform(texts), labels, [strength], weights)
            scores = _class_scores(vectorizer, fitted, present, num_classes)
            value, setting = metric(scores(validation[0]), np.array(validation[1])), f"{name}, C={strength:g}"
            description = (
                f"{CLASSIFIER} ({setting}{', balanced' if is_balanced else ''}{_part(len(chosen), len(train[0]))})"
            )
            return Baseline(description, setting, value, scores)
    return None


def _candidates(setting: str) -> tuple[str, tuple[float, ...]]:
    """Key of CLASSIFIERS, and the values of C to compare."""
    name, is_chosen, strength = setting.partition(", C=")
    return name, (float(strength),) if is_chosen else STRENGTHS.get(name, TUNED_STRENGTHS)


def _best(
    texts: Sequence[str],
    labels: NDArray[np.int64],
    groups: NDArray[np.int64],
    num_classes: int,
    metric: Metric,
    candidates: Mapping[str, Sequence[float]],
    *,
    is_balanced: bool,
) -> dict[str, tuple[float, ...]]:
    """The setting and the C with the best metric of held-out documents, the first of equals; empty without words."""
    kept = sample([len(text) for text in texts], TUNING_DOCUMENTS, TUNING_BYTES)
    texts, labels, groups = [texts[i] for i in kept], labels[kept], groups[kept]
    has_groups = 1 < len(np.unique(groups)) < len(groups)
    parts = folds(labels, groups if has_groups else np.arange(len(labels)))
    tried, found = np.concatenate(parts), dict[tuple[str, float], float]()
    with progress(total=len(candidates) * len(parts), desc="TF-IDF", unit="fold", leave=False) as bar:
        for name, strengths in candidates.items():
            if (counts := _counts(name, texts)) is None:
                continue
            scores = np.zeros((len(strengths), len(labels), num_classes))
            for held_out in parts:
                rest = np.setdiff1d(np.arange(len(labels)), held_out)
                weights = balanced(labels[rest]) if is_balanced else None
                scores[:, held_out] = _held_out_scores(
                    name, counts[rest], labels[rest], weights, counts[held_out], strengths, num_classes
                )
                bar.update()
            values = [metric(one[tried], labels[tried]) for one in scores]
            found |= {(name, strength): value for strength, value in zip(strengths, values, strict=True)}
    name, strength = max(found, key=found.__getitem__, default=("", 0.0))
    return {name: (strength,)} if found else {}


def _held_out_scores(
    name: str,
    counts: "csr_matrix",
    labels: NDArray[np.int64],
    weights: Doubles | None,
    held_out: "csr_matrix",
    strengths: Sequence[float],
    num_classes: int,
) -> Doubles:
    """Scores (strengths, held-out documents, classes) of models of documents with these counts, labels and weights."""
    from sklearn.feature_extraction.text import TfidfTransformer

    scores = np.zeros((len(strengths), held_out.shape[0], num_classes))
    present = np.unique(labels)
    columns = np.flatnonzero(counts.getnnz(axis=0))  # the n-grams that these documents have
    if len(present) < 2 or not len(columns):
        scores[:, :, present] = 1 / len(present)
        return scores
    weighting = TfidfTransformer(sublinear_tf=CLASSIFIERS[name].get("sublinear_tf", False))
    x = weighting.fit_transform(counts[:, columns])
    tested = weighting.transform(held_out[:, columns])
    for one, (found, bias) in zip(scores, regressions(x, labels, strengths, weights), strict=True):
        one[:, present] = softmax(tested @ found + bias)
    return scores


def _counts(name: str, texts: Sequence[str]) -> "csr_matrix | None":
    """Number of occurrences of each n-gram (documents, n-grams); None if there are none."""
    from sklearn.feature_extraction.text import TfidfVectorizer

    options = CLASSIFIERS[name] | {"use_idf": False, "norm": None, "sublinear_tf": False}
    try:
        return TfidfVectorizer(**options).fit_transform(texts)
    except ValueError:
        return None


def fit_labels(
    train: tuple[Sequence[bytes], NDArray[np.int64]],
    validation: tuple[Sequence[bytes], NDArray[np.int64]],
    metric: Metric,
    settings: Sequence[str] = (),
) -> Baseline | None:
    """Fit TF-IDF and a logistic regression for each label, against all documents without it.

    C and the threshold of each label are the best on validation.

    Args:
        train: texts and labels, 1 and 0 for each (documents, classes), at most MAX_DOCUMENTS and MAX_BYTES of which are
            used.
        validation: texts and labels.
        metric: validation metric of logits (documents, classes) and labels.
        settings: keys of LABEL_SETTINGS; by default all.

    Returns None if no word is twice in the training texts.

    """
    from sklearn.linear_model import LogisticRegression
    from sklearn.multiclass import OneVsRestClassifier

    chosen = sample(list(map(len, train[0])), MAX_DOCUMENTS, MAX_BYTES)
    texts, labels = [_decode(train[0][i]) for i in chosen], train[1][chosen]
    present, best = np.flatnonzero(labels.any(0) & ~labels.all(0)), None
    vectorizer = _fitted("sublinear_tf, min_df=2", texts)
    if vectorizer is None or not len(present):
        return None
    for setting in settings or tuple(LABEL_SETTINGS):
        regression = LogisticRegression(C=LABEL_SETTINGS[setting], solver="liblinear", random_state=0)
        classifier = OneVsRestClassifier(regression).fit(vectorizer.transform(texts), labels[:, present])
        scores = _label_scores(vectorizer, classifier, present, labels)
        found = scores(validation[0])
        if (value := metric(found, validation[1])) > (best.value if best else -1.0):
            thresholds = SIGMOIDS.thresholds(SIGMOIDS.probabilities(found), validation[1])
            described = f"{LABELS} ({setting}{_part(len(chosen), len(train[0]))})"
            best = Baseline(described, setting, value, scores, thresholds=thresholds)
    return best


def fit_matcher(
    texts: Sequence[bytes],
    train: tuple[NDArray[np.int64], Doubles],
    validation: tuple[NDArray[np.int64], Doubles],
    metric: Metric,
    settings: Sequence[str] = tuple(CLASSIFIERS),
) -> Baseline | None:
    """Fit TF-IDF on the training texts; its cosine, with the setting that is best on the training pairs.

    The texts alone are fitted, so that no labels of the training pairs are in the cosine.

    Args:
        texts: all texts.
        train: pairs (M, 2), as indices of texts, and their targets (M,), 0 to 1.
        validation: the same.
        metric: metric of cosines and targets.
        settings: keys of CLASSIFIERS.

    Returns None if no setting finds a word in the training texts.

    """
    seen = np.unique(train[0]).tolist()
    chosen = sample([len(texts[document]) for document in seen], MAX_DOCUMENTS, MAX_BYTES)
    fitted_on = [_decode(texts[seen[i]]) for i in chosen]
    found: list[tuple[float, str, TfidfVectorizer]] = []
    with progress(total=len(settings), desc="TF-IDF", unit="setting", leave=False) as bar:
        for setting in settings:
            if (vectorizer := _fitted(setting, fitted_on)) is not None:
                value = metric(_cosines(vectorizer)(texts, train[0]), train[1]) if len(settings) > 1 else 0.0
                found.append((value, setting, vectorizer))
            bar.update()
    if not found:
        return None
    _, setting, vectorizer = max(found, key=lambda one: one[0])
    scores = _cosines(vectorizer)
    cosines, targets = scores(texts, validation[0]), validation[1]
    name = f"{MATCHER} ({setting}{_part(len(fitted_on), len(seen))})"
    threshold = best_threshold(cosines, (targets >= MATCH).astype(np.int64))
    return Baseline(name, setting, metric(cosines, targets), scores, threshold)


def best_threshold(scores: Doubles, labels: NDArray[np.int64]) -> float:
    """Threshold t with the highest accuracy of `score >= t`, the lowest of equals."""
    order = np.argsort(scores, kind="stable")
    ranked, truth = scores[order], labels[order] == 1
    wrong_below = np.concatenate([[0], np.cumsum(truth)])  # pairs below the threshold that belong together
    right_above = truth.sum() - wrong_below
    right = (np.arange(len(truth) + 1) - wrong_below) + right_above
    is_possible = np.concatenate([[True], ranked[1:] > ranked[:-1], [True]])  # equal scores are on one side
    best = int(np.argmax(np.where(is_possible, right, -1)))
    return float(ranked[best]) if best < len(ranked) else float(np.nextafter(ranked[-1], np.inf))


def _fitted(setting: str, texts: Sequence[str]) -> "TfidfVectorizer | None":
    """Vectorizer fitted on texts; None if they contain no word (or none twice, where that is needed)."""
    from sklearn.feature_extraction.text import TfidfVectorizer

    try:
        return TfidfVectorizer(**CLASSIFIERS[setting]).fit(texts)
    except ValueError:
        return None


def _class_scores(
    vectorizer: "TfidfVectorizer", fitted: tuple[Doubles, Doubles], present: NDArray[np.int64], num_classes: int
) -> Callable[[Sequence[bytes]], Doubles]:
    weights, bias = fitted

    def scores(texts: Sequence[bytes]) -> Doubles:
        found = np.zeros((len(texts), num_classes))
        found[:, present] = softmax(vectorizer.transform(map(_decode, texts)) @ weights + bias)
        return found

    return scores


def _label_scores(
    vectorizer: "TfidfVectorizer",
    classifier: "OneVsRestClassifier",
    present: NDArray[np.int64],
    train: NDArray[np.int64],
) -> Callable[[Sequence[bytes]], Doubles]:
    """Logits of the labels; CERTAIN for those that no or all training documents have."""

    def scores(texts: Sequence[bytes]) -> Doubles:
        found = np.where(train.any(0), CERTAIN, -CERTAIN) * np.ones((len(texts), 1))
        logits = classifier.decision_function(vectorizer.transform(map(_decode, texts)))
        found[:, present] = logits.reshape(len(texts), -1)
        return found

    return scores


def _cosines(vectorizer: "TfidfVectorizer") -> Callable[[Sequence[bytes], NDArray[np.int64]], Doubles]:
    def scores(texts: Sequence[bytes], pairs: NDArray[np.int64]) -> Doubles:
        needed, index = np.unique(pairs, return_inverse=True)
        vectors = vectorizer.transform(_decode(texts[i]) for i in needed)
        left, right = (vectors[column] for column in index.reshape(-1, 2).T)
        return np.asarray(left.multiply(right).sum(axis=1), np.float64).ravel()

    return scores


def _part(count: int, total: int) -> str:
    """Note that a baseline was fitted on a sample; empty if it was fitted on all documents."""
    return "" if count == total else f", fitted on {count:,} of {total:,} documents"


def _decode(text: bytes) -> str:
    return text.decode(errors="replace")
