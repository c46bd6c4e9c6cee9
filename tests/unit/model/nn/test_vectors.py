"""The classifier over vectors of n-grams, against a reference."""

from functools import cache

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from model.config.attentions import S3Options
from model.config.encoder import EncoderConfig
from model.config.models import RoundConfig, VectorViewConfig
from model.nn.ngrams import Hits
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
CONFIG = VectorViewConfig(rounds=(RoundConfig(),), bytes_per_token=4)
NUM_NGRAMS, CLASSES = 30, 3
Documents = list[tuple[list[int], int]]
"""Ids of the n-grams of each document, and its bytes."""

Ids = st.lists(st.integers(0, NUM_NGRAMS), max_size=40)
AnyDocuments = st.lists(st.tuples(Ids, st.integers(1, 48)), min_size=1, max_size=5)


@cache
def random_model() -> tuple[VectorClassifier, reference.State]:
    model = VectorClassifier(ENCODER, CONFIG, NUM_NGRAMS, CLASSES)
    state = randomise(model)
    return model.requires_grad_(False), state


def inputs(documents: Documents) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    ids = torch.tensor([ngram for ngrams, _ in documents for ngram in ngrams], dtype=torch.long)
    doc_index = torch.repeat_interleave(torch.tensor([len(ngrams) for ngrams, _ in documents]))
    return ids, doc_index, torch.tensor([length for _, length in documents])


@settings(max_examples=60)
@given(AnyDocuments)
def test_classifier_equals_reference_alone_and_beside_others(documents: Documents) -> None:
    model, state = random_model()
    together = model(*inputs(documents))
    for (ids, length), logits in zip(documents, together, strict=True):
        assert close(logits, reference.vector_classifier(ids, length, state, ENCODER, 4))
        assert same(model(*inputs([(ids, length)]))[0], logits)


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


def width_of(model: VectorClassifier, ids: torch.Tensor, doc_index: torch.Tensor, lengths: torch.Tensor) -> int:
    return model.embed(Hits(ids, doc_index, torch.zeros_like(ids)), lengths)[0].shape[1]


def test_eager_widths_are_multiples_and_at_most_seq_len(monkeypatch: pytest.MonkeyPatch) -> None:
    model, _ = random_model()
    monkeypatch.setattr("model.nn.vectors.WIDTH_MULTIPLE", 5)
    widths = [width_of(model, *inputs([([1] * n, 48), ([], 1)])) for n in (0, 1, 5, 6, 10, 11, 48)]
    assert widths == [5, 5, 5, 10, 10, 12, 12]


@pytest.mark.filterwarnings(r"ignore:`torch\.jit\.\w+` is deprecated:DeprecationWarning")
def test_traced_graph_serves_batches_with_any_number_of_ngrams() -> None:
    model, _ = random_model()
    traced = torch.jit.trace(model, inputs([([1, 2, 3], 12), ([4], 4)]))
    for count in (0, 1, 2, 7, 12, 40):
        batch = inputs([([1] * count, 48), ([], 1)])
        assert same(traced(*batch), model(*batch))


def test_every_ngram_is_read_however_many_there_are() -> None:
    model, _ = random_model()
    ids = [1 + i % 30 for i in range(48)]
    answer = model(*inputs([(ids, 48)]))
    for i in (0, 1, 23, 46, 47):
        changed = [*ids[:i], ids[i] % 30 + 1, *ids[i + 1 :]]
        assert not same(model(*inputs([(changed, 48)])), answer)


def test_gradient_reaches_every_parameter_but_not_the_row_of_no_ngram() -> None:
    model = VectorClassifier(ENCODER, CONFIG, NUM_NGRAMS, CLASSES)
    randomise(model)
    documents: Documents = [(list(range(31)), 40), ([0, 3, 0], 9), ([], 1)]
    nn.functional.cross_entropy(model(*inputs(documents)), torch.tensor([0, 1, 2])).backward()
    expect_gradient_everywhere(model)
    assert model.vectors.grad is not None
    assert not model.vectors.grad[0].any()


