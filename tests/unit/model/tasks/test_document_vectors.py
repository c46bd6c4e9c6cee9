"""Vectors of documents and n-grams: keep probabilities, training, and what a learner reads."""

import math
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from model.config.models import NgramVectorsConfig
from model.errors import UserError
from model.nn.words import WordHasher
from model.tasks import document_vectors
from model.tasks.document_vectors import (
    EPOCHS_PER_CHECKPOINT,
    VectorLearner,
    keep_probabilities,
    train_vectors,
    vector_learner,
)
from model.tasks.occurrences import Ngrams, Occurrences
from tests.support import reference
from tests.support.configs import changed

LENGTH = 48
HASHER = WordHasher(2, LENGTH)
CONFIG = NgramVectorsConfig(dim=16, epochs=2)


@pytest.fixture(autouse=True)
def small_table(monkeypatch: pytest.MonkeyPatch) -> None:
    """A smaller table of negative examples, which takes less time to fill."""
    monkeypatch.setattr(document_vectors, "TABLE_SIZE", 2**12)


def ngrams_of(counts: list[int], lengths: list[int] | None = None) -> Ngrams:
    return Ngrams(
        np.arange(len(counts), dtype=np.int32),
        np.array(lengths or [1] * len(counts), dtype=np.int8),
        np.array(counts, dtype=np.int64),
    )


def occurrences_of(documents: list[list[int]]) -> Occurrences:
    starts = np.cumsum([0, *map(len, documents)])
    values = np.array([ngram for document in documents for ngram in document], dtype=np.int32)
    return Occurrences(values, starts, np.array([len(document) for document in documents], dtype=np.int32))


# Keep probabilities


def test_keep_probability_equals_the_value_computed_by_hand() -> None:
    """In 5 of 10 documents of one class and 2 of the 30 others: log((8 / 10) / (5 / 30)) = log 4.8 = 1.5686."""
    (keep,) = keep_probabilities(np.array([[5.0, 2.0]]), np.array([10.0, 30.0]), ngrams_of([50], [2]))
    assert keep == pytest.approx(0.05 + 0.6 * 1.5686159, rel=1e-6)


@pytest.mark.parametrize("classes", [2, 3])
def test_keep_probabilities_equal_the_formula(classes: int) -> None:
    generator = np.random.default_rng(classes)
    sizes = generator.integers(5, 40, classes)
    of_class = generator.integers(0, sizes + 1, (30, classes))
    lengths, counts = [1 + i % 3 for i in range(30)], generator.integers(2, 100_000, 30).tolist()
    found = keep_probabilities(of_class.astype(np.float64), sizes.astype(np.float64), ngrams_of(counts, lengths))
    for ours, row, length, count in zip(found, of_class.tolist(), lengths, counts, strict=True):
        ratios = [(row[c] + 3) / sizes[c] * (sizes.sum() - sizes[c]) / (sum(row) - row[c] + 3) for c in range(classes)]
        expected = min(1.0, 0.05 + 0.6 * max(abs(math.log(ratio)) for ratio in ratios))
        if length == 1 and count > 3000:
            expected = min(expected, math.sqrt(3000 / count))
        assert ours == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("classes", [0, 1])
def test_fewer_than_two_classes_tell_nothing(classes: int) -> None:
    found = keep_probabilities(np.full((2, classes), 3.0), np.full(classes, 5.0), ngrams_of([9, 12_000_000]))
    assert found == pytest.approx([0.05, math.sqrt(3000 / 12_000_000)])


# Training


def toy(count: int = 60) -> Occurrences:
    """Documents with the n-grams 0 to 3, or 4 to 7; the n-gram 8 is in all."""
    generator = np.random.default_rng(0)
    return occurrences_of([[*generator.integers(0, 4, 12) + 4 * (i % 2), 8] for i in range(count)])


