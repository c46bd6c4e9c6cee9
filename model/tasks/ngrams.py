"""Fit of the n-gram view of a classifier: counting, selection and scales of n-grams, logistic regression.

Used by `model.tasks.two_views`; its counts also by `model.tasks.lexical`.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from tqdm import tqdm

from artifact.arrays import Doubles
from artifact.documents import cut, take
from model.config.models import NgramViewConfig
from model.data.splits import folds
from model.nn.ngrams import NgramClassifier
from model.nn.words import PREFIX, WordHasher
from model.progress import progress
from model.tasks.link import memberships, rarest
from model.tasks.naive_bayes import naive_bayes, scale_of
from model.tasks.occurrences import Hasher, NgramVectors, hashed_batches, places, rows_at
from model.tasks.regression import balanced, regression_on_probabilities, regressions, regressions_with_vectors
from model.tasks.views import combined, cross_entropies, fit_weights, is_better

if TYPE_CHECKING:  # importing SciPy takes time that other commands need not wait for
    from scipy.sparse import csr_matrix

SLOTS = 2**24
"""Number of slots in which n-grams are counted to find frequent ones; those of a slot are counted as one."""
CANDIDATES = 8
"""Number of n-grams considered per n-gram kept, the most frequent ones."""
MAX_LOGITS, MAX_SIGMOIDS = 120_000, 1_000_000
"""Maximum number of documents times classes in cross-validation, with one label a document and with any number of them;
of more documents, a random sample is used."""
FIRST_STRENGTH = 10.0
STRENGTHS = (1.0, 3.0, 30.0, 100.0, 300.0, 1_000.0, 3_000.0)
"""Inverse regularisation C: the one with which features are compared, and the others that are tried afterwards, up to
the recipe's limit."""
VECTOR_STRENGTHS = (0.003, 0.01, 0.03, 0.1, 0.3)
"""Inverse regularisation C of the weights that follow from vectors."""
KEEP = "keep"
"""Name of the scaling by keep probabilities. Its n-grams are those with the largest number of occurrences times keep
probability, instead of the largest G^2."""
STRENGTHS_BESIDE_VECTORS = (3.0, 30.0)
"""Inverse regularisation C of the weights of single n-grams, tried after the best of VECTOR_STRENGTHS is found."""
STRENGTHS_OF_KEEP = (0.3, 1.0, 3.0, 10.0)
"""The same with the scaling KEEP, after none (0)."""
SHARES = (0.2, 0.4, 0.6, 0.8)
"""Shares of naive Bayes that are tried last."""
NUM_VECTOR_SETTINGS = 2 * len(VECTOR_STRENGTHS) + 1 + len(STRENGTHS_BESIDE_VECTORS) + len(STRENGTHS_OF_KEEP)
"""Maximum number of choices that `_best_with_vectors` compares, besides the one without vectors."""
SMALLEST_SCALE = 1e-6
"""Scale below which an n-gram does not count: rounding errors of a scale of zero."""
PRIOR, SHORT = 0.1, 0.01
"""The prior of the view is PRIOR times the quantile SHORT of the squared lengths of the training windows. With larger
priors, scores of parts of 2 to 64 words of held-out IMDb reviews fit no better, and classifiers of 20 classes and 100
to 300 documents are up to a point less accurate: documents share few n-grams with so few others."""
KINDS = {
    "sublinear": {True: "k occurrences counted 1 + log k times", False: "counted once"},
    "prefixes": {True: "with prefixes of words", False: "with whole words only"},
}
"""Words for the values of the keys in `NgramViewConfig.tried`."""
MISSING = -10.0
"""Bias of a class without training documents."""

HeldOutLosses = Callable[[Doubles, NDArray[np.int64]], Doubles]
"""Logits and labels of held-out documents -> loss of each."""
LearnVectors = Callable[[NDArray[np.int64]], NgramVectors]
"""Labelled documents to learn from -> vectors of n-grams."""
Scales = Callable[[Doubles, Doubles], Doubles]
"""Documents of each class that contain each n-gram (R, classes) and documents of each class -> scales (R,)."""