def test_dropped_ngrams_are_left_out_and_the_sequence_closes_up(monkeypatch: pytest.MonkeyPatch) -> None:
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
    model = VectorClassifier(ENCODER, CONFIG, NUM_NGRAMS, CLASSES)
    model.set_dropout(0.1, 0.2, 0.3)
    found = sorted({module.p for module in model.modules() if isinstance(module, nn.Dropout)})
    assert (found, model.pooled_dropout.p, model.token_dropout) == ([0.1, 0.2], 0.2, 0.3)


def test_quantised_vectors_are_within_half_a_step() -> None:
    model = VectorClassifier(ENCODER, CONFIG, NUM_NGRAMS, CLASSES)
    randomise(model)
    table = model.vectors.detach().clone()
    model.quantise()
    assert model.vectors.dtype == torch.int8
    assert ((model.vectors * model.scale - table).abs() <= model.scale * (0.5 + 1e-9)).all()
    assert torch.isfinite(model(*inputs([([1, 2, 0, 30], 20)]))).all()


def test_tokens_are_means_of_consecutive_ngrams() -> None:
    """Seven known n-grams share the three tokens of 12 bytes: 0 to 2, 3 and 4, 5 and 6; id 0 is not counted."""
    model, _ = random_model()
    ids = [3, 0, 1, 4, 1, 5, 0, 9, 2]
    stretch = torch.tensor([0, 9, 0, 1, 1, 2, 9, 2, 3])
    tokens, counts, stretches, _ = model.embed(Hits(*inputs([(ids, 12)])[:2], stretch), torch.tensor([12]))
    v = model.vectors
    expected = torch.stack(((v[3] + v[1] + v[4]) / 3, (v[1] + v[5]) / 2, (v[9] + v[2]) / 2))
    assert counts.tolist() == [3]
    assert stretches is not None
    assert same(tokens[0, :3], expected)
    assert not tokens[0, 3:].any()
    assert stretches[0, :3].tolist() == [0, 1, 2]


def test_vectors_are_not_normalised() -> None:
    """Longer vectors say more: the part of the mean token in the logits grows with them."""
    model = VectorClassifier(ENCODER, CONFIG, NUM_NGRAMS, CLASSES)
    randomise(model)
    nn.init.zeros_(model.head.weight)
    documents: Documents = [([1, 2, 3], 12), ([4, 5], 8)]
    before = model(*inputs(documents)) - model.head.bias
    with torch.no_grad():
        model.vectors.mul_(3)
    assert before.abs().min() > 1e-3
    assert same(model(*inputs(documents)) - model.head.bias, 3 * before)


def test_logits_are_linear_in_the_mean_token_times_the_gain() -> None:
    model = VectorClassifier(ENCODER, CONFIG, NUM_NGRAMS, CLASSES)
    randomise(model)
    nn.init.zeros_(model.head.weight)
    ids = [7, 8, 7]
    mean = (2 * model.vectors[7] + model.vectors[8]) / 3
    expected = 3 / (3 + model.prior) * model.gain * (model.evidence.weight @ mean) + model.head.bias
    assert same(model(*inputs([(ids, 40)]))[0], expected)


def test_gain_gives_mean_vectors_unit_deviation() -> None:
    model = VectorClassifier(ENCODER, CONFIG, NUM_NGRAMS, CLASSES)
    generator = np.random.default_rng(0)
    vectors = generator.normal(size=(20, ENCODER.dim)).astype(np.float32)
    means = generator.normal(1.0, 0.25, size=(50, ENCODER.dim))
    model.set_vectors(vectors, means, 7.0)
    assert float((model.gain * torch.from_numpy(means)).std(correction=0)) == pytest.approx(1, rel=1e-6)
    assert np.array_equal(model.vectors[1:21].detach().numpy(), vectors)
    assert not model.vectors[0].any()
    assert not model.vectors[21:].any()
    assert float(model.prior) == 7


@pytest.mark.parametrize("means", [np.zeros((0, ENCODER.dim)), np.ones((3, ENCODER.dim))], ids=["none", "equal"])
def test_gain_is_finite_without_different_documents(means: np.ndarray) -> None:
    model = VectorClassifier(ENCODER, CONFIG, NUM_NGRAMS, CLASSES)
    model.set_vectors(np.zeros((2, ENCODER.dim), dtype=np.float32), means, 0.0)
    assert torch.isfinite(model.gain)
    assert torch.isfinite(model(*inputs([([1, 2], 8)]))).all()
