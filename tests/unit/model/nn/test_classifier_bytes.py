"""The classifier of byte n-grams: both views together, compared with a reference, at any length and quantised."""

from functools import cache

import numpy as np
import pytest
import torch
from hypothesis import given, settings

from model.config.models import ClassifierConfig, NgramViewConfig, RoundConfig, VectorViewConfig
from model.nn.classifier import STRETCH_BYTES, ByteClassifier
from tests.support import reference
from tests.support.configs import changed
from tests.support.numerics import close, randomise, same
from tests.support.words import CLASSES, LENGTH, Texts, padded
from tests.unit.model.nn.test_vectors import ENCODER

VIEW = NgramViewConfig(sizes=(1, 3), num_ngrams=64, max_length=LENGTH)
VECTOR_VIEW = VectorViewConfig(
    bytes_per_token=LENGTH // ENCODER.seq_len, num_buckets=32, vector_dim=6, rounds=(RoundConfig(),)
)
SMALL = ClassifierConfig(kind="bytes", encoder=ENCODER, ngram_view=VIEW, vector_view=VECTOR_VIEW)
ALONE = changed(SMALL, vector_view=None)
SUBLINEAR = changed(ALONE, ngram_view=changed(VIEW, sublinear=True))
CONFIGS = pytest.mark.parametrize(
    "config", [SMALL, ALONE, SUBLINEAR], ids=["both views", "without vector view", "sublinear"]
)
TEXTS = (
    b"a",
    b"ab",
    b"abcABC abc",
    bytes(5),
    b"\xff\x00\x80 any bytes",
    b"one two three four, one two three four five... ",
)


def every_second_ngram(*texts: bytes) -> list[int]:
    """Return hashes of about half of the n-grams, and one hash of no n-gram; in no order."""
    found = (row for text in texts for row in reference.byte_ngrams(text, VIEW.sizes))
    hashes = sorted({value for row in found for value in row} - {-1})
    return [12345, *hashes[::2]][: VIEW.num_ngrams][::-1]


def random_model(config: ClassifierConfig, *texts: bytes) -> tuple[ByteClassifier, reference.State]:
    """Return a model with random weights that knows half of the n-grams.

    It is in training mode, which computes in double precision: in eval mode, patches are sums in single precision.
    """
    model = ByteClassifier(config, CLASSES)
    model.ngram_view.vocabulary.fill(np.array(every_second_ngram(*texts), dtype=np.int64))
    state = randomise(model)
    if model.vector_view is not None:
        model.vector_view.set_dropout(0.0, 0.0, 0.0)
    return model.requires_grad_(False).train(), state


