"""Complement naive Bayes on sparse features of documents, to be mixed with a logistic regression."""

from typing import TYPE_CHECKING

import numpy as np

from artifact.arrays import Doubles

if TYPE_CHECKING:  # importing SciPy takes time that other commands need not wait for
    from scipy.sparse import csr_matrix

SMOOTHING = 0.05
"""Added to the sum of each feature. On a quarter of the training posts of 20 Newsgroups, 0.01 to 0.2 are about as good.
"""
SMALLEST = 1e-12
"""Sum of absolute weights below which all are zero: that of a single feature is."""


def naive_bayes(x: "csr_matrix", members: Doubles) -> Doubles:
    """Weights (features, classes) of normalized complement naive Bayes, less their mean over the classes.

    w_hc = -log(s_hc / sum_h s_hc), divided by the sum of its absolute values over h. s_hc is SMOOTHING plus the sum of
    feature h over the documents of the other classes.

    Args:
        x: features (documents, features), none negative.
        members: weight of each document in each class, (documents, classes), at least two.

    Reference:  Rennie et al. 2003, "Tackling the Poor Assumptions of Naive Bayes Text Classifiers", section 3.
    Deviates:   the features have the scales and lengths of the n-gram view. SMOOTHING instead of 1: the features of a
                document are small. Classes have no prior; the regression has a bias.
    Note:       scikit-learn's `ComplementNB` has the same weights, but takes no probabilities of classes.

    """
    sums: Doubles = np.asarray(x.T @ members)
    others = sums.sum(1, keepdims=True) - sums + SMOOTHING
    weights: Doubles = -np.log(others / others.sum(0))
    weights /= np.maximum(np.abs(weights).sum(0), SMALLEST)
    weights -= weights.mean(1, keepdims=True)
    return weights


def scale_of(x: "csr_matrix", weights: Doubles, bias: Doubles, bayes: Doubles) -> float:
    """Factor of `bayes` with which its logits of the documents deviate as much as those of a regression; 0 for none.

    Args:
        x: features (documents, features).
        weights: weights of the regression, (features, classes).
        bias: its bias, (classes,).
        bayes: weights of naive Bayes, (features, classes).

    """
    regression, other = (
        float((logits - logits.mean(1, keepdims=True)).std()) for logits in (x @ weights + bias, x @ bayes)
    )
    return regression / other if other else 0.0
