"""N-grams of documents in the order of the text."""

import numpy as np
import pytest
from hypothesis import given, settings

from model.nn.words import WordHasher
from model.tasks import occurrences
from model.tasks.occurrences import (
    Hashes,
    Ngrams,
    NgramVectors,
    Occurrences,
    frequent_ngrams,
    hash_ngrams,
    known_ids,
    mean_vectors,
    places,
    principal_vectors,
    rows_at,
)
from tests.support import reference
from tests.support.words import CONFIG, LENGTH, Texts, every_second_ngram

HASHER = WordHasher(CONFIG.longest, LENGTH)
TEXTS = [b"one two one two", b"two! Three", b" ", b"one"]


def of_words(*ngrams: str) -> list[int]:
    """Hashes of n-grams that are given as words."""
    return [reference.ngram_hash(ngram.split()) for ngram in ngrams]


@settings(max_examples=50)
@given(Texts)
def test_hashes_equal_reference_in_the_order_of_the_documents(texts: list[bytes]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(occurrences, "BATCH", 2)
        found = hash_ngrams(HASHER, texts)
    for i, text in enumerate(texts):
        rows = found.values[found.starts[i] : found.starts[i + 1]]
        assert rows.tolist() == reference.word_ngrams(text, CONFIG.longest)
    assert found.lengths.tolist() == [len(text) for text in texts]


def test_no_documents_have_no_ngrams() -> None:
    found = hash_ngrams(HASHER, [])
    assert (found.values.shape, found.starts.tolist(), found.lengths.tolist()) == ((0, CONFIG.longest), [0], [])
    ids = known_ids(found, np.array([5], dtype=np.int32))
    assert (len(ids), ids.values.tolist(), ids.starts.tolist()) == (0, [], [0])


@settings(max_examples=50)
@given(Texts)
def test_known_ngrams_equal_reference(texts: list[bytes]) -> None:
    known = sorted(every_second_ngram(*texts))
    found = known_ids(hash_ngrams(HASHER, texts), np.array(known, dtype=np.int32), first=1)
    for i, text in enumerate(texts):
        assert found[i].tolist() == reference.located_ngrams(text, known, CONFIG.longest, 1)[0]
    assert found.counts().tolist() == [len(found[i]) for i in range(len(texts))]
    assert found.lengths.tolist() == [len(text) for text in texts]


def test_known_ngrams_are_counted_from_zero_by_default() -> None:
    known = np.array(sorted(of_words("one", "one two")), dtype=np.int32)
    names = dict(zip(known.tolist(), range(2), strict=True))
    one, one_two = (names[value] for value in of_words("one", "one two"))
    found = known_ids(hash_ngrams(HASHER, TEXTS), known)
    assert [found[i].tolist() for i in range(4)] == [[one, one_two, one, one_two], [], [], [one]]


def test_without_known_ngrams_all_are_left_out() -> None:
    found = known_ids(hash_ngrams(HASHER, TEXTS), np.zeros(0, dtype=np.int32))
    assert (found.values.tolist(), found.counts().tolist()) == ([], [0, 0, 0, 0])


def test_ngrams_that_occur_twice_in_all_parts_together_get_vectors() -> None:
    found = frequent_ngrams([hash_ngrams(HASHER, TEXTS[:2]), hash_ngrams(HASHER, TEXTS[2:])])
    expected = {
        of_words(ngram)[0]: (len(ngram.split()), count) for ngram, count in (("one", 3), ("two", 3), ("one two", 2))
    }
    ours = zip(found.hashes.tolist(), found.lengths.tolist(), found.counts.tolist(), strict=True)
    assert {value: (length, count) for value, length, count in ours} == expected
    assert found.hashes.tolist() == sorted(expected)


@pytest.mark.parametrize(("most", "ngrams"), [(0, []), (2, ["one", "two"]), (3, ["one", "two", "one two"])])
def test_most_frequent_ngrams_get_vectors(most: int, ngrams: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(occurrences, "MAX_NGRAMS", most)
    assert frequent_ngrams([hash_ngrams(HASHER, TEXTS)]).hashes.tolist() == sorted(of_words(*ngrams))


def test_of_ngrams_with_the_same_hash_the_most_frequent_one_counts() -> None:
    values = np.array([[7, 9], [9, 7], [9, 9], [9, -1], [7, -1]], dtype=np.int32)
    found = frequent_ngrams([Hashes(values, np.array([0, 5]), np.array([5], dtype=np.int32))])
    # 9 stands for three single words and two pairs, 7 for two single words and one pair.
    assert found.hashes.tolist() == [7, 9]
    assert (found.lengths.tolist(), found.counts.tolist()) == ([1, 1], [2, 3])


def random_occurrences(sizes: list[int]) -> Occurrences:
    generator = np.random.default_rng(0)
    values = generator.integers(0, 9, sum(sizes)).astype(np.int32)
    return Occurrences(values, np.cumsum([0, *sizes]), np.arange(1, 1 + len(sizes), dtype=np.int32))


def test_some_documents_and_others_after_them() -> None:
    found = random_occurrences([3, 0, 2, 4])
    part = found.of_documents(np.array([3, 1, 0]))
    assert [part[i].tolist() for i in range(3)] == [found[3].tolist(), [], found[0].tolist()]
    assert part.lengths.tolist() == [4, 2, 1]
    both = part.followed_by(found)
    assert len(both) == 7
    assert [both[i].tolist() for i in range(7)] == [
        *(part[i].tolist() for i in range(3)),
        *(x.tolist() for x in map(found.__getitem__, range(4))),
    ]
    assert both.lengths.tolist() == [4, 2, 1, 1, 2, 3, 4]


def test_places_and_their_rows() -> None:
    place, is_there = places(np.array([2, 5, 8]), np.array([5, 1, 9, 8]))
    assert is_there.tolist() == [True, False, False, True]
    assert place[is_there].tolist() == [1, 2]
    assert rows_at(np.array([[1.0], [2.0], [3.0]]), place, is_there).tolist() == [[2.0], [0.0], [0.0], [3.0]]


def test_nothing_is_found_among_no_hashes() -> None:
    place, is_there = places(np.zeros(0), np.array([5, 1]))
    assert is_there.tolist() == [False, False]
    assert rows_at(np.zeros((0, 3)), place, is_there).tolist() == [[0.0] * 3] * 2


def some_vectors(count: int = 12, dim: int = 16) -> NgramVectors:
    generator = np.random.default_rng(1)
    vectors = generator.normal(size=(count, dim)).astype(np.float32) * np.linspace(2, 0.2, dim, dtype=np.float32)
    hashes = np.arange(10, 10 + 3 * count, 3, dtype=np.int32)
    ngrams = Ngrams(hashes, np.ones(count, dtype=np.int8), generator.integers(2, 30, count))
    return NgramVectors(ngrams, vectors, generator.random(count))


def test_vectors_of_some_ngrams() -> None:
    found = some_vectors()
    part = found.of_ngrams(np.array([10, 11, 16, 99]))
    assert part.ngrams.hashes.tolist() == [10, 16]
    assert np.array_equal(part.vectors, found.vectors[[0, 2]])
    assert np.array_equal(part.keep, found.keep[[0, 2]])
    assert part.ngrams.counts.tolist() == found.ngrams.counts[[0, 2]].tolist()


def test_principal_vectors_have_mean_square_one_and_the_largest_spread_first() -> None:
    """Of all occurrences of n-grams."""
    vectors = some_vectors()
    hashes, scales = vectors.ngrams.hashes.astype(np.int64), np.linspace(0.5, 2, 12)
    found = principal_vectors(vectors, hashes, scales, 4)
    assert found.shape == (12, 4)
    assert found.dtype == np.float32
    drawn = np.repeat(found.astype(np.float64), vectors.ngrams.counts, axis=0)
    assert (drawn**2).mean() == pytest.approx(1, rel=1e-5)
    products = drawn.T @ drawn / len(drawn)
    assert products - np.diag(np.diag(products)) == pytest.approx(np.zeros((4, 4)), abs=1e-5)
    assert (np.diff(np.diag(products)) < 0).all()


def test_all_principal_components_keep_the_products_of_scaled_vectors() -> None:
    """Each is the scale times the vector less the mean over scaled occurrences, in other coordinates."""
    vectors = some_vectors()
    hashes, scales = vectors.ngrams.hashes.astype(np.int64), np.linspace(0.5, 2, 12)
    found = principal_vectors(vectors, hashes, scales, 20)
    assert not found[:, 16:].any()
    total, mean = 0.0, np.zeros(16)
    for vector, scale, count in zip(vectors.vectors, scales, vectors.ngrams.counts, strict=True):
        mean += count * scale * vector
        total += count * scale
    expected = np.array([scale * (v - mean / total) for v, scale in zip(vectors.vectors, scales, strict=True)])
    ours, theirs = found @ found.T, expected @ expected.T
    assert ours / ours[0, 0] == pytest.approx(theirs / theirs[0, 0], abs=1e-4 * float(np.abs(theirs).max()))


def test_ngrams_without_a_vector_have_zeros_and_change_nothing() -> None:
    vectors = some_vectors()
    hashes, scales = vectors.ngrams.hashes.astype(np.int64), np.linspace(0.5, 2, 12)
    expected = principal_vectors(vectors, hashes, scales, 4)
    found = principal_vectors(vectors, np.insert(hashes, 5, hashes[5] - 1), np.insert(scales, 5, 7.0), 4)
    assert not found[5].any()
    signs = np.sign((found * np.insert(expected, 5, 0, axis=0)).sum(0))
    assert np.delete(found, 5, axis=0) * signs == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("count", [0, 3])
def test_without_any_vector_all_are_zero(count: int) -> None:
    found = principal_vectors(some_vectors(0), np.arange(count), np.ones(count), 4)
    assert found.tolist() == [[0.0] * 4] * count


def test_mean_vectors_are_those_of_the_first_documents_with_ngrams(monkeypatch: pytest.MonkeyPatch) -> None:
    vectors = np.array([[1.0, 0.0], [3.0, 2.0], [8.0, 4.0]], dtype=np.float32)
    documents = Occurrences(
        np.array([1, 2, 3, 3, 3], dtype=np.int32), np.array([0, 2, 2, 3, 5]), np.ones(4, dtype=np.int32)
    )
    assert mean_vectors(documents, vectors).tolist() == [[2.0, 1.0], [8.0, 4.0], [8.0, 4.0]]
    monkeypatch.setattr(occurrences, "MAX_MEANS", 2)
    assert mean_vectors(documents, vectors).tolist() == [[2.0, 1.0]]
    assert mean_vectors(documents.of_documents(np.array([1])), vectors).shape == (0, 2)
