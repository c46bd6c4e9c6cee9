"""Words: the stem against a reference that cuts and hashes every word by itself, the choice of runs, the classifier."""

import math
from collections import Counter
from functools import cache
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from artifact.documents import pad_rows
from model.config.attentions import S3Options
from model.config.encoder import EncoderConfig
from model.config.models import ClassifierConfig, WordStemConfig
from model.nn.attention.s3 import DENSE_LENGTH
from model.nn.classifier import NOISE, WordClassifier
from model.nn.words import FOLDS, MODULUS, WordStem, choose
from model.training.loop import parameter_groups
from tests.support import reference
from tests.support.configs import changed
from tests.support.numerics import close, expect_gradient_everywhere, randomise

CONFIG = WordStemConfig(longest=3, num_slots=64, patch_length=4, dropout=0.0)
NUM_TOKENS, DIM, CLASSES = 12, 5, 3
LENGTH = NUM_TOKENS * CONFIG.patch_length

# Float64: answers of one document in two buckets differ by the rounding of their sums, relative to the largest value.
ROUNDING = 1e-13

ODD = b"abAZ09'' ..!\x00\n\x1f\x7f\x80\xc3\xa9\xdf\xe0\xe6\x97\xa5\xf0\xff"
"""A byte of every kind, some of them on the edges."""
Odd = st.lists(st.sampled_from(ODD), min_size=1, max_size=LENGTH).map(bytes)
Texts = st.lists(st.one_of(Odd, st.binary(min_size=1, max_size=LENGTH)), min_size=1, max_size=5)


def padded(*texts: bytes, length: int = LENGTH) -> tuple[torch.Tensor, torch.Tensor]:
    document, lengths = pad_rows(texts, length)
    return torch.from_numpy(document), torch.from_numpy(lengths)


def same(ours: torch.Tensor, theirs: torch.Tensor) -> bool:
    difference = (ours - theirs).detach().abs().max()
    return bool(difference <= ROUNDING * max(1.0, float(theirs.detach().abs().max())))


@cache
def plain(longest: int = CONFIG.longest) -> WordStem:
    return WordStem(changed(CONFIG, longest=longest), LENGTH, DIM, CLASSES)


def runs_of(stem: WordStem, *texts: bytes) -> list[dict[tuple[int, int], int]]:
    """What `runs` found, as the reference gives it."""
    hashes, which, where = stem.runs(*padded(*texts))
    assert hashes.dtype == torch.int64
    found: list[dict[tuple[int, int], int]] = [{} for _ in texts]
    for row, document, end in zip(hashes.tolist(), which.tolist(), where.tolist(), strict=True):
        found[document] |= {(end, n): value for n, value in enumerate(row, start=1) if value != -1}
    return found


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b"Two words", [b"two", b"words"]),
        (b"  don't!\x00Stop\n", [b"dont", b"!", b"stop"]),
        (b"a1-b2...", [b"a1", b"-", b"b2", b".", b".", b"."]),
        ("naïve Übung".encode(), ["naïve".encode(), "Übung".encode()]),
        ("東京, 日本".encode(), ["東".encode(), "京".encode(), b",", "日".encode(), "本".encode()]),
        ("x🙂y".encode(), [b"x", "🙂y".encode()]),
        (b"it's 'so' ''", [b"its", b"so", b""]),
        (b"a\x7fb\x1fc\x80d", [b"a", b"b", b"c\x80d"]),
        (b"\x80\xdf\xe0\xff!", [b"\x80\xdf", b"\xe0", b"\xff", b"!"]),
        (b"AZ az @[`{~", [b"az", b"az", b"@", b"[", b"`", b"{", b"~"]),
        (b" \x00\t\n", []),
    ],
)
def test_words_are_cut_as_described(text: bytes, words: list[bytes]) -> None:
    assert [word for word, _ in reference.words(text)] == words
    found = runs_of(plain(1), text)[0]
    assert list(found.values()) == [reference.word_hash(word) for word in words]


@settings(max_examples=200)
@given(Texts)
def test_runs_equal_reference(texts: list[bytes]) -> None:
    for text, found in zip(texts, runs_of(plain(), *texts), strict=True):
        assert found == reference.word_runs(text, CONFIG.longest)


