"""The branch of word vectors: its vocabulary, and its answers against a reference."""

from functools import cache

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from model.config.attentions import S3Options
from model.config.encoder import EncoderConfig
from model.config.models import BranchConfig, RoundConfig, VectorsConfig
from model.nn.branch import MAX_DISPLACEMENT, Branch, Vocabulary
from model.nn.words import MODULUS
from tests.support import reference
from tests.support.numerics import close, expect_gradient_everywhere, randomise, same

ENCODER = EncoderConfig(
    seq_len=12,
    dim=8,
    num_heads=2,
    num_layers=2,
    ffn_dim=6,
    options=S3Options(num_segments=2, num_rows=5, num_columns=3),
)
CONFIG = BranchConfig(
    max_length=48, vectors=VectorsConfig(num_words=30), rounds=(RoundConfig(learning_rate=1e-3),), bytes_per_token=4
)
CLASSES = 3
Documents = list[tuple[list[int], int]]
"""Rows of the words of each document, and its bytes."""

Rows = st.lists(st.integers(0, 30), max_size=40)
AnyDocuments = st.lists(
    Rows.flatmap(lambda rows: st.tuples(st.just(rows), st.integers(max(1, len(rows)), 48))), min_size=1, max_size=5
)


def distinct_hashes(count: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).choice(MODULUS, count, replace=False).astype(np.int64)


@pytest.mark.parametrize("count", [1, 2, 3, 100, 5000])
def test_every_word_has_a_row_of_its_own_and_no_other_word_has_one(count: int) -> None:
    hashes = distinct_hashes(2 * count)
    vocabulary = Vocabulary(count)
    vocabulary.fill(hashes[:count])
    assert vocabulary(torch.from_numpy(hashes[:count])).tolist() == list(range(1, count + 1))
    assert vocabulary(torch.from_numpy(hashes[count:])).tolist() == [0] * count


def test_vocabulary_of_fewer_words_than_it_has_room_for() -> None:
    hashes = distinct_hashes(10)
    vocabulary = Vocabulary(1000)
    vocabulary.fill(hashes)
    assert vocabulary(torch.from_numpy(hashes)).tolist() == list(range(1, 11))


def test_words_that_no_displacement_can_separate_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    assert MAX_DISPLACEMENT > 100
    monkeypatch.setattr("model.nn.branch.MAX_DISPLACEMENT", 1)
    vocabulary = Vocabulary(5000)
    with pytest.raises(ValueError, match="no perfect hash of 5000 words in 8192 slots was found"):
        vocabulary.fill(distinct_hashes(5000))


@cache
def random_branch() -> tuple[Branch, reference.State]:
    branch = Branch(ENCODER, CONFIG, CLASSES)
    state = randomise(branch)
    return branch.requires_grad_(False), state


def inputs(documents: Documents) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    rows = torch.tensor([row for words, _ in documents for row in words], dtype=torch.long)
    doc_index = torch.repeat_interleave(torch.tensor([len(words) for words, _ in documents]))
    return rows, doc_index, torch.tensor([length for _, length in documents])


@settings(max_examples=60)
@given(AnyDocuments)
def test_branch_equals_reference_alone_and_beside_others(documents: Documents) -> None:
    branch, state = random_branch()
    together = branch(*inputs(documents), 12)
    for (rows, length), logits in zip(documents, together, strict=True):
        assert close(logits, reference.branch(rows, length, state, ENCODER, 4))
        assert same(branch(*inputs([(rows, length)]), 12)[0], logits)


@settings(max_examples=30)
@given(AnyDocuments)
def test_answer_is_the_same_at_any_padded_width(documents: Documents) -> None:
    branch, _ = random_branch()
    width = int(branch.counts(*inputs(documents))[1].max())
    assert 1 <= width <= 12
    assert same(branch(*inputs(documents), width), branch(*inputs(documents), 12))


def test_training_uses_few_widths(monkeypatch: pytest.MonkeyPatch) -> None:
    branch, _ = random_branch()
    monkeypatch.setattr("model.nn.branch.WIDTHS", 5)
    widths = [branch.width_for(*inputs([([1] * count, 48), ([], 1)])) for count in (0, 1, 5, 6, 10, 11, 48)]
    assert widths == [5, 5, 5, 10, 10, 12, 12]


def test_every_word_is_read_however_many_there_are() -> None:
    branch, _ = random_branch()
    rows = [1 + i % 30 for i in range(48)]
    answer = branch(*inputs([(rows, 48)]), 12)
    for i in (0, 1, 23, 46, 47):
        changed = [*rows[:i], rows[i] % 30 + 1, *rows[i + 1 :]]
        assert not same(branch(*inputs([(changed, 48)]), 12), answer)


def test_width_is_the_largest_number_of_tokens_of_a_padded_length() -> None:
    branch, _ = random_branch()
    assert [branch.width(length) for length in (1, 4, 5, 16, 48, 400)] == [1, 1, 2, 4, 12, 12]


def test_gradient_reaches_every_parameter_but_not_the_row_of_unknown_words() -> None:
    branch = Branch(ENCODER, CONFIG, CLASSES)
    randomise(branch)
    documents: Documents = [(list(range(31)), 40), ([0, 3, 0], 9), ([], 1)]
    nn.functional.cross_entropy(branch(*inputs(documents), 12), torch.tensor([0, 1, 2])).backward()
    expect_gradient_everywhere(branch)
    assert branch.vectors.grad is not None
    assert not branch.vectors.grad[0].any()


def test_dropped_words_are_left_out_and_the_sequence_closes_up(monkeypatch: pytest.MonkeyPatch) -> None:
    branch, _ = random_branch()
    chances = torch.tensor([0.9, 0.1, 0.9, 0.1, 0.9])
    monkeypatch.setattr(torch, "rand", lambda *_, **__: chances)
    branch.set_dropout(0.0, 0.0, 0.5)
    try:
        dropped = branch.train()(*inputs([([1, 2, 3, 4, 5], 20)]), 12)
    finally:
        branch.set_dropout(0.0, 0.0, 0.0)
        branch.eval()
    assert same(dropped, branch(*inputs([([1, 3, 5], 20)]), 12))


def test_rounds_set_every_dropout() -> None:
    branch = Branch(ENCODER, CONFIG, CLASSES)
    branch.set_dropout(0.1, 0.2, 0.3)
    found = sorted({module.p for module in branch.modules() if isinstance(module, nn.Dropout)})
    assert (found, branch.pooled_dropout.p, branch.word_dropout) == ([0.1, 0.2], 0.2, 0.3)


def test_quantised_vectors_are_within_half_a_step() -> None:
    branch = Branch(ENCODER, CONFIG, CLASSES)
    randomise(branch)
    table = branch.vectors.detach().clone()
    branch.quantise()
    assert branch.vectors.dtype == torch.int8
    assert ((branch.vectors * branch.scale - table).abs() <= branch.scale * (0.5 + 1e-9)).all()
    assert torch.isfinite(branch(*inputs([([1, 2, 0, 30], 20)]), 12)).all()
