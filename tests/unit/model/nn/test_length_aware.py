"""The length-aware mode: one document without padding in the reference, padded to any bucket in the module."""

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
from model.nn.attention.s3 import DENSE_LENGTH, S3Attention, SkeletonAttention, Smoother
from model.nn.classifier import ByteClassifier
from model.nn.encoder import Block, masked_mean
from model.nn.ops.fourier import (
    FactoredFourierConvolution,
    dense_fourier_convolution,
    dft_matrices,
    fourier_convolution,
)
from tests.support import reference
from tests.support.configs import changed, with_options
from tests.support.numerics import close, expect_gradient_everywhere, randomise

# Float64: answers of one document in two buckets differ by the rounding of their sums, relative to the largest value.
ROUNDING = 1e-13
LENGTHS = (1, 2, 4, 7, 13, 23, 24)
"""Some below the five sampled rows, some odd, and the full one."""


@pytest.fixture
def aware(config: EncoderConfig) -> EncoderConfig:
    return changed(config, mode="length-aware")


def tokens(config: EncoderConfig) -> tuple[torch.Tensor, torch.Tensor]:
    """A document of each of LENGTHS; its padding is not zero, for it must not be looked at."""
    generator = torch.Generator().manual_seed(2)
    x = torch.randn(len(LENGTHS), config.seq_len, config.dim, dtype=torch.float64, generator=generator)
    return x, torch.tensor(LENGTHS, dtype=torch.int32)


