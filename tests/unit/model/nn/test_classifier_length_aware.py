"""The length-aware classifier: the reference gets one document without padding, the module pads it to any bucket."""

from functools import cache

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from artifact.documents import pad_rows
from model.config.attentions import S3Options
from model.config.encoder import EncoderConfig
from model.config.models import ClassifierConfig
from model.nn.attention.s3 import DENSE_LENGTH, Smoother
from model.nn.classifier import PaperClassifier
from tests.support import reference
from tests.support.configs import changed, with_options
from tests.support.numerics import close, expect_gradient_everywhere, randomise, same
from tests.support.tokens import LENGTHS


@pytest.fixture
def aware(config: EncoderConfig) -> EncoderConfig:
    return changed(config, mode="length-aware")


def padded(texts: list[bytes], bucket: int) -> tuple[torch.Tensor, torch.Tensor]:
    document, lengths = pad_rows(texts, bucket)
    return torch.from_numpy(document), torch.from_numpy(lengths)


def arbitrary(length: int) -> bytes:
    return np.random.default_rng(length).bytes(length)


@pytest.mark.parametrize("num_layers", [0, 1, 2])
def test_classifier_equals_reference(aware: EncoderConfig, num_layers: int) -> None:
    config = changed(aware, num_layers=num_layers)
    model = PaperClassifier(config, 3)
    state = randomise(model)
    texts = [arbitrary(length) for length in LENGTHS]
    for text, logits in zip(texts, model(*padded(texts, 24)), strict=True):
        assert close(logits, reference.classifier(text, state, config))


@pytest.mark.parametrize("use_fourier", [True, False])
def test_gradient_reaches_every_parameter(aware: EncoderConfig, use_fourier: bool) -> None:
    model = PaperClassifier(with_options(aware, use_fourier=use_fourier), 3)
    texts = padded([arbitrary(length) for length in LENGTHS], 24)
    nn.functional.cross_entropy(model(*texts), torch.tensor([0, 1, 2, 0, 1, 2, 0])).backward()
    expect_gradient_everywhere(model)


@cache
def wide(seq_len: int) -> PaperClassifier:
    """Return a byte classifier whose logits depend on every byte it reads."""
    config = EncoderConfig(
        seq_len=seq_len,
        dim=8,
        num_heads=2,
        num_layers=2,
        ffn_dim=6,
        options=S3Options(num_segments=2, num_rows=5, num_columns=3),
    )
    model = PaperClassifier(config, 3)
    randomise(model)
    return model.requires_grad_(False)


DENSE, LONG = 64, 1024


BUCKETS = {DENSE: (8, 16, 32, 64), LONG: (256, 512, 1024)}


def edges(seq_len: int) -> list[int]:
    """Return lengths at the edges of buckets, and others."""
    random = np.random.default_rng(1).integers(1, seq_len, 6).tolist()
    near = {bucket + step for bucket in BUCKETS[seq_len] for step in (-1, 0, 1)}
    return sorted(length for length in near | {1, 2, *random} if length <= seq_len)


def test_lengths_are_on_both_sides_of_the_dense_limit() -> None:
    assert DENSE <= DENSE_LENGTH < LONG
    for n, is_dense in ((DENSE, True), (LONG, False)):
        smoother = wide(n).get_submodule("encoder.blocks.0.attention.smoother")
        assert isinstance(smoother, Smoother)
        assert smoother.is_dense is is_dense
    assert ClassifierConfig(kind="paper", encoder=EncoderConfig(seq_len=LONG)).buckets == BUCKETS[LONG]


@pytest.mark.parametrize("seq_len", BUCKETS)
def test_logits_are_the_same_in_every_bucket(seq_len: int) -> None:
    model = wide(seq_len)
    texts = [arbitrary(length) for length in edges(seq_len)]
    expected = model(*padded(texts, seq_len))
    assert (expected.std(dim=0) > 1e-3).all()
    for bucket in BUCKETS[seq_len]:
        fitting = [i for i, text in enumerate(texts) if len(text) <= bucket]
        assert same(model(*padded([texts[i] for i in fitting], bucket)), expected[fitting])