@settings(max_examples=50)
@given(Texts, st.integers(1, 8), st.binary(min_size=LENGTH, max_size=LENGTH))
def test_runs_of_any_length_equal_reference_and_bytes_beyond_the_length_are_not_read(
    texts: list[bytes], longest: int, noise: bytes
) -> None:
    stem = plain(longest)
    document, lengths = padded(*texts)
    dirty = torch.where(torch.arange(LENGTH) < lengths[:, None], document, torch.tensor(list(noise), dtype=torch.uint8))
    for ours, theirs in zip(stem.runs(dirty, lengths), stem.runs(document, lengths), strict=True):
        assert torch.equal(ours, theirs)
    for text, found in zip(texts, runs_of(stem, *texts), strict=True):
        assert found == reference.word_runs(text, longest)


@settings(max_examples=30)
@given(Texts)
def test_runs_do_not_depend_on_padding_or_batch_mates(texts: list[bytes]) -> None:
    stem, together = plain(), runs_of(plain(), *texts)
    for text, found in zip(texts, together, strict=True):
        hashes, _, where = stem.runs(*padded(text, length=len(text)))
        alone = {
            (end, n): v for row, end in zip(hashes.tolist(), where.tolist(), strict=True) for n, v in enumerate(row, 1)
        }
        assert {key: value for key, value in alone.items() if value != -1} == found


def test_long_documents_are_hashed_without_overflow() -> None:
    stem = WordStem(CONFIG, 4096, 1, 2)
    letters = np.random.default_rng(0).choice(list(b"az\xff\xfe\xdf"), 4096).astype(np.uint8).tobytes()
    for text in (b"\xdf" * 4096, letters, (b"z" * 9 + b" ") * 409):
        hashes, _, where = stem.runs(*padded(text, length=4096))
        expected = reference.word_runs(text, 3)
        assert len(hashes) == len(reference.words(text))
        for row, end in list(zip(hashes.tolist(), where.tolist(), strict=True))[-20:]:
            assert row == [expected.get((end, n), -1) for n in (1, 2, 3)]
    assert hashes[2:].min() >= 0
    assert hashes.max() < MODULUS


def test_slots_are_the_upper_bits() -> None:
    hashes = [0, 1, 2, 12345, MODULUS - 1, *np.random.default_rng(0).integers(0, MODULUS, 1000).tolist()]
    for power in (1, 6, 16, 24):
        with torch.device("meta"):
            stem = WordStem(changed(CONFIG, num_slots=2**power), 4, 1, 2)
        slots = stem.slots(torch.tensor(hashes)).tolist()
        assert slots == [reference.slot_of(value, 2**power) for value in hashes]
    assert set(plain().slots(torch.tensor(hashes)).tolist()) == set(range(64))


def knowing(hashes: list[int]) -> tuple[WordStem, reference.State]:
    """A stem that has rows for these runs, in double precision, every number in it random."""
    stem = WordStem(CONFIG, LENGTH, DIM, CLASSES)
    stem.fill(np.array(hashes, dtype=np.int64), torch.zeros(FOLDS + 1, len(hashes), CLASSES))
    state = randomise(stem)
    return stem, state


def every_second_run(*texts: bytes) -> list[int]:
    """Hashes of about half of the runs, and of one that no text has."""
    hashes = sorted({value for text in texts for value in reference.word_runs(text, CONFIG.longest).values()})
    return [12345, *hashes[::2]]


@settings(max_examples=50)
@given(Texts, st.integers(0, 2**30))
def test_stem_equals_reference(texts: list[bytes], seed: int) -> None:
    stem, state = knowing(every_second_run(*texts))
    folds = np.random.default_rng(seed).integers(0, FOLDS, len(texts))
    for given_folds in (None, torch.from_numpy(folds)):
        tokens, counts = stem(*padded(*texts), given_folds)
        for i, text in enumerate(texts):
            fold = FOLDS if given_folds is None else folds[i]
            expected, count = reference.word_stem(text, state, CONFIG, NUM_TOKENS, fold)
            assert close(tokens[i], expected)
            assert counts[i] == count


