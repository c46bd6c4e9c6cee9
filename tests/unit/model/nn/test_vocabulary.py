"""The vocabulary: every n-gram has an id of its own."""

import numpy as np
import pytest
import torch

from model.nn.vocabulary import MAX_DISPLACEMENTS, Vocabulary
from model.nn.words import MODULUS


def distinct_hashes(count: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).choice(MODULUS, count, replace=False).astype(np.int64)


@pytest.mark.parametrize("count", [1, 2, 3, 100, 5000])
def test_every_ngram_has_an_id_of_its_own_and_no_other_ngram_has_one(count: int) -> None:
    hashes = distinct_hashes(2 * count)
    vocabulary = Vocabulary(count)
    vocabulary.fill(hashes[:count])
    assert vocabulary(torch.from_numpy(hashes[:count])).tolist() == list(range(1, count + 1))
    assert vocabulary(torch.from_numpy(hashes[count:])).tolist() == [0] * count


def test_vocabulary_of_fewer_ngrams_than_it_has_room_for() -> None:
    hashes = distinct_hashes(10)
    vocabulary = Vocabulary(1000)
    vocabulary.fill(hashes)
    assert vocabulary(torch.from_numpy(hashes)).tolist() == list(range(1, 11))


def test_ngrams_that_no_displacement_can_separate_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    assert MAX_DISPLACEMENTS > 100
    monkeypatch.setattr("model.nn.vocabulary.MAX_DISPLACEMENTS", 1)
    vocabulary = Vocabulary(5000)
    with pytest.raises(ValueError, match="no perfect hash of 5000 n-grams in 8192 slots was found"):
        vocabulary.fill(distinct_hashes(5000))


@pytest.mark.parametrize("seed", range(20))
def test_vocabulary_that_is_filled_again_knows_only_the_new_ngrams(seed: int) -> None:
    hashes = distinct_hashes(200, seed)
    vocabulary = Vocabulary(100)
    vocabulary.fill(hashes[:100])
    vocabulary.fill(hashes[100:150])
    assert vocabulary(torch.from_numpy(hashes[100:150])).tolist() == list(range(1, 51))
    # -1 stands for an n-gram that would start before the document.
    assert vocabulary(torch.tensor([-1, *hashes[:100], *hashes[150:]])).tolist() == [0] * 151