@settings(max_examples=30)
@given(st.lists(st.binary(min_size=1, max_size=DENSE), min_size=1, max_size=4))
def test_logits_are_the_same_for_any_padding(texts: list[bytes]) -> None:
    model, longest = wide(DENSE), max(map(len, texts))
    expected = model(*padded(texts, DENSE))
    assert same(model(*padded(texts, longest)), expected)
    assert same(model(*padded(texts, (longest + DENSE) // 2)), expected)


@pytest.mark.parametrize("seq_len", BUCKETS)
def test_logits_do_not_depend_on_the_rest_of_the_batch(seq_len: int) -> None:
    model = wide(seq_len)
    texts = [arbitrary(length) for length in edges(seq_len)]
    together = model(*padded(texts, seq_len))
    for text, logits in zip(texts[::3], together[::3], strict=True):
        assert same(model(*padded([text], seq_len))[0], logits)


@pytest.mark.parametrize("seq_len", BUCKETS)
def test_bytes_beyond_the_length_are_not_read(seq_len: int) -> None:
    model = wide(seq_len)
    document, lengths = padded([arbitrary(length) for length in edges(seq_len)], seq_len)
    dirty = torch.where(torch.arange(seq_len) < lengths[:, None], document, 77)
    assert not torch.equal(dirty, document)
    assert torch.equal(model(dirty, lengths), model(document, lengths))


def test_nul_is_not_padding() -> None:
    short, long = wide(DENSE)(*padded([bytes(3), bytes(4)], DENSE))
    assert not torch.allclose(short, long)


def test_every_byte_is_read() -> None:
    model, text = wide(LONG), bytearray(arbitrary(300))
    expected = model(*padded([bytes(text)], 512))
    for position in (0, 1, 149, 298, 299):
        changed = text.copy()
        changed[position] ^= 1
        assert not torch.allclose(model(*padded([bytes(changed)], 512)), expected, rtol=0, atol=1e-6)


def test_standardise_head_equals_standardised_inputs(aware: EncoderConfig) -> None:
    model = PaperClassifier(aware, 2)
    randomise(model)
    texts = padded([arbitrary(length) for length in LENGTHS], 24)
    first = model.head[0]
    assert isinstance(first, nn.Linear)
    weight = first.weight.clone()
    x = model.encoder(*texts)
    pooled = torch.stack([row[:length].mean(dim=0) for row, length in zip(x, LENGTHS, strict=True)])
    standardised = (pooled - pooled.mean(dim=0)) / pooled.std(dim=0)
    model.standardise_head(*texts)
    assert close(first(pooled), (standardised @ weight.T).detach().numpy())


def test_bfloat16_stays_close_to_float32(aware: EncoderConfig) -> None:
    """Mixed precision as on a GPU: the Fourier convolution stays in float32, and gradients are finite."""
    model = PaperClassifier(aware, 3).eval()
    texts = padded([arbitrary(length) for length in LENGTHS], 24)
    expected = model(*texts).detach()
    with torch.autocast("cpu", torch.bfloat16):
        mixed = model(*texts)
    # bfloat16 has 8 bits: an error of 2**-8 in each of about ten matrix products from bytes to logits.
    assert (mixed - expected).abs().max() <= 10 * 2**-8 * max(1.0, float(expected.abs().max()))
    model.train()
    with torch.autocast("cpu", torch.bfloat16):
        loss = nn.functional.cross_entropy(model(*texts).float(), torch.tensor([0, 1, 2, 0, 1, 2, 0]))
    loss.backward()
    assert all(p.grad is not None and bool(p.grad.isfinite().all()) for p in model.parameters())