def trained(
    documents: Occurrences, keep: float | np.ndarray = 0.5, *, seed: int = 0, path: Path | None = None,
    config: NgramVectorsConfig = CONFIG,
) -> np.ndarray:  # fmt: skip
    """Vectors of the n-grams that occur in the documents."""
    counts = np.bincount(documents.values).tolist()
    chances = np.broadcast_to(keep, len(counts)).astype(np.float64)
    return train_vectors(documents, ngrams_of(counts), chances, config, seed, path)


def test_vectors_are_the_same_for_a_seed_and_of_length_one() -> None:
    first, second, other = (trained(toy(), seed=seed) for seed in (0, 0, 1))
    assert first.shape == (9, 16)
    assert first.dtype == np.float32
    assert np.array_equal(first, second)
    assert np.abs(first - other).max() > 0.1
    assert (first**2).sum(1) == pytest.approx(1, abs=1e-6)


def random_numbers(state: int) -> Iterator[int]:
    """Marsaglia's xorshift64 with the shifts 13, 7 and 17; the upper 53 bits of each number."""
    while True:
        state ^= state << 13 & 2**64 - 1
        state ^= state >> 7
        state ^= state << 17 & 2**64 - 1
        yield state >> 11


def expected_vectors(documents: Occurrences, keep: np.ndarray, config: NgramVectorsConfig, seed: int) -> np.ndarray:
    """The same drawings, and steps along the gradient in float64, each pair of vectors divided by its lengths."""
    generator = np.random.default_rng(seed)
    count = len(keep)
    u, v = (
        generator.standard_normal((n, config.dim), dtype=np.float32).astype(np.float64) for n in (len(documents), count)
    )
    u, v = (x / np.linalg.norm(x, axis=1, keepdims=True) for x in (u, v))
    weights = (np.bincount(documents.values, minlength=count) * keep) ** 0.75
    table = [
        i for i, w in enumerate(weights) for _ in range(math.ceil(w / weights.sum() * document_vectors.TABLE_SIZE))
    ]
    for epoch in range(config.epochs):
        generator = np.random.default_rng((seed, epoch))
        order = generator.permutation(len(documents))
        numbers = random_numbers(int(generator.integers(1, 2**63, dtype=np.uint64)))
        for place, d in enumerate(order):
            rate = max(0.0002, 0.02 * (1 - epoch / config.epochs))
            rate += (max(0.0002, 0.02 * (1 - (epoch + 1) / config.epochs)) - rate) * place / len(order)
            examples = []
            for ngram in documents[d].tolist():
                if next(numbers) / 2**53 < keep[ngram]:
                    examples += [(ngram, 1), *((table[next(numbers) % len(table)], 0) for _ in range(4))]
            for ngram, label in examples:
                cos = u[d] @ v[ngram]
                step = 6 * rate * (label - 1 / (1 + math.exp(-6 * cos)))
                moved = u[d] + step * (v[ngram] - cos * u[d]), v[ngram] + step * (u[d] - cos * v[ngram])
                u[d], v[ngram] = (x / np.linalg.norm(x) for x in moved)
    found: np.ndarray = v
    return found


@pytest.mark.parametrize("epochs", [1, 3])
def test_training_equals_a_slow_loop_with_the_same_drawings(epochs: int) -> None:
    documents = toy()
    keep = np.linspace(0.2, 0.9, 9).astype(np.float32)
    config = changed(CONFIG, epochs=epochs)
    found, expected = trained(documents, keep, seed=5, config=config), expected_vectors(documents, keep, config, 5)
    assert found == pytest.approx(expected, abs=2e-5)
    start = expected_vectors(documents, keep, changed(CONFIG, epochs=0), 5)
    assert np.abs(found - start).max() > 0.05


