"""The classifier of two views: its parts together, before and after it is folded for export."""

import numpy as np
import torch
from hypothesis import given, settings

from model.config.models import ClassifierConfig, RoundConfig, VectorsConfig, VectorViewConfig
from model.nn.views import ViewClassifier
from model.nn.words import FOLDS
from tests.support import reference
from tests.support.numerics import close, randomise, same
from tests.support.words import CLASSES, CONFIG, LENGTH, Texts, every_second_run, padded
from tests.unit.model.nn.test_vectors import ENCODER

VECTOR_VIEW = VectorViewConfig(
    max_length=LENGTH, vectors=VectorsConfig(num_words=200), rounds=(RoundConfig(learning_rate=1e-3),)
)
SMALL = ClassifierConfig(kind="views", encoder=ENCODER, stem=CONFIG, vector_view=VECTOR_VIEW)


def knowing(texts: list[bytes]) -> tuple[ViewClassifier, reference.State, list[int]]:
    """Random weights in double precision, rows for half of the runs, and a vocabulary of half of the words."""
    model = ViewClassifier(SMALL, CLASSES)
    runs = np.array(every_second_run(*texts), dtype=np.int64)
    model.ngram_view.stem.fill(runs, torch.zeros(FOLDS + 1, len(runs), CLASSES))
    words = sorted({reference.word_hash(word) for text in texts for word, _ in reference.words(text)})[::2]
    model.vocabulary.fill(np.array(words, dtype=np.int64))
    return model, randomise(model), words


@settings(max_examples=40)
@given(Texts)
def test_classifier_equals_reference(texts: list[bytes]) -> None:
    model, state, words = knowing(texts)
    together = model(*padded(*texts))
    for text, logits in zip(texts, together, strict=True):
        hashes = [reference.word_hash(word) for word, _ in reference.words(text)]
        ids = [words.index(value) + 1 if value in words else 0 for value in hashes]
        first = reference.word_classifier(text, reference.below(state, "ngram_view"), SMALL.ngram_view, FOLDS)
        second = reference.vector_classifier(
            ids, len(text), reference.below(state, "vector_view"), ENCODER, VECTOR_VIEW.bytes_per_token
        )
        assert close(logits, state["weights"][0] * first + state["weights"][1] * second + state["bias"])


@settings(max_examples=20)
@given(Texts)
def test_answer_does_not_depend_on_padding(texts: list[bytes]) -> None:
    model, _, _ = knowing(texts)
    longest = -(-max(map(len, texts)) // 4) * 4
    assert same(model(*padded(*texts, length=longest)), model(*padded(*texts)))


def test_without_word_vectors_the_classifier_is_its_ngram_view() -> None:
    texts = [b"one two three", b"two"]
    model, state, _ = knowing(texts)
    model.has_vector_view = False
    for text, logits in zip(texts, model(*padded(*texts)), strict=True):
        first = reference.word_classifier(text, reference.below(state, "ngram_view"), SMALL.ngram_view, FOLDS)
        assert close(logits, state["weights"][0] * first + state["bias"])


def test_folded_classifier_has_tables_of_bytes_and_answers_nearly_the_same() -> None:
    texts = [b"one two three, one two three four", b"two", b" "]
    model, _, _ = knowing(texts)
    before = model(*padded(*texts))
    model.quantise()
    assert model.ngram_view.stem.table.shape == (1 + CONFIG.num_slots, CLASSES)
    assert {model.ngram_view.stem.table.dtype, model.vector_view.vectors.dtype} == {torch.int8}
    after = model(*padded(*texts))
    assert (after - before).abs().max() < 0.1 * before.abs().max()


def test_temperature_divides_the_logits() -> None:
    model, _, _ = knowing([b"one two"])
    before = model(*padded(b"one two"))
    model.divide_logits(2.0)
    assert same(2 * model(*padded(b"one two")), before)