@settings(max_examples=20)
@given(Texts)
def test_stem_that_trains_without_dropout_equals_one_that_does_not(texts: list[bytes]) -> None:
    stem, _ = knowing(every_second_run(*texts))
    folds = torch.arange(len(texts)) % FOLDS
    for arguments in (padded(*texts), (*padded(*texts), folds)):
        for ours, theirs in zip(stem.train()(*arguments), stem.eval()(*arguments), strict=True):
            assert torch.equal(ours, theirs)


def test_dropout_leaves_out_runs_and_keeps_the_mean() -> None:
    text = b"one two three four five six seven eight"
    stem, _ = knowing(sorted(set(reference.word_runs(text, 3).values())))
    stem.config = changed(CONFIG, dropout=0.25)
    expected, count = stem(*padded(text))
    torch.manual_seed(0)
    stem.train()
    drawn = [stem(*padded(text)) for _ in range(1000)]
    assert all(int(number) == int(count) for _, number in drawn)
    tokens = torch.stack([part for part, _ in drawn])
    # The deviation of a mean of 1,000; five of them.
    error = (tokens.mean(dim=0) - expected).abs()
    assert (error <= 5 * tokens.std(dim=0) / 1000**0.5 + 1e-12).all()
    assert (tokens.std(dim=0) > 0).any()


def test_documents_without_words_give_zeros() -> None:
    stem, _ = knowing([reference.word_hash(b"word")])
    tokens, counts = stem(*padded(b" ", bytes(7), b"\n\t"))
    assert tokens.shape == (3, NUM_TOKENS, DIM)
    assert not tokens.any()
    assert counts.tolist() == [0, 0, 0]
    tokens, counts = stem(*padded(b" ", b"word", bytes(9)))
    assert [bool(part.any()) for part in tokens] == [False, True, False]
    assert counts.tolist() == [0, 1, 0]


def test_run_without_a_row_counts_as_zero_even_if_its_slot_is_taken() -> None:
    taken = reference.word_hash(b"taken")
    slot = reference.slot_of(taken, 64)
    others = [f"w{i}".encode() for i in range(2000)]
    rival = next(word for word in others if reference.slot_of(reference.word_hash(word), 64) == slot)
    free = next(word for word in others if reference.slot_of(reference.word_hash(word), 64) != slot)
    stem, state = knowing([taken])
    tokens, counts = stem(*padded(b"taken", rival, free))
    assert counts.tolist() == [1, 0, 0]
    assert [bool(part.any()) for part in tokens] == [True, False, False]
    row = state["table"][1 + slot] + state["evidence"][FOLDS, 1 + slot] @ state["directions"]
    assert close(tokens[0, 1], row)  # "taken" ends in the second patch


def test_first_of_the_runs_that_share_a_slot_gets_it() -> None:
    by_slot: dict[int, list[int]] = {}
    for i in range(500):
        value = reference.word_hash(f"w{i}".encode())
        by_slot.setdefault(reference.slot_of(value, 64), []).append(value)
    first, second = (next(part for part in by_slot.values() if len(part) > 2)[i] for i in (2, 0))
    assert second != first
    hashes = np.array([first, second, 7], dtype=np.int64)
    evidence = torch.arange(6.0 * 3 * CLASSES).reshape(6, 3, CLASSES)
    for order in ([0, 1, 2], [1, 0, 2], [2, 1, 0]):
        stem = WordStem(CONFIG, LENGTH, DIM, CLASSES)
        stem.fill(hashes[order], evidence[:, order])
        winner = min((0, 1), key=order.index)
        slots = [reference.slot_of(int(hashes[i]), 64) for i in (winner, 2)]
        expected = torch.full((64,), -1, dtype=torch.int32)
        expected[slots] = torch.from_numpy(hashes[[winner, 2]]).int()
        assert torch.equal(stem.tags, expected)
        filled = torch.zeros(6, 65, CLASSES)
        filled[:, [1 + slot for slot in slots]] = evidence[:, [winner, 2]]
        assert torch.equal(stem.evidence, filled)


