"""The fit of the n-gram view: counting, scales, selection, regression, and the choice of hyperparameters."""

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis.strategies import integers
from sklearn.linear_model import LogisticRegression

from artifact.documents import cut, take
from model.config.models import NgramViewConfig
from model.data import splits
from model.nn.ngrams import NgramClassifier, find_hits
from model.nn.stem import ByteHasher
from model.nn.words import PREFIX, PREFIXES, WordHasher
from model.tasks import ngrams, occurrences, regression
from model.tasks.classification import accuracy
from model.tasks.naive_bayes import naive_bayes, scale_of
from model.tasks.ngrams import (
    FIRST_STRENGTH,
    KEEP,
    MISSING,
    NUM_VECTOR_SETTINGS,
    PRIOR,
    SCALES,
    SHARES,
    STRENGTHS,
    STRENGTHS_BESIDE_VECTORS,
    STRENGTHS_OF_KEEP,
    VECTOR_STRENGTHS,
    Choice,
    Counted,
    Fitted,
    choose,
    count,
    evidence_frequency,
    fit,
    g_squared,
    inverse_document_frequency,
    scaled_losses,
)
from model.tasks.occurrences import Ngrams, NgramVectors
from model.tasks.regression import TOLERANCE
from model.tasks.views import cross_entropies
from tests.support import reference
from tests.support.configs import changed
from tests.support.words import LENGTH, Texts, padded

LONGEST = 3
HASHER = WordHasher(LONGEST, LENGTH)
CONFIG = NgramViewConfig(longest=LONGEST, num_ngrams=1000, max_length=LENGTH)
CHOICE = Choice(longest=2, scaling="idf-evidence", strength=10.0)
Labels = np.ndarray


def counted_of(
    texts: Sequence[bytes], max_length: int = LENGTH, overlap: int = 6, groups: Sequence[str] = ()
) -> Counted:
    return count(HASHER, texts, max_length, overlap, groups)


def windows_of(text: bytes, max_length: int, overlap: int) -> list[bytes]:
    return [take(text, spans) for spans in cut(len(text), max_length, overlap, "windows")]


def corpus(count: int, classes: int, words: int = 5, seed: int = 0) -> tuple[list[bytes], Labels]:
    """Return documents whose words are more or less frequent in each class, and their labels."""
    generator = np.random.default_rng(seed)
    vocabulary = np.array([f"w{i}" for i in range(30)])
    chances, labels = generator.dirichlet(np.full(30, 0.5), classes), np.arange(count) % classes
    texts = [b" ".join(word.encode() for word in generator.choice(vocabulary, words, p=chances[c])) for c in labels]
    return texts, labels


# Counting


def expect_sets(found: Counted, windows: Sequence[bytes]) -> None:
    """Check the n-grams of all windows against the reference."""
    assert found.windows.shape == (len(windows), len(found.hashes))
    assert (np.diff(found.hashes) > 0).all()
    for row, window in zip(found.windows, windows, strict=True):
        expected = Counter(value for ngrams in reference.word_ngrams(window, LONGEST) for value in ngrams if value >= 0)
        assert dict(zip(found.hashes[row.indices].tolist(), row.data.tolist(), strict=True)) == expected
    lengths = {
        value: n
        for window in windows
        for row in reference.word_ngrams(window, LONGEST)
        for n, value in enumerate(row, 1)
    }
    assert found.lengths.tolist() == [lengths[value] for value in found.hashes.tolist()]


@settings(max_examples=50, deadline=None)
@given(Texts)
def test_counted_ngrams_equal_reference(texts: list[bytes]) -> None:
    windows = [window for text in texts for window in windows_of(text, 16, 4)]
    assume(any(reference.words(window) for window in windows))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(occurrences, "BATCH", 2)
        found = counted_of(texts, 16, 4)
    expect_sets(found, windows)
    sizes = [len(windows_of(text, 16, 4)) for text in texts]
    expected = np.zeros((len(texts), len(windows)))
    for document, size in enumerate(sizes):
        first = sum(sizes[:document])
        expected[document, first : first + size] = 1 / size
    assert found.means.toarray().tolist() == expected.tolist()


def test_long_documents_are_counted_window_by_window() -> None:
    texts = [b"one two", b"aa bb cc dd ee ff gg hh ii jj kk ll mm n", b"two one"]
    assert len(texts[1]) == 40
    windows = [b"one two", texts[1][:16], texts[1][12:28], texts[1][24:], b"two one"]
    found = counted_of(texts, 16, 4)
    expect_sets(found, windows)
    third = 1 / 3
    assert found.means.toarray().tolist() == [[1, 0, 0, 0, 0], [0, third, third, third, 0], [0, 0, 0, 0, 1]]


def test_ngrams_of_a_document_are_those_of_all_its_windows() -> None:
    found = counted_of([b"aa bb aa bb aa bb", b" ", b"bb"], 8, 2)
    words = found.hashes == reference.word_hash("aa"), found.hashes == reference.word_hash("bb")
    sets = found.document_sets().toarray()
    assert [[sets[i, word].item() for word in words] for i in range(3)] == [[1, 1], [0, 0], [0, 1]]
    assert set(sets.flatten().tolist()) == {0.0, 1.0}


@pytest.mark.parametrize("texts", [[], [b" "], [b"\n", b"\x00\x00 "]])
def test_documents_without_any_word_are_an_error(texts: list[bytes]) -> None:
    with pytest.raises(ValueError, match="no document contains a word"):
        counted_of(texts)


def test_limited_count_keeps_the_ngrams_in_the_most_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    """The word w0 is in one document, often; w1 in two, and so on."""
    monkeypatch.setattr(ngrams, "SLOTS", 2**16)
    texts = [
        b" ".join(b"w%d" % i for i in range(8) if number <= i) + b" w0" * (9 * (not number)) for number in range(8)
    ]
    hasher, words = WordHasher(1, LENGTH), [reference.word_hash(f"w{i}") for i in range(8)]
    assert len({word % 2**16 for word in words}) == 8
    full = count(hasher, texts, LENGTH, 6)
    for limit in (1, 3, 8, 1000, 2**16):
        found, kept = count(hasher, texts, LENGTH, 6, limit=limit), sorted(words[-limit:])
        assert found.hashes.tolist() == kept
        expected = full.of_ngrams(np.flatnonzero(np.isin(full.hashes, kept)))
        assert found.lengths.tolist() == expected.lengths.tolist()
        assert (found.windows != expected.windows).nnz == 0
        assert (found.means != expected.means).nnz == 0


def test_limited_count_keeps_all_ngrams_that_are_as_frequent_as_the_last_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ngrams, "SLOTS", 2**18)
    found = count(ByteHasher((1, 3), 8), [b"abcabc", b"xbcd"], 8, 1, limit=1)
    assert found.hashes.tolist() == sorted(map(reference.byte_hash, (b"b", b"c")))
    assert found.lengths.tolist() == [1, 1]
    assert found.windows.toarray().tolist() == [[2, 2], [1, 1]]
    with pytest.raises(ValueError, match="no document contains 3 bytes"):
        count(ByteHasher((3, 5), 8), [b"ab"], 8, 1, limit=1)


