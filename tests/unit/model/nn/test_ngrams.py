"""The linear classifier over word n-grams, compared with a reference."""

import math
from collections.abc import Sequence

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from model.nn.ngrams import NgramClassifier, find_hits
from tests.support import reference
from tests.support.numerics import close, randomise, same
from tests.support.words import CLASSES, CONFIG, Texts, every_second_ngram

Inputs = tuple[torch.Tensor, torch.Tensor, torch.Tensor, tuple[int, int]]
"""Hashes (longest, M), documents and stretches of words, numbers of documents and stretches."""

HALF, SMALLEST_STEP = 2.0**-11, 2.0**-25
"""Largest relative error of a half-precision number, and largest absolute error of one near zero."""


def inputs(texts: Sequence[bytes], longest: int = CONFIG.longest) -> Inputs:
    rows = [reference.word_ngrams(text, longest) for text in texts]
    hashes = torch.tensor([row for part in rows for row in part], dtype=torch.long).reshape(-1, longest).T
    doc_index = torch.repeat_interleave(torch.tensor([len(part) for part in rows]))
    return hashes, doc_index, torch.zeros_like(doc_index), (len(texts), 1)


def random_model(ngrams: list[int], *, sublinear: bool = False) -> tuple[NgramClassifier, reference.State]:
    """Return a classifier with random weights in double precision that knows these n-grams."""
    model = NgramClassifier(CONFIG.num_ngrams, CLASSES, sublinear=sublinear)
    model.vocabulary.fill(np.array(ngrams, dtype=np.int64))
    return model, randomise(model)


def words_model(
    words: dict[str, tuple[float, list[float]]],
    bias: Sequence[float] = (0.5, -0.25, 0.0),
    *,
    prior: float = 0.0,
    sublinear: bool = False,
) -> NgramClassifier:
    """Return a classifier of single words, with the scale and the weights of each, in double precision."""
    model = NgramClassifier(CONFIG.num_ngrams, CLASSES, sublinear=sublinear).double()
    hashes = np.array([reference.word_hash(word) for word in words], dtype=np.int64)
    scales = np.array([scale for scale, _ in words.values()])
    weights = np.array([weights for _, weights in words.values()]).reshape(-1, CLASSES)
    model.fill(hashes, scales, weights, np.array(bias), prior)
    return model


def logits_of(model: NgramClassifier, *texts: bytes) -> torch.Tensor:
    """Return the logits of documents whose n-grams are single words."""
    return logits_for(model, inputs(texts, 1))


def logits_for(model: NgramClassifier, given: Inputs) -> torch.Tensor:
    hashes, doc_index, stretch, shape = given
    rows = model.vocabulary(hashes.flatten()).reshape(hashes.shape)
    return torch.as_tensor(model(find_hits(rows, doc_index, stretch), shape).sum(dim=1) + model.bias)


WORDS = {"one": (3.0, [1.0, -2.0, 0.5]), "two": (4.0, [-1.0, 0.25, 2.0]), "three": (0.5, [8.0, 0.0, -8.0])}


@settings(max_examples=100)
@given(Texts, st.booleans())
def test_classifier_equals_reference_alone_and_beside_others(texts: list[bytes], sublinear: bool) -> None:
    ngrams = every_second_ngram(*texts)
    model, state = random_model(ngrams, sublinear=sublinear)
    together = logits_for(model, inputs(texts))
    assert together.shape == (len(texts), CLASSES)
    for text, logits in zip(texts, together, strict=True):
        assert close(logits, reference.ngram_classifier(text, ngrams, state, CONFIG.longest, sublinear=sublinear))
        assert same(logits_for(model, inputs([text]))[0], logits)


