"""The classifier over word vectors, against a reference."""

from functools import cache

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from model.config.attentions import S3Options
from model.config.encoder import EncoderConfig
from model.config.models import RoundConfig, VectorsConfig, VectorViewConfig
from model.nn.vectors import VectorClassifier
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
CONFIG = VectorViewConfig(vectors=VectorsConfig(num_words=30), rounds=(RoundConfig(),), bytes_per_token=4)
CLASSES = 3
Documents = list[tuple[list[int], int]]
"""Ids of the words of each document, and its bytes."""

Words = st.lists(st.integers(0, 30), max_size=40)
AnyDocuments = st.lists(
    Words.flatmap(lambda words: st.tuples(st.just(words), st.integers(max(1, len(words)), 48))), min_size=1, max_size=5
)


@cache
def random_model() -> tuple[VectorClassifier, reference.State]:
    model = VectorClassifier(ENCODER, CONFIG, CLASSES)
    state = randomise(model)
    return model.requires_grad_(False), state


def inputs(documents: Documents) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    ids = torch.tensor([word for words, _ in documents for word in words], dtype=torch.long)
    doc_index = torch.repeat_interleave(torch.tensor([len(words) for words, _ in documents]))
    return ids, doc_index, torch.tensor([length for _, length in documents])


@settings(max_examples=60)
@given(AnyDocuments)
def test_classifier_equals_reference_alone_and_beside_others(documents: Documents) -> None:
    model, state = random_model()
    together = model(*inputs(documents))
    for (words, length), logits in zip(documents, together, strict=True):
        assert close(logits, reference.vector_classifier(words, length, state, ENCODER, 4))
        assert same(model(*inputs([(words, length)]))[0], logits)


@settings(max_examples=30)
@given(AnyDocuments)
def test_answer_is_the_same_at_any_padded_width(documents: Documents) -> None:
    model, _ = random_model()
    answers = []
    for multiple in (1, 5, 12):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("model.nn.vectors.WIDTH_MULTIPLE", multiple)
            answers.append(model(*inputs(documents)))
    assert same(answers[1], answers[0])
    assert same(answers[2], answers[0])


def width_of(model: VectorClassifier, words: torch.Tensor, doc_index: torch.Tensor, lengths: torch.Tensor) -> int:
    return model.embed(words, doc_index, lengths, torch.zeros_like(words))[0].shape[1]


def test_eager_widths_are_multiples_and_at_most_seq_len(monkeypatch: pytest.MonkeyPatch) -> None:
    model, _ = random_model()
    monkeypatch.setattr("model.nn.vectors.WIDTH_MULTIPLE", 5)
    widths = [width_of(model, *inputs([([1] * n, 48), ([], 1)])) for n in (0, 1, 5, 6, 10, 11, 48)]
    assert widths == [5, 5, 5, 10, 10, 12, 12]


@pytest.mark.filterwarnings(r"ignore:`torch\.jit\.\w+` is deprecated:DeprecationWarning")
def test_traced_graph_serves_batches_with_any_number_of_words() -> None:
    model, _ = random_model()
    traced = torch.jit.trace(model, inputs([([1, 2, 3], 12), ([4], 4)]))
    for count in (0, 1, 2, 7, 12, 40):
        batch = inputs([([1] * count, 48), ([], 1)])
        assert same(traced(*batch), model(*batch))


def test_every_word_is_read_however_many_there_are() -> None:
    model, _ = random_model()
    words = [1 + i % 30 for i in range(48)]
    answer = model(*inputs([(words, 48)]))
    for i in (0, 1, 23, 46, 47):
        changed = [*words[:i], words[i] % 30 + 1, *words[i + 1 :]]
        assert not same(model(*inputs([(changed, 48)])), answer)


def test_gradient_reaches_every_parameter_but_not_the_row_of_unknown_words() -> None:
    model = VectorClassifier(ENCODER, CONFIG, CLASSES)
    randomise(model)
    documents: Documents = [(list(range(31)), 40), ([0, 3, 0], 9), ([], 1)]
    nn.functional.cross_entropy(model(*inputs(documents)), torch.tensor([0, 1, 2])).backward()
    expect_gradient_everywhere(model)
    assert model.vectors.grad is not None
    assert not model.vectors.grad[0].any()


def test_dropped_words_are_left_out_and_the_sequence_closes_up(monkeypatch: pytest.MonkeyPatch) -> None:
    model, _ = random_model()
    chances = torch.tensor([0.9, 0.1, 0.9, 0.1, 0.9])
    monkeypatch.setattr(torch, "rand", lambda *_, **__: chances)
    model.set_dropout(0.0, 0.0, 0.5)
    try:
        dropped = model.train()(*inputs([([1, 2, 3, 4, 5], 20)]))
    finally:
        model.set_dropout(0.0, 0.0, 0.0)
        model.eval()
    assert same(dropped, model(*inputs([([1, 3, 5], 20)])))


def test_rounds_set_every_dropout() -> None:
    model = VectorClassifier(ENCODER, CONFIG, CLASSES)
    model.set_dropout(0.1, 0.2, 0.3)
    found = sorted({module.p for module in model.modules() if isinstance(module, nn.Dropout)})
    assert (found, model.pooled_dropout.p, model.word_dropout) == ([0.1, 0.2], 0.2, 0.3)


def test_quantised_vectors_are_within_half_a_step() -> None:
    model = VectorClassifier(ENCODER, CONFIG, CLASSES)
    randomise(model)
    table = model.vectors.detach().clone()
    model.quantise()
    assert model.vectors.dtype == torch.int8
    assert ((model.vectors * model.scale - table).abs() <= model.scale * (0.5 + 1e-9)).all()
    assert torch.isfinite(model(*inputs([([1, 2, 0, 30], 20)]))).all()
