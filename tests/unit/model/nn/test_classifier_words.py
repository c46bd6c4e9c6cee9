"""The word classifier: compared with a reference, at any length, at initialisation, and in training."""

import math
from functools import cache

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from torch import nn

from model.config.attentions import S3Options
from model.config.encoder import EncoderConfig
from model.config.models import ClassifierConfig, WordStemConfig
from model.nn.attention.s3 import DENSE_LENGTH
from model.nn.classifier import NOISE, WordClassifier
from model.nn.words import FOLDS
from model.training.loop import parameter_groups
from tests.support import reference
from tests.support.configs import changed
from tests.support.numerics import close, expect_gradient_everywhere, randomise, same
from tests.support.words import CLASSES, CONFIG, NUM_TOKENS, Texts, every_second_run, padded

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


def classifier_with_rows_for(
    config: ClassifierConfig, texts: tuple[bytes, ...]
) -> tuple[WordClassifier, reference.State]:
    """Return a classifier with random weights in double precision and rows for half of the runs."""
    model = WordClassifier(config, CLASSES)
    hashes = np.array(every_second_run(*texts), dtype=np.int64)
    model.stem.fill(hashes, torch.zeros(FOLDS + 1, len(hashes), CLASSES))
    return model, randomise(model)


@pytest.mark.parametrize("num_layers", [0, 1, 2])
def test_classifier_equals_reference(num_layers: int) -> None:
    config = changed(SMALL, encoder=changed(SMALL.encoder, num_layers=num_layers))
    model, state = classifier_with_rows_for(config, TEXTS)
    folds = torch.tensor([0, 1, 2, 3, 4, 0])
    for given_folds in (None, folds):
        logits = model(*padded(*TEXTS), given_folds)
        for i, text in enumerate(TEXTS):
            fold = FOLDS if given_folds is None else int(folds[i])
            assert close(logits[i], reference.word_classifier(text, state, config, fold))


@settings(max_examples=20)
@given(Texts)
def test_classifier_of_any_bytes_equals_reference(texts: list[bytes]) -> None:
    model, state = classifier_with_rows_for(SMALL, tuple(texts))
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
    model, _ = classifier_with_rows_for(ClassifierConfig(kind="words", encoder=encoder, stem=stem), known)
    return model.requires_grad_(False)


SHAPES = {(128, 16): (256, 512, 1024, 2048), (512, 4): (256, 512, 1024, 2048)}
"""(Number of patches, bytes per patch) -> buckets; the second is beyond dense Fourier convolutions."""


def edge_texts(buckets: tuple[int, ...]) -> list[bytes]:
    random = np.random.default_rng(1).integers(1, buckets[-1], 6).tolist()
    near = {bucket + step for bucket in buckets for step in (-1, 0, 1)}
    return [prose(length) for length in sorted(near | {1, 15, 16, 17, *random}) if length <= buckets[-1]]


def test_lengths_are_on_both_sides_of_the_dense_limit() -> None:
    short, long = (seq_len for seq_len, _ in SHAPES)
    assert short <= DENSE_LENGTH < long
    for (seq_len, patch_length), buckets in SHAPES.items():
        encoder = EncoderConfig(seq_len=seq_len)
        stem = WordStemConfig(patch_length=patch_length)
        assert ClassifierConfig(kind="words", encoder=encoder, stem=stem).buckets == buckets


@pytest.mark.parametrize("shape", SHAPES)
def test_logits_are_the_same_in_every_bucket(shape: tuple[int, int]) -> None:
    model, buckets = long_model(*shape), SHAPES[shape]
    texts = edge_texts(buckets)
    expected = model(*padded(*texts, length=buckets[-1]))
    assert (expected.std(dim=0) > 1e-3).all()
    for bucket in buckets:
        fitting = [i for i, text in enumerate(texts) if len(text) <= bucket]
        assert same(model(*padded(*(texts[i] for i in fitting), length=bucket)), expected[fitting])