@dataclass(frozen=True)
class Choice:
    """Hyperparameters of the n-gram view that are chosen by cross-validation."""

    longest: int
    """Maximum length of an n-gram in words."""
    scaling: str
    """Key of SCALES, or KEEP."""
    strength: float
    """Inverse regularisation C of the weights of single n-grams; 0 for none."""
    discount: bool = False
    """Whether training discounts n-grams that are frequent in a document's own group (`Counted.features`)."""
    vector_strength: float = 0.0
    """Inverse regularisation C of the weights that follow from the vectors of n-grams; 0 for none."""
    sublinear: bool | None = None
    """Whether an n-gram that occurs k times counts 1 + log k times instead of once; None: as the recipe says."""
    prefixes: bool | None = None
    """Whether prefixes of words count as n-grams; None: as the recipe says."""
    naive_bayes: float = 0.0
    """Share of naive Bayes in the weights; the rest is the logistic regression."""
    reason: str = field(default="", compare=False)
    """Why `sublinear` and `prefixes` were chosen, with the figures; empty if nothing else was tried."""

    def of(self, config: NgramViewConfig) -> NgramViewConfig:
        """The view with what was chosen."""
        keys = {"longest": self.longest, "sublinear": self.sublinear, "prefixes": self.prefixes}
        return config.model_copy(update={key: value for key, value in keys.items() if value is not None})


@dataclass(frozen=True)
class Fitted:
    """A fitted n-gram view: arguments of `NgramClassifier.fill`."""

    hashes: NDArray[np.int64]
    scales: Doubles
    weights: Doubles
    bias: Doubles
    prior: float

    def fill(self, model: NgramClassifier) -> None:
        """Copy the parameters into a model."""
        model.fill(self.hashes, self.scales, self.weights, self.bias, self.prior)

    def on(self, hashes: NDArray[np.int64]) -> "Fitted":
        """The same view with exactly these n-grams, ascending; those that it lacks do not count."""
        found = places(self.hashes, hashes)
        return replace(self, hashes=hashes, scales=rows_at(self.scales, *found), weights=rows_at(self.weights, *found))


@dataclass(frozen=True)
class Counted:
    """The n-grams of documents, window by window."""

    hashes: NDArray[np.int64]
    """Hash of each n-gram, (R,), ascending."""
    lengths: NDArray[np.int64]
    """Length in words of each n-gram, or PREFIX, (R,)."""
    windows: "csr_matrix"
    """Number of occurrences of each n-gram in each window, (windows, R)."""
    means: "csr_matrix"
    """1 / number of windows, for each window of each document, (documents, windows)."""
    groups: NDArray[np.int64]
    """Group of each document, (documents,), or -1 for none; without groups, each document is one."""

    @property
    def has_groups(self) -> bool:
        """Whether there are several groups, and fewer than documents."""
        return 1 < len(np.unique(self.groups)) < len(self.groups)

    @property
    def has_single_windows(self) -> bool:
        """Whether each document is one window, and the means are the identity."""
        documents, windows = self.means.shape
        return documents == windows == self.means.nnz and bool((self.means.indices == np.arange(windows)).all())

    def features(
        self,
        chosen: NDArray[np.int64],
        scales: Doubles,
        prior: float | None = None,
        *,
        sublinear: bool,
        discount: bool = False,
    ) -> tuple["csr_matrix", float]:
        """Features (documents, chosen): mean over a document's windows of the scaled n-grams, divided by their length.

        The length is the root of the sum of squares and the prior; by default, PRIOR times the quantile SHORT of these.

        Returns: the features, and the prior.

        An n-gram that occurs k times in a window counts once, or with `sublinear` 1 + log k times.

        With `discount`, the count is multiplied by the squared share of the n-gram's documents that are in other groups
        than the document. A document of a new group lacks the n-grams that only one group has, such as a name; the
        model has to learn from the others. Not in a paper that we know.
        """
        found = self.windows[:, chosen]
        found.data = 1 + np.log(found.data.astype(np.float64)) if sublinear else np.ones(len(found.data))
        if discount:
            self._discount(found)
        found.data *= scales[found.indices]  # in place: the features of many documents take gigabytes
        squares = np.asarray(found.power(2).sum(1)).ravel()
        if prior is None:
            prior = PRIOR * float(np.quantile(squares, SHORT))
        lengths = np.sqrt(np.maximum(squares + prior, SMALLEST_SCALE**2))
        found.data *= np.repeat(1 / lengths, np.diff(found.indptr))
        return found if self.has_single_windows else (self.means @ found).tocsr(), prior

    def _discount(self, counts: "csr_matrix") -> None:
        """Multiply the counts (windows, R) by the squared shares of documents in other groups."""
        from scipy.sparse import csr_matrix

        names, group = np.unique(self.groups, return_inverse=True)
        present = (self.means @ counts).tocsr()
        present.data[:] = 1
        documents = np.arange(len(group))
        of_group = csr_matrix((np.ones(len(group)), (group, documents)), shape=(len(names), len(group))) @ present
        total = np.maximum(np.asarray(of_group.sum(0)).ravel(), 1)
        owner = self.means.tocoo()
        group_of_window = np.empty(counts.shape[0], dtype=np.int64)
        group_of_window[owner.col] = group[owner.row]
        for number in np.flatnonzero(names >= 0):
            outside = (1 - of_group[number].toarray().ravel() / total) ** 2
            for window in np.flatnonzero(group_of_window == number):
                entries = slice(counts.indptr[window], counts.indptr[window + 1])
                counts.data[entries] *= outside[counts.indices[entries]]

    def document_sets(self) -> "csr_matrix":
        """1 for each n-gram of each document, (documents, R)."""
        found = self.windows if self.has_single_windows else (self.means @ self.windows).tocsr()
        ones = np.ones(len(found.data), dtype=np.int8)
        return type(found)((ones, found.indices, found.indptr), shape=found.shape)

    def of_documents(self, rows: NDArray[np.int64]) -> "Counted":
        """Only some of the documents."""
        if len(rows) == len(self.groups) and (rows == np.arange(len(rows))).all():
            return self
        means = self.means[rows]
        windows = np.flatnonzero(np.asarray(means.sum(0)).ravel())
        return Counted(self.hashes, self.lengths, self.windows[windows], means[:, windows], self.groups[rows])

    def of_ngrams(self, columns: NDArray[np.int64]) -> "Counted":
        """Only some of the n-grams."""
        return replace(
            self, hashes=self.hashes[columns], lengths=self.lengths[columns], windows=self.windows[:, columns]
        )