def test_features_equal_the_values_computed_by_hand() -> None:
    found = counted_of([b"one two one", b"two", b" ", b"three", b"one two           two"], 11, 1)
    words = ["one", "two"]
    columns = np.array([found.hashes.tolist().index(reference.word_hash(word)) for word in words])
    scales = np.array([3.0, 4.0])
    # The last document has two windows, "one two" and "two", after spaces.
    expected = [[0.6, 0.8], [0.0, 1.0], [0.0, 0.0], [0.0, 0.0], [0.3, 0.9]]
    features, _ = found.features(columns, scales, 0.0, sublinear=False)
    assert features.toarray() == pytest.approx(np.array(expected), rel=1e-12)

    restricted = found.of_ngrams(columns)
    assert restricted.hashes.tolist() == [reference.word_hash(word) for word in words]
    assert restricted.lengths.tolist() == [1, 1]
    features, _ = restricted.features(np.array([0, 1]), scales, 0.0, sublinear=False)
    assert features.toarray() == pytest.approx(np.array(expected), rel=1e-12)


def test_prior_is_a_share_of_a_low_squared_length_and_shortens_features(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ngrams, "SHORT", 0.5)
    found = counted_of([b"one two", b"two", b" ", b"one two two"])
    columns = np.array([found.hashes.tolist().index(reference.word_hash(word)) for word in ("one", "two")])
    features, prior = found.features(columns, np.array([3.0, 4.0]), sublinear=False)
    assert prior == pytest.approx(PRIOR * (16 + 25) / 2)
    length, short = math.sqrt(25 + prior), math.sqrt(16 + prior)
    expected = [[3 / length, 4 / length], [0, 4 / short], [0, 0], [3 / length, 4 / length]]
    assert features.toarray() == pytest.approx(np.array(expected), rel=1e-12)


@pytest.mark.parametrize("sublinear", [False, True])
@settings(max_examples=50, deadline=None)
@given(texts=Texts, seed=integers(0, 2**16))
def test_discounted_features_equal_reference(texts: list[bytes], seed: int, sublinear: bool) -> None:
    assume(any(reference.words(text) for text in texts))
    generator = np.random.default_rng(seed)
    groups = [str(group) for group in generator.integers(0, 3, len(texts))]
    found = counted_of(texts, 16, 4, groups)
    columns = np.flatnonzero(generator.random(len(found.hashes)) < 0.7)
    scales = generator.uniform(0.5, 2, len(columns))
    sets = [
        {n for window in windows_of(text, 16, 4) for row in reference.word_ngrams(window, LONGEST) for n in row}
        for text in texts
    ]
    expected = np.zeros((len(texts), len(columns)))
    for document, (text, group) in enumerate(zip(texts, groups, strict=True)):
        windows = windows_of(text, 16, 4)
        for window in windows:
            counts = Counter(n for row in reference.word_ngrams(window, LONGEST) for n in row)
            values = np.zeros(len(columns))
            for place, column in enumerate(columns):
                ngram = int(found.hashes[column])
                if not counts[ngram]:
                    continue
                others = [other != group for other, ngrams in zip(groups, sets, strict=True) if ngram in ngrams]
                times = 1 + math.log(counts[ngram]) if sublinear else 1
                values[place] = times * (sum(others) / len(others)) ** 2 * scales[place]
            if values.any():
                expected[document] += values / math.sqrt((values**2).sum()) / len(windows)
    features, _ = found.features(columns, scales, 0.0, sublinear=sublinear, discount=True)
    assert features.toarray() == pytest.approx(expected, abs=1e-12)


def test_sublinear_features_equal_the_values_computed_by_hand() -> None:
    found = counted_of([b"one two one", b"two", b"one two           two"], 11, 1)
    columns = np.array([found.hashes.tolist().index(reference.word_hash(word)) for word in ("one", "two")])
    twice = 3.0 * (1 + math.log(2))
    length = math.hypot(twice, 4.0)
    expected = np.array([[twice / length, 4.0 / length], [0.0, 1.0], [0.3, 0.9]])
    features, _ = found.features(columns, np.array([3.0, 4.0]), 0.0, sublinear=True)
    assert features.toarray() == pytest.approx(expected, rel=1e-12)


def test_some_documents_have_the_features_they_have_among_all() -> None:
    texts, _ = corpus(12, 2, words=40)
    texts[3], texts[6] = b"w1", b" "
    found, rows = counted_of(texts), np.array([1, 3, 6, 11])
    part = found.of_documents(rows)
    assert part.means.shape == (4, sum(len(windows_of(texts[i], LENGTH, 6)) for i in rows))
    columns = np.arange(len(found.hashes))
    scales = np.linspace(0.5, 2.0, len(columns))
    ours, all_rows = (counted.features(columns, scales, 0.5, sublinear=True)[0] for counted in (part, found))
    assert ours.toarray() == pytest.approx(all_rows[rows].toarray())
    assert np.array_equal(part.document_sets().toarray(), found.document_sets()[rows].toarray())


# Scales


def random_counts(classes: int) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(classes)
    sizes = generator.integers(1, 50, classes)
    return generator.integers(0, sizes + 1, (40, classes)).astype(np.float64), sizes.astype(np.float64)


def test_g_square_of_an_ngram_equals_the_value_computed_by_hand() -> None:
    """The n-gram is in four of the six documents of the second class and in no other document."""
    assert reference.g_square([0, 4], [4, 6]) == pytest.approx(8 * math.log(10 / 6))


@pytest.mark.parametrize("classes", [1, 2, 4])
def test_g_squared_equals_reference(classes: int) -> None:
    of_class, sizes = random_counts(classes)
    of_class[0] = 1
    keep = of_class.sum(1) > 0
    expected = [reference.g_square(row, sizes.tolist()) for row in of_class[keep].tolist()]
    assert g_squared(of_class[keep], sizes) == pytest.approx(expected, rel=1e-12, abs=1e-12)


def test_inverse_document_frequency_equals_the_value_computed_by_hand() -> None:
    found = inverse_document_frequency(np.array([[1.0, 2.0], [0.0, 0.0], [3.0, 4.0]]), np.array([3.0, 4.0]))
    assert found == pytest.approx([math.log(8 / 4) + 1, math.log(8) + 1, 1.0], rel=1e-12)


def test_evidence_equals_the_value_computed_by_hand() -> None:
    """The ratios are log(4/4) and log(1/4): log 2 on either side of their mean."""
    (found,) = evidence_frequency(np.array([[3.0, 0.0]]), np.array([4.0, 4.0]))
    assert found == pytest.approx((math.log(9 / 4) + 1) * math.sqrt(math.log(2)), rel=1e-12)


def test_ngrams_that_are_equally_frequent_in_all_classes_have_no_evidence() -> None:
    found = evidence_frequency(np.array([[1.0, 3.0], [2.0, 6.0], [0.0, 0.0]]), np.array([2.0, 6.0]))
    assert found == pytest.approx([0.0, 0.0, 0.0], abs=1e-7)


@pytest.mark.parametrize("classes", [2, 4])
def test_scales_of_random_counts_equal_the_formulas(classes: int) -> None:
    of_class, sizes = random_counts(classes)
    frequency, scaled = inverse_document_frequency(of_class, sizes), evidence_frequency(of_class, sizes)
    for row, idf, scale in zip(of_class.tolist(), frequency, scaled, strict=True):
        assert idf == pytest.approx(math.log((1 + sum(sizes)) / (1 + sum(row))) + 1, rel=1e-12)
        smoothing = [classes * size / sum(sizes) for size in sizes]
        logs = [math.log((n + a) / size) for n, a, size in zip(row, smoothing, sizes, strict=True)]
        variance = sum((log - sum(logs) / classes) ** 2 for log in logs) / classes
        assert scale == pytest.approx(idf * math.sqrt(math.sqrt(variance)), rel=1e-9)


