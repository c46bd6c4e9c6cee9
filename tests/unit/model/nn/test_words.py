"""Words and their n-grams, compared with a reference that splits and hashes every word separately."""

from functools import cache

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from model.nn.words import MODULUS, WordHasher
from tests.support import reference
from tests.support.words import CONFIG, LENGTH, Texts, padded


@cache
def hasher_of(longest: int = CONFIG.longest) -> WordHasher:
    return WordHasher(longest, LENGTH)


def ngrams_of(hasher: WordHasher, *texts: bytes, length: int = LENGTH) -> list[list[list[int]]]:
    """Return the n-grams of each document in the format of the reference."""
    hashes, doc_index, where = hasher(*padded(*texts, length=length))
    assert (hashes.dtype, doc_index.dtype) == (torch.int64, torch.int64)
    assert hashes.shape == (hasher.longest, len(doc_index))
    assert (doc_index.diff() >= 0).all()
    for i, text in enumerate(texts):
        assert where[doc_index == i].tolist() == [end for _, end in reference.located_words(text)]
    return [hashes[:, doc_index == i].T.tolist() for i in range(len(texts))]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b"Two words", ["two", "words"]),
        (b"  don't!\x00Stop\n", ["dont", "!", "stop"]),
        (b"a1-b2...", ["a1", "-", "b2", ".", ".", "."]),
        (b"it's 'so' ''", ["its", "so", ""]),
        (b"a\x7fb\x1fc", ["a", "b", "c"]),
        (b"AZ az @[`{~", ["az", "az", "@", "[", "`", "{", "~"]),
        (b" \x00\t\n", []),
    ],
)
def test_text_is_split_into_words_as_documented(text: bytes, words: list[str]) -> None:
    assert reference.words(text) == words
    assert ngrams_of(hasher_of(1), text) == [[[reference.word_hash(word)] for word in words]]


@settings(max_examples=200)
@given(Texts)
def test_places_without_a_word_have_no_ngrams(texts: list[bytes]) -> None:
    """With fixed shapes, the hashes are those of the words, then -1; also after a last word of apostrophes."""
    for chosen in (texts, [b'5, "', b"' '", b"!!"]):
        document, lengths = padded(*chosen)
        hashes, doc_index, where = hasher_of()(document, lengths)
        fixed, fixed_index, fixed_where = hasher_of()(document, lengths, has_fixed_shapes=True)
        for i in range(len(chosen)):
            of_document, expected = fixed[:, fixed_index == i], hashes[:, doc_index == i]
            count = expected.shape[1]
            assert torch.equal(of_document[:, :count], expected)
            assert (of_document[:, count:] == -1).all()
            assert torch.equal(fixed_where[fixed_index == i][:count], where[doc_index == i])


@settings(max_examples=200)
@given(Texts)
def test_ngrams_equal_reference(texts: list[bytes]) -> None:
    expected = [reference.word_ngrams(text, CONFIG.longest) for text in texts]
    assert ngrams_of(hasher_of(), *texts) == expected


@settings(max_examples=50)
@given(Texts, st.integers(1, 8), st.binary(min_size=LENGTH, max_size=LENGTH))
def test_ngrams_of_any_length_equal_reference_and_ignore_padding(
    texts: list[bytes], longest: int, noise: bytes
) -> None:
    hasher = hasher_of(longest)
    document, lengths = padded(*texts)
    dirty = torch.where(torch.arange(LENGTH) < lengths[:, None], document, torch.tensor(list(noise), dtype=torch.uint8))
    for ours, theirs in zip(hasher(dirty, lengths), hasher(document, lengths), strict=True):
        assert torch.equal(ours, theirs)
    assert ngrams_of(hasher, *texts) == [reference.word_ngrams(text, longest) for text in texts]


@settings(max_examples=30)
@given(Texts)
def test_ngrams_do_not_depend_on_padding_or_the_rest_of_the_batch(texts: list[bytes]) -> None:
    together = ngrams_of(hasher_of(), *texts)
    for text, found in zip(texts, together, strict=True):
        assert ngrams_of(hasher_of(), text, length=len(text)) == [found]


def test_documents_without_words_have_no_ngrams() -> None:
    assert ngrams_of(hasher_of(), b" ", bytes(7), b"\n\t") == [[], [], []]
    word = [reference.word_hash("word"), -1, -1]
    assert ngrams_of(hasher_of(), b" ", b"word", bytes(9), b"word") == [[], [word], [], [word]]


def test_long_documents_are_hashed_without_overflow() -> None:
    hasher = WordHasher(3, 4096)
    letters = np.random.default_rng(0).choice(list(b"az\xff\xfe\xdf"), 4096).astype(np.uint8).tobytes()
    for text in (b"\xdf" * 4096, letters, (b"z" * 9 + b" ") * 409):
        (found,) = ngrams_of(hasher, text, length=4096)
        assert found == reference.word_ngrams(text, 3)
        assert all(0 <= value < MODULUS for row in found[2:] for value in row)


def test_tables_are_not_stored_with_the_weights() -> None:
    assert not hasher_of().state_dict()