def count(
    hasher: Hasher,
    texts: Sequence[bytes],
    max_length: int,
    overlap: int,
    groups: Sequence[str] = (),
    limit: int | None = None,
) -> Counted:
    """Find the n-grams of all windows of the documents.

    Args:
        hasher: finds the n-grams.
        texts: the documents.
        max_length: maximum length of a window in bytes.
        overlap: minimum overlap of neighbouring windows in bytes.
        groups: group of each document, if the data has groups.
        limit: approximate maximum number of n-grams, those in the most windows; None for all. Counting takes twice as
            long, and less memory.

    Raises: ValueError if no document contains an n-gram.

    """
    from scipy.sparse import csr_matrix

    spans = [cut(len(text), max_length, overlap, "windows") for text in texts]
    windows = [take(text, part) for text, parts in zip(texts, spans, strict=True) for part in parts]
    is_counted = None if limit is None else _frequent_slots(hasher, windows, limit)
    keys, counts = list[NDArray[np.int64]](), list[NDArray[np.float32]]()
    for part in _keys(hasher, windows, is_counted):
        different, numbers = np.unique(part, return_counts=True)
        keys.append(different)
        counts.append(numbers.astype(np.float32))
    if not any(map(len, keys)):
        needed = "a word" if isinstance(hasher, WordHasher) else f"{min(hasher.lengths)} bytes, of ngram_view.sizes"
        raise ValueError(f"no document contains {needed}")
    hashes = _united([part & (2**31 - 1) for part in keys])
    lengths = np.zeros(len(hashes), dtype=np.int64)
    columns, rows = list[NDArray[np.int32]](), list[tuple[NDArray[np.int64], NDArray[np.int64]]]()
    starts = np.zeros(1 + len(windows), dtype=np.int64)
    for i, part in enumerate(keys):
        columns.append(np.searchsorted(hashes, part & (2**31 - 1)).astype(np.int32))
        lengths[columns[-1]] = (part >> 31) & 15
        rows.append(np.unique(part >> 35, return_counts=True))
        starts[1 + rows[-1][0]] = rows[-1][1]
        keys[i] = part[:0]  # keys of a large corpus take gigabytes
    np.cumsum(starts, out=starts)
    indices, values = np.empty(starts[-1], dtype=np.int32), np.empty(starts[-1], dtype=np.float32)
    for found, number, (window, size) in zip(columns, counts, rows, strict=True):
        place = np.repeat(starts[window] - np.cumsum(size) + size, size) + np.arange(len(found))
        indices[place], values[place] = found, number
    occurrences = csr_matrix((values, indices, starts), shape=(len(windows), len(hashes)))
    occurrences.sum_duplicates()  # n-grams of different lengths with the same hash
    sizes = np.array([len(parts) for parts in spans])
    document = np.repeat(np.arange(len(texts)), sizes)
    means = csr_matrix(
        (1 / sizes[document], (document, np.arange(len(windows)))), shape=(len(texts), len(windows)), dtype=np.float64
    )
    group = np.unique(groups, return_inverse=True)[1] if groups else np.arange(len(texts))
    return Counted(hashes, lengths, occurrences, means, group)