def expect_equal_to_reference(config: ClassifierConfig, *texts: bytes) -> None:
    """Compare with stretches of 16 bytes, so that short documents have several."""
    model, state = random_model(config, *texts)
    ngrams = every_second_ngram(*texts)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("model.nn.classifier.STRETCH_BYTES", 16)
        logits, contributions = model(*padded(*texts))
    assert contributions.shape == (len(texts), LENGTH // 16, CLASSES)
    assert same(contributions.sum(dim=1) + model.base(), logits)
    for text, answer, found in zip(texts, logits, contributions, strict=True):
        assert close(answer, reference.byte_classifier(text, ngrams, state, config))
        expected = reference.byte_contributions(text, ngrams, state, config, 16)
        assert close(found[: len(expected)], expected)
        assert not found[len(expected) :].any()


@CONFIGS
def test_logits_and_contributions_equal_reference(config: ClassifierConfig) -> None:
    expect_equal_to_reference(config, *TEXTS)


@settings(max_examples=25)
@given(Texts)
def test_logits_and_contributions_of_any_bytes_equal_reference(texts: list[bytes]) -> None:
    expect_equal_to_reference(SMALL, *texts)
    expect_equal_to_reference(SUBLINEAR, *texts)


@CONFIGS
@settings(max_examples=10)
@given(texts=Texts)
def test_classifier_with_fixed_shapes_has_the_same_outputs(config: ClassifierConfig, texts: list[bytes]) -> None:
    """Also without any known n-gram; the classifier itself remains as it is."""
    model, _ = random_model(config, *TEXTS)
    other = model.with_fixed_shapes()
    for chosen in (texts, [b"?", b"\x01"], [b"a" * LENGTH, b"ab"]):
        for found, expected in zip(other(*padded(*chosen)), model(*padded(*chosen)), strict=True):
            assert same(found, expected)
    assert (other.has_fixed_shapes, model.has_fixed_shapes) == (True, False)
    if model.vector_view is None:
        assert other.vector_view is None
    else:
        assert other.vector_view is not None
        assert other.vector_view.vectors is model.vector_view.vectors


@pytest.mark.parametrize(("view", "other"), [(0, 1), (1, 0)])
def test_each_view_has_its_weight(view: int, other: int) -> None:
    model, _ = random_model(SMALL, *TEXTS)
    model.weights.copy_(torch.tensor([1.0, 1.0]))
    both = model(*padded(*TEXTS))[0]
    model.weights[other] = 0.0
    alone = model(*padded(*TEXTS))[0]
    model.weights[view], model.weights[other] = 2.0, 1.0
    assert same(model(*padded(*TEXTS))[0], both + alone)
    assert not same(alone, both)


def test_without_vector_view_the_model_has_none_of_its_weights() -> None:
    model, _ = random_model(ALONE, *TEXTS)
    assert model.vector_view is None
    assert {name.split(".")[0] for name in model.state_dict()} == {"weights", "ngram_view"}


def test_rows_of_ngrams_equal_reference() -> None:
    model, _ = random_model(SMALL, *TEXTS)
    found = model.rows(*padded(*TEXTS))
    assert found.shape == (len(TEXTS), LENGTH, len(VIEW.sizes))
    for text, rows in zip(TEXTS, found, strict=True):
        assert rows[: len(text)].tolist() == reference.byte_rows(text, VIEW.sizes, VECTOR_VIEW.num_buckets)
        assert not rows[len(text) :].any()


BUCKETS = (256, 512, 1024, 2048)


def noise(length: int) -> bytes:
    return bytes(np.random.default_rng(length).choice(list(b"abcABC \x00\xff"), length).tolist())


@cache
def long_model() -> ByteClassifier:
    encoder = changed(ENCODER, seq_len=BUCKETS[-1] // VECTOR_VIEW.bytes_per_token)
    config = changed(SMALL, encoder=encoder, ngram_view=changed(VIEW, max_length=BUCKETS[-1]))
    assert config.buckets == BUCKETS
    return random_model(config, noise(60))[0]


def test_answers_do_not_depend_on_the_bucket_or_the_rest_of_the_batch() -> None:
    model = long_model()
    sizes = {bucket + step for bucket in BUCKETS for step in (-1, 0, 1)} | {1, 3, 4, 5, 700}
    texts = [noise(size) for size in sorted(sizes) if size <= BUCKETS[-1]]
    logits, contributions = model(*padded(*texts, length=BUCKETS[-1]))
    for text, answer, expected in zip(texts, logits, contributions, strict=True):
        used = -(-len(text) // STRETCH_BYTES)
        assert not expected[used:].any()
        bucket = next(size for size in BUCKETS if len(text) <= size)
        alone, found = (part[0] for part in model(*padded(text, length=bucket)))
        assert same(alone, answer)
        assert len(found) == bucket // STRETCH_BYTES
        assert same(found, expected[: len(found)])


@settings(max_examples=10)
@given(Texts)
def test_bytes_beyond_the_length_are_not_read(texts: list[bytes]) -> None:
    model, _ = random_model(SMALL, *texts)
    document, lengths = padded(*texts)
    dirty = torch.where(torch.arange(LENGTH) < lengths[:, None], document, ord("a"))
    for found, expected in zip(model(dirty, lengths), model(document, lengths), strict=True):
        assert torch.equal(found, expected)


@CONFIGS
def test_quantised_classifier_is_close(config: ClassifierConfig) -> None:
    model, _ = random_model(config, *TEXTS)
    model.float().eval()
    before = model(*padded(*TEXTS))[0]
    model.quantise()
    assert model.ngram_view.table.dtype == torch.float16
    assert model.vector_view is None or model.vector_view.vectors.dtype == torch.int8
    after, contributions = model(*padded(*TEXTS))
    # int8 vectors have steps of 1/127 of the largest value; the blocks multiply their error.
    assert 0 < (after - before).abs().max() < 0.1 * before.abs().max()
    assert torch.allclose(contributions.sum(dim=1) + model.base(), after, atol=1e-5)


@CONFIGS
def test_temperature_divides_logits_base_and_contributions(config: ClassifierConfig) -> None:
    model, _ = random_model(config, *TEXTS)
    before = (model.base(), *model(*padded(*TEXTS)))
    model.divide_logits(2.5)
    for found, expected in zip((model.base(), *model(*padded(*TEXTS))), before, strict=True):
        assert same(2.5 * found, expected)


@CONFIGS
def test_reloaded_model_is_identical(config: ClassifierConfig) -> None:
    model, _ = random_model(config, *TEXTS)
    other = ByteClassifier(config, CLASSES).double()
    if other.vector_view is not None:
        other.vector_view.set_dropout(0.0, 0.0, 0.0)
    other.load_state_dict(model.state_dict())
    first, second = (part(*padded(*TEXTS))[0].detach() for part in (model, other))
    # the other model has single-precision tables of the Fourier transform
    assert torch.allclose(first, second, rtol=0, atol=1e-5 * float(first.abs().max()))