def test_ngrams_of_the_same_documents_get_similar_vectors() -> None:
    vectors = trained(toy(200), config=changed(CONFIG, epochs=30))
    cos = vectors @ vectors.T
    within = [cos[i, j] for i in range(8) for j in range(8) if i < j and i // 4 == j // 4]
    across = [cos[i, j] for i in range(4) for j in range(4, 8)]
    assert min(within) > max(across) + 0.3


@pytest.mark.parametrize("interrupted", [1, 4, 6, 9, 10])
def test_resumed_training_gives_the_same_vectors(
    interrupted: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After any epoch; epochs that were kept are not repeated."""
    config, path, original = changed(CONFIG, epochs=10), tmp_path / "vectors.npz", document_vectors._epoch
    calls: list[int] = []

    def epoch(*arguments: object) -> float:
        if len(calls) == interrupted:
            raise KeyboardInterrupt
        calls.append(1)
        return float(original(*arguments))

    monkeypatch.setattr(document_vectors, "_epoch", epoch)
    with nullcontext() if interrupted == config.epochs else pytest.raises(KeyboardInterrupt):
        trained(toy(), config=config, path=path)
    interrupted, kept = -1, len(calls) // EPOCHS_PER_CHECKPOINT * EPOCHS_PER_CHECKPOINT
    calls.clear()
    resumed = trained(toy(), config=config, path=path)
    assert len(calls) == config.epochs - kept
    assert np.array_equal(resumed, trained(toy(), config=config))
    assert not list(tmp_path.glob("*.partial"))


def test_state_of_other_documents_is_an_error(tmp_path: Path) -> None:
    """A step on vectors that are not there would read and write other memory."""
    config, path = changed(CONFIG, epochs=EPOCHS_PER_CHECKPOINT), tmp_path / "vectors.npz"
    trained(toy(), config=config, path=path)
    shorter = toy().of_documents(np.arange(len(toy()) - 1))
    with pytest.raises(UserError, match=rf"vectors\.npz is damaged: it holds vectors of shapes \[\({len(toy())}, 16\)"):
        trained(shorter, config=config, path=path)


def test_vectors_of_few_ngrams_in_many_documents_stay_of_length_one() -> None:
    """Each takes hundreds of thousands of steps an epoch, which may multiply rounding errors, as in DNA or digits."""
    generator = np.random.default_rng(0)
    documents = occurrences_of([generator.integers(0, 3, 100).tolist() for _ in range(4_000)])
    vectors = trained(documents, 1.0)
    assert np.linalg.norm(vectors, axis=1) == pytest.approx(1, abs=1e-5)


def test_long_documents_are_thinned(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if their keep probabilities were lower, without a change of the negative examples."""
    documents = toy()  # 13 n-grams each, 6.5 of which are kept
    expected = trained(documents, 0.25)
    assert np.abs(trained(documents) - expected).max() > 1e-3
    monkeypatch.setattr(document_vectors, "MOST_POSITIVES", 3.25)
    assert np.array_equal(trained(documents), expected)


@pytest.mark.parametrize("documents", [[], [[]], [[], []]])
def test_documents_without_ngrams_have_no_vectors(documents: list[list[int]]) -> None:
    found = train_vectors(occurrences_of(documents), ngrams_of([]), np.zeros(0), CONFIG, 0)
    assert found.shape == (0, 16)


def test_documents_without_known_ngrams_change_nothing_but_the_drawings() -> None:
    found = train_vectors(occurrences_of([[], []]), ngrams_of([2, 3]), np.full(2, 0.5), CONFIG, 0)
    assert (found**2).sum(1) == pytest.approx(1, abs=1e-6)


# Learner

LABELS = np.array([0, 1] * 6)
TEXTS = [f"{'good' if label else 'bad'} film x{i % 3}".encode() for i, label in enumerate(LABELS)]
LONG = b" ".join(f"y{i % 5}".encode() for i in range(40))
UNLABELLED = [b"a good day", b"a bad day", LONG]


def learner_of(texts: list[bytes] = TEXTS, labels: np.ndarray = LABELS) -> VectorLearner:
    return vector_learner(HASHER, (texts, UNLABELLED), labels, LENGTH, 6, CONFIG, 0)


def test_learner_reads_windows_of_all_documents() -> None:
    learner = learner_of([*TEXTS, LONG], np.append(LABELS, 1))
    count = -(-(len(LONG) - 6) // (LENGTH - 6))
    assert count > 2
    assert learner.document.tolist() == [*range(12), *[12] * count]
    assert len(learner.unlabelled) == 2 + count
    found = {reference.ngram_hash(ngram.split()) for ngram in ("good", "bad film", "film", "a", "day", "y1 y2")}
    assert found <= set(learner.ngrams.hashes.tolist())
    assert reference.ngram_hash(["good", "day"]) not in learner.ngrams.hashes  # occurs once
    values = np.concatenate((learner.labelled.values, learner.unlabelled.values))
    assert np.bincount(values).tolist() == learner.ngrams.counts.tolist()


def test_windows_have_the_label_of_their_document(monkeypatch: pytest.MonkeyPatch) -> None:
    """Classes are counted in windows."""
    seen: list[tuple[np.ndarray, np.ndarray]] = []
    original = document_vectors.keep_probabilities

    def noted(of_class: np.ndarray, sizes: np.ndarray, ngrams: Ngrams) -> np.ndarray:
        seen.append((of_class, sizes))
        return original(of_class, sizes, ngrams)

    monkeypatch.setattr(document_vectors, "keep_probabilities", noted)
    learner = learner_of([*TEXTS, LONG], np.append(LABELS, 1))
    learner.learn(np.array([0, 1, 2, 12]))
    [(of_class, sizes)] = seen
    count = int((learner.document == 12).sum())
    assert sizes.tolist() == [2, 1 + count]
    rows = {word: np.flatnonzero(learner.ngrams.hashes == reference.word_hash(word)).item() for word in ("film", "y1")}
    assert of_class[rows["film"]].tolist() == [2, 1]
    windows = [learner.labelled[i] for i in np.flatnonzero(learner.document == 12).tolist()]
    assert of_class[rows["y1"]].tolist() == [0, sum(rows["y1"] in window for window in windows)]


def test_keep_probabilities_are_those_of_the_labels() -> None:
    found = learner_of().learn(np.arange(12))
    keep = dict(zip(found.ngrams.hashes.tolist(), found.keep.tolist(), strict=True))
    good, film = (keep[reference.word_hash(word)] for word in ("good", "film"))
    assert good == pytest.approx(0.05 + 0.6 * math.log(9 / 3))
    assert film == pytest.approx(0.05)


def test_labels_and_texts_of_other_documents_are_not_read() -> None:
    rows = np.array([0, 1, 2, 3, 6, 7])
    before = learner_of()
    labels = LABELS.copy()
    labels[[4, 5, 8, 11]] = 1 - labels[[4, 5, 8, 11]]
    after = replace(before, labels=labels)
    first, second = before.learn(rows), after.learn(rows)
    assert np.array_equal(first.vectors, second.vectors)
    assert np.array_equal(first.keep, second.keep)
    mixed = before.labelled.values.copy()
    held_out = slice(before.labelled.starts[8], before.labelled.starts[9])
    mixed[held_out] = mixed[held_out][::-1]
    assert np.array_equal(
        first.vectors, replace(after, labelled=replace(before.labelled, values=mixed)).learn(rows).vectors
    )
    everything = np.arange(12)
    assert not np.array_equal(before.learn(everything).keep, after.learn(everything).keep)


def test_unlabelled_documents_are_always_read() -> None:
    with_them = learner_of()
    without = replace(with_them, unlabelled=with_them.unlabelled.of_documents(np.arange(0)))
    rows = np.arange(6)
    assert np.array_equal(with_them.learn(rows).keep, without.learn(rows).keep)
    assert not np.array_equal(with_them.learn(rows).vectors, without.learn(rows).vectors)


@pytest.mark.parametrize("rows", [[], [0], [0, 2]], ids=["none", "one", "one class"])
def test_any_labelled_documents_can_be_learned_from(rows: list[int]) -> None:
    """Such as those of one class, or none at all, as in cross-validation over a few groups."""
    learner = learner_of()
    for one in (learner, replace(learner, unlabelled=learner.unlabelled.of_documents(np.arange(0)))):
        found = one.learn(np.array(rows, dtype=np.int64))
        assert np.isfinite(found.vectors).all()
        assert found.keep == pytest.approx(np.full(len(found.keep), 0.05))
