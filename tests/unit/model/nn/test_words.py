"""Words and their n-grams, compared with a reference that splits and hashes every word separately."""

# ruff: noqa: RUF001
import re
import unicodedata
from functools import cache

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from model.nn.words import MODULUS, PREFIXES, WordHasher
from tests.support import reference
from tests.support.words import CHARACTERS, CONFIG, LENGTH, Text, Texts, padded


@cache
def hasher_of(longest: int = CONFIG.longest, *, prefixes: tuple[int, ...] = ()) -> WordHasher:
    return WordHasher(longest, LENGTH, prefixes=prefixes)


def ngrams_of(hasher: WordHasher, *texts: bytes, length: int = LENGTH) -> list[list[list[int]]]:
    """Return the n-grams of each document in the format of the reference."""
    hashes, doc_index, where = hasher(*padded(*texts, length=length))
    assert (hashes.dtype, doc_index.dtype) == (torch.int64, torch.int64)
    assert hashes.shape == (hasher.longest + len(hasher.prefixes), len(doc_index))
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
        ("An\u00a0awful\u3000dull\u200bmovie\u2028", ["an", "awful", "dull", "movie"]),
        ("The plot”dull. The end—awful…", ["the", "plot", '"', "dull", ".", "the", "end", "-", "awful", "."]),
        ("\ufeffAwful", ["awful"]),
        ("Ужасный. ПЛОХОЙ!", ["ужасныи", ".", "плохои", "!"]),
        ("«Nai\u0308ve» ÜBUNG, naïve", ['"', "naive", '"', "ubung", ",", "naive"]),
        ("It’s ‘so’ － don\u02bct", ["its", "so", "-", "dont"]),
        ("co\u00adop می\u200cخواهم", ["coop", "میخواهم"]),
        ("ΟΔΥΣΣΕΥΣ, Οδυσσεύς", ["οδυσσευσ", ",", "οδυσσευσ"]),
        ("ＡＢｃ１２！ m² 1️⃣ ❤️.", ["abc12", "!", "m2", "1", "❤", "."]),
        ("हिन्दी भाषा", ["हिन्दी", "भाषा"]),
        ("TIẾNG Tiê\u0301ng", ["tieng", "tieng"]),
        ("東京Tower, 日本。ｱア", ["東", "京", "tower", ",", "日", "本", ".", "ア", "ア"]),
        ("한국 ไทย ๑๒", ["한", "국", "ไ", "ท", "ย", "๑๒"]),
        ("x🙂y\u2212\u00d7\u2260=", ["x", "\uf642", "y", "-", "×", "≠", "="]),
        ("e" + 3 * "\u0301" + "x e" + 4 * "\u0301" + "x", ["ex", "e", "x"]),
        (b"caf\xe9 \x80c\x80d\x92s \xe2\x80a", ["cafe", "cds", "aa"]),
        ("東京".encode()[1:-1], ["a"]),
    ],
)
def test_text_is_split_into_words_as_documented(text: bytes | str, words: list[str]) -> None:
    text = text.encode() if isinstance(text, str) else text
    assert reference.words(text) == words
    assert ngrams_of(hasher_of(1), text) == [[[reference.word_hash(word)] for word in words]]


@given(st.binary(min_size=1, max_size=LENGTH).map(lambda text: bytes(byte % 128 for byte in text)))
def test_words_of_ascii_are_runs_of_letters_and_digits_and_single_marks(text: bytes) -> None:
    found = re.findall(rb"[A-Za-z0-9']+|[!-/:-@\[-`{-~]", text)
    words = [word.lower().replace(b"'", b"").decode() for word in found]
    assert ngrams_of(hasher_of(1), text) == [[[reference.word_hash(word)] for word in words]]


@given(st.text(st.characters(max_codepoint=0x24F, categories=("Lu", "Ll", "Nd", "Zs")), min_size=1, max_size=12))
def test_accents_may_be_characters_of_their_own(text: str) -> None:
    composed, decomposed = (unicodedata.normalize(form, text).encode() for form in ("NFC", "NFD"))
    assert ngrams_of(hasher_of(), composed) == ngrams_of(hasher_of(), decomposed, length=max(LENGTH, len(decomposed)))