@settings(max_examples=50)
@given(Texts, st.integers(1, CONFIG.longest))
def test_hits_are_the_known_ngrams_in_the_order_of_the_text(texts: list[bytes], longest: int) -> None:
    ngrams = every_second_ngram(*texts)
    model, _ = random_model(ngrams)
    hashes, doc_index, _, _ = inputs(texts, longest)
    stretch = torch.tensor([end // 16 for text in texts for _, end in reference.located_words(text)], dtype=torch.long)
    rows = model.vocabulary(hashes.flatten()).reshape(hashes.shape)
    expected = [
        (ngram, document, where)
        for document, text in enumerate(texts)
        for ngram, where in zip(*reference.located_ngrams(text, ngrams, longest, 16), strict=True)
    ]
    for is_fixed in (False, True):
        hits = find_hits(rows, doc_index, stretch, has_fixed_shapes=is_fixed)
        assert hits.stretch is not None
        assert len(hits.ids) == (hashes.numel() if is_fixed else len(expected))
        found = zip(hits.ids.tolist(), hits.doc_index.tolist(), hits.stretch.tolist(), strict=True)
        assert [hit for hit in found if hit[0]] == expected


def test_filled_classifier_gives_the_value_computed_by_hand() -> None:
    logits = logits_of(words_model(WORDS), b"one two", b"two", b"three one")
    length = (3.0**2 + 0.5**2) ** 0.5
    expected = [
        [0.6 * 1.0 - 0.8 * 1.0 + 0.5, -0.6 * 2.0 + 0.8 * 0.25 - 0.25, 0.6 * 0.5 + 0.8 * 2.0],
        [-1.0 + 0.5, 0.25 - 0.25, 2.0],
        [(3.0 * 1.0 + 0.5 * 8.0) / length + 0.5, -3.0 * 2.0 / length - 0.25, (3.0 * 0.5 - 0.5 * 8.0) / length],
    ]
    assert close(logits, np.array(expected))


def test_classifier_starts_with_zero_logits_and_is_not_trained_by_gradients() -> None:
    model = NgramClassifier(CONFIG.num_ngrams, CLASSES)
    assert logits_of(model, b"one two", b" ").tolist() == [[0.0] * CLASSES] * 2
    assert not any(parameter.requires_grad for parameter in model.parameters())


def test_repeated_ngrams_count_once_and_in_any_order() -> None:
    model = words_model(WORDS)
    expected = logits_of(model, b"one two three")[0]
    for text in (b"three two one", b"two one two three two", b"one " * 50 + b"two three three"):
        assert same(logits_of(model, text)[0], expected)


def test_sublinear_counts_give_the_value_computed_by_hand() -> None:
    model = words_model(WORDS, sublinear=True)
    twice = 3.0 * (1 + math.log(2))
    length = (twice**2 + 4.0**2) ** 0.5
    expected = [
        (twice * 1.0 - 4.0 * 1.0) / length + 0.5,
        (-twice * 2.0 + 4.0 * 0.25) / length - 0.25,
        (twice * 0.5 + 4.0 * 2.0) / length,
    ]
    assert close(logits_of(model, b"one two one")[0], np.array(expected))
    assert same(logits_of(model, b"one two"), logits_of(words_model(WORDS), b"one two"))


def test_scales_matter_only_relative_to_each_other_and_to_the_root_of_the_prior() -> None:
    texts = (b"one two three", b"two three", b"three")
    scaled = {word: (7.0 * scale, weights) for word, (scale, weights) in WORDS.items()}
    expected = logits_of(words_model(WORDS, prior=2.0), *texts)
    assert same(logits_of(words_model(scaled, prior=98.0), *texts), expected)


def test_prior_moderates_the_logits_of_short_documents() -> None:
    texts = (b"three", b"one", b"one two three")
    small, large = (logits_of(words_model(WORDS, (0, 0, 0), prior=prior), *texts) for prior in (1.0, 3.0))
    squares = np.array([[0.25], [9.0], [25.25]])
    assert close(large, small.numpy() * np.sqrt((squares + 1) / (squares + 3)))


def test_unknown_ngrams_do_not_count() -> None:
    model = words_model(WORDS)
    assert same(logits_of(model, b"one four two five")[0], logits_of(model, b"one two")[0])


def test_documents_without_known_ngrams_get_the_bias() -> None:
    model = words_model(WORDS)
    logits = logits_of(model, b" ", b"one", b"unknown words", b"", b" ")
    assert not same(logits[1], model.bias)
    for i in (0, 2, 3, 4):
        assert torch.equal(logits[i], model.bias)
    assert torch.equal(logits_of(model, b" ", b"\n"), model.bias.expand(2, -1))


def test_filling_again_replaces_everything() -> None:
    model = words_model(WORDS)
    text = b"one two three"
    model.fill(
        np.array([reference.word_hash("two")], dtype=np.int64),
        np.array([2.0]),
        np.array([[1.0, 2.0, 3.0]]),
        np.zeros(CLASSES),
        0.0,
    )
    assert close(logits_of(model, text)[0], np.array([1.0, 2.0, 3.0]))
    assert int(model.table.any(dim=1).sum()) == 1
    model.fill(np.zeros(0, dtype=np.int64), np.zeros(0), np.zeros((0, CLASSES)), np.ones(CLASSES), 0.5)
    assert torch.equal(logits_of(model, text)[0], torch.ones(CLASSES, dtype=torch.float64))


def test_more_ngrams_than_rows_are_an_error() -> None:
    model = NgramClassifier(1, CLASSES)
    with pytest.raises(RuntimeError):
        model.fill(np.array([5, 6], dtype=np.int64), np.ones(2), np.ones((2, CLASSES)), np.zeros(CLASSES), 0.5)


@settings(max_examples=50)
@given(Texts, st.floats(1e-3, 100.0))
def test_error_of_half_precision_is_bounded(texts: list[bytes], size: float) -> None:
    """Rounding changes the numerator of a logit by e and its squared length D by a fraction d."""
    ngrams = every_second_ngram(*texts)
    model, _ = random_model(ngrams)
    model.table.mul_(size)
    expected, table = logits_for(model, inputs(texts)), model.table.numpy().copy()
    model.quantise()
    assert model.table.dtype == torch.float16
    logits = logits_for(model, inputs(texts))
    assert logits.dtype == torch.float64
    for text, ours, theirs in zip(texts, logits, expected, strict=True):
        found = reference.ngram_set(text, CONFIG.longest)
        rows = table[[1 + i for i, value in enumerate(ngrams) if value in found]]
        if not len(rows):
            assert torch.equal(ours, theirs)
            continue
        squared_length = rows[:, -1].sum()
        e = np.abs(rows[:, :-1]).sum(axis=0) * HALF + len(rows) * SMALLEST_STEP
        d = HALF + len(rows) * SMALLEST_STEP / squared_length
        bound = (e + np.abs(rows[:, :-1].sum(axis=0)) * d) / np.sqrt(squared_length * (1 - d))
        assert ((ours - theirs).abs().numpy() <= 1.001 * bound + 1e-12).all()


def test_quantised_classifier_reads_nothing_into_documents_without_known_ngrams() -> None:
    model = words_model(WORDS)
    model.quantise()
    assert torch.equal(logits_of(model, b"unknown", b" "), model.bias.expand(2, -1))