def _keys(
    hasher: Hasher, windows: Sequence[bytes], is_counted: NDArray[np.bool_] | None = None
) -> Iterator[NDArray[np.int64]]:
    """For each batch of windows, one int64 per occurrence: its window, length or PREFIX (4 bits) and hash (31 bits).

    Only n-grams whose slot, the lowest bits of their hash, is marked in `is_counted`; all by default.
    """
    length = torch.tensor(hasher.lengths, device=hasher.device).unsqueeze(1)
    for chosen, hashes, doc_index in hashed_batches(hasher, windows):
        window = torch.tensor(chosen, device=hashes.device)[doc_index]
        keys = ((window * 16 + length) * 2**31 + hashes)[hashes >= 0].cpu().numpy()
        yield keys if is_counted is None else keys[is_counted[keys & (len(is_counted) - 1)]]


def _united(parts: list[NDArray[np.int64]]) -> NDArray[np.int64]:
    """All different values of the parts, ascending, found pair by pair: most values are in many parts."""
    while len(parts) > 1:
        pairs = [np.concatenate(parts[i : i + 2]) for i in range(0, len(parts), 2)]
        parts = [np.unique(pair) for pair in pairs]
    return np.unique(parts[0])


def _frequent_slots(hasher: Hasher, windows: Sequence[bytes], limit: int) -> NDArray[np.bool_]:
    """The slots whose n-grams are in the most windows, (SLOTS,): at least `limit`, unless fewer are used."""
    counts = np.zeros(SLOTS, dtype=np.int32)
    for keys in _keys(hasher, windows):
        np.add.at(counts, np.unique(keys) & (SLOTS - 1), 1)
    least = np.partition(counts, SLOTS - limit)[SLOTS - limit] if limit < SLOTS else 1
    is_frequent: NDArray[np.bool_] = counts >= max(1, least)
    return is_frequent


def inverse_document_frequency(of_class: Doubles, sizes: Doubles) -> Doubles:
    """log((1 + N) / (1 + n_h)) + 1; N documents, n_h of which contain n-gram h."""
    frequency: Doubles = np.log((1 + sizes.sum()) / (1 + of_class.sum(1))) + 1
    return frequency


def evidence_frequency(of_class: Doubles, sizes: Doubles) -> Doubles:
    """Inverse document frequency times the square root of the naive Bayes evidence of an n-gram.

    The evidence is the root mean square over the classes c of r_hc = log((n_hc + a_c) / N_c) less its mean over the
    classes. n_hc of the N_c documents of class c contain n-gram h; a_c = K N_c / N, for K classes.
    """
    ratio = np.log((of_class + sizes / sizes.mean()) / sizes)
    ratio -= ratio.mean(1, keepdims=True)
    scales: Doubles = inverse_document_frequency(of_class, sizes) * np.sqrt(np.sqrt((ratio**2).mean(1)))
    return scales


SCALES: dict[str, Scales] = {"idf": inverse_document_frequency, "idf-evidence": evidence_frequency}
"""Scales of n-grams, by name."""


def g_squared(of_class: Doubles, sizes: Doubles) -> Doubles:
    """G^2 of n-grams: 2 sum_c n_hc log(n_hc N / (n_h N_c)), from (R, classes) and (classes,).

    Reference:  Dunning 1993, "Accurate Methods for the Statistics of Surprise and Coincidence".
    """
    expected = of_class.sum(1, keepdims=True) * sizes / sizes.sum()
    ratio = np.divide(of_class, expected, out=np.ones_like(of_class), where=of_class > 0)
    values: Doubles = 2 * (of_class * np.log(ratio)).sum(1)
    return values


def fit(
    counted: Counted,
    labels: NDArray[np.int64],
    num_classes: int,
    config: NgramViewConfig,
    choice: Choice,
    vectors: NgramVectors | None = None,
    hashes: NDArray[np.int64] | None = None,
    soft: Doubles | None = None,
) -> Fitted:
    """Select the n-grams and fit the logistic regression on all documents.

    Args:
        counted: the n-grams of the documents.
        labels: class of each document; or of any number of labels, 1 and 0 for each label (documents, classes).
        num_classes: number of classes.
        config: the view.
        choice: the hyperparameters.
        vectors: vectors of n-grams, learned from the same documents, for a choice that uses them.
        hashes: the n-grams of the view, ascending, if they are selected already.
        soft: a teacher's probabilities (further documents, classes) of the documents that follow the labelled ones, for
            a choice without vectors.

    """
    if hashes is not None:
        columns, is_there = places(counted.hashes, hashes)
        counted = counted.of_ngrams(columns[is_there])
        vectors = None if vectors is None else vectors.of_ngrams(hashes)
        return fit(counted, labels, num_classes, config, choice, vectors, soft=soft).on(hashes)
    counted = _frequent(counted, CANDIDATES * config.num_ngrams)
    rows, given = np.arange(len(counted.groups)), vectors if choice.vector_strength else None
    return _fit(counted, rows, labels, num_classes, config, [choice], given, soft)[0]