@settings(max_examples=30)
@given(Texts)
def test_fused_stem_is_within_half_a_step_a_row(texts: list[bytes]) -> None:
    stem, state = knowing(every_second_run(*texts))
    expected, count = stem(*padded(*texts))
    step = np.abs(state["table"] + state["evidence"][FOLDS] @ state["directions"]).max(axis=0) / 127
    stem.fuse()
    assert stem.table.dtype == torch.int8
    assert not stem.table[0].any()
    assert stem.table.abs().amax(dim=0).tolist() == [127] * DIM
    tokens, fused_count = stem(*padded(*texts))
    assert torch.equal(fused_count, count)
    for text, ours, theirs in zip(texts, tokens, expected, strict=True):
        rows = Counter(
            end // CONFIG.patch_length
            for (end, _), value in reference.word_runs(text, 3).items()
            if stem.tags[reference.slot_of(value, 64)] == value
        )
        for t in range(NUM_TOKENS):
            # The scale is applied in double precision, the sum of small integers is exact.
            error = (ours[t] - theirs[t]).abs().detach().numpy()
            assert (error <= (rows[t] * (0.5 + 1e-9) + 1e-9) * step).all()


def test_fused_stem_of_single_precision_holds_nothing_else() -> None:
    stem = WordStem(CONFIG, LENGTH, DIM, CLASSES)
    stem.fuse()  # all zero
    assert sorted(stem.state_dict()) == ["scale", "table", "tags"]
    tokens, counts = stem(*padded(b"some words"))
    assert tokens.dtype == torch.float32
    assert not tokens.any()
    assert counts.tolist() == [0]


# Choosing runs

Held = list[tuple[list[int], int, int]]
"""Documents: their runs, class and fold."""

DOCUMENTS: Held = [
    ([5, 7, 9], 0, 0),
    ([5, 7], 0, 1),
    ([5, 8, 9], 0, 2),
    ([5, 9], 0, 3),
    ([6, 9], 1, 0),
    ([6, 7, 8], 1, 1),
    ([6, 9], 1, 4),
    ([6, 5, 3], 1, 2),
    ([2, 9], 1, 3),
    ([4, 2, 9], 1, 4),
]


def chosen(documents: Held, classes: int, limit: int) -> tuple[list[int], np.ndarray]:
    counts = ((np.array([-1, *sorted(runs)], dtype=np.int64), label, fold) for runs, label, fold in documents)
    hashes, evidence = choose(counts, classes, limit)
    return hashes.tolist(), evidence.double().numpy()


def held_by(documents: Held, run: int, classes: int, without: int = FOLDS) -> tuple[list[int], list[int]]:
    """Documents of each class that hold a run, and documents of each class, outside of a fold."""
    rest = [(runs, label) for runs, label, fold in documents if fold != without]
    held = [sum(run in runs and label == c for runs, label in rest) for c in range(classes)]
    return held, [sum(label == c for _, label in rest) for c in range(classes)]


def random_documents(classes: int) -> Held:
    """Two hundred documents of thirty runs, each run more frequent in some class."""
    generator = np.random.default_rng(classes)
    share = generator.uniform(0.05, 0.6, (classes, 30))
    documents = []
    for i in range(200):
        label = int(generator.integers(classes))
        documents.append((np.flatnonzero(generator.random(30) < share[label]).tolist(), label, i % FOLDS))
    return documents


def test_g_square_of_a_run_by_hand() -> None:
    """Run 6 is in four of the six documents of the second class, and nowhere else."""
    assert reference.g_square([0, 4], [4, 6]) == pytest.approx(8 * math.log(10 / 6))


@pytest.mark.parametrize(("documents", "classes"), [(DOCUMENTS, 2), (random_documents(2), 2), (random_documents(4), 4)])
def test_choose_orders_runs_by_g_square(documents: Held, classes: int) -> None:
    runs = sorted({run for held, _, _ in documents for run in held})
    told = {run: reference.g_square(*held_by(documents, run, classes)) for run in runs}
    whole, _ = chosen(documents, classes, 1000)
    assert sorted(whole) == runs
    values = [told[run] for run in whole]
    assert all(left >= right - 1e-9 for left, right in pairwise(values))
    for limit in (1, 3, len(runs) - 1):
        assert chosen(documents, classes, limit)[0] == whole[:limit]


