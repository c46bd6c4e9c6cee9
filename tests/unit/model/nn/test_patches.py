"""The classifier over patches of byte n-grams, against a reference."""

from functools import cache

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from model.config.models import VectorViewConfig
from model.nn.patches import PatchClassifier
from tests.support import reference
from tests.support.numerics import close, expect_gradient_everywhere, randomise, same
from tests.unit.model.nn.test_vectors import ENCODER

PATCH, SIZES, NUM_ROWS, CLASSES = 4, 2, 32, 3
CONFIG = VectorViewConfig(bytes_per_token=PATCH, num_buckets=NUM_ROWS, vector_dim=6)
LENGTH = ENCODER.seq_len * PATCH
Document = list[tuple[int, ...]]
"""Rows of the n-grams that end at each byte."""

Rows = st.lists(st.tuples(*[st.integers(0, NUM_ROWS)] * SIZES), min_size=1, max_size=LENGTH)
AnyDocuments = st.lists(Rows, min_size=1, max_size=5)


both_stems = pytest.mark.parametrize("channels", [0, 5], ids=["sums", "convolution"])


def new_model(channels: int = 0) -> tuple[PatchClassifier, reference.State]:
    """Return a model in training mode, which computes in double precision; in eval mode it sums in single precision."""
    config = CONFIG.model_copy(update={"channels": channels})
    model = PatchClassifier(ENCODER, config, range(1, 1 + SIZES), CLASSES)
    state = randomise(model)
    model.set_dropout(0.0, 0.0, 0.0)
    return model.train(), state


@cache
def random_model(channels: int = 0) -> tuple[PatchClassifier, reference.State]:
    model, state = new_model(channels)
    return model.requires_grad_(False), state


def inputs(*documents: Document, length: int = LENGTH) -> tuple[torch.Tensor, torch.Tensor]:
    rows = torch.zeros(len(documents), length, SIZES, dtype=torch.long)
    for row, document in zip(rows, documents, strict=True):
        row[: len(document)] = torch.tensor(document)
    return rows, torch.tensor([len(document) for document in documents], dtype=torch.int32)


def random_documents(count: int) -> list[Document]:
    generator = np.random.default_rng(0)
    sizes = generator.integers(1, LENGTH + 1, count)
    return [list(map(tuple, generator.integers(0, NUM_ROWS + 1, (size, SIZES)).tolist())) for size in sizes]


@both_stems
@settings(max_examples=40)
@given(documents=AnyDocuments)
def test_classifier_equals_reference_alone_beside_others_and_with_padding(
    documents: list[Document], channels: int
) -> None:
    model, state = random_model(channels)
    for document, logits in zip(documents, model(*inputs(*documents)), strict=True):
        assert close(logits, reference.patch_classifier(document, state, ENCODER, PATCH))
        fitting = -(-len(document) // PATCH) * PATCH
        assert same(model(*inputs(document, length=fitting))[0], logits)


@both_stems
@settings(max_examples=40)
@given(documents=AnyDocuments, stretch=st.sampled_from([PATCH, 3 * PATCH]))
def test_contributions_equal_reference_and_add_up_to_the_logits(
    documents: list[Document], stretch: int, channels: int
) -> None:
    model, state = random_model(channels)
    num_stretches = LENGTH // stretch
    contributions = model.contributions(*inputs(*documents), num_stretches, stretch, in_int8=True)
    assert same(contributions.sum(dim=1) + model.head.bias, model(*inputs(*documents)))
    for document, found in zip(documents, contributions, strict=True):
        expected = reference.patch_contributions(document, state, ENCODER, PATCH, stretch)
        assert close(found[: len(expected)], expected)
        assert not found[len(expected) :].any()


def test_tokens_are_sums_of_the_ngrams_that_end_in_a_patch() -> None:
    model, _ = random_model()
    tokens = model.embed(*inputs([(1, 0), (2, 3), (0, 0), (1, 1), (0, 4)]), stretch_bytes=2 * PATCH)
    v, size = model.vectors @ model.project.weight.T, (PATCH * SIZES) ** 0.5
    assert tokens.counts.tolist() == [2]
    assert tokens.stretch is not None
    found = (tokens.vectors[0] - model.project.bias) * size
    assert close(found[:2], torch.stack((3 * v[1] + v[2] + v[3], v[4])).numpy())
    assert not found[2:].any()
    assert tokens.stretch[0].tolist() == [t // 2 for t in range(ENCODER.seq_len)]
    assert same(tokens.share, 5 / (5 + model.prior).reshape(1, 1))


def test_documents_without_an_ngram_have_finite_logits() -> None:
    model, state = random_model()
    for length in (1, PATCH, LENGTH):
        document = [(0,) * SIZES] * length
        assert close(model(*inputs(document))[0], reference.patch_classifier(document, state, ENCODER, PATCH))
    new = PatchClassifier(ENCODER, CONFIG, range(1, 1 + SIZES), CLASSES).eval()
    assert torch.isfinite(new(*inputs([(0,) * SIZES]))).all()


def test_eval_mode_sums_the_same_in_single_precision() -> None:
    model, _ = new_model()
    documents = inputs(*random_documents(20))
    with torch.no_grad():
        expected, size = model.embed(*documents).vectors, PATCH * SIZES
        found = model.eval().embed(*documents).vectors
    # sums of 8 numbers, each rounded, over the root of 8
    bound = float(model.vectors.detach().abs().max()) * size * (1 + size) * 2**-24 / size**0.5
    largest = float(model.project.weight.detach().abs().sum(1).max())
    assert 0 < (found - expected).abs().max() <= largest * bound


@both_stems
def test_gradient_reaches_every_parameter_but_not_the_row_of_no_ngram(channels: int) -> None:
    model, _ = new_model(channels)
    every: Document = [(i % (NUM_ROWS + 1), 0) for i in range(LENGTH)]
    nn.functional.cross_entropy(model(*inputs(every, [(1, 2)], [(0, 0)])), torch.tensor([0, 1, 2])).backward()
    expect_gradient_everywhere(model)
    assert model.vectors.grad is not None
    assert not model.vectors.grad[0].any()
    assert model.vectors.grad[1:].any(dim=1).all()


def test_dropped_tokens_are_zero(monkeypatch: pytest.MonkeyPatch) -> None:
    model, _ = new_model()
    chances = torch.tensor([0.9, 0.1, 0.9] + [0.5] * (ENCODER.seq_len - 3))
    monkeypatch.setattr(torch, "rand", lambda *_, **__: chances.unsqueeze(0))
    document: Document = [(1 + i, 0) for i in range(3 * PATCH)]
    expected = model.embed(*inputs(document)).vectors.clone()
    model.set_dropout(0.0, 0.0, 0.5)
    expected[0, 1] = 0
    assert same(model.embed(*inputs(document)).vectors, expected)
    assert model.eval().embed(*inputs(document)).vectors[0, 1].any()


@both_stems
def test_quantised_vectors_are_within_half_a_step(channels: int) -> None:
    model, _ = new_model(channels)
    model.float().eval().requires_grad_(False)
    documents, table = inputs(*random_documents(20)), model.vectors.clone()
    before = model(*documents)
    model.quantise()
    assert model.vectors.dtype == torch.int8
    assert ((model.vectors * model.scale - table).abs() <= model.scale * (0.5 + 1e-4)).all()
    after = model(*documents)
    # int8 vectors have steps of 1/127 of the largest value; the blocks multiply their error.
    assert 0 < (after - before).abs().max() < 0.1 * before.abs().max()
