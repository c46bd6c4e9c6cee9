"""Words of documents, and the vectors trained on them."""

import numpy as np
import pytest
from hypothesis import given, settings

from model.config.models import VectorsConfig
from model.nn.words import WordHasher
from model.tasks.vectors import Words, choose_words, hash_words, known_ids, train_vectors
from tests.support import reference
from tests.support.words import LENGTH, Texts

HASHER = WordHasher(1, LENGTH)
TEXTS = [b"one two one", b"two! <br /> Three", b" ", b"one"]
IGNORED = [b"< br / >"]


def hashes(*words: str) -> list[int]:
    return [reference.word_hash(word) for word in words]


@settings(max_examples=50)
@given(Texts)
def test_words_equal_reference_in_the_order_of_the_documents(texts: list[bytes]) -> None:
    found = hash_words(HASHER, texts)
    assert len(found) == len(texts)
    for i, text in enumerate(texts):
        assert found[i].tolist() == hashes(*(word for word in reference.words(text)))
    assert found.lengths.tolist() == [len(text) for text in texts]
    assert found.counts().tolist() == [len(reference.words(text)) for text in texts]


def test_no_documents_have_no_words() -> None:
    found = hash_words(HASHER, [])
    assert (len(found), found.values.tolist(), found.starts.tolist()) == (0, [], [0])


def test_words_are_found_in_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = hash_words(HASHER, TEXTS)
    monkeypatch.setattr("model.tasks.vectors.BATCH", 2)
    found = hash_words(HASHER, TEXTS)
    assert found.values.tolist() == expected.values.tolist()
    assert found.starts.tolist() == expected.starts.tolist()


@pytest.mark.parametrize(("count", "words"), [(1, ["one"]), (2, ["one", "two"]), (9, ["one", "two", "!", "three"])])
def test_most_frequent_words_are_chosen_without_the_ignored_ones(count: int, words: list[str]) -> None:
    parts = [hash_words(HASHER, TEXTS[:2]), hash_words(HASHER, TEXTS[2:])]
    chosen = choose_words(parts, hash_words(HASHER, IGNORED), count)
    assert set(chosen[:2].tolist()) == set(hashes(*words[:2]))
    assert set(chosen.tolist()) == set(hashes(*words))


def test_known_words_have_ids_and_others_are_left_out() -> None:
    vocabulary = np.array(hashes("two", "one"))
    found = known_ids(hash_words(HASHER, TEXTS), vocabulary)
    assert [found[i].tolist() for i in range(4)] == [[2, 1, 2], [1], [], [2]]
    assert found.lengths.tolist() == [len(text) for text in TEXTS]


def toy() -> list[Words]:
    """Sentences in which the words 1 and 2 have the same neighbours, and the word 3 others."""
    generator = np.random.default_rng(0)
    lines = [
        [10, generator.choice([1, 2]), 11] * 3 if generator.random() < 0.5 else [12, 3, 13] * 3 for _ in range(400)
    ]
    starts = np.arange(401) * 9
    return [Words(np.concatenate(lines).astype(np.int32), starts, np.full(400, 20, dtype=np.int32))]


VECTORS = VectorsConfig(window=2, subsampling=1.0, epochs=20)


def test_words_in_the_same_places_get_similar_vectors() -> None:
    vectors = train_vectors(toy(), 14, 8, VECTORS, seed=0)
    assert vectors.shape == (15, 8)
    assert not vectors[0].any()
    assert not vectors[14].any()  # never seen
    assert np.mean(vectors[1:] ** 2) == pytest.approx(1.0, rel=1e-6)
    unit = vectors[1:4] / np.linalg.norm(vectors[1:4], axis=1, keepdims=True)
    assert unit[0] @ unit[1] > unit[0] @ unit[2]


def test_a_seed_gives_the_same_vectors_again() -> None:
    first, second, other = (train_vectors(toy(), 14, 8, VECTORS, seed=seed) for seed in (0, 0, 1))
    assert np.array_equal(first, second)
    assert not np.array_equal(first, other)