@pytest.mark.parametrize(("documents", "classes"), [(DOCUMENTS, 2), (random_documents(2), 2), (random_documents(4), 4)])
@pytest.mark.parametrize("limit", [3, 1000])
def test_evidence_equals_reference_and_leaves_out_its_fold(documents: Held, classes: int, limit: int) -> None:
    hashes, evidence = chosen(documents, classes, limit)
    assert evidence.shape == (FOLDS + 1, len(hashes), classes)
    least = reference.g_square(*held_by(documents, hashes[-1], classes))
    for fold in range(FOLDS):
        for run, found in zip(hashes, evidence[fold], strict=True):
            held, sizes = held_by(documents, run, classes, without=fold)
            needed = least * sum(sizes) / len(documents)
            told = reference.g_square(held, sizes)
            if abs(told - needed) > 1e-9:
                expected = reference.log_ratios(held, sizes) if told > needed else [0.0] * classes
                # Evidence is stored in single precision.
                assert found == pytest.approx(expected, rel=0, abs=1e-6)


@pytest.mark.parametrize(("classes", "limit"), [(2, 23), (3, 10), (3, 28), (4, 13), (4, 25)])
def test_evidence_of_all_folds_is_that_of_the_last_chosen_run_too(classes: int, limit: int) -> None:
    expect_evidence_of_every_run(random_documents(classes), classes, limit)


@pytest.mark.parametrize(("documents", "classes"), [(DOCUMENTS, 2), (random_documents(2), 2), (random_documents(4), 4)])
@pytest.mark.parametrize("limit", [1, 5, 8])
def test_evidence_of_all_folds_is_that_of_every_chosen_run(documents: Held, classes: int, limit: int) -> None:
    expect_evidence_of_every_run(documents, classes, limit)


def expect_evidence_of_every_run(documents: Held, classes: int, limit: int) -> None:
    hashes, evidence = chosen(documents, classes, limit)
    for run, found in zip(hashes, evidence[FOLDS], strict=True):
        assert found == pytest.approx(reference.log_ratios(*held_by(documents, run, classes)), rel=0, abs=1e-6)


def test_evidence_is_finite_where_the_other_folds_miss_a_class() -> None:
    """All documents of the third class lie in one fold: without it, nothing is known of the class."""
    documents = [*DOCUMENTS, ([5, 1], 2, 3), ([1, 6], 2, 3)]
    _, evidence = chosen(documents, 3, 1000)
    assert np.isfinite(evidence).all()


def test_run_seen_nowhere_else_says_nothing() -> None:
    documents = [*DOCUMENTS, ([77], 0, 2)]
    hashes, evidence = chosen(documents, 2, 1000)
    assert evidence[2, hashes.index(77)] == pytest.approx([0, 0], abs=1e-7)
    assert abs(evidence[FOLDS, hashes.index(77)]).min() > 0.1


# The classifier

SMALL = ClassifierConfig(
    kind="words",
    encoder=EncoderConfig(
        seq_len=NUM_TOKENS,
        dim=8,
        num_heads=2,
        num_layers=2,
        ffn_dim=6,
        options=S3Options(num_segments=2, num_rows=5, num_columns=3),
    ),
    stem=CONFIG,
)
TEXTS = (
    b"a",
    b"one two",
    b"Two, three: one two three!",
    b"nothing known" + bytes(3),
    b" ",
    b"one two three four, one two three four five... ",
)


def classifier_knowing(config: ClassifierConfig, texts: tuple[bytes, ...]) -> tuple[WordClassifier, reference.State]:
    """Random weights in double precision, and rows for half of the runs."""
    model = WordClassifier(config, CLASSES)
    hashes = np.array(every_second_run(*texts), dtype=np.int64)
    model.stem.fill(hashes, torch.zeros(FOLDS + 1, len(hashes), CLASSES))
    return model, randomise(model)


