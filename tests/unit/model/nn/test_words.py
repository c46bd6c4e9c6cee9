"""The word stem compared with a reference that splits and hashes every word separately; the selection of runs."""

import math
from collections import Counter
from functools import cache
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from model.nn.words import FOLDS, MODULUS, WordStem, choose_ngrams
from tests.support import reference
from tests.support.configs import changed
from tests.support.numerics import close, randomise
from tests.support.words import CLASSES, CONFIG, DIM, LENGTH, NUM_TOKENS, Texts, every_second_run, padded


@cache
def plain(longest: int = CONFIG.longest) -> WordStem:
    return WordStem(changed(CONFIG, longest=longest), LENGTH, DIM, CLASSES)


def runs_of(stem: WordStem, *texts: bytes) -> list[dict[tuple[int, int], int]]:
    """Return the result of `runs` in the format of the reference."""
    hashes, doc_index, where = stem.ngrams(*padded(*texts))
    assert hashes.dtype == torch.int64
    found: list[dict[tuple[int, int], int]] = [{} for _ in texts]
    for row, document, end in zip(hashes.tolist(), doc_index.tolist(), where.tolist(), strict=True):
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
def test_text_is_split_into_words_as_documented(text: bytes, words: list[bytes]) -> None:
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
def test_runs_of_any_length_equal_reference_and_ignore_padding(texts: list[bytes], longest: int, noise: bytes) -> None:
    stem = plain(longest)
    document, lengths = padded(*texts)
    dirty = torch.where(torch.arange(LENGTH) < lengths[:, None], document, torch.tensor(list(noise), dtype=torch.uint8))
    for ours, theirs in zip(stem.ngrams(dirty, lengths), stem.ngrams(document, lengths), strict=True):
        assert torch.equal(ours, theirs)
    for text, found in zip(texts, runs_of(stem, *texts), strict=True):
        assert found == reference.word_runs(text, longest)


@settings(max_examples=30)
@given(Texts)
def test_runs_do_not_depend_on_padding_or_the_rest_of_the_batch(texts: list[bytes]) -> None:
    stem, together = plain(), runs_of(plain(), *texts)
    for text, found in zip(texts, together, strict=True):
        hashes, _, where = stem.ngrams(*padded(text, length=len(text)))
        alone = {
            (end, n): v for row, end in zip(hashes.tolist(), where.tolist(), strict=True) for n, v in enumerate(row, 1)
        }
        assert {key: value for key, value in alone.items() if value != -1} == found


def test_long_documents_are_hashed_without_overflow() -> None:
    stem = WordStem(CONFIG, 4096, 1, 2)
    letters = np.random.default_rng(0).choice(list(b"az\xff\xfe\xdf"), 4096).astype(np.uint8).tobytes()
    for text in (b"\xdf" * 4096, letters, (b"z" * 9 + b" ") * 409):
        hashes, _, where = stem.ngrams(*padded(text, length=4096))
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


def stem_with_rows_for(hashes: list[int]) -> tuple[WordStem, reference.State]:
    """Return a stem with rows for these runs, in double precision, with random values."""
    stem = WordStem(CONFIG, LENGTH, DIM, CLASSES)
    stem.fill(np.array(hashes, dtype=np.int64), torch.zeros(FOLDS + 1, len(hashes), CLASSES))
    state = randomise(stem)
    return stem, state


@settings(max_examples=50)
@given(Texts, st.integers(0, 2**30))
def test_stem_equals_reference(texts: list[bytes], seed: int) -> None:
    stem, state = stem_with_rows_for(every_second_run(*texts))
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
def test_stem_in_training_mode_without_dropout_equals_eval_mode(texts: list[bytes]) -> None:
    stem, _ = stem_with_rows_for(every_second_run(*texts))
    folds = torch.arange(len(texts)) % FOLDS
    for arguments in (padded(*texts), (*padded(*texts), folds)):
        for ours, theirs in zip(stem.train()(*arguments), stem.eval()(*arguments), strict=True):
            assert torch.equal(ours, theirs)