@given(
    st.text(st.characters(min_codepoint=0x370, max_codepoint=0x52F, categories=("Lu", "Zs")), min_size=1, max_size=20)
)
def test_greek_and_cyrillic_count_in_lower_case(text: str) -> None:
    assert ngrams_of(hasher_of(), text.encode()) == ngrams_of(hasher_of(), text.lower().encode())


@settings(max_examples=30)
@given(Text, st.sampled_from(CHARACTERS))
def test_cut_characters_do_not_change_the_words_after_or_before_them(text: bytes, character: str) -> None:
    """A window may begin and end within a character."""
    whole, after = character.encode(), b" end"
    last = reference.word_hash("end")
    for length in range(1, len(whole)):
        for part in (whole[:length], whole[length:]):
            assert ngrams_of(hasher_of(1), part + after)[0][-1] == [last]
    for end in range(1, len(text) + 1):
        for part in (text[:end], text[end - 1 :]):
            assert ngrams_of(hasher_of(), part) == [reference.word_ngrams(part, CONFIG.longest)]


def test_place_of_a_word_is_that_of_its_last_character() -> None:
    text = "né e\u0301\u0301 — 東x"
    _, _, where = hasher_of()(*padded(text.encode()))
    assert where.tolist() == [len(text[:i].encode()) for i in (1, 3, 7, 9, 10)]


@pytest.mark.parametrize("prefixes", [(), PREFIXES])
@settings(max_examples=200)
@given(texts=Texts)
def test_places_without_a_word_have_no_ngrams(texts: list[bytes], prefixes: tuple[int, ...]) -> None:
    """With fixed shapes, the hashes are those of the words, then -1; also after a last word of apostrophes."""
    for chosen in (texts, [b'5, "', b"' '", b"!!"]):
        document, lengths = padded(*chosen)
        hasher = hasher_of(prefixes=prefixes)
        hashes, doc_index, where = hasher(document, lengths)
        fixed, fixed_index, fixed_where = hasher(document, lengths, has_fixed_shapes=True)
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


@settings(max_examples=200)
@given(Texts)
def test_prefixes_follow_the_ngrams_and_equal_reference(texts: list[bytes]) -> None:
    expected = [reference.word_ngrams(text, CONFIG.longest, prefixes=True) for text in texts]
    assert ngrams_of(hasher_of(prefixes=PREFIXES), *texts) == expected


@pytest.mark.parametrize("fixed", [False, True])
@settings(max_examples=100)
@given(texts=Texts)
def test_numbered_words_have_no_prefixes_if_they_are_skipped(texts: list[bytes], fixed: bool) -> None:
    documents = [*texts, b"code1234 code1235 4code codes c0des ", "１２３ab abc".encode()]
    every, some = (WordHasher(1, LENGTH, prefixes=(4,), skips_numbered=only) for only in (False, True))
    hashes, doc_index, _ = every(*padded(*documents), has_fixed_shapes=fixed)
    found, _, _ = some(*padded(*documents), has_fixed_shapes=fixed)
    words = [reference.words(text) for text in documents]
    for document, its in enumerate(words):
        of_document = hashes[:, doc_index == document][:, : len(its)], found[:, doc_index == document][:, : len(its)]
        for word, all_hashes, kept in zip(its, of_document[0].T.tolist(), of_document[1].T.tolist(), strict=True):
            assert kept == [all_hashes[0], -1 if any("0" <= char <= "9" for char in word) else all_hashes[1]]


def test_words_with_different_endings_share_prefixes() -> None:
    (found,) = ngrams_of(hasher_of(1, prefixes=PREFIXES), "Столами столы СТО! 東x".encode(), length=LENGTH)
    prefixes = [dict(zip(PREFIXES, row[1:], strict=True)) for row in found]
    for begun, shared, size in zip(prefixes, (7, 4, 3, 0, 0, 0), (7, 5, 3, 1, 1, 1), strict=True):
        for count, value in begun.items():
            assert (value == prefixes[0][count]) == (count <= shared)
            assert (value == -1) == (count > size)


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
    hasher = hasher_of(prefixes=PREFIXES)
    together = ngrams_of(hasher, *texts)
    for text, found in zip(texts, together, strict=True):
        assert ngrams_of(hasher, text, length=len(text)) == [found]


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