@pytest.mark.parametrize("num_layers", [0, 1, 2])
def test_classifier_equals_reference(num_layers: int) -> None:
    config = changed(SMALL, encoder=changed(SMALL.encoder, num_layers=num_layers))
    model, state = classifier_knowing(config, TEXTS)
    folds = torch.tensor([0, 1, 2, 3, 4, 0])
    for given_folds in (None, folds):
        logits = model(*padded(*TEXTS), given_folds)
        for i, text in enumerate(TEXTS):
            fold = FOLDS if given_folds is None else int(folds[i])
            assert close(logits[i], reference.word_classifier(text, state, config, fold))


@settings(max_examples=20)
@given(Texts)
def test_classifier_of_any_bytes_equals_reference(texts: list[bytes]) -> None:
    model, state = classifier_knowing(SMALL, tuple(texts))
    for text, logits in zip(texts, model(*padded(*texts)), strict=True):
        assert close(logits, reference.word_classifier(text, state, SMALL, FOLDS))


def prose(length: int) -> bytes:
    words = (b"one", b"two,", b"three", b"Four", b"!", "fünf".encode(), "東京".encode(), b"\x00")
    return b" ".join(np.random.default_rng(length).choice(words, length))[:length]


@cache
def long_model(seq_len: int, patch_length: int) -> WordClassifier:
    encoder = changed(SMALL.encoder, seq_len=seq_len)
    stem = WordStemConfig(longest=3, num_slots=1024, patch_length=patch_length)
    known = tuple(prose(length) for length in (40, 50, 60))
    model, _ = classifier_knowing(ClassifierConfig(kind="words", encoder=encoder, stem=stem), known)
    return model.requires_grad_(False)


SHAPES = {(128, 16): (256, 512, 1024, 2048), (512, 4): (256, 512, 1024, 2048)}
"""Patches and their bytes, the second beyond dense Fourier convolutions -> buckets."""


def edge_texts(buckets: tuple[int, ...]) -> list[bytes]:
    random = np.random.default_rng(1).integers(1, buckets[-1], 6).tolist()
    near = {bucket + step for bucket in buckets for step in (-1, 0, 1)}
    return [prose(length) for length in sorted(near | {1, 15, 16, 17, *random}) if length <= buckets[-1]]


def test_lengths_lie_on_both_sides_of_the_dense_one() -> None:
    short, long = (seq_len for seq_len, _ in SHAPES)
    assert short <= DENSE_LENGTH < long
    for (seq_len, patch_length), buckets in SHAPES.items():
        encoder = EncoderConfig(seq_len=seq_len)
        stem = WordStemConfig(patch_length=patch_length)
        assert ClassifierConfig(kind="words", encoder=encoder, stem=stem).buckets == buckets


@pytest.mark.parametrize("shape", SHAPES)
def test_answer_is_the_same_in_every_bucket(shape: tuple[int, int]) -> None:
    model, buckets = long_model(*shape), SHAPES[shape]
    texts = edge_texts(buckets)
    expected = model(*padded(*texts, length=buckets[-1]))
    assert (expected.std(dim=0) > 1e-3).all()
    for bucket in buckets:
        fitting = [i for i, text in enumerate(texts) if len(text) <= bucket]
        assert same(model(*padded(*(texts[i] for i in fitting), length=bucket)), expected[fitting])