def test_dropout_removes_runs_and_preserves_the_mean() -> None:
    text = b"one two three four five six seven eight"
    stem, _ = stem_with_rows_for(sorted(set(reference.word_runs(text, 3).values())))
    stem.config = changed(CONFIG, dropout=0.25)
    expected, count = stem(*padded(text))
    torch.manual_seed(0)
    stem.train()
    drawn = [stem(*padded(text)) for _ in range(1000)]
    assert all(int(number) == int(count) for _, number in drawn)
    tokens = torch.stack([part for part, _ in drawn])
    # five standard deviations of a mean of 1,000
    error = (tokens.mean(dim=0) - expected).abs()
    assert (error <= 5 * tokens.std(dim=0) / 1000**0.5 + 1e-12).all()
    assert (tokens.std(dim=0) > 0).any()


def test_documents_without_words_have_zero_tokens() -> None:
    stem, _ = stem_with_rows_for([reference.word_hash(b"word")])
    tokens, counts = stem(*padded(b" ", bytes(7), b"\n\t"))
    assert tokens.shape == (3, NUM_TOKENS, DIM)
    assert not tokens.any()
    assert counts.tolist() == [0, 0, 0]
    tokens, counts = stem(*padded(b" ", b"word", bytes(9)))
    assert [bool(part.any()) for part in tokens] == [False, True, False]
    assert counts.tolist() == [0, 1, 0]


def test_run_without_a_row_is_zero_even_if_another_run_has_its_slot() -> None:
    taken = reference.word_hash(b"taken")
    slot = reference.slot_of(taken, 64)
    others = [f"w{i}".encode() for i in range(2000)]
    rival = next(word for word in others if reference.slot_of(reference.word_hash(word), 64) == slot)
    free = next(word for word in others if reference.slot_of(reference.word_hash(word), 64) != slot)
    stem, state = stem_with_rows_for([taken])
    tokens, counts = stem(*padded(b"taken", rival, free))
    assert counts.tolist() == [1, 0, 0]
    assert [bool(part.any()) for part in tokens] == [True, False, False]
    row = state["table"][1 + slot] + state["evidence"][FOLDS, 1 + slot] @ state["directions"]
    assert close(tokens[0, 1], row)  # "taken" ends in the second patch


def test_first_run_gets_a_shared_slot() -> None:
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
def test_rounding_error_of_a_fused_stem_is_half_a_step_per_row(texts: list[bytes]) -> None:
    stem, state = stem_with_rows_for(every_second_run(*texts))
    expected, count = stem(*padded(*texts))
    step = np.abs(state["table"] + state["evidence"][FOLDS] @ state["directions"]).max(axis=0) / 127
    stem.quantise()
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
            # The scale is applied in double precision; the sum of small integers is exact.
            error = (ours[t] - theirs[t]).abs().detach().numpy()
            assert (error <= (rows[t] * (0.5 + 1e-9) + 1e-9) * step).all()


def test_fused_stem_keeps_only_scale_table_and_tags() -> None:
    stem = WordStem(CONFIG, LENGTH, DIM, CLASSES)
    stem.quantise()  # all zero
    assert sorted(stem.state_dict()) == ["scale", "table", "tags"]
    tokens, counts = stem(*padded(b"some words"))
    assert tokens.dtype == torch.float32
    assert not tokens.any()
    assert counts.tolist() == [0]


# Selection of runs

Held = list[tuple[list[int], int, int]]
"""Documents: runs, class and fold."""

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
    hashes, evidence = choose_ngrams(counts, classes, limit)
    return hashes.tolist(), evidence.double().numpy()


def counts_of(documents: Held, run: int, classes: int, without: int = FOLDS) -> tuple[list[int], list[int]]:
    """Return how many documents of each class contain a run, and how many there are, outside of a fold."""
    rest = [(runs, label) for runs, label, fold in documents if fold != without]
    held = [sum(run in runs and label == c for runs, label in rest) for c in range(classes)]
    return held, [sum(label == c for _, label in rest) for c in range(classes)]