# Fit


def fitted_of(
    texts: Sequence[bytes], labels: Labels, classes: int, choice: Choice = CHOICE, config: NgramViewConfig = CONFIG
) -> tuple[Counted, Fitted]:
    counted = counted_of(texts)
    return counted, fit(counted, labels, classes, config, choice)


def logits_of(counted: Counted, fitted: Fitted, *, sublinear: bool = False) -> np.ndarray:
    """Return logits (documents, classes) of the counted documents."""
    columns = np.searchsorted(counted.hashes, fitted.hashes)
    assert counted.hashes[columns].tolist() == fitted.hashes.tolist()
    features, _ = counted.features(columns, fitted.scales, fitted.prior, sublinear=sublinear)
    logits: np.ndarray = features @ fitted.weights + fitted.bias
    return logits


@pytest.mark.parametrize("limit", [1, 7, 40])
@pytest.mark.parametrize("longest", [1, 2, 3])
def test_selected_ngrams_have_the_largest_g_square(limit: int, longest: int) -> None:
    texts, labels = corpus(30, 3)
    counted, fitted = fitted_of(texts, labels, 3, changed_choice(longest=longest), changed(CONFIG, num_ngrams=limit))
    sizes = [10, 10, 10]
    values, sets = {}, [reference.ngram_set(text, LONGEST) for text in texts]
    for value, length in zip(counted.hashes.tolist(), counted.lengths.tolist(), strict=True):
        held = [0, 0, 0]
        for found, label in zip(sets, labels.tolist(), strict=True):
            held[label] += value in found
        if length <= longest:
            values[value] = reference.g_square(held, sizes)
    chosen = fitted.hashes.tolist()
    assert chosen == sorted(chosen)
    assert len(chosen) == min(limit, len(values))
    others = [values[value] for value in values if value not in chosen]
    assert min(values[value] for value in chosen) >= max(others, default=0.0) - 1e-9


def changed_choice(longest: int = 2, scaling: str = "idf-evidence", strength: float = 10.0) -> Choice:
    return Choice(longest, scaling, strength)


@pytest.mark.parametrize("scaling", SCALES)
def test_fitted_scales_are_those_of_all_documents(scaling: str) -> None:
    texts, labels = corpus(30, 2)
    _, fitted = fitted_of(texts, labels, 2, changed_choice(scaling=scaling))
    of_class = np.zeros((len(fitted.hashes), 2))
    for text, label in zip(texts, labels.tolist(), strict=True):
        of_class[:, label] += np.isin(fitted.hashes, list(reference.ngram_set(text, LONGEST)))
    assert fitted.scales == pytest.approx(SCALES[scaling](of_class, np.array([15.0, 15.0])), rel=1e-12)