def scaled_losses(logits: Doubles, labels: NDArray[np.int64]) -> Doubles:
    """Cross-entropy of each document after the logits are scaled by the best factor; the model scales them, too."""
    return cross_entropies(combined(logits, None, fit_weights(logits, None, labels)), labels)


class HeldOut(NamedTuple):
    """How held-out documents were classified."""

    losses: Doubles
    is_right: NDArray[np.bool_]
    loss: str
    """Name of the loss."""
    metric: str
    """Name of the share of right answers: accuracy, or exact match with any number of labels."""


def differences(first: tuple[str, HeldOut], second: tuple[str, HeldOut], documents: str = "documents") -> str:
    """The results of two models on the same held-out documents, each with its name, and their difference."""
    losses = first[1].losses - second[1].losses
    error = losses.std(ddof=1) / math.sqrt(len(losses)) if len(losses) > 1 else math.inf
    found = ", ".join(f"{name} {one.losses.mean():.4f} ({one.is_right.mean():.4f})" for name, one in (first, second))
    return (
        f"held-out {first[1].loss} ({first[1].metric}) of {len(losses):,} {documents}: {found}, difference "
        f"{losses.mean():+.4f} ± {error:.4f}"
    )


def held_out(counted: Counted, labels: NDArray[np.int64], num_classes: int, config: NgramViewConfig) -> HeldOut:
    """Held-out documents with single words and the best C, which takes little time."""
    strengths = sorted({FIRST_STRENGTH, *_strengths(config)})
    with _comparing(counted, labels, num_classes, config, len(strengths)) as compared:
        best = compared.best_of([Choice(1, "idf", strength) for strength in strengths])
    return compared.held_out(best)


def best_held_out(
    counted: Counted, labels: NDArray[np.int64], num_classes: int, config: NgramViewConfig, lengths: Sequence[int]
) -> HeldOut:
    """Held-out documents with what `choose` chooses without vectors."""
    return _search(counted, labels, num_classes, config, scaled_losses, None, lengths)[1]


def choose(
    counted: Counted,
    labels: NDArray[np.int64],
    num_classes: int,
    config: NgramViewConfig,
    losses: HeldOutLosses = scaled_losses,
    learn: LearnVectors | None = None,
    lengths: Sequence[int] | None = None,
) -> Choice:
    """Choose the hyperparameters with the smallest mean loss of held-out documents.

    `lengths` are the maximum lengths of an n-gram that are tried, ascending; by default, all up to that of the recipe.
    `learn` learns vectors of n-grams without the held-out documents; without it, the choice uses none.

    N-grams are selected and scaled without the held-out documents: their labels would make rare n-grams look better
    than they are. The documents of a group are held out together. If there are groups, training with and without a
    discount is compared first, on the longest n-grams; then lengths and scales, then strengths, and then vectors, which
    must be better by more than a standard error. So must the other values of the keys in `tried`, which come before
    vectors, with the best lengths, scales and strengths of each value, and a share of naive Bayes, which comes last.
    A single group counts as none. With any number of labels a document, naive Bayes is not tried.
    """
    return _search(counted, labels, num_classes, config, losses, learn, lengths)[0]