@settings(max_examples=20)
@given(Texts)
def test_answer_is_the_same_in_any_number_of_patches(texts: list[bytes]) -> None:
    model, _ = classifier_knowing(SMALL, tuple(texts))
    longest = -(-max(map(len, texts)) // 4) * 4
    assert same(model(*padded(*texts, length=longest)), model(*padded(*texts)))


@pytest.mark.parametrize("shape", SHAPES)
def test_answer_does_not_depend_on_batch_mates_or_on_bytes_beyond_the_length(shape: tuple[int, int]) -> None:
    model, buckets = long_model(*shape), SHAPES[shape]
    texts = edge_texts(buckets)
    document, lengths = padded(*texts, length=buckets[-1])
    together = model(document, lengths)
    dirty = torch.where(torch.arange(buckets[-1]) < lengths[:, None], document, ord("a"))
    assert not torch.equal(dirty, document)
    assert torch.equal(model(dirty, lengths), together)
    for text, logits in zip(texts[::4], together[::4], strict=True):
        assert same(model(*padded(text, length=buckets[-1]))[0], logits)


def started(texts: tuple[bytes, ...], priors: torch.Tensor) -> tuple[WordClassifier, dict[int, torch.Tensor]]:
    """A classifier as training begins, and the evidence of each run that has a row."""
    torch.manual_seed(0)
    config = changed(SMALL, stem=changed(CONFIG, num_slots=1024))
    model = WordClassifier(config, CLASSES).double().eval()
    hashes = sorted({value for text in texts for value in reference.word_runs(text, 3).values()})
    evidence = torch.randn(FOLDS + 1, len(hashes), CLASSES, dtype=torch.float64)
    model.initialise(np.array(hashes, dtype=np.int64), evidence, priors)
    has_row = {value for value in hashes if model.stem.tags[reference.slot_of(value, 1024)] == value}
    assert len(has_row) > 0.8 * len(hashes)
    return model, {value: evidence[:, i] for i, value in enumerate(hashes) if value in has_row}


def test_classifier_starts_as_naive_bayes() -> None:
    priors = torch.tensor([0.2, 0.5, 0.3], dtype=torch.float64)
    model, evidence = started(TEXTS, priors)
    folds = torch.tensor([0, 1, 2, 3, 4, 0])
    noisy = model(*padded(*TEXTS)).detach()
    noise = model.stem.table[1:].detach()
    # The length of a random row is NOISE on average; 1024 * 8 numbers.
    assert noise.square().sum(dim=1).mean() == pytest.approx(NOISE**2, rel=0.1)
    model.stem.table.data.zero_()
    for given_folds in (None, folds):
        logits = model(*padded(*TEXTS), given_folds).detach()
        for i, text in enumerate(TEXTS):
            found = [v for v in reference.word_runs(text, 3).values() if v in evidence]
            fold = FOLDS if given_folds is None else int(folds[i])
            said = sum((evidence[v][fold] for v in found), torch.zeros(CLASSES)) / math.sqrt(max(1, len(found)))
            # The directions are orthonormal to single precision.
            assert torch.allclose(logits[i], torch.log(priors) + said, rtol=0, atol=1e-5)
    # Rows of length NOISE, in the direction of one class of eight dimensions; repeated rows add up.
    assert (noisy - model(*padded(*TEXTS))).abs().max() <= 5 * 2 * NOISE / math.sqrt(8)


def test_more_classes_than_dimensions_still_start() -> None:
    model = WordClassifier(SMALL, 20)
    hashes = np.array([reference.word_hash(b"one")], dtype=np.int64)
    evidence = torch.zeros(FOLDS + 1, 1, 20)
    evidence[:, 0, 4] = 10.0
    model.initialise(hashes, evidence, torch.full((20,), 0.05))
    logits = model.eval()(*padded(b"one", b"other"))
    assert logits[0].argmax() == 4
    assert torch.allclose(logits[1], torch.full((20,), math.log(0.05)))


def test_standardise_gives_tokens_deviation_one_and_changes_nothing_else() -> None:
    model, _ = classifier_knowing(SMALL, TEXTS)
    texts = padded(*TEXTS)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    model.standardise(*texts)
    changed = {name for name, tensor in model.state_dict().items() if not torch.equal(tensor, before[name])}
    assert changed == {"token_scale"}
    assert close((model.stem(*texts)[0] / model.token_scale).std(), np.ones(()))


def test_standardise_of_documents_without_runs_keeps_answers_finite() -> None:
    model, _ = classifier_knowing(SMALL, TEXTS)
    texts = padded(b" ", b"unknown")
    model.standardise(*texts)
    assert model(*texts).isfinite().all()


def test_gradient_reaches_every_parameter() -> None:
    model, _ = classifier_knowing(SMALL, TEXTS)
    folds, labels = torch.arange(6) % FOLDS, torch.tensor([0, 1, 2, 0, 1, 2])
    nn.functional.cross_entropy(model.train()(*padded(*TEXTS), folds), labels).backward()
    expect_gradient_everywhere(model)
    table = model.stem.table.grad
    assert table is not None
    known = {
        reference.slot_of(v, 64) + 1 for t in TEXTS for v in reference.word_runs(t, 3).values() if v in tags(model)
    }
    assert set(table.abs().sum(dim=1).nonzero().flatten().tolist()) == known


def tags(model: WordClassifier) -> set[int]:
    return set(model.stem.tags.tolist())


def test_gradient_reaches_the_blocks_once_the_gate_has_moved() -> None:
    model, _ = started(TEXTS, torch.ones(3) / 3)
    labels = torch.tensor([0, 1, 2, 0, 1, 2])
    behind = [name for name, _ in model.named_parameters() if name.startswith(("blocks.", "norm."))]
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
    for has_moved in (False, True):
        optimiser.zero_grad()
        nn.functional.cross_entropy(model(*padded(*TEXTS)), labels).backward()
        for name, parameter in model.named_parameters():
            assert parameter.grad is not None
            assert bool(parameter.grad.any()) == (has_moved or name not in behind), name
        optimiser.step()


@pytest.mark.parametrize(("dropout", "steps"), [(0.0, 60), (0.5, 200)])
def test_classifier_trains(dropout: float, steps: int) -> None:
    """Which of two words comes first tells the class, so that single words say nothing: runs of two must."""
    torch.manual_seed(0)
    stem = changed(CONFIG, num_slots=256, dropout=dropout)
    model = WordClassifier(changed(SMALL, stem=stem), 2)
    texts = [b"left right " * (1 + i % 3) if i % 2 else b"right left " * (1 + i % 3) for i in range(12)]
    labels = torch.tensor([i % 2 for i in range(12)])
    hashes = sorted({value for text in texts for value in reference.word_runs(text, 2).values()})
    model.initialise(np.array(hashes, dtype=np.int64), torch.zeros(FOLDS + 1, len(hashes), 2), torch.tensor([0.5, 0.5]))
    model.standardise(*padded(*texts))
    groups = parameter_groups(model, 2e-3)
    assert sorted(group["lr"] for group in groups) == pytest.approx([2e-3, 1e-2, 1e-1])
    optimiser = torch.optim.AdamW(groups)
    before = nn.functional.cross_entropy(model.eval()(*padded(*texts)), labels).item()
    model.train()
    for _ in range(steps):
        optimiser.zero_grad()
        nn.functional.cross_entropy(model(*padded(*texts), torch.arange(12) % FOLDS), labels).backward()
        optimiser.step()
    after = nn.functional.cross_entropy(model.eval()(*padded(*texts)), labels).item()
    assert before == pytest.approx(math.log(2), abs=0.3)
    assert after < 0.4 * before
    assert not model.stem.table[0].any()


def test_reloaded_model_is_identical() -> None:
    model, _ = classifier_knowing(SMALL, TEXTS)
    other = WordClassifier(SMALL, CLASSES).double().eval()
    other.load_state_dict(model.state_dict())
    first, second = (part(*padded(*TEXTS)).detach() for part in (model, other))
    # Single-precision tables of the Fourier transform in the other.
    assert torch.allclose(first, second, rtol=0, atol=1e-5 * float(first.abs().max()))


def test_bfloat16_stays_close_to_float32() -> None:
    """Mixed precision as on a GPU."""
    model, _ = started(TEXTS, torch.ones(3) / 3)
    model.float().gate.data.fill_(0.1)
    expected = model(*padded(*TEXTS)).detach()
    with torch.autocast("cpu", torch.bfloat16):
        mixed = model.train()(*padded(*TEXTS), torch.arange(6) % FOLDS)
        nn.functional.cross_entropy(mixed.float(), torch.tensor([0, 1, 2, 0, 1, 2])).backward()
        answers = model.eval()(*padded(*TEXTS))
    # bfloat16 has 8 bits: 2**-8 a step, over the some ten matrix products from bytes to logits.
    assert (answers - expected).abs().max() <= 10 * 2**-8 * max(1.0, float(expected.abs().max()))
    assert all(p.grad is not None and bool(p.grad.isfinite().all()) for p in model.parameters())