@pytest.mark.parametrize("max_dense", [0, 2000], ids=["sparse", "dense"])
@pytest.mark.parametrize("strength", [1.0, 10.0, 100.0])
@pytest.mark.parametrize("classes", [2, 3])
def test_fitted_weights_minimise_the_regularised_loss(
    classes: int, strength: float, max_dense: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The slope of C times the sum of cross-entropies plus half the sum of squared weights is zero.

    With two classes, the weight of the difference between the logits is regularised.
    """
    monkeypatch.setattr(regression, "MAX_DENSE", max_dense)
    texts, labels = corpus(40, classes)
    counted, fitted = fitted_of(texts, labels, classes, changed_choice(strength=strength))
    columns = np.searchsorted(counted.hashes, fitted.hashes)
    x = counted.features(columns, fitted.scales, sublinear=False)[0].toarray()
    error = reference.softmax(x @ fitted.weights + fitted.bias) - np.eye(classes)[labels]
    weights = fitted.weights if classes > 2 else np.diff(fitted.weights, axis=1)
    slope = strength * x.T @ (error if classes > 2 else error[:, 1:]) + weights
    # scikit-learn stops at a slope of TOLERANCE of the mean loss.
    limit = 3 * TOLERANCE * strength * len(texts)
    assert np.abs(slope).max() < limit
    assert np.abs(strength * error.sum(0)).max() < limit
    assert np.abs(weights).max() > 20 * limit
    assert fitted.weights.sum(1) == pytest.approx(0.0, abs=limit)
    assert fitted.bias.sum() == pytest.approx(0.0, abs=limit)


@pytest.mark.parametrize("classes", [2, 3])
def test_coordinates_of_documents_give_the_same_weights(classes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    texts, labels = corpus(60, classes)
    texts[7] = texts[8] = b" "  # features without any n-gram, and twice the same ones
    texts[9] = texts[12]
    counted, dense = fitted_of(texts, labels, classes)
    assert len(dense.hashes) > len(texts)
    monkeypatch.setattr(regression, "MAX_DENSE", 0)
    _, sparse = fitted_of(texts, labels, classes)
    assert dense.hashes.tolist() == sparse.hashes.tolist()
    size = np.abs(sparse.weights).max()
    assert size > 1.0
    assert dense.weights == pytest.approx(sparse.weights, abs=2e-3 * size)
    assert dense.bias == pytest.approx(sparse.bias, abs=2e-3 * size)
    assert logits_of(counted, dense) == pytest.approx(logits_of(counted, sparse), abs=2e-3 * size)


@pytest.mark.parametrize("balanced_classes", [False, True])
@pytest.mark.parametrize("classes", [2, 3])
def test_certain_probabilities_count_as_labels(classes: int, balanced_classes: bool) -> None:
    texts, labels = corpus(40, classes)
    config = changed(CONFIG, class_weights="balanced" if balanced_classes else "none")
    counted = counted_of(texts)
    soft = np.eye(classes)[labels[25:]]
    known = fit(counted, labels, classes, CONFIG, changed_choice())
    taught = fit(counted, labels[:25], classes, config, changed_choice(), soft=soft)
    assert np.array_equal(taught.hashes, known.hashes)
    assert taught.scales == pytest.approx(known.scales)
    if not balanced_classes:
        assert logits_of(counted, taught) == pytest.approx(logits_of(counted, known), abs=0.01)
    assert (logits_of(counted, taught).argmax(1) == labels).all()


def test_probabilities_of_any_number_of_labels_are_fitted() -> None:
    texts, labels = corpus(40, 2)
    several, counted = np.eye(2, dtype=np.int64)[labels], counted_of(texts)
    known = fit(counted, several, 2, CONFIG, changed_choice())
    taught = fit(counted, several[:25], 2, CONFIG, changed_choice(), soft=several[25:].astype(float))
    assert logits_of(counted, taught) == pytest.approx(logits_of(counted, known), abs=0.01)


def test_class_without_documents_is_never_the_answer() -> None:
    texts, labels = corpus(40, 2)
    labels *= 2  # classes 0 and 2 of four
    counted, fitted = fitted_of(texts, labels, 4)
    assert fitted.bias[[1, 3]].tolist() == [MISSING, MISSING]
    assert not fitted.weights[:, [1, 3]].any()
    logits = logits_of(counted, fitted)
    assert accuracy(logits, labels) > 0.9
    assert (np.diff(np.sort(logits, axis=1)[:, 1:3], axis=1) > 5).all()  # both others are far below


def test_single_class_is_always_the_answer() -> None:
    counted, fitted = fitted_of([b"one two", b"two"], np.array([1, 1]), 3)
    assert not fitted.weights.any()
    assert fitted.bias.tolist() == [MISSING, 0.0, MISSING]
    assert logits_of(counted, fitted).argmax(1).tolist() == [1, 1]


# The fitted classifier


def model_logits(
    fitted: Fitted, classes: int, texts: Sequence[bytes], *, sublinear: bool = False, prefixes: bool = False
) -> np.ndarray:
    """Return logits (texts, classes) of a filled classifier in double precision."""
    model = NgramClassifier(CONFIG.num_ngrams, classes, sublinear=sublinear).double()
    fitted.fill(model)
    hashes, doc_index, _ = WordHasher(LONGEST, LENGTH, prefixes=PREFIXES if prefixes else ())(*padded(*texts))
    rows = model.vocabulary(hashes.flatten()).reshape(hashes.shape)
    contributions = model(find_hits(rows, doc_index, torch.zeros_like(doc_index)), (len(texts), 1))
    logits: np.ndarray = (contributions.sum(dim=1) + model.bias).numpy()
    return logits


@pytest.mark.parametrize("sublinear", [False, True])
@pytest.mark.parametrize("scaling", SCALES)
@pytest.mark.parametrize("classes", [2, 3])
def test_filled_classifier_gives_the_logits_of_the_fit(scaling: str, classes: int, sublinear: bool) -> None:
    texts, labels = corpus(50, classes, words=8)
    texts[3] = b" "
    assert max(map(len, texts)) <= LENGTH
    config = changed(CONFIG, num_ngrams=60, sublinear=sublinear)
    counted, fitted = fitted_of(texts, labels, classes, changed_choice(scaling=scaling), config)
    expected = logits_of(counted, fitted, sublinear=sublinear)
    assert np.abs(expected).max() > 1.0
    assert (np.abs(expected - logits_of(counted, fitted)).max() > 0.01) == sublinear
    found = model_logits(fitted, classes, texts, sublinear=sublinear)
    assert found == pytest.approx(expected, rel=1e-11, abs=1e-11)


def test_mean_over_windows_of_the_filled_classifier_gives_the_logits_of_the_fit() -> None:
    texts, labels = corpus(30, 3, words=40)
    texts[5] = b"w1 w2" + b" " * 100 + b"w3"  # some of its windows have no words
    counted, fitted = fitted_of(texts, labels, 3)
    windows = [windows_of(text, LENGTH, 6) for text in texts]
    assert min(map(len, windows)) > 1
    found = [model_logits(fitted, 3, part).mean(0) for part in windows]
    assert np.array(found) == pytest.approx(logits_of(counted, fitted), rel=1e-11, abs=1e-11)


# Choice


class Recorder:
    """Held-out losses: -1, -2, ... in some calls and 0 in all others; records the logits and labels it gets."""

    def __init__(self, *best: int) -> None:
        self.best, self.calls = best, list[tuple[np.ndarray, np.ndarray]]()

    def __call__(self, logits: np.ndarray, labels: np.ndarray) -> np.ndarray:
        self.calls.append((logits, labels))
        number = len(self.calls) - 1
        return np.full(len(labels), -1.0 - self.best.index(number) if number in self.best else 0.0)


NUM_CANDIDATES = LONGEST * len(SCALES)


def ordered(count: int) -> tuple[list[bytes], Labels]:
    """Return documents in which only the order of two words tells the classes apart."""
    generator, labels = np.random.default_rng(0), np.arange(count) % 2
    pairs = [b"left right", b"right left"]
    noise = [f"n{i}".encode() for i in generator.integers(0, 10, count)]
    return [b" ".join((word, pairs[c], word)) for word, c in zip(noise, labels, strict=True)], labels


def test_longer_ngrams_are_chosen_if_the_order_of_words_matters() -> None:
    texts, labels = ordered(60)
    choice = choose(counted_of(texts), labels, 2, CONFIG)
    assert choice.longest >= 2
    assert accuracy(logits_of(*fitted_of(texts, labels, 2, choice)), labels) == 1.0
    assert choose(counted_of(texts), labels, 2, changed(CONFIG, longest=1)).longest == 1


@pytest.mark.parametrize(
    ("candidate", "expected"),
    [(0, (1, "idf")), (1, (1, "idf-evidence")), (2, (2, "idf")), (5, (3, "idf-evidence"))],
)
def test_features_with_the_smallest_loss_are_chosen_and_then_the_strength(
    candidate: int, expected: tuple[int, str]
) -> None:
    texts, labels = corpus(20, 2)
    counted = counted_of(texts)
    losses = Recorder(candidate)
    assert choose(counted, labels, 2, CONFIG, losses) == Choice(*expected, FIRST_STRENGTH)
    for limit in (30.0, 1_000.0):
        strengths = [strength for strength in STRENGTHS if strength <= limit]
        for number, strength in enumerate(strengths):
            losses = Recorder(candidate, NUM_CANDIDATES + number)
            config = changed(CONFIG, max_strength=limit)
            assert choose(counted, labels, 2, config, losses) == Choice(*expected, strength)
            assert len(losses.calls) == NUM_CANDIDATES + len(strengths) + len(SHARES)


def test_losses_do_not_depend_on_the_scale_of_the_logits() -> None:
    generator = np.random.default_rng(0)
    labels = np.arange(6000) % 3
    logits = generator.normal(size=(6000, 3)) + 2 * np.eye(3)[labels]
    losses = scaled_losses(logits, labels)
    assert scaled_losses(20 * logits, labels) == pytest.approx(losses, abs=1e-4)
    factors = np.geomspace(0.01, 100, 2000)
    best = min(float(cross_entropies(factor * logits, labels).mean()) for factor in factors)
    assert losses.mean() == pytest.approx(best, abs=1e-3)  # the factor is fitted to smoothed labels


def test_every_document_is_held_out_once(monkeypatch: pytest.MonkeyPatch) -> None:
    texts, labels = corpus(43, 3)
    losses = Recorder()
    choose(counted_of(texts), labels, 3, CONFIG, losses)
    for logits, truth in losses.calls:
        assert logits.shape == (43, 3)
        assert np.bincount(truth).tolist() == np.bincount(labels).tolist()
    monkeypatch.setattr(splits, "HELD_OUT", 10)
    losses = Recorder()
    choose(counted_of(texts), labels, 3, CONFIG, losses)
    for _, truth in losses.calls:  # two folds of eight or nine documents, with the classes spread evenly
        assert 16 <= len(truth) <= 18
        assert np.bincount(truth).min() >= 5


def test_documents_of_a_group_are_held_out_together() -> None:
    """A group whose word occurs in no other document is unknown where it is held out."""
    groups = [str(i % 12) for i in range(48)]
    texts = [f"common word{group} word{group}".encode() for group in groups]
    labels = np.array([int(group) % 2 for group in groups])
    losses = Recorder()
    choose(counted_of(texts, groups=groups), labels, 2, CONFIG, losses)
    for logits, truth in losses.calls:
        assert len(truth) == 48
        assert (logits.argmax(1) == truth).mean() <= 0.5
    losses = Recorder()
    choose(counted_of(texts), labels, 2, CONFIG, losses)
    assert all((logits.argmax(1) == truth).all() for logits, truth in losses.calls)


def grouped(groups: int, documents: int) -> tuple[list[bytes], Labels, list[str]]:
    """Return documents with the name of their group, and a word of their class in every third one."""
    names = [str(i % groups) for i in range(groups * documents)]
    labels = np.array([int(name) % 2 for name in names])
    kinds = [b"left", b"right"]
    texts = [
        f"group{name} number{i} ".encode() + (kinds[label] if i // groups % 3 == 0 else b"common")
        for i, (name, label) in enumerate(zip(names, labels, strict=True))
    ]
    return texts, labels, names


def test_ngrams_of_the_own_group_are_discounted_if_new_groups_are_then_told_apart_better() -> None:
    texts, labels, names = grouped(10, 6)
    with_groups, without = counted_of(texts, groups=names), counted_of(texts)
    assert choose(with_groups, labels, 2, CONFIG).discount
    assert not choose(without, labels, 2, CONFIG).discount
    assert not choose(counted_of(texts, groups=[str(i) for i in range(60)]), labels, 2, CONFIG).discount
    known, discounted = (
        fit(with_groups, labels, 2, CONFIG, Choice(1, "idf", 10.0, discount)) for discount in (False, True)
    )

    def weight(fitted: Fitted, word: str) -> float:
        return float(np.abs(fitted.weights[fitted.hashes == reference.word_hash(word)]).max())

    assert weight(known, "group3") > 0.5 * weight(known, "left")
    assert weight(discounted, "group3") < 1e-6 < weight(discounted, "left")


def test_documents_of_no_group_keep_the_ngrams_that_they_share_with_a_group() -> None:
    texts = [b"left group0", b"right group0", b"left group0"]
    counted = replace(counted_of(texts), groups=np.array([0, 0, -1]))
    column = np.flatnonzero(counted.hashes == reference.word_hash("group0"))
    features, _ = counted.features(column, np.ones(1), 1.0, sublinear=False, discount=True)
    share = (1 / 3) ** 2  # of its documents, one is not in the group
    assert features.toarray().ravel() == pytest.approx([share / math.hypot(share, 1)] * 2 + [1 / math.sqrt(2)])


def inflected(count: int) -> tuple[list[bytes], Labels]:
    """Return documents of a word with a stem for each class, and with an ending that no other document has."""
    labels = np.arange(count) % 2
    return [f"film {('good', 'evil')[label]}{i}".encode() for i, label in enumerate(labels)], labels


def test_prefixes_are_chosen_if_they_tell_classes_apart_better() -> None:
    texts, labels = inflected(60)
    config = changed(CONFIG, tried=("prefixes",))
    counted = count(WordHasher(LONGEST, LENGTH, prefixes=PREFIXES), texts, LENGTH, 0)
    choice = choose(counted, labels, 2, config)
    assert choice.prefixes
    assert choice.of(config).prefixes
    assert "of 60 documents: with prefixes of words 0." in choice.reason
    assert choice.reason.endswith(": with prefixes of words")
    fitted = fit(counted, labels, 2, config, choice)
    assert accuracy(model_logits(fitted, 2, texts, prefixes=True), labels) == 1.0
    prefix = reference.prefix_hash("good")
    assert counted.lengths[counted.hashes == prefix] == [PREFIX]
    assert prefix in fitted.hashes
    assert prefix not in fit(counted, labels, 2, config, replace(choice, prefixes=None)).hashes
    assert prefix in fit(counted, labels, 2, changed(CONFIG, prefixes=True), replace(choice, prefixes=None)).hashes


def test_counts_are_chosen_if_they_tell_classes_apart_better() -> None:
    """Both classes have the same words, one of them several times."""
    labels = np.arange(60) % 2
    texts = [b" ".join((b"one", b"two", (b"one", b"two")[label]) * 3) for label in labels]
    for sublinear in (False, True):
        config = changed(CONFIG, longest=1, sublinear=sublinear, tried=("sublinear",))
        choice = choose(counted_of(texts), labels, 2, config)
        assert choice.of(config).sublinear
        assert choice.sublinear == (None if sublinear else True)
        assert choice.reason.endswith(": k occurrences counted 1 + log k times")
        fitted = fit(counted_of(texts), labels, 2, config, choice)
        assert accuracy(model_logits(fitted, 2, texts, sublinear=True), labels) == 1.0


def test_other_values_are_left_out_unless_they_are_better_by_more_than_a_standard_error() -> None:
    texts, labels = corpus(60, 2)
    counted = count(WordHasher(LONGEST, LENGTH, prefixes=PREFIXES), texts, LENGTH, 0)
    config, tried = changed(CONFIG, tried=("sublinear", "prefixes")), 0
    tried = NUM_CANDIDATES + sum(strength <= CONFIG.max_strength for strength in STRENGTHS)
    losses = Recorder(0, NUM_CANDIDATES + 2)
    choice = choose(counted, labels, 2, config, losses)
    assert choice == Choice(1, "idf", 30.0)
    assert choice.reason.count("difference") == 2
    assert choice.reason.endswith(": with whole words only")
    assert len(losses.calls) == 3 * tried + len(SHARES)
    first = Choice(1, "idf", FIRST_STRENGTH)
    for number, expected in enumerate((first, replace(first, sublinear=True), replace(first, prefixes=True))):
        assert choose(counted, labels, 2, config, Recorder(number * tried)) == expected


@pytest.mark.parametrize("discount", [False, True])
def test_discount_is_chosen_before_lengths_scales_and_strengths(discount: bool) -> None:
    texts, labels = corpus(20, 2)
    counted = counted_of(texts, groups=[str(i // 2) for i in range(20)])
    losses = Recorder(int(discount), 4, NUM_CANDIDATES + 2)
    assert choose(counted, labels, 2, CONFIG, losses) == Choice(2, "idf", STRENGTHS[1], discount)
    num_strengths = sum(strength <= CONFIG.max_strength for strength in STRENGTHS)
    assert len(losses.calls) == NUM_CANDIDATES + 1 + num_strengths + len(SHARES)


def test_choice_is_made_on_a_limited_number_of_documents(monkeypatch: pytest.MonkeyPatch) -> None:
    texts, labels = corpus(60, 3)
    counted = counted_of(texts)
    monkeypatch.setattr(ngrams, "MAX_LOGITS", 75)
    for _ in range(2):
        losses = Recorder()
        choose(counted, labels, 3, CONFIG, losses)
        assert {logits.shape for logits, _ in losses.calls} == {(25, 3)}
    monkeypatch.setattr(ngrams, "MAX_LOGITS", 180)
    losses = Recorder()
    choose(counted, labels, 3, CONFIG, losses)
    assert {logits.shape for logits, _ in losses.calls} == {(60, 3)}


def candidate_logits(texts: Sequence[bytes], labels: Labels, classes: int) -> np.ndarray:
    """Return the held-out logits of all candidates (candidates, documents, classes) for folds i mod 5."""
    losses = Recorder()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ngrams, "folds", lambda labels, _: [np.arange(len(labels))[f::5] for f in range(5)])
        choose(counted_of(texts), labels, classes, CONFIG, losses)
    found = np.stack([logits for logits, _ in losses.calls[:NUM_CANDIDATES]])
    order = np.concatenate([np.arange(len(texts))[f::5] for f in range(5)])
    logits: np.ndarray = found[:, np.argsort(order)]
    return logits


def test_held_out_documents_are_not_used_for_selection_scales_or_weights() -> None:
    texts, labels = corpus(30, 2)
    before = candidate_logits(texts, labels, 2)
    labels[[2, 7, 27]] = 1 - labels[[2, 7, 27]]  # documents of one fold
    texts[12] = b"other words"  # of the same fold
    after = candidate_logits(texts, labels, 2)
    held_out = np.arange(30) % 5 == 2
    held_out[12] = False
    assert np.array_equal(after[:, held_out], before[:, held_out])
    assert not np.isclose(after[:, np.arange(30) % 5 != 2], before[:, np.arange(30) % 5 != 2]).all()


def test_only_frequent_ngrams_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    """The words of the classes are in half of the documents, a third word in all of them."""
    labels = np.arange(20) % 2
    texts = [[b"both left", b"both right"][c] for c in labels]
    counted = counted_of(texts)
    config = changed(CONFIG, num_ngrams=1)
    values = {}
    for limit in (1, 100):
        monkeypatch.setattr(ngrams, "CANDIDATES", limit)
        losses = Recorder()
        choose(counted, labels, 2, config, losses)
        values[limit] = max(accuracy(*call) for call in losses.calls)
    assert values == {1: 0.5, 100: 1.0}


@pytest.mark.parametrize(
    ("texts", "labels"),
    [([b"a b c d e f g h"] * 4, [0, 1, 0, 1]), ([b"good", b" ", b" "], [0, 0, 1])],
    ids=["n-grams without evidence", "fold without words"],
)
def test_documents_without_useful_ngrams_are_fitted(texts: list[bytes], labels: list[int]) -> None:
    counted, truth = counted_of(texts), np.array(labels)
    choice = choose(counted, truth, 2, CONFIG)
    fitted = fit(counted, truth, 2, CONFIG, choice)
    assert np.isfinite(fitted.weights).all()
    assert np.isfinite(fitted.bias).all()


def test_without_evidence_the_bias_is_the_logarithm_of_the_frequencies() -> None:
    counted, labels = counted_of([b"same words"] * 4), np.array([0, 1, 1, 1])
    fitted = fit(counted, labels, 2, CONFIG, Choice(longest=1, scaling="idf-evidence", strength=1.0))
    assert not fitted.weights.any()
    assert fitted.bias == pytest.approx(np.log([0.25, 0.75]))


def test_classes_without_documents_do_not_change_the_scales() -> None:
    texts, labels = corpus(40, 2)
    two, four = (fit(counted_of(texts), labels, classes, CONFIG, CHOICE) for classes in (2, 4))
    assert four.scales == pytest.approx(two.scales, rel=1e-12)
    assert four.weights[:, :2] == pytest.approx(two.weights, rel=1e-9)
    assert list(four.bias[2:]) == [MISSING, MISSING]


# Vectors


def vectors_of(ngrams: dict[str, list[float]], keep: Sequence[float] = (), counts: Sequence[int] = ()) -> NgramVectors:
    """Vectors of n-grams that are given as words."""
    hashes = [reference.ngram_hash(ngram.split()) for ngram in ngrams]
    order = np.argsort(hashes)
    lengths = np.array([len(ngram.split()) for ngram in ngrams], dtype=np.int8)
    return NgramVectors(
        Ngrams(
            np.array(hashes, dtype=np.int32)[order],
            lengths[order],
            np.array(counts or [2] * len(ngrams), dtype=np.int64)[order],
        ),
        np.array(list(ngrams.values()), dtype=np.float32).reshape(len(ngrams), -1 if ngrams else 2)[order],
        np.array(keep or [1.0] * len(ngrams), dtype=np.float64)[order],
    )


GOOD = {"good": [1.0, 0.1], "bad": [-1.0, 0.1], "fine": [0.9, 0.2], "poor": [-0.9, 0.2], "film": [0.0, 1.0]}
REVIEWS = [b"good film", b"bad film"] * 10
REVIEW_LABELS = np.array([1, 0] * 10)
WITH_VECTORS = Choice(1, KEEP, 1.0, vector_strength=0.1)


def weight_of(fitted: Fitted, ngram: str) -> np.ndarray:
    """Weights (classes,) of an n-gram that is given as words."""
    found = fitted.weights[fitted.hashes == reference.ngram_hash(ngram.split())]
    assert len(found) == 1
    return np.asarray(found[0])


def test_ngram_that_no_labelled_document_has_gets_weight_from_its_vector() -> None:
    fitted = fit(counted_of(REVIEWS), REVIEW_LABELS, 2, CONFIG, WITH_VECTORS, vectors_of(GOOD))
    assert len(fitted.hashes) == 5
    assert (np.diff(fitted.hashes) > 0).all()
    for seen, unseen, sign in (("good", "fine", 1), ("bad", "poor", -1)):
        assert sign * np.diff(weight_of(fitted, seen)) > sign * np.diff(weight_of(fitted, unseen)) > 0.1
    model = model_logits(fitted, 2, [b"fine", b"poor", b"a poor film", b"film"])
    assert model.argmax(1)[:3].tolist() == [1, 0, 0]


def test_without_own_weights_all_follow_from_the_vectors() -> None:
    """The weights of three n-grams whose vectors are on a line are on a line."""
    vectors = vectors_of({"good": [1.0, 0.0], "bad": [-1.0, 0.0], "film": [0.5, 0.0]})
    choice = changed_choice(longest=1, scaling="idf", strength=0.0)
    fitted = fit(counted_of(REVIEWS), REVIEW_LABELS, 2, CONFIG, replace(choice, vector_strength=0.1), vectors)
    good, bad, film = (weight_of(fitted, ngram)[1] for ngram in ("good", "bad", "film"))
    assert good - bad > 0.1
    assert film == pytest.approx(bad + (good - bad) * 0.75, abs=1e-9)


def slow_fit_with_vectors(
    x: np.ndarray, v: np.ndarray, has_vector: np.ndarray, labels: Labels, classes: int, choice: Choice
) -> np.ndarray:
    """Logits (documents, classes) of a regression on features and centred projections side by side."""
    means = np.array(
        [sum(x[d, h] * v[h] for h in np.flatnonzero(has_vector)) / x[d, has_vector].sum() for d in range(len(x))]
    )
    centred = np.array([v[h] - means.mean(0) if has_vector[h] else np.zeros(v.shape[1]) for h in range(len(v))])
    projected = x @ centred
    side_by_side = np.hstack((projected / projected.std() * choice.vector_strength**0.5, x * choice.strength**0.5))
    fitted = LogisticRegression(C=1.0, tol=1e-9, max_iter=10_000).fit(side_by_side, labels)
    logits = fitted.decision_function(side_by_side)
    return np.stack((-logits / 2, logits / 2), axis=1) if classes == 2 else logits


@pytest.mark.parametrize("classes", [2, 3])
def test_fit_with_vectors_equals_a_regression_on_centred_projections(
    classes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some n-grams have no vector, and some vectors no documents."""
    for name, value in (("TOLERANCE", 1e-9), ("RELATIVE_TOLERANCE", 1e-15), ("MAX_ITERATIONS", 5_000)):
        monkeypatch.setattr(regression, name, value)
    texts, labels = corpus(40, classes, words=6)
    generator = np.random.default_rng(3)
    vectors = vectors_of({f"w{i}": generator.normal(size=4).tolist() for i in range(4, 40)})
    choice = replace(changed_choice(longest=1, strength=3.0), vector_strength=0.5)
    counted = counted_of(texts)
    fitted = fit(counted, labels, classes, CONFIG, choice, vectors)
    place, has_vector = vectors.places(fitted.hashes)
    assert 0 < has_vector.sum() < len(has_vector)
    columns = np.searchsorted(counted.hashes, fitted.hashes)
    x = counted.features(columns, fitted.scales, sublinear=False)[0].toarray()
    expected = slow_fit_with_vectors(x, vectors.vectors[place].astype(np.float64), has_vector, labels, classes, choice)
    found = logits_of(counted, fitted)
    assert found - found.mean(1, keepdims=True) == pytest.approx(expected - expected.mean(1, keepdims=True), abs=1e-4)


def test_scales_of_keep_are_keep_probabilities_and_select_the_ngrams() -> None:
    """By occurrences times keep probability, of at most the chosen length."""
    ngrams = {**GOOD, "good film": [0.5, 0.5]}
    vectors = vectors_of(ngrams, keep=(0.9, 0.8, 0.7, 0.6, 0.1, 1.0), counts=(10, 10, 3, 2, 50, 99))
    config = changed(CONFIG, num_ngrams=4)
    fitted = fit(counted_of(REVIEWS), REVIEW_LABELS, 2, config, WITH_VECTORS, vectors)
    expected = {"good": 0.9, "bad": 0.8, "film": 0.1, "fine": 0.7}
    found = dict(zip(fitted.hashes.tolist(), fitted.scales.tolist(), strict=True))
    assert found == {reference.word_hash(word): keep for word, keep in expected.items()}


@pytest.mark.parametrize("vectors", [{}, {"nowhere": [1.0, 0.0]}], ids=["none", "of no document"])
@pytest.mark.parametrize("scaling", [KEEP, "idf"])
@pytest.mark.parametrize("labels", [REVIEW_LABELS, REVIEW_LABELS * 0], ids=["two classes", "one class"])
def test_any_vectors_can_be_fitted(vectors: dict[str, list[float]], scaling: str, labels: Labels) -> None:
    choice = Choice(1, scaling, 1.0, vector_strength=0.1)
    counted = counted_of(REVIEWS)
    fitted = fit(counted, labels, 2, CONFIG, choice, vectors_of(vectors))
    assert np.isfinite(fitted.weights).all()
    assert np.isfinite(fitted.bias).all()
    if scaling == "idf" and labels.any():  # the own weights of the n-grams remain
        assert (logits_of(counted, fitted).argmax(1) == labels).all()


def test_view_on_given_ngrams_has_zeros_for_those_that_it_lacks() -> None:
    fitted = Fitted(
        np.array([3, 5, 9]), np.array([1.0, 2.0, 3.0]), np.array([[1.0, 2], [3, 4], [5, 6]]), np.array([7.0, 8]), 0.5
    )
    found = fitted.on(np.array([2, 5, 9, 11]))
    assert found.hashes.tolist() == [2, 5, 9, 11]
    assert found.scales.tolist() == [0, 2, 3, 0]
    assert found.weights.tolist() == [[0, 0], [3, 4], [5, 6], [0, 0]]
    assert (found.bias.tolist(), found.prior) == ([7, 8], 0.5)
    nothing = Fitted(fitted.hashes[:0], fitted.scales[:0], fitted.weights[:0], fitted.bias, 0.5).on(np.array([2, 5]))
    assert (nothing.scales.tolist(), nothing.weights.tolist()) == ([0, 0], [[0, 0], [0, 0]])


@pytest.mark.parametrize("choice", [CHOICE, replace(CHOICE, vector_strength=0.1), replace(WITH_VECTORS, longest=2)])
def test_view_is_fitted_on_given_ngrams(choice: Choice) -> None:
    """In their order, with those that the documents lack; equal to a fit that selects the same n-grams."""
    counted, vectors = counted_of(REVIEWS), vectors_of({**GOOD, "bad film": [-0.7, 0.3]}, counts=(2, 2, 9, 9, 9, 2))
    whole = fit(counted, REVIEW_LABELS, 2, CONFIG, choice, vectors)
    same = fit(counted, REVIEW_LABELS, 2, CONFIG, choice, vectors, whole.hashes)
    for ours, theirs in zip(vars(same).values(), vars(whole).values(), strict=True):
        assert np.array_equal(ours, theirs)
    words = np.sort([reference.ngram_hash(ngram.split()) for ngram in ("good", "bad", "absent", "bad film")])
    some = fit(counted, REVIEW_LABELS, 2, changed(CONFIG, num_ngrams=4), choice, vectors, words)
    assert some.hashes.tolist() == words.tolist()
    assert not weight_of(some, "absent").any()
    assert some.scales[some.hashes == reference.word_hash("absent")] == 0
    assert np.diff(weight_of(some, "good")) > 0 > np.diff(weight_of(some, "bad"))
    kept = counted.of_ngrams(np.flatnonzero(np.isin(counted.hashes, words)))
    alone = fit(kept, REVIEW_LABELS, 2, CONFIG, choice, vectors.of_ngrams(words))
    for ngram in ("good", "bad", "bad film"):  # more frequent n-grams do not displace them
        assert np.array_equal(weight_of(some, ngram), weight_of(alone, ngram))


def learned(rows: np.ndarray) -> NgramVectors:
    """Vectors that do not depend on the documents."""
    del rows
    generator = np.random.default_rng(4)
    return vectors_of({f"w{i}": generator.normal(size=3).tolist() for i in range(30)})


NUM_WITHOUT = NUM_CANDIDATES + sum(strength <= CONFIG.max_strength for strength in STRENGTHS)
NUM_BESIDE = len(VECTOR_STRENGTHS) + 1 + len(STRENGTHS_BESIDE_VECTORS)


@pytest.mark.parametrize(
    ("best", "expected"),
    [
        ((2, NUM_CANDIDATES), Choice(2, "idf", STRENGTHS[0])),
        (
            (2, NUM_CANDIDATES, NUM_WITHOUT + 1),
            Choice(2, "idf", FIRST_STRENGTH, vector_strength=VECTOR_STRENGTHS[1]),
        ),
        (
            (2, NUM_CANDIDATES, NUM_WITHOUT + 1, NUM_WITHOUT + len(VECTOR_STRENGTHS)),
            Choice(2, "idf", STRENGTHS[0], vector_strength=VECTOR_STRENGTHS[1]),
        ),
        (
            (2, NUM_CANDIDATES, NUM_WITHOUT + NUM_BESIDE),
            Choice(LONGEST, KEEP, 0.0, vector_strength=VECTOR_STRENGTHS[0]),
        ),
        (
            (2, NUM_CANDIDATES, NUM_WITHOUT + NUM_BESIDE + 2, NUM_WITHOUT + NUM_BESIDE + len(VECTOR_STRENGTHS) + 1),
            Choice(LONGEST, KEEP, STRENGTHS_OF_KEEP[1], vector_strength=VECTOR_STRENGTHS[2]),
        ),
    ],
    ids=["no vectors", "vectors", "with the strength of before", "keep", "keep and own weights"],
)
def test_best_use_of_vectors_is_chosen_last(best: tuple[int, ...], expected: Choice) -> None:
    """Beside the best weights without vectors, and by keep probabilities; each with strengths of its own."""
    texts, labels = corpus(20, 2)
    losses = Recorder(*best)
    assert choose(counted_of(texts), labels, 2, CONFIG, losses, learned) == expected
    assert len(losses.calls) == NUM_WITHOUT + NUM_VECTOR_SETTINGS + len(SHARES)


def test_vectors_are_left_out_if_their_gain_is_less_than_a_standard_error() -> None:
    class Uncertain(Recorder):
        def __call__(self, logits: np.ndarray, labels: np.ndarray) -> np.ndarray:
            found = super().__call__(logits, labels)
            return found + np.resize([50.0, -50.0], len(found)) if len(self.calls) == NUM_WITHOUT + 2 else found

    texts, labels = corpus(20, 2)
    best = (2, NUM_CANDIDATES, NUM_WITHOUT + 1)
    without = Choice(2, "idf", STRENGTHS[0])
    assert choose(counted_of(texts), labels, 2, CONFIG, Recorder(*best), learned).vector_strength
    assert choose(counted_of(texts), labels, 2, CONFIG, Uncertain(*best), learned) == without


def test_vectors_are_learned_without_the_held_out_documents() -> None:
    """Of each fold; also if the choice is made on some of the documents."""
    texts, labels = corpus(33, 2)
    seen: list[np.ndarray] = []

    def noted(rows: np.ndarray) -> NgramVectors:
        seen.append(rows)
        return learned(rows)

    counted = counted_of(texts)
    choose(counted, labels, 2, CONFIG, Recorder(), noted)
    held_out = [np.setdiff1d(np.arange(33), rows) for rows in seen]
    assert len(seen) == 5
    assert sorted(np.concatenate(held_out).tolist()) == list(range(33))
    seen.clear()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ngrams, "MAX_LOGITS", 40)
        choose(counted, labels, 2, CONFIG, Recorder(), noted)
    kept = np.sort(np.random.default_rng(0).permutation(33)[:20])
    assert set(np.concatenate(seen).tolist()) == set(kept.tolist())
    assert all(len(rows) == 16 for rows in seen)