def mask_of(x: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
    return (torch.arange(x.shape[1]) < lengths[:, None]).unsqueeze(-1).to(x.dtype)


def same(ours: torch.Tensor, theirs: torch.Tensor) -> bool:
    difference = (ours - theirs).detach().abs().max()
    return bool(difference <= ROUNDING * max(1.0, float(theirs.detach().abs().max())))


@pytest.mark.parametrize("use_fourier", [True, False])
def test_smoother_equals_reference(aware: EncoderConfig, use_fourier: bool) -> None:
    config = with_options(aware, use_fourier=use_fourier)
    smoother = Smoother(config)
    state = randomise(smoother)
    x, lengths = tokens(config)
    smoothed = smoother(x, mask_of(x, lengths))
    for b, length in enumerate(LENGTHS):
        assert close(smoothed[b, :length], reference.smoother(x[b, :length].numpy(), state, config))


def test_smoother_beyond_dense_lengths_equals_reference(aware: EncoderConfig) -> None:
    smoother = Smoother(aware)
    state = randomise(smoother)
    smoother.is_dense = False
    x, lengths = tokens(aware)
    for bucket in (24, 17):
        short = lengths <= bucket
        smoothed = smoother(x[short, :bucket], mask_of(x, lengths)[short, :bucket])
        for found, row, length in zip(smoothed, x[short], lengths[short].tolist(), strict=True):
            assert close(found[:length], reference.smoother(row[:length].numpy(), state, aware))


def test_skeleton_attention_equals_reference(aware: EncoderConfig) -> None:
    layer = SkeletonAttention(aware, torch.Generator().manual_seed(0))
    state = randomise(layer)
    h, lengths = tokens(aware)
    attended = layer(h, lengths, mask_of(h, lengths))
    for found, row, length in zip(attended, h, lengths.tolist(), strict=True):
        assert close(found[:length], reference.skeleton_attention(row[:length].numpy(), state, aware))


def test_rows_are_sampled_within_the_document_at_equal_distances(aware: EncoderConfig) -> None:
    layer = SkeletonAttention(aware, torch.Generator().manual_seed(0))
    positions = torch.arange(24.0).reshape(1, 24, 1).expand(4, -1, 12)
    rows = layer._rows(positions, torch.tensor([24, 10, 5, 2], dtype=torch.int32))
    expected = [[2, 7, 12, 16, 21], [1, 3, 5, 7, 9], [0, 1, 2, 3, 4], [0, 0, 1, 1, 1]]
    assert rows[:, :, 0].tolist() == expected
    assert torch.equal(rows, rows[:, :, :1].expand_as(rows))


def test_attention_equals_reference(aware: EncoderConfig) -> None:
    layer = S3Attention(aware, torch.Generator().manual_seed(0))
    state = randomise(layer)
    x, lengths = tokens(aware)
    attended = layer(x, lengths)
    for b, length in enumerate(LENGTHS):
        assert close(attended[b, :length], reference.attention(x[b, :length].numpy(), state, aware))


@pytest.mark.parametrize("use_fourier", [True, False])
def test_block_equals_reference(aware: EncoderConfig, use_fourier: bool) -> None:
    config = with_options(aware, use_fourier=use_fourier)
    layer = Block(config, torch.Generator().manual_seed(0))
    state = randomise(layer)
    x, lengths = tokens(config)
    out = layer(x, lengths)
    for b, length in enumerate(LENGTHS):
        assert close(out[b, :length], reference.block(x[b, :length].numpy(), state, config))


def test_all_tokens_are_real_if_no_lengths_are_given(aware: EncoderConfig) -> None:
    layer = Block(aware, torch.Generator().manual_seed(0))
    state = randomise(layer)
    x, _ = tokens(aware)
    for length in (24, 9):
        out = layer(x[:, :length])
        assert torch.equal(out, layer(x[:, :length], torch.full((len(x),), length)))
        assert close(out[0], reference.block(x[0, :length].numpy(), state, aware))


def test_masked_mean_is_that_of_the_real_tokens(aware: EncoderConfig) -> None:
    x, lengths = tokens(aware)
    for b, length in enumerate(LENGTHS):
        assert close(masked_mean(x, lengths)[b], x[b, :length].numpy().mean(axis=0))


def padded(texts: list[bytes], bucket: int) -> tuple[torch.Tensor, torch.Tensor]:
    document, lengths = pad_rows(texts, bucket)
    return torch.from_numpy(document), torch.from_numpy(lengths)


def arbitrary(length: int) -> bytes:
    return np.random.default_rng(length).bytes(length)


@pytest.mark.parametrize("num_layers", [0, 1, 2])
def test_classifier_equals_reference(aware: EncoderConfig, num_layers: int) -> None:
    config = changed(aware, num_layers=num_layers)
    model = ByteClassifier(config, 3)
    state = randomise(model)
    texts = [arbitrary(length) for length in LENGTHS]
    for text, logits in zip(texts, model(*padded(texts, 24)), strict=True):
        assert close(logits, reference.classifier(text, state, config))


@pytest.mark.parametrize("use_fourier", [True, False])
def test_gradient_reaches_every_parameter(aware: EncoderConfig, use_fourier: bool) -> None:
    model = ByteClassifier(with_options(aware, use_fourier=use_fourier), 3)
    texts = padded([arbitrary(length) for length in LENGTHS], 24)
    nn.functional.cross_entropy(model(*texts), torch.tensor([0, 1, 2, 0, 1, 2, 0])).backward()
    expect_gradient_everywhere(model)


def test_dft_matrices_are_those_of_numpy() -> None:
    x = np.random.default_rng(0).standard_normal((3, 256))
    for n in (2, 6, 64, 256):
        forward, inverse = (matrix.numpy() for matrix in dft_matrices(n))
        expected = np.fft.rfft(x[:, :n])
        # Sums of n terms of order one.
        assert np.abs(x[:, :n] @ forward.T - np.hstack([expected.real, expected.imag])).max() <= 1e-15 * n**1.5
        spectrum = x[0, : n // 2 + 1] + 1j * x[1, : n // 2 + 1]
        parts = np.concatenate([spectrum.real, spectrum.imag])
        assert np.abs(inverse @ parts - np.fft.irfft(spectrum, n)).max() <= 1e-15 * n


SIZES = {n: torch.randn(n // 2 + 1, 6, 2, dtype=torch.float64) for n in (24, 300, 512)}
"""Kernels of six channels in two segments."""
FACTORS = {24: [(4, 6), (3, 8), (24, 1), (1, 24)], 300: [(15, 20), (20, 15)], 512: [(16, 32), (2, 256)]}


def segments_of(batch: int, n: int) -> torch.Tensor:
    return torch.randn(batch, n, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(n))


def followed_by_zeros(segments: torch.Tensor, n: int) -> torch.Tensor:
    return nn.functional.pad(segments, (0, 0, 0, n - segments.shape[1]))


@pytest.mark.parametrize("n", SIZES)
def test_shorter_sequences_are_convolved_as_if_padded(n: int) -> None:
    kernel = SIZES[n]
    matrices = dft_matrices(n)
    whole = segments_of(2, n)
    random = np.random.default_rng(n).integers(1, n, 8).tolist()
    for length in {1, 2, 3, n // 2 - 1, n // 2, n // 2 + 1, n - 2, n - 1, n, *random}:
        segments = whole[:, :length]
        expected = fourier_convolution(followed_by_zeros(segments, n), kernel, n)[:, :length]
        assert same(fourier_convolution(segments, kernel, n), expected)
        assert same(dense_fourier_convolution(segments, kernel, *matrices), expected)
        for factors in FACTORS[n]:
            assert same(FactoredFourierConvolution(*factors)(segments, kernel), expected)


def test_shorter_sequence_is_convolved_as_in_the_reference() -> None:
    x = torch.randn(17, 6, dtype=torch.float64)
    expected = reference.fourier_convolution(np.vstack([x, np.zeros((7, 6))]), SIZES[24].numpy(), 2)[:17]
    segments = x.reshape(1, 17, 2, 3).mean(-1)
    assert close(fourier_convolution(segments, SIZES[24], 24)[0], expected)
    assert close(dense_fourier_convolution(segments, SIZES[24], *dft_matrices(24))[0], expected)


@pytest.mark.parametrize("n", [24, 512])
def test_gradient_of_a_shorter_sequence_is_that_of_the_padded_one(n: int) -> None:
    for length in (n // 3, n // 2, n - 1):
        gradients = []
        for is_padded in (False, True):
            kernel = SIZES[n].clone().requires_grad_()
            segments = segments_of(2, n)[:, :length].clone().requires_grad_()
            given_segments = followed_by_zeros(segments, n) if is_padded else segments
            out = fourier_convolution(given_segments, kernel, n)[:, :length]
            (out * torch.arange(6) * torch.linspace(-1, 1, length).unsqueeze(1)).sum().backward()
            gradients.append((segments.grad, kernel.grad))
        for ours, theirs in zip(*gradients, strict=True):
            assert ours is not None
            assert theirs is not None
            assert same(ours, theirs)


@cache
def wide(seq_len: int) -> ByteClassifier:
    """A classifier of every byte whose answers show whatever it reads."""
    config = EncoderConfig(
        seq_len=seq_len,
        dim=8,
        num_heads=2,
        num_layers=2,
        ffn_dim=6,
        options=S3Options(num_segments=2, num_rows=5, num_columns=3),
    )
    model = ByteClassifier(config, 3)
    randomise(model)
    return model.requires_grad_(False)


DENSE, LONG = 64, 1024
BUCKETS = {DENSE: (8, 16, 32, 64), LONG: (256, 512, 1024)}


def edges(seq_len: int) -> list[int]:
    """Lengths at the edges of buckets, and others."""
    random = np.random.default_rng(1).integers(1, seq_len, 6).tolist()
    near = {bucket + step for bucket in BUCKETS[seq_len] for step in (-1, 0, 1)}
    return sorted(length for length in near | {1, 2, *random} if length <= seq_len)


def test_lengths_lie_on_both_sides_of_the_dense_one() -> None:
    assert DENSE <= DENSE_LENGTH < LONG
    for n, is_dense in ((DENSE, True), (LONG, False)):
        smoother = wide(n).get_submodule("encoder.blocks.0.attention.smoother")
        assert isinstance(smoother, Smoother)
        assert smoother.is_dense is is_dense
    assert ClassifierConfig(kind="bytes", encoder=EncoderConfig(seq_len=LONG)).buckets == BUCKETS[LONG]


@pytest.mark.parametrize("seq_len", BUCKETS)
def test_answer_is_the_same_in_every_bucket(seq_len: int) -> None:
    model = wide(seq_len)
    texts = [arbitrary(length) for length in edges(seq_len)]
    expected = model(*padded(texts, seq_len))
    assert (expected.std(dim=0) > 1e-3).all()
    for bucket in BUCKETS[seq_len]:
        fitting = [i for i, text in enumerate(texts) if len(text) <= bucket]
        assert same(model(*padded([texts[i] for i in fitting], bucket)), expected[fitting])


@settings(max_examples=30)
@given(st.lists(st.binary(min_size=1, max_size=DENSE), min_size=1, max_size=4))
def test_answer_is_the_same_in_any_length(texts: list[bytes]) -> None:
    model, longest = wide(DENSE), max(map(len, texts))
    expected = model(*padded(texts, DENSE))
    assert same(model(*padded(texts, longest)), expected)
    assert same(model(*padded(texts, (longest + DENSE) // 2)), expected)


@pytest.mark.parametrize("seq_len", BUCKETS)
def test_answer_does_not_depend_on_batch_mates(seq_len: int) -> None:
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
    model = ByteClassifier(aware, 2)
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
    """Mixed precision as on a GPU: the Fourier convolution stays in float32, gradients are finite."""
    model = ByteClassifier(aware, 3).eval()
    texts = padded([arbitrary(length) for length in LENGTHS], 24)
    expected = model(*texts).detach()
    with torch.autocast("cpu", torch.bfloat16):
        mixed = model(*texts)
    # bfloat16 has 8 bits: 2**-8 a step, over the some ten matrix products from bytes to logits.
    assert (mixed - expected).abs().max() <= 10 * 2**-8 * max(1.0, float(expected.abs().max()))
    model.train()
    with torch.autocast("cpu", torch.bfloat16):
        loss = nn.functional.cross_entropy(model(*texts).float(), torch.tensor([0, 1, 2, 0, 1, 2, 0]))
    loss.backward()
    assert all(p.grad is not None and bool(p.grad.isfinite().all()) for p in model.parameters())
