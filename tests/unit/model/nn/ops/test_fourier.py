"""The Fourier convolution of complete and of shorter sequences, and the extrapolation of sinusoids."""

import cmath
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from model.config.encoder import EncoderConfig
from model.nn.ops.fourier import (
    FactoredFourierConvolution,
    dense_fourier_convolution,
    dft_matrices,
    extrapolation_matrix,
    fourier_convolution,
    kernel_taps,
    segment_means,
    short_fourier_convolution,
)
from tests.support import reference
from tests.support.numerics import close, same


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
        assert same(short_fourier_convolution(segments, kernel_taps(kernel, matrices[1])), expected)
        for factors in FACTORS[n]:
            assert same(FactoredFourierConvolution(*factors)(segments, kernel), expected)


@pytest.mark.parametrize("length", [24, 10])
def test_spectra_are_those_of_real_sequences(length: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """On CUDA, `irfft` does not ignore imaginary parts at the first and the last frequency."""
    spectra = list[torch.Tensor]()
    inverse = torch.fft.irfft

    def irfft(spectrum: torch.Tensor, *, n: int, dim: int) -> torch.Tensor:
        assert n == 2 * (spectrum.shape[dim] - 1)
        spectra.append(spectrum.movedim(dim, 0))
        found: torch.Tensor = inverse(spectrum, n=n, dim=dim)
        return found

    monkeypatch.setattr(torch.fft, "irfft", irfft)
    fourier_convolution(segments_of(2, 24)[:, :length], SIZES[24], 24)
    assert len(spectra) == (1 if length == 24 else 2)
    for spectrum in spectra:
        assert spectrum[1].imag.abs().min() > 0
        assert not spectrum[0].imag.any()
        assert not spectrum[-1].imag.any()


def test_convolution_of_a_shorter_sequence_equals_the_reference() -> None:
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


def random_tokens(config: EncoderConfig) -> torch.Tensor:
    generator = torch.Generator().manual_seed(2)
    return torch.randn(2, config.seq_len, config.dim, dtype=torch.float64, generator=generator)


def test_fourier_convolution_uses_each_channels_own_segment(config: EncoderConfig) -> None:
    x = random_tokens(config)
    kernel = torch.randn(config.seq_len // 2 + 1, config.dim, 2, dtype=torch.float64)
    ours = fourier_convolution(segment_means(x, 3), kernel, config.seq_len)
    for b in range(2):
        assert close(ours[b], reference.fourier_convolution(x[b].numpy(), kernel.numpy(), 3))


def listing(window: list[float], horizon: int, harmonics: int) -> list[float]:
    """Algorithm 4 step by step: DFT, the lowest frequencies, a sum of cosines after the window."""
    n = len(window)
    frequency = [k / n if k < (n + 1) // 2 else (k - n) / n for k in range(n)]
    kept = sorted(range(n), key=lambda k: abs(frequency[k]))[: 1 + 2 * harmonics]
    spectrum = [sum(v * cmath.exp(-2j * math.pi * k * t / n) for t, v in enumerate(window)) for k in range(n)]
    return [
        sum(abs(spectrum[k]) / n * math.cos(2 * math.pi * frequency[k] * t + cmath.phase(spectrum[k])) for k in kept)
        for t in range(n, n + horizon)
    ]


@pytest.mark.parametrize(("n", "harmonics"), [(24, 3), (25, 4), (96, 8), (16, 8)])
def test_extrapolation_equals_the_listing(n: int, harmonics: int) -> None:
    window = np.random.default_rng(n).standard_normal(n)
    ours = extrapolation_matrix(n, 30, harmonics).numpy() @ window
    assert ours == pytest.approx(listing(window.tolist(), 30, harmonics), abs=1e-11)


@settings(max_examples=50)
@given(st.integers(0, 8), st.floats(-3, 3), st.floats(-3, 3), st.floats(-5, 5))
def test_sinusoids_on_the_grid_are_continued_exactly(k: int, sine: float, cosine: float, level: float) -> None:
    angle = 2 * np.pi * k * np.arange(96 + 40) / 96
    series = level + sine * np.sin(angle) + cosine * np.cos(angle)
    assert extrapolation_matrix(96, 40, 8).numpy() @ series[:96] == pytest.approx(series[96:], abs=1e-10)