@settings(max_examples=20)
@given(Texts)
def test_logits_are_the_same_for_any_number_of_patches(texts: list[bytes]) -> None:
    model, _ = classifier_with_rows_for(SMALL, tuple(texts))
    longest = -(-max(map(len, texts)) // 4) * 4
    assert same(model(*padded(*texts, length=longest)), model(*padded(*texts)))


@pytest.mark.parametrize("shape", SHAPES)
def test_logits_do_not_depend_on_the_rest_of_the_batch_or_on_padding(shape: tuple[int, int]) -> None:
    model, buckets = long_model(*shape), SHAPES[shape]
    texts = edge_texts(buckets)
    document, lengths = padded(*texts, length=buckets[-1])
    together = model(document, lengths)
    dirty = torch.where(torch.arange(buckets[-1]) < lengths[:, None], document, ord("a"))
    assert not torch.equal(dirty, document)
    assert torch.equal(model(dirty, lengths), together)
    for text, logits in zip(texts[::4], together[::4], strict=True):
        assert same(model(*padded(text, length=buckets[-1]))[0], logits)


def initialised(texts: tuple[bytes, ...], priors: torch.Tensor) -> tuple[WordClassifier, dict[int, torch.Tensor]]:
    """Return an initialised classifier and the evidence of each run that has a row."""
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
    model, evidence = initialised(TEXTS, priors)
    folds = torch.tensor([0, 1, 2, 3, 4, 0])
    noisy = model(*padded(*TEXTS)).detach()
    noise = model.stem.table[1:].detach()
    # The norm of a random row is NOISE on average; 1024 * 8 numbers.
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
    # Rows have the norm NOISE, split over eight dimensions; repeated rows add up.
    assert (noisy - model(*padded(*TEXTS))).abs().max() <= 5 * 2 * NOISE / math.sqrt(8)


def test_more_classes_than_dimensions_can_be_initialised() -> None:
    model = WordClassifier(SMALL, 20)
    hashes = np.array([reference.word_hash(b"one")], dtype=np.int64)
    evidence = torch.zeros(FOLDS + 1, 1, 20)
    evidence[:, 0, 4] = 10.0
    model.initialise(hashes, evidence, torch.full((20,), 0.05))
    logits = model.eval()(*padded(b"one", b"other"))
    assert logits[0].argmax() == 4
    assert torch.allclose(logits[1], torch.full((20,), math.log(0.05)))


def test_standardise_scales_tokens_to_unit_deviation_and_changes_nothing_else() -> None:
    model, _ = classifier_with_rows_for(SMALL, TEXTS)
    texts = padded(*TEXTS)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    model.standardise(*texts)
    changed = {name for name, tensor in model.state_dict().items() if not torch.equal(tensor, before[name])}
    assert changed == {"token_scale"}
    assert close((model.stem(*texts)[0] / model.token_scale).std(), np.ones(()))


def test_standardise_of_documents_without_runs_keeps_logits_finite() -> None:
    model, _ = classifier_with_rows_for(SMALL, TEXTS)
    texts = padded(b" ", b"unknown")
    model.standardise(*texts)
    assert model(*texts).isfinite().all()


def test_gradient_reaches_every_parameter() -> None:
    model, _ = classifier_with_rows_for(SMALL, TEXTS)
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


def test_gradient_reaches_the_blocks_once_the_gate_is_not_zero() -> None:
    model, _ = initialised(TEXTS, torch.ones(3) / 3)
    labels = torch.tensor([0, 1, 2, 0, 1, 2])
    behind = [name for name, _ in model.named_parameters() if name.startswith(("blocks.", "norm."))]
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
    for is_open in (False, True):
        optimiser.zero_grad()
        nn.functional.cross_entropy(model(*padded(*TEXTS)), labels).backward()
        for name, parameter in model.named_parameters():
            assert parameter.grad is not None
            assert bool(parameter.grad.any()) == (is_open or name not in behind), name
        optimiser.step()


@pytest.mark.parametrize(("dropout", "steps"), [(0.0, 60), (0.5, 200)])
def test_classifier_trains(dropout: float, steps: int) -> None:
    """The order of two words determines the class: only runs of two words are informative."""
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
    model, _ = classifier_with_rows_for(SMALL, TEXTS)
    other = WordClassifier(SMALL, CLASSES).double().eval()
    other.load_state_dict(model.state_dict())
    first, second = (part(*padded(*TEXTS)).detach() for part in (model, other))
    # the other model has single-precision tables of the Fourier transform
    assert torch.allclose(first, second, rtol=0, atol=1e-5 * float(first.abs().max()))


def test_bfloat16_stays_close_to_float32() -> None:
    """Mixed precision as on a GPU."""
    model, _ = initialised(TEXTS, torch.ones(3) / 3)
    model.float().gate.data.fill_(0.1)
    expected = model(*padded(*TEXTS)).detach()
    with torch.autocast("cpu", torch.bfloat16):
        mixed = model.train()(*padded(*TEXTS), torch.arange(6) % FOLDS)
        nn.functional.cross_entropy(mixed.float(), torch.tensor([0, 1, 2, 0, 1, 2])).backward()
        answers = model.eval()(*padded(*TEXTS))
    # bfloat16 has 8 bits: an error of 2**-8 in each of about ten matrix products from bytes to logits.
    assert (answers - expected).abs().max() <= 10 * 2**-8 * max(1.0, float(expected.abs().max()))
    assert all(p.grad is not None and bool(p.grad.isfinite().all()) for p in model.parameters())