def test_vectors_are_chosen_if_they_help_and_left_out_if_not() -> None:
    """Each document has a word of its own, whose vector may tell the class."""
    labels = np.arange(40) % 2
    texts = [f"x{i // 2 % 10}{'good' if label else 'bad'}{i % 17} the film".encode() for i, label in enumerate(labels)]
    words = sorted({text.split()[0].decode() for text in texts} | {"the", "film"})
    telling = {word: [float("good" in word) - float("bad" in word), 0.1] for word in words}
    equal = {word: [0.0, 0.0] for word in words}
    counted = counted_of(texts)
    assert choose(counted, labels, 2, CONFIG, learn=lambda _: vectors_of(telling)).vector_strength > 0
    chosen = choose(counted, labels, 2, CONFIG, learn=lambda _: vectors_of(equal))
    assert chosen == choose(counted, labels, 2, CONFIG)


def test_one_group_of_all_documents_is_none() -> None:
    """Held out together, no document would be left to learn from."""
    texts, labels = corpus(12, 2)
    sizes: list[int] = []

    def noted(rows: np.ndarray) -> NgramVectors:
        sizes.append(len(rows))
        return learned(rows)

    choice = choose(counted_of(texts, groups=["one"] * 12), labels, 2, CONFIG, learn=noted)
    assert choice == choose(counted_of(texts), labels, 2, CONFIG, learn=learned)
    assert min(sizes) >= 8


