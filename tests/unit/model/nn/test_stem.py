"""The n-gram stem and its hashes, compared with a reference that hashes every n-gram separately."""

import math
from functools import cache

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from artifact.documents import pad_rows
from model.config.models import StemConfig
from model.nn.stem import ByteHasher, NgramStem
from tests.support import reference
from tests.support.numerics import close, randomise

CONFIG = StemConfig(shortest=2, longest=4, num_buckets=64, patch_length=4)
NUM_TOKENS, DIM = 6, 5
LENGTH = NUM_TOKENS * CONFIG.patch_length

Texts = st.lists(st.binary(min_size=1, max_size=LENGTH), min_size=1, max_size=4)


# Single-precision sums of at most 12 terms of at most 3, over 12.
SINGLE = 3 * 13 * 2**-24


@cache
def random_stem() -> tuple[NgramStem, reference.State]:
    """Return a stem in training mode, which computes in double precision; in eval mode it uses single precision."""
    stem = NgramStem(CONFIG.sizes, CONFIG.num_buckets, CONFIG.patch_length, NUM_TOKENS, DIM)
    state = randomise(stem)
    return stem.train(), state


def padded(*texts: bytes) -> tuple[torch.Tensor, torch.Tensor]:
    document, lengths = pad_rows(texts, LENGTH)
    return torch.from_numpy(document), torch.from_numpy(lengths)


@settings(max_examples=50)
@given(Texts)
def test_stem_equals_reference(texts: list[bytes]) -> None:
    stem, state = random_stem()
    tokens = stem(*padded(*texts))
    for text, found in zip(texts, tokens, strict=True):
        assert close(found, reference.stem(text, state, CONFIG, NUM_TOKENS))


@settings(max_examples=50)
@given(st.binary(min_size=1, max_size=LENGTH), st.integers(1, 16), st.integers(0, 15), st.integers(1, 24))
def test_every_ngram_within_the_document_has_its_row(text: bytes, shortest: int, more: int, power: int) -> None:
    config = StemConfig(shortest=shortest, longest=min(16, shortest + more), num_buckets=2**power, patch_length=4)
    with torch.device("meta"):
        stem = NgramStem(config.sizes, config.num_buckets, config.patch_length, NUM_TOKENS, 1)
    small = NgramStem(CONFIG.sizes, CONFIG.num_buckets, CONFIG.patch_length, NUM_TOKENS, 1)
    stem.hasher.fold, stem.hasher.positions = small.hasher.fold, small.hasher.positions
    rows = stem.rows(*padded(text))[0]
    expected = reference.ngram_rows(text, config)
    for end in range(LENGTH):
        for index, n in enumerate(range(config.shortest, config.longest + 1)):
            assert rows[end, index] == expected.get((end, n), 0)
    assert all(1 <= row <= config.num_buckets for row in expected.values())