def _search(
    counted: Counted,
    labels: NDArray[np.int64],
    num_classes: int,
    config: NgramViewConfig,
    losses: HeldOutLosses,
    learn: LearnVectors | None,
    lengths: Sequence[int] | None,
) -> tuple[Choice, HeldOut]:
    """What `choose` chooses, and the held-out documents with it."""
    kept = np.arange(len(labels))
    if len(labels) > (limit := (MAX_LOGITS if labels.ndim == 1 else MAX_SIGMOIDS) // num_classes):
        kept = np.sort(np.random.default_rng(0).permutation(len(labels))[:limit])
        counted, labels = counted.of_documents(kept), labels[kept]
    of_kept = None if learn is None else lambda rest: learn(kept[rest])
    others, tried = _strengths(config), lengths or range(1, config.longest + 1)
    settings = (1 + len(config.tried)) * (len(tried) * len(SCALES) + len(others)) + counted.has_groups
    has_one_label = labels.ndim == 1
    total = settings + (0 if learn is None else NUM_VECTOR_SETTINGS) + has_one_label * len(SHARES)
    with _comparing(counted, labels, num_classes, config, total, losses, of_kept) as compared:
        best = _best_without_vectors(compared, tried, others)
        if learn is not None:
            best = _best_with_vectors(compared, best)
        best = _best_with_naive_bayes(compared, best) if has_one_label else best
    return best, compared.held_out(best)


def _strengths(config: NgramViewConfig) -> list[float]:
    """The values of C that are tried besides the first one."""
    return [strength for strength in STRENGTHS if strength <= config.max_strength]


@contextmanager
def _comparing(
    counted: Counted,
    labels: NDArray[np.int64],
    num_classes: int,
    config: NgramViewConfig,
    total: int,
    losses: HeldOutLosses = scaled_losses,
    learn: LearnVectors | None = None,
) -> Iterator["_Comparison"]:
    """A comparison of at most `total` choices on the folds of the documents, with a progress bar."""
    counted = _frequent(counted, CANDIDATES * config.num_ngrams)
    classes = labels if labels.ndim == 1 else rarest(labels)
    parts = folds(classes, counted.groups if counted.has_groups else np.arange(len(labels)))
    rests = [np.setdiff1d(np.arange(len(labels)), part) for part in parts]
    learned = [None if learn is None else learn(rest) for rest in rests]
    total *= len(parts)
    with progress(total=total, desc="cross-validation", unit="fit", leave=False) as bar:
        yield _Comparison(counted, labels, num_classes, config, parts, rests, learned, losses, bar)


@dataclass(frozen=True)
class _Comparison:
    """Compares choices on held-out documents."""

    counted: Counted
    labels: NDArray[np.int64]
    num_classes: int
    config: NgramViewConfig
    folds: list[NDArray[np.int64]]
    """Held-out documents of each fold."""
    rests: list[NDArray[np.int64]]
    """The other documents of each fold."""
    learned: list[NgramVectors | None]
    """Vectors learned from `rests`; None without vectors."""
    losses: HeldOutLosses
    bar: "tqdm[Any]"
    found: dict[Choice, Doubles] = field(default_factory=dict)
    """Losses of the held-out documents with each choice."""
    is_right: dict[Choice, NDArray[np.bool_]] = field(default_factory=dict)
    """Which of them are classified correctly."""

    def best_of(self, choices: Sequence[Choice]) -> Choice:
        """The choice with the smallest mean loss, the first one if several have it. No choice is tried twice."""
        alike: dict[Choice, list[Choice]] = {}
        for choice in choices:
            if choice not in self.found:
                has_vectors = float(choice.vector_strength > 0)
                key = replace(choice, strength=0.0, vector_strength=has_vectors, naive_bayes=0.0)
                alike.setdefault(key, []).append(choice)
        for some in alike.values():
            self._compare(some)
        return min(choices, key=lambda choice: float(self.found[choice].mean()))

    def _compare(self, choices: Sequence[Choice]) -> None:
        """Try choices that differ in strengths and shares alone, which takes less time than one by one."""
        counted, config, logits = self.counted, self.config, list[list[Doubles]]([] for _ in choices)
        for held_out, rest, vectors in zip(self.folds, self.rests, self.learned, strict=True):
            given = vectors if choices[0].vector_strength else None
            views = _fit(counted, rest, self.labels, self.num_classes, config, choices, given)
            columns, is_there = places(counted.hashes, views[0].hashes)
            tested = counted.of_documents(held_out)
            scales, prior = views[0].scales[is_there], views[0].prior
            sublinear = choices[0].of(config).sublinear
            x, _ = tested.features(columns[is_there], scales, prior, sublinear=sublinear)
            for parts, view in zip(logits, views, strict=True):
                parts.append(x @ view.weights[is_there] + view.bias)
            self.bar.update(len(choices))
        truth = self.labels[np.concatenate(self.folds)]
        for choice, parts in zip(choices, logits, strict=True):
            logits_of_all = np.concatenate(parts)
            weights = _weights(truth, config)
            self.found[choice] = self.losses(logits_of_all, truth) * (1 if weights is None else weights)
            is_right = logits_of_all.argmax(1) == truth if truth.ndim == 1 else ((logits_of_all > 0) == truth).all(1)
            self.is_right[choice] = is_right

    def held_out(self, choice: Choice) -> HeldOut:
        """The held-out documents with a choice that was tried."""
        metric = "accuracy" if self.labels.ndim == 1 else "exact match"
        loss = "cross-entropy" if self.config.class_weights == "none" else "cross-entropy, weighted by class"
        return HeldOut(self.found[choice], self.is_right[choice], loss, metric)


def _best_without_vectors(compared: _Comparison, lengths: Sequence[int], strengths: Sequence[float]) -> Choice:
    """The best length, scales, strength and values of the keys in `tried`; with groups, also whether to discount."""
    choices = [Choice(n, scaling, FIRST_STRENGTH) for n in lengths for scaling in SCALES]
    if compared.counted.has_groups:
        discount = compared.best_of([choices[-1], replace(choices[-1], discount=True)]).discount
        choices = [replace(choice, discount=discount) for choice in choices]
    best, reasons = _with_best_strength(compared, choices, strengths), list[str]()
    for key in compared.config.tried:
        value = not getattr(compared.config, key)
        sublinear, prefixes = (value if name == key else getattr(best, name) for name in ("sublinear", "prefixes"))
        others = [replace(one, sublinear=sublinear, prefixes=prefixes) for one in choices]
        other = _with_best_strength(compared, others, strengths)
        is_kept = is_better(compared.found[other], compared.found[best])
        figures = differences(
            (KINDS[key][value], compared.held_out(other)), (KINDS[key][not value], compared.held_out(best))
        )
        reasons.append(f"{figures}: {KINDS[key][value if is_kept else not value]}")
        best = other if is_kept else best
    return replace(best, reason="; ".join(reasons))


def _with_best_strength(compared: _Comparison, choices: Sequence[Choice], strengths: Sequence[float]) -> Choice:
    best = compared.best_of(choices)
    return compared.best_of([best, *(replace(best, strength=strength) for strength in strengths)])


def _best_with_vectors(compared: _Comparison, best: Choice) -> Choice:
    """The best use of vectors, or `best`, the best choice without, unless it is clearly worse."""
    found = []
    for first, refined in (
        (replace(best, strength=FIRST_STRENGTH), (best.strength, *STRENGTHS_BESIDE_VECTORS)),
        (Choice(compared.config.longest, KEEP, 0.0, best.discount, reason=best.reason), STRENGTHS_OF_KEEP),
    ):
        choice = compared.best_of([replace(first, vector_strength=strength) for strength in VECTOR_STRENGTHS])
        found.append(compared.best_of([choice, *(replace(choice, strength=strength) for strength in refined)]))
    with_vectors = compared.best_of(found)
    return with_vectors if is_better(compared.found[with_vectors], compared.found[best]) else best


def _best_with_naive_bayes(compared: _Comparison, best: Choice) -> Choice:
    """The best share of naive Bayes, or none unless that is clearly worse."""
    mixed = compared.best_of([replace(best, naive_bayes=share) for share in SHARES])
    return mixed if is_better(compared.found[mixed], compared.found[best]) else best


def _frequent(counted: Counted, limit: int) -> Counted:
    """Only the n-grams in the most windows, at most `limit`."""
    if len(counted.hashes) <= limit:
        return counted
    frequency = counted.windows.getnnz(axis=0)
    return counted.of_ngrams(np.sort(np.argsort(-frequency, kind="stable")[:limit]))


def _fit(
    counted: Counted,
    rows: NDArray[np.int64],
    labels: NDArray[np.int64],
    num_classes: int,
    config: NgramViewConfig,
    choices: Sequence[Choice],
    vectors: NgramVectors | None,
    soft: Doubles | None = None,
) -> list[Fitted]:
    """Fit on the documents `rows`, with choices that differ in their strengths and shares of naive Bayes alone.

    `labels` are the classes of all documents of `counted`; with `soft`, of the first ones, and `rows` are all of them.
    """
    first, is_several = choices[0], labels.ndim == 2
    labels = labels[rows] if soft is None else labels
    present = np.flatnonzero(labels.any(0)) if is_several else np.unique(labels)
    targets: NDArray[Any] = labels[:, present] if is_several else labels
    members, weights = memberships(labels), _weights(labels, config)
    members = members[:, members.any(0)]
    if soft is not None:
        targets = np.concatenate((targets if is_several else members, soft[:, present]))
        members = memberships(targets) if is_several else targets
        # A teacher that learned from balanced classes gives balanced probabilities.
        weights = None if weights is None else np.concatenate((weights, np.ones(len(soft))))
    read = counted.of_documents(rows)
    of_class, sizes = np.asarray(read.document_sets().T @ members), members.sum(0)
    if vectors is not None and first.scaling == KEEP:
        hashes, scales = _most_used(vectors, config, first)
    else:
        columns, scales = _most_informative(counted, of_class, sizes, config, first)
        hashes = counted.hashes[columns]
    columns, is_there = places(counted.hashes, hashes)
    sublinear = first.of(config).sublinear
    x, prior = read.features(columns[is_there], scales[is_there], sublinear=sublinear, discount=first.discount)
    if not x.count_nonzero() or (len(present) == 1 and not is_several):
        nothing, shares = np.zeros((len(hashes), len(present))), sizes[: len(present)] / len(rows)
        bias = np.log(shares / (1 - shares).clip(1 / len(rows)) if is_several else shares)
        return [Fitted(hashes, scales, *_of_all_classes(nothing, bias, present, num_classes), prior)] * len(choices)
    # choices that differ in their shares of naive Bayes alone have the same regression
    different = list({(choice.strength, choice.vector_strength): choice for choice in choices}.values())
    if soft is not None and not is_several:
        found = [regression_on_probabilities(x, targets, choice.strength, weights) for choice in different]
    elif vectors is None:
        found = regressions(x, targets, [choice.strength for choice in different], weights)
    else:
        place, has_vector = vectors.places(hashes)
        v = rows_at(vectors.vectors, place, has_vector).astype(np.float64)
        found = _regressions_with_vectors(x, v, has_vector, is_there, targets, different, weights)
    regression = {(one.strength, one.vector_strength): fitted for one, fitted in zip(different, found, strict=True)}
    bayes = None
    if any(choice.naive_bayes for choice in choices):
        bayes = naive_bayes(x, members if weights is None else members * weights[:, None])
    views = list[Fitted]()
    for choice in choices:
        own, bias = regression[choice.strength, choice.vector_strength]
        if bayes is not None and (share := choice.naive_bayes):
            scale = scale_of(x, own[is_there], bias, bayes)
            own, bias = (1 - share) * own, (1 - share) * bias
            own[is_there] += share * scale * bayes
        views.append(Fitted(hashes, scales, *_of_all_classes(own, bias, present, num_classes), prior))
    return views


def _regressions_with_vectors(
    x: "csr_matrix",
    v: Doubles,
    has_vector: NDArray[np.bool_],
    is_there: NDArray[np.bool_],
    labels: NDArray[np.int64],
    choices: Sequence[Choice],
    document_weights: Doubles | None,
) -> list[tuple[Doubles, Doubles]]:
    """Weights W_h = (v_h - mu) U + D_h of the n-grams, and bias, for each choice.

    mu is the mean vector of the n-grams of a document, averaged over the documents. U is shared by all n-grams; D_h is
    the own part of n-gram h, zero if the documents lack it.

    Args:
        x: features of the n-grams that the documents have, (documents, columns).
        v: vectors of all n-grams (R, dim), zero for those without.
        has_vector: which n-grams have a vector, (R,).
        is_there: which n-grams the documents have, (R,).
        labels: as in `regressions`.
        choices: strengths of the regularisations.
        document_weights: weight of each document, (documents,); None for 1.

    """
    projected, total = x @ v[is_there], (x @ has_vector[is_there].astype(np.float64))[:, None]
    mean = (projected / np.maximum(total, SMALLEST_SCALE)).mean(0)
    projected -= total * mean
    deviation = max(float(projected.std()), SMALLEST_SCALE)
    centred, found = v - has_vector[:, None] * mean, []
    strengths = [(choice.strength, choice.vector_strength) for choice in choices]
    for own, shared, bias in regressions_with_vectors(x, projected / deviation, labels, strengths, document_weights):
        weights = centred @ (shared / deviation)
        weights[is_there] += own
        found.append((weights, bias))
    return found


def _weights(labels: NDArray[np.int64], config: NgramViewConfig) -> Doubles | None:
    """Weight of each document; None for 1."""
    return balanced(labels) if config.class_weights == "balanced" else None


def _most_used(vectors: NgramVectors, config: NgramViewConfig, choice: Choice) -> tuple[NDArray[np.int64], Doubles]:
    """Hashes of the n-grams with the most used occurrences, ascending, and their scales."""
    ngrams = vectors.ngrams
    used = ngrams.counts * vectors.keep * (ngrams.lengths <= choice.longest)
    order = np.argsort(-used, kind="stable")[: config.num_ngrams]
    chosen = np.sort(order[used[order] > 0])
    return ngrams.hashes[chosen].astype(np.int64), vectors.keep[chosen]


def _most_informative(
    counted: Counted, of_class: Doubles, sizes: Doubles, config: NgramViewConfig, choice: Choice
) -> tuple[NDArray[np.int64], Doubles]:
    """Columns of the n-grams with the largest G^2, ascending, and their scales."""
    informative = g_squared(of_class, sizes)
    is_allowed = counted.lengths <= choice.longest
    if choice.of(config).prefixes:
        is_allowed |= counted.lengths == PREFIX
    informative[~is_allowed | (of_class.sum(1) == 0)] = -1
    order = np.argsort(-informative, kind="stable")[: config.num_ngrams]
    columns = np.sort(order[informative[order] >= 0])
    scales = SCALES[choice.scaling](of_class[columns], sizes)
    scales[scales < SMALLEST_SCALE] = 0
    return columns, scales


def _of_all_classes(
    weights_present: Doubles, bias_present: Doubles, present: NDArray[np.int64], num_classes: int
) -> tuple[Doubles, Doubles]:
    """Weights (R, classes) and bias (classes,) of all classes, from those of the classes that are present."""
    weights, bias = np.zeros((len(weights_present), num_classes)), np.full(num_classes, MISSING)
    weights[:, present], bias[present] = weights_present, bias_present
    return weights, bias