def test_two_groups_are_held_out_in_turn() -> None:
    texts, labels = corpus(12, 2)
    seen: list[list[int]] = []

    def noted(rows: np.ndarray) -> NgramVectors:
        seen.append(rows.tolist())
        return learned(rows)

    choose(counted_of(texts, groups=["a", "b", "b", "b"] * 3), labels, 2, CONFIG, Recorder(), noted)
    a = list(range(0, 12, 4))
    assert sorted(seen) == sorted([a, [i for i in range(12) if i not in a]])


def test_balanced_classes_weigh_the_same_in_the_fit() -> None:
    texts = [b"common words of many documents"] * 38 + [b"common words of rare documents"] * 2
    labels, config = np.array([0] * 38 + [1] * 2), changed(CONFIG, class_weights="balanced")
    choice = changed_choice(longest=1, strength=1.0)
    counted = counted_of(texts)
    for one, answer in ((CONFIG, 0), (config, 1)):
        fitted = fit(counted, labels, 2, one, choice)
        assert logits_of(counted, fitted)[-1].argmax() == answer


# Naive Bayes


@pytest.mark.parametrize("class_weights", ["none", "balanced"])
@pytest.mark.parametrize("with_vectors", [False, True])
def test_share_of_naive_bayes_is_mixed_into_the_weights(class_weights: str, with_vectors: bool) -> None:
    """Of three classes, one without documents; some n-grams are in unlabelled documents alone."""
    texts, labels = REVIEWS, np.array([0, 2] * (len(REVIEWS) // 2))
    config = changed(CONFIG, class_weights=class_weights)
    choice = replace(WITH_VECTORS, strength=3.0) if with_vectors else changed_choice(longest=1)
    counted, vectors = counted_of(texts), vectors_of(GOOD) if with_vectors else None
    alone, half = (fit(counted, labels, 3, config, replace(choice, naive_bayes=share), vectors) for share in (0.0, 0.5))
    assert half.hashes.tolist() == alone.hashes.tolist()
    columns, is_there = occurrences.places(counted.hashes, alone.hashes)
    x, _ = counted.features(columns[is_there], alone.scales[is_there], alone.prior, sublinear=False)
    of_class = np.eye(2)[labels // 2] * (1 if class_weights == "none" else regression.balanced(labels)[:, None])
    bayes = naive_bayes(x, of_class)
    present = np.array([0, 2])
    scale = scale_of(x, alone.weights[is_there][:, present], alone.bias[present], bayes)
    expected = alone.weights / 2
    expected[np.ix_(is_there, present)] += scale / 2 * bayes
    assert half.weights == pytest.approx(expected)
    assert half.bias[present] == pytest.approx(alone.bias[present] / 2)
    assert half.bias[1] == MISSING


@pytest.mark.parametrize("learn", [None, learned], ids=["no vectors", "vectors"])
def test_share_of_naive_bayes_is_chosen_last(learn: Callable[[np.ndarray], NgramVectors] | None) -> None:
    texts, labels = corpus(20, 2)
    first = NUM_WITHOUT + (0 if learn is None else NUM_VECTOR_SETTINGS)
    for number, share in enumerate(SHARES):
        losses = Recorder(2, NUM_CANDIDATES, first + number)
        choice = choose(counted_of(texts), labels, 2, CONFIG, losses, learn)
        assert choice == Choice(2, "idf", STRENGTHS[0], naive_bayes=share)
        assert len(losses.calls) == first + len(SHARES)


def test_naive_bayes_is_left_out_if_it_is_no_better() -> None:
    texts, labels = corpus(20, 2)
    assert choose(counted_of(texts), labels, 2, CONFIG, Recorder()).naive_bayes == 0


def test_naive_bayes_is_not_tried_with_any_number_of_labels() -> None:
    texts, labels = corpus(20, 2)
    losses = Recorder()
    choose(counted_of(texts), np.eye(2, dtype=np.int64)[labels], 2, CONFIG, losses)
    assert len(losses.calls) == NUM_WITHOUT