def random_documents(classes: int) -> Held:
    """Return two hundred documents of thirty runs; each run is more frequent in one class."""
    generator = np.random.default_rng(classes)
    share = generator.uniform(0.05, 0.6, (classes, 30))
    documents = []
    for i in range(200):
        label = int(generator.integers(classes))
        documents.append((np.flatnonzero(generator.random(30) < share[label]).tolist(), label, i % FOLDS))
    return documents


def test_g_square_of_a_run_equals_the_value_computed_by_hand() -> None:
    """Run 6 is in four of the six documents of the second class and in no other document."""
    assert reference.g_square([0, 4], [4, 6]) == pytest.approx(8 * math.log(10 / 6))


@pytest.mark.parametrize(("documents", "classes"), [(DOCUMENTS, 2), (random_documents(2), 2), (random_documents(4), 4)])
def test_choose_orders_runs_by_g_square(documents: Held, classes: int) -> None:
    runs = sorted({run for held, _, _ in documents for run in held})
    g_square = {run: reference.g_square(*counts_of(documents, run, classes)) for run in runs}
    whole, _ = chosen(documents, classes, 1000)
    assert sorted(whole) == runs
    values = [g_square[run] for run in whole]
    assert all(left >= right - 1e-9 for left, right in pairwise(values))
    for limit in (1, 3, len(runs) - 1):
        assert chosen(documents, classes, limit)[0] == whole[:limit]


@pytest.mark.parametrize(("documents", "classes"), [(DOCUMENTS, 2), (random_documents(2), 2), (random_documents(4), 4)])
@pytest.mark.parametrize("limit", [3, 1000])
def test_evidence_equals_reference_and_excludes_its_fold(documents: Held, classes: int, limit: int) -> None:
    hashes, evidence = chosen(documents, classes, limit)
    assert evidence.shape == (FOLDS + 1, len(hashes), classes)
    least = reference.g_square(*counts_of(documents, hashes[-1], classes))
    for fold in range(FOLDS):
        for run, found in zip(hashes, evidence[fold], strict=True):
            held, sizes = counts_of(documents, run, classes, without=fold)
            needed = least * sum(sizes) / len(documents)
            g_square = reference.g_square(held, sizes)
            if abs(g_square - needed) > 1e-9:
                expected = reference.log_ratios(held, sizes) if g_square > needed else [0.0] * classes
                # evidence is stored in single precision
                assert found == pytest.approx(expected, rel=0, abs=1e-6)


@pytest.mark.parametrize(("classes", "limit"), [(2, 23), (3, 10), (3, 28), (4, 13), (4, 25)])
def test_evidence_of_all_folds_includes_the_last_chosen_run(classes: int, limit: int) -> None:
    expect_evidence_of_every_run(random_documents(classes), classes, limit)


@pytest.mark.parametrize(("documents", "classes"), [(DOCUMENTS, 2), (random_documents(2), 2), (random_documents(4), 4)])
@pytest.mark.parametrize("limit", [1, 5, 8])
def test_evidence_of_all_folds_includes_every_chosen_run(documents: Held, classes: int, limit: int) -> None:
    expect_evidence_of_every_run(documents, classes, limit)


def expect_evidence_of_every_run(documents: Held, classes: int, limit: int) -> None:
    hashes, evidence = chosen(documents, classes, limit)
    for run, found in zip(hashes, evidence[FOLDS], strict=True):
        assert found == pytest.approx(reference.log_ratios(*counts_of(documents, run, classes)), rel=0, abs=1e-6)


def test_evidence_is_finite_if_the_other_folds_lack_a_class() -> None:
    """All documents of the third class are in one fold, so the other folds have no information about it."""
    documents = [*DOCUMENTS, ([5, 1], 2, 3), ([1, 6], 2, 3)]
    _, evidence = chosen(documents, 3, 1000)
    assert np.isfinite(evidence).all()


def test_run_in_no_other_fold_has_zero_evidence() -> None:
    documents = [*DOCUMENTS, ([77], 0, 2)]
    hashes, evidence = chosen(documents, 2, 1000)
    assert evidence[2, hashes.index(77)] == pytest.approx([0, 0], abs=1e-7)
    assert abs(evidence[FOLDS, hashes.index(77)]).min() > 0.1