def test_rows_include_the_first_and_the_last_row() -> None:
    config = StemConfig(shortest=3, longest=3, num_buckets=16, patch_length=64)
    stem = NgramStem(config.sizes, config.num_buckets, config.patch_length, 64, 1)
    document = torch.randint(0, 256, (1, 4096), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    counts = torch.bincount(stem.rows(document, torch.tensor([4096], dtype=torch.int32)).flatten())
    assert counts[0] == 2
    assert len(counts) == 17
    # 4094 n-grams in 16 rows: 256 each, standard deviation 15.5.
    assert (counts[1:] - 256).abs().max() < 5 * 15.5


def test_nul_is_an_ordinary_byte() -> None:
    stem, _ = random_stem()
    short, long, letters = stem(*padded(bytes(3), bytes(4), bytes(3) + b"a"))
    assert not torch.allclose(short[0], long[0])
    assert not torch.allclose(long[0], letters[0])
    assert (stem.rows(*padded(bytes(LENGTH)))[0, CONFIG.longest - 1 :] > 0).all()


@settings(max_examples=50)
@given(Texts, st.binary(min_size=LENGTH, max_size=LENGTH))
def test_bytes_beyond_the_length_are_not_read(texts: list[bytes], noise: bytes) -> None:
    stem, _ = random_stem()
    document, lengths = padded(*texts)
    rest = torch.tensor(list(noise), dtype=torch.uint8)
    dirty = torch.where(torch.arange(LENGTH) < lengths[:, None], document, rest)
    assert torch.equal(stem(dirty, lengths), stem(document, lengths))


def test_upper_case_equals_lower_case_and_nothing_else_is_folded() -> None:
    stem, _ = random_stem()
    upper = b"ABCXYZ" + bytes(range(65, 78)) + b"MNO@["
    assert torch.equal(*stem.rows(*padded(upper, upper.lower())))
    assert torch.equal(*stem(*padded(upper, upper.lower())))
    for byte, other in (("@", "`"), ("[", "{"), ("\xc4", "\xe4"), ("1", "Q")):
        left, right = stem(*padded(3 * byte.encode("latin-1"), 3 * other.encode("latin-1")))
        assert not torch.allclose(left, right)


@settings(max_examples=20)
@given(Texts)
def test_stem_in_eval_mode_equals_training_mode(texts: list[bytes]) -> None:
    stem, _ = random_stem()
    other = NgramStem(CONFIG.sizes, CONFIG.num_buckets, CONFIG.patch_length, NUM_TOKENS, DIM).eval()
    other.load_state_dict(stem.state_dict())
    assert torch.allclose(other(*padded(*texts)).double(), stem(*padded(*texts)), rtol=0, atol=SINGLE)


@settings(max_examples=20)
@given(Texts)
def test_quantised_stem_sums_the_rounded_table_in_single_precision(texts: list[bytes]) -> None:
    _, state = random_stem()
    stem = NgramStem(CONFIG.sizes, CONFIG.num_buckets, CONFIG.patch_length, NUM_TOKENS, DIM).eval()
    stem.load_state_dict({"weight": torch.from_numpy(state["weight"])})
    stem.quantise()
    assert stem.weight.dtype == torch.int8
    tokens = stem(*padded(*texts))
    assert tokens.dtype == torch.float32
    weight = state["weight"].astype(np.float32)
    step = np.abs(weight).max(axis=0) / np.float32(127)
    rounded = {"weight": np.round(weight / step).astype(np.float64) * step}
    for text, found in zip(texts, tokens, strict=True):
        expected = reference.stem(text, rounded, CONFIG, NUM_TOKENS)
        assert np.abs(found.detach().numpy() - expected).max() <= SINGLE


def test_training_does_not_change_the_row_of_no_ngram() -> None:
    torch.manual_seed(0)
    stem = NgramStem(CONFIG.sizes, CONFIG.num_buckets, CONFIG.patch_length, NUM_TOKENS, DIM)
    stem.initialise(torch.zeros(CONFIG.num_buckets), 9)
    before = stem.weight.detach().clone()
    optimiser = torch.optim.AdamW(stem.parameters(), lr=0.1, weight_decay=0.1)
    texts = padded(b"some words", b"a")
    for _ in range(3):
        optimiser.zero_grad()
        (stem(*texts) - 1).square().sum().backward()
        optimiser.step()
    assert stem.weight.grad is not None
    assert not stem.weight.grad[0].any()
    assert not stem.weight[0].any()
    seen = {row for text in (b"some words", b"a") for row in reference.ngram_rows(text, CONFIG).values()}
    assert {row for row in range(1, 65) if stem.weight.grad[row].any()} == seen
    assert all(not torch.allclose(stem.weight[row], before[row]) for row in seen)


def test_stem_is_zero_until_it_is_initialised() -> None:
    assert not NgramStem(CONFIG.sizes, CONFIG.num_buckets, CONFIG.patch_length, NUM_TOKENS, DIM)(*padded(b"text")).any()


def test_initialise_scales_every_row_by_its_idf() -> None:
    torch.manual_seed(0)
    dim, count = 10_000, 50
    stem = NgramStem((1,), 4, 1, 2, dim)
    stem.initialise(torch.tensor([0.0, 1.0, 7.0, 50.0]), count)
    assert not stem.weight[0].any()
    for row, frequency in zip(stem.weight[1:].detach().numpy(), (0, 1, 7, 50), strict=True):
        idf = math.log((1 + count) / (1 + frequency))
        # The deviation of 10,000 normal numbers is known to 0.7 %, and their mean to 1 % of it.
        assert row.std() == pytest.approx(idf, rel=5 * 0.0071)
        assert abs(row.mean()) <= 5 * 0.01 * idf


def test_initial_inner_products_approximate_tf_idf() -> None:
    torch.manual_seed(0)
    dim = 20_000
    stem = NgramStem(CONFIG.sizes, CONFIG.num_buckets, CONFIG.patch_length, NUM_TOKENS, dim)
    frequencies = torch.arange(64.0) % 9
    stem.initialise(frequencies, 9)
    texts = [b"a first text", b"a second text", b"something else"]
    idf = np.log(10 / (1 + frequencies.numpy()))
    counts = [np.bincount(list(reference.ngram_rows(text, CONFIG).values()), minlength=65)[1:] for text in texts]
    features = np.stack(counts) * idf
    expected = features @ features.T
    pooled = stem(*padded(*texts)).detach().double().sum(dim=1).numpy() * CONFIG.patch_length * 3
    size = np.sqrt(np.outer(np.diag(expected), np.diag(expected)))
    # The error of a projection to d dimensions has a standard deviation of at most sqrt(2 / d) times both lengths.
    assert (np.abs(pooled @ pooled.T / dim - expected) <= 5 * math.sqrt(2 / dim) * size).all()


AnySizes = st.sets(st.integers(1, 12), min_size=1, max_size=4).map(lambda sizes: tuple(sorted(sizes)))


@settings(max_examples=50)
@given(Texts, AnySizes, st.integers(0, 5))
def test_hashes_equal_reference_and_are_none_outside_the_document(
    texts: list[bytes], sizes: tuple[int, ...], more: int
) -> None:
    width = max(map(len, texts)) + more
    document, lengths = (torch.from_numpy(part) for part in pad_rows(texts, width))
    hasher = ByteHasher(sizes, LENGTH + 5)
    hashes, doc_index, position = hasher(document, lengths)
    assert tuple(hasher.lengths) == sizes
    assert doc_index.tolist() == [i for i in range(len(texts)) for _ in range(width)]
    assert position.tolist() == list(range(width)) * len(texts)
    for text, found in zip(texts, hashes.T.reshape(len(texts), width, len(sizes)), strict=True):
        padding = [[-1] * len(sizes)] * (width - len(text))
        assert found.tolist() == reference.byte_ngrams(text, sizes) + padding


def test_hashes_fold_ascii_letters_only_and_count_nul_as_a_byte() -> None:
    hasher = ByteHasher((1, 2), LENGTH)

    def hashes(text: bytes) -> list[list[int]]:
        found: list[list[int]] = hasher(*padded(text))[0][:, : len(text)].tolist()
        return found

    letters = bytes(range(ord("A"), ord("Z") + 1))[:LENGTH]
    assert hashes(letters) == hashes(letters.lower())
    every = {hashes(bytes([byte]))[0][0] for byte in range(256)}
    assert len(every) == 256 - 26
    assert hashes(bytes(2)) == [[1, 1], [-1, 258]]
    assert len({hashes(text)[1][1] for text in (b"\x00\x00", b"\x00a", b"a\x00")}) == 3


def test_every_byte_has_a_hash_of_its_own_without_folding() -> None:
    hasher = ByteHasher((1,), 256, fold_case=False)
    document = torch.arange(256, dtype=torch.uint8).reshape(1, 256)
    hashes, *_ = hasher(document, torch.tensor([256], dtype=torch.int32))
    assert hashes.unique().numel() == 256


def test_hashes_of_different_sizes_of_short_ngrams_are_different() -> None:
    found = [set(row.tolist()) - {-1} for row in ByteHasher((1, 2, 3), LENGTH)(*padded(bytes(range(LENGTH))))[0]]
    assert len(set().union(*found)) == sum(map(len, found)) == 3 * LENGTH - 3
