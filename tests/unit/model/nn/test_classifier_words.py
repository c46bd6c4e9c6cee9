"""The classifier of words: both views together, compared with a reference, at any length and quantised."""

from functools import cache

import numpy as np
import pytest
import torch
from hypothesis import given, settings

from model.config.encoder import EncoderConfig
from model.config.models import (
    ClassifierConfig,
    NgramViewConfig,
    RoundConfig,
    VectorViewConfig,
)
from model.nn.attention.s3 import DENSE_LENGTH
from model.nn.classifier import STRETCH_BYTES, WordClassifier
from tests.support import reference
from tests.support.configs import changed
from tests.support.numerics import close, randomise, same
from tests.support.words import CLASSES, CONFIG, Texts, every_second_ngram, padded
from tests.unit.model.nn.test_vectors import ENCODER

VECTOR_VIEW = VectorViewConfig(rounds=(RoundConfig(),))
SMALL = ClassifierConfig(kind="words", encoder=ENCODER, ngram_view=CONFIG, vector_view=VECTOR_VIEW)
ALONE = changed(SMALL, vector_view=None)
SUBLINEAR = changed(ALONE, ngram_view=changed(CONFIG, sublinear=True))
PREFIXED = changed(ALONE, ngram_view=changed(CONFIG, prefixes=True))
CONFIGS = pytest.mark.parametrize(
    "config", [SMALL, ALONE, SUBLINEAR, PREFIXED], ids=["both views", "without vector view", "sublinear", "prefixes"]
)

TEXTS = (
    b"a",
    b"one two",
    b"Two, three: one two three!",
    b"nothing known" + bytes(3),
    b" ",
    b"one two three four, one two three four five... ",
)


def random_model(config: ClassifierConfig, *texts: bytes) -> tuple[WordClassifier, reference.State]:
    """Return a model with random weights in double precision that knows half of the n-grams."""
    model = WordClassifier(config, CLASSES)
    view = config.ngram_view
    ngrams = every_second_ngram(*texts, limit=view.num_ngrams, prefixes=view.prefixes)
    model.ngram_view.vocabulary.fill(np.array(ngrams, dtype=np.int64))
    state = randomise(model)
    return model.requires_grad_(False), state


