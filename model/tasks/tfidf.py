"""TF-IDF baselines of scikit-learn, fitted on the training split of user data. Used by the tasks that read text."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from artifact.arrays import Doubles
from model.data.sampling import sample
from model.tasks.link import SIGMOIDS
from model.tasks.regression import without_warnings

if TYPE_CHECKING:  # importing scikit-learn takes seconds, which other commands need not wait for
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression
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
"""Settings of the vectorizers, by their description."""
STRENGTHS = {DEFAULTS: 1.0, "sublinear_tf, min_df=2": 10.0}
"""Inverse regularisation C of the logistic regression, by the description of the vectorizer."""
LABEL_SETTINGS = {f"sublinear_tf, min_df=2, C={strength:g}": strength for strength in (1.0, 3.0, 10.0, 30.0, 100.0)}
"""C of each setting for any number of labels, by its description."""
VALUE = re.compile(r"TF-IDF .*: (\d\.\d{4})")

Metric = Callable[[Any, NDArray[np.int64]], float]
"""Scores and labels -> a value in [0, 1]; larger is better."""


@dataclass(frozen=True)
class Baseline:
    """A fitted baseline."""

    name: str
    """Its kind and settings."""
    setting: str
    """Key of VECTORIZERS."""
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
    settings: Sequence[str] = tuple(VECTORIZERS),
) -> Baseline | None:
    """Fit TF-IDF and logistic regression with each of the settings; returns the best on validation.

    Args:
        train: texts and labels, at most MAX_DOCUMENTS and MAX_BYTES of which are used.
        validation: texts and labels.
        num_classes: number of labels.
        metric: validation metric of scores (documents, classes) and labels.
        settings: keys of VECTORIZERS.

    Returns None if no setting finds a word in the training texts.

    """
    from sklearn.linear_model import LogisticRegression

    chosen = sample(list(map(len, train[0])), MAX_DOCUMENTS, MAX_BYTES)
    texts, labels = [_decode(train[0][i]) for i in chosen], [train[1][i] for i in chosen]
    best: Baseline | None = None
    for setting in settings:
        vectorizer = _fitted(setting, texts)
        if vectorizer is None or len(set(labels)) < 2:
            continue
        classifier = LogisticRegression(C=STRENGTHS[setting])
        with without_warnings():
            classifier.fit(vectorizer.transform(texts), labels)
        scores = _class_scores(vectorizer, classifier, num_classes)
        value = metric(scores(validation[0]), np.array(validation[1]))
        if best is None or value > best.value:
            name = f"{CLASSIFIER} ({setting}, C={STRENGTHS[setting]:g}{_part(len(chosen), len(train[0]))})"
            best = Baseline(name, setting, value, scores)
    return best


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
    train: NDArray[np.int64],
    validation: NDArray[np.int64],
    metric: Metric,
    settings: Sequence[str] = tuple(VECTORIZERS),
) -> Baseline | None:
    """Fit TF-IDF on the training texts with each of the settings; returns the best cosine on validation.

    Shape:  train and validation (M, 3): index of a, index of b, label.

    Returns None if no setting finds a word in the training texts.
    """
    seen = np.unique(train[:, :2]).tolist()
    chosen = sample([len(texts[document]) for document in seen], MAX_DOCUMENTS, MAX_BYTES)
    fitted_on = [_decode(texts[seen[i]]) for i in chosen]
    best: Baseline | None = None
    for setting in settings:
        vectorizer = _fitted(setting, fitted_on)
        if vectorizer is None:
            continue
        scores = _cosines(vectorizer)
        found, labels = scores(texts, validation[:, :2]), validation[:, 2]
        value = metric(found, labels)
        if best is None or value > best.value:
            name = f"{MATCHER} ({setting}{_part(len(fitted_on), len(seen))})"
            best = Baseline(name, setting, value, scores, best_threshold(found, labels))
    return best


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
        return TfidfVectorizer(**VECTORIZERS[setting]).fit(texts)
    except ValueError:
        return None


def _class_scores(
    vectorizer: "TfidfVectorizer", classifier: "LogisticRegression", num_classes: int
) -> Callable[[Sequence[bytes]], Doubles]:
    def scores(texts: Sequence[bytes]) -> Doubles:
        found = np.zeros((len(texts), num_classes))
        found[:, classifier.classes_] = classifier.predict_proba(vectorizer.transform(map(_decode, texts)))
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