def logits_of(model: WordClassifier, document: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
    logits: torch.Tensor = model(document, lengths)[0]
    return logits


def expect_equal_to_reference(config: ClassifierConfig, *texts: bytes) -> None:
    model, state = random_model(config, *texts)
    ngrams = every_second_ngram(*texts, prefixes=config.ngram_view.prefixes)
    for text, logits in zip(texts, logits_of(model, *padded(*texts)), strict=True):
        assert close(logits, reference.word_classifier(text, ngrams, state, config))


@CONFIGS
def test_classifier_equals_reference(config: ClassifierConfig) -> None:
    expect_equal_to_reference(config, *TEXTS)


@settings(max_examples=40)
@given(Texts)
def test_classifier_of_any_bytes_equals_reference(texts: list[bytes]) -> None:
    expect_equal_to_reference(SMALL, *texts)
    expect_equal_to_reference(ALONE, *texts)
    expect_equal_to_reference(PREFIXED, *texts)


@pytest.mark.parametrize(("view", "other"), [(0, 1), (1, 0)])
def test_each_view_has_its_weight(view: int, other: int) -> None:
    model, _ = random_model(SMALL, *TEXTS)
    model.weights.copy_(torch.tensor([1.0, 1.0]))
    both = logits_of(model, *padded(*TEXTS))
    model.weights[other] = 0.0
    alone = logits_of(model, *padded(*TEXTS))
    model.weights[view], model.weights[other] = 2.0, 1.0
    assert same(logits_of(model, *padded(*TEXTS)), both + alone)
    assert not same(alone, both)


def test_without_vector_view_the_model_has_none_of_its_weights() -> None:
    model, _ = random_model(ALONE, *TEXTS)
    assert model.vector_view is None
    assert {name.split(".")[0] for name in model.state_dict()} == {"weights", "ngram_view"}


@CONFIGS
def test_model_starts_with_both_weights_one(config: ClassifierConfig) -> None:
    assert WordClassifier(config, CLASSES).weights.tolist() == [1.0, 1.0]


def prose(length: int) -> bytes:
    words = (b"one", b"two,", b"three", b"Four", b"!", "fünf".encode(), "東京".encode(), b"\x00")
    return b" ".join(np.random.default_rng(length).choice(words, length))[:length]


@cache
def long_model(seq_len: int) -> WordClassifier:
    model, _ = random_model(long_config(seq_len), *(prose(length) for length in (40, 50, 60)))
    return model


def long_config(seq_len: int) -> ClassifierConfig:
    encoder, ngrams = changed(ENCODER, seq_len=seq_len), NgramViewConfig(longest=3, num_ngrams=200, max_length=2048)
    return ClassifierConfig(kind="words", encoder=encoder, ngram_view=ngrams, vector_view=VECTOR_VIEW)


SEQ_LENS = (128, 512)
"""Maximum number of tokens of the vector view; the second is beyond dense Fourier convolutions."""
BUCKETS = (256, 512, 1024, 2048)


def edge_texts() -> list[bytes]:
    random = np.random.default_rng(1).integers(1, BUCKETS[-1], 6).tolist()
    near = {bucket + step for bucket in BUCKETS for step in (-1, 0, 1)}
    return [prose(length) for length in sorted(near | {1, 15, 16, 17, *random}) if length <= BUCKETS[-1]]


def test_lengths_are_on_both_sides_of_the_dense_limit() -> None:
    short, long = SEQ_LENS
    assert short <= DENSE_LENGTH < long
    assert all(long_config(seq_len).buckets == BUCKETS for seq_len in SEQ_LENS)
    assert EncoderConfig(seq_len=long).is_length_aware


@pytest.mark.parametrize("seq_len", SEQ_LENS)
def test_logits_are_the_same_in_every_bucket(seq_len: int) -> None:
    model, texts = long_model(seq_len), edge_texts()
    expected = logits_of(model, *padded(*texts, length=BUCKETS[-1]))
    assert (expected.std(dim=0) > 1e-3).all()
    for bucket in BUCKETS:
        fitting = [i for i, text in enumerate(texts) if len(text) <= bucket]
        assert same(logits_of(model, *padded(*(texts[i] for i in fitting), length=bucket)), expected[fitting])


@settings(max_examples=20)
@given(Texts)
def test_logits_are_the_same_at_any_padded_length(texts: list[bytes]) -> None:
    for config in (SMALL, ALONE):
        model, _ = random_model(config, *texts)
        longest = max(map(len, texts))
        assert same(logits_of(model, *padded(*texts, length=longest)), logits_of(model, *padded(*texts)))


@pytest.mark.parametrize("seq_len", SEQ_LENS)
def test_logits_do_not_depend_on_the_rest_of_the_batch_or_on_padding(seq_len: int) -> None:
    model, texts = long_model(seq_len), edge_texts()
    document, lengths = padded(*texts, length=BUCKETS[-1])
    together = logits_of(model, document, lengths)
    dirty = torch.where(torch.arange(BUCKETS[-1]) < lengths[:, None], document, ord("a"))
    assert not torch.equal(dirty, document)
    assert torch.equal(logits_of(model, dirty, lengths), together)
    for text, logits in zip(texts[::4], together[::4], strict=True):
        assert same(logits_of(model, *padded(text, length=BUCKETS[-1]))[0], logits)


@CONFIGS
def test_quantised_model_has_small_tables_and_answers_nearly_the_same(config: ClassifierConfig) -> None:
    model, _ = random_model(config, *TEXTS)
    before = logits_of(model, *padded(*TEXTS))
    model.quantise()
    assert model.ngram_view.table.dtype == torch.float16
    assert model.vector_view is None or model.vector_view.vectors.dtype == torch.int8
    after = logits_of(model, *padded(*TEXTS))
    assert not torch.equal(after, before)
    # int8 vectors have steps of 1/127 of the largest value; the blocks multiply their error.
    assert (after - before).abs().max() < 0.1 * before.abs().max()


@CONFIGS
def test_temperature_divides_the_logits(config: ClassifierConfig) -> None:
    model, _ = random_model(config, *TEXTS)
    before = logits_of(model, *padded(*TEXTS))
    model.divide_logits(2.5)
    assert same(2.5 * logits_of(model, *padded(*TEXTS)), before)


@CONFIGS
def test_reloaded_model_is_identical(config: ClassifierConfig) -> None:
    model, _ = random_model(config, *TEXTS)
    other = WordClassifier(config, CLASSES).double().eval()
    other.load_state_dict(model.state_dict())
    first, second = (logits_of(part, *padded(*TEXTS)).detach() for part in (model, other))
    # the other model has single-precision tables of the Fourier transform
    assert torch.allclose(first, second, rtol=0, atol=1e-5 * float(first.abs().max()))


def expect_contributions_equal_to_reference(config: ClassifierConfig, *texts: bytes) -> None:
    """Compare with stretches of 16 bytes, so that short documents have several."""
    model, state = random_model(config, *texts)
    ngrams = every_second_ngram(*texts, prefixes=config.ngram_view.prefixes)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("model.nn.classifier.STRETCH_BYTES", 16)
        logits, contributions, _ = model(*padded(*texts))
    assert same(contributions.sum(dim=1) + model.base(), logits)
    assert contributions.shape == (len(texts), 3, CLASSES)
    for text, found in zip(texts, contributions, strict=True):
        expected = reference.word_contributions(text, ngrams, state, config, 16)
        assert close(found[: len(expected)], expected)
        assert not found[len(expected) :].any()


@CONFIGS
def test_contributions_equal_reference(config: ClassifierConfig) -> None:
    expect_contributions_equal_to_reference(config, *TEXTS)


@settings(max_examples=40)
@given(Texts)
def test_contributions_of_any_bytes_equal_reference(texts: list[bytes]) -> None:
    expect_contributions_equal_to_reference(SMALL, *texts)
    expect_contributions_equal_to_reference(ALONE, *texts)
    expect_contributions_equal_to_reference(SUBLINEAR, *texts)


@CONFIGS
@settings(max_examples=20)
@given(texts=Texts)
def test_fixed_shapes_change_no_output(config: ClassifierConfig, texts: list[bytes]) -> None:
    """Also without any known word, and with a word at every byte."""
    model, _ = random_model(config, *TEXTS)
    for chosen in (texts, [b"?", b" "], [b"!" * 40, b"one two"]):
        document, lengths = padded(*chosen)
        found, expected = model.with_fixed_shapes()(document, lengths), model(document, lengths)
        for got, wanted in zip(found, expected, strict=True):
            assert same(got, wanted)


@pytest.mark.parametrize("seq_len", SEQ_LENS)
def test_contributions_do_not_depend_on_the_bucket_or_the_rest_of_the_batch(seq_len: int) -> None:
    model, texts = long_model(seq_len), edge_texts()
    together = model(*padded(*texts, length=BUCKETS[-1]))[1]
    assert together.shape == (len(texts), BUCKETS[-1] // STRETCH_BYTES, CLASSES)
    for text, expected in zip(texts, together, strict=True):
        used = -(-len(text) // STRETCH_BYTES)
        assert not expected[used:].any()
        bucket = next(size for size in BUCKETS if len(text) <= size)
        found = model(*padded(text, length=bucket))[1][0]
        assert len(found) == bucket // STRETCH_BYTES
        assert same(found, expected[: len(found)])


@CONFIGS
def test_temperature_divides_base_and_contributions(config: ClassifierConfig) -> None:
    model, _ = random_model(config, *TEXTS)
    base, contributions = model.base(), model(*padded(*TEXTS))[1]
    model.divide_logits(2.5)
    assert same(2.5 * model.base(), base)
    assert same(2.5 * model(*padded(*TEXTS))[1], contributions)


@CONFIGS
def test_words_at_which_a_known_ngram_ends_are_counted(config: ClassifierConfig) -> None:
    model, _ = random_model(config, *TEXTS)
    view = config.ngram_view
    ngrams = set(every_second_ngram(*TEXTS, limit=view.num_ngrams, prefixes=view.prefixes))
    known = model(*padded(*TEXTS))[2]
    assert known.dtype == torch.float32
    assert known.tolist() == [reference.known_words(text, ngrams, CONFIG.longest) for text in TEXTS]
    assert 0 < known[:, 0].sum() < known[:, 1].sum()


@settings(max_examples=40)
@given(Texts)
def test_counts_of_any_bytes_equal_reference_alone_beside_others_and_with_padding(texts: list[bytes]) -> None:
    model, _ = random_model(ALONE, *texts)
    ngrams = set(every_second_ngram(*texts, limit=CONFIG.num_ngrams))
    expected = [reference.known_words(text, ngrams, CONFIG.longest) for text in texts]
    document, lengths = padded(*texts)
    dirty = torch.where(torch.arange(document.shape[1]) < lengths[:, None], document, ord("a"))
    assert model(document, lengths)[2].tolist() == model(dirty, lengths)[2].tolist() == expected
    assert model.known(document, lengths).tolist() == expected
    assert [model(*padded(text, length=len(text)))[2][0].tolist() for text in texts] == expected


def test_word_is_known_by_an_ngram_of_several_words() -> None:
    model = WordClassifier(ALONE, CLASSES)
    known = [reference.word_hash("one"), reference.ngram_hash(["two", "three"])]
    model.ngram_view.vocabulary.fill(np.array(known, dtype=np.int64))
    texts = (b"one two three", b"three two", b"two. three", b"One ONE one", b" \n", b"two three three")
    assert model(*padded(*texts))[2].tolist() == [[2, 3], [0, 2], [0, 3], [3, 3], [0, 0], [1, 3]]
