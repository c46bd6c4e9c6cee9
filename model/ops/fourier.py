"""Fourier convolution over the sequence. Used by `model.attention.s3`."""

import math

import torch
from torch import Tensor


def segment_means(x: Tensor, num_segments: int) -> Tensor:
    """Mean over each of r equal segments of the width: the distinct columns of X S.

    Shape:      x (B, N, C); returns (B, N, r).
    Reference:  Wang et al. 2024, arXiv:2408.08567, sec. III-B, eq. (4).
    """
    return x.reshape(*x.shape[:-1], num_segments, -1).mean(-1)


def fourier_convolution(segments: Tensor, kernel: Tensor, seq_len: int) -> Tensor:
    """Circular convolution with a kernel learned in the frequency domain: irfft(rfft(X S) * L), at length n = seq_len.

    Channel c is convolved with the mean of **its own** segment, segment floor(c r / C). A sequence of b < n tokens
    counts as followed by n - b zeros, of which the convolution only sees the lags -(b - 1) ... b - 1 of the kernel:
    an FFT of 2 b points gives the first b of the n outputs. O(b log b * (r + C)), and O(n log n * C) for the lags.

    Shape:      segments (B, b, r), b <= n; kernel (n/2 + 1, C, 2), real and imaginary parts of L; returns (B, b, C).
    Reference:  Wang et al. 2024, arXiv:2408.08567, sec. III-B, eqs. (2) to (4), Algorithm 2.
    Deviates:   the published code tiles the segments, so that channel c gets segment c mod r; here eq. (4),
                test_fourier_convolution_uses_each_channels_own_segment. Exports write the product out in real
                arithmetic, since complex tensors do not export. Computed in float32 under autocast. Shorter
                sequences are not in the paper, test_shorter_sequences_are_convolved_as_if_padded.
    """
    with torch.autocast(segments.device.type, enabled=False):
        length = segments.shape[1]
        segments = segments.to(kernel.dtype)
        # One graph serves every length: no branch of it may depend on one.
        if torch.compiler.is_exporting() or torch.jit.is_tracing():  # type: ignore[attr-defined,no-untyped-call]
            segments = torch.nn.functional.pad(segments, (0, 0, 0, seq_len - length))
            spectrum = torch.view_as_real(torch.fft.rfft(segments, n=seq_len, dim=1))  # (B, F, r, 2)
            parts = torch.stack(_product(spectrum[..., 0], spectrum[..., 1], kernel), dim=-1)  # (B, F, C, 2)
            return torch.fft.irfft(torch.view_as_complex(parts), n=seq_len, dim=1)[:, :length]  # type: ignore[no-any-return]
        size, response = seq_len, torch.view_as_complex(kernel)  # (F, C)
        if length < seq_len:
            size = 2 * length
            taps = torch.fft.irfft(response, n=seq_len, dim=0)  # (n, C)
            taps = torch.cat((taps[:length], taps[seq_len - length :]))  # (2b, C): lags 0 ... b-1, -b ... -1
            response = torch.fft.rfft(taps, dim=0)  # (b + 1, C)
        spectrum = torch.fft.rfft(segments, n=size, dim=1)  # (B, F, r)
        product = spectrum.unsqueeze(-1) * torch.unflatten(response, 1, (segments.shape[2], -1))  # (B, F, r, C/r)
        return torch.fft.irfft(product.flatten(2), n=size, dim=1)[:, :length]  # type: ignore[no-any-return]


def dense_fourier_convolution(segments: Tensor, kernel: Tensor, forward: Tensor, inverse: Tensor) -> Tensor:
    """The same by matrix products, O(b n (r + C)): cheaper than an FFT while n is small, and on every runtime.

    Shape:      segments (B, b, r); kernel (n/2 + 1, C, 2); forward, inverse: of `dft_matrices(n)`; returns (B, b, C).
    """
    with torch.autocast(segments.device.type, enabled=False):
        length = segments.shape[1]
        spectrum = forward[:, :length] @ segments.to(kernel.dtype)  # (B, 2F, r)
        real, imag = spectrum.chunk(2, dim=1)  # (B, F, r) each
        product = torch.cat(_product(real, imag, kernel), dim=1)  # (B, 2F, C)
        return inverse[:length] @ product


def _product(real: Tensor, imag: Tensor, kernel: Tensor) -> tuple[Tensor, Tensor]:
    """Each segment's spectrum (B, F, r) times the kernel (F, C, 2) of its channels: real and imaginary (B, F, C)."""
    real, imag = real.unsqueeze(-1), imag.unsqueeze(-1)  # (B, F, r, 1)
    kernel_real, kernel_imag = kernel.reshape(kernel.shape[0], real.shape[2], -1, 2).unbind(-1)  # (F, r, C/r)
    return (
        (real * kernel_real - imag * kernel_imag).flatten(2),
        (real * kernel_imag + imag * kernel_real).flatten(2),
    )


def dft_matrices(n: int) -> tuple[Tensor, Tensor]:
    """Real transforms as matrices: rfft(x) = forward @ x, real parts above imaginary ones, and irfft = inverse @ it.

    Shape:      forward (2F, n), inverse (n, 2F), F = n/2 + 1, float64; n even.
    """
    frequency = torch.arange(n // 2 + 1, dtype=torch.float64).unsqueeze(1)
    angle = 2 * math.pi / n * (frequency * torch.arange(n, dtype=torch.float64) % n)  # (F, n)
    forward = torch.cat((torch.cos(angle), -torch.sin(angle)))
    weight = torch.full((n // 2 + 1, 1), 2.0, dtype=torch.float64)  # each frequency stands for its conjugate too
    weight[0] = weight[-1] = 1.0
    inverse = torch.cat((weight * torch.cos(angle), -weight * torch.sin(angle))).T / n
    return forward, inverse.contiguous()


def extrapolation_matrix(context_length: int, prediction_length: int, num_harmonics: int) -> Tensor:
    """Fourier extrapolation as one linear map: the lowest frequencies of a window, evaluated after its end.

    The kept frequencies lie on the grid k / n, so that the forecast is the low-passed window, repeated with period n.

    Shape:      returns (O, n) float64; forecast = matrix @ window.
    Reference:  Wang et al. 2024, arXiv:2408.08567, sec. III-C, Algorithm 4.
    Deviates:   pi is exact (3.1415 in the listing); test_extrapolation_equals_the_listing.
    """
    n = context_length
    frequencies = torch.fft.fftfreq(n, dtype=torch.float64)
    kept = sorted(range(n), key=lambda k: abs(float(frequencies[k])))[: 1 + 2 * num_harmonics]
    past = torch.arange(n, dtype=torch.float64)
    future = torch.arange(n, n + prediction_length, dtype=torch.float64)
    lag = future.unsqueeze(1) - past  # (O, n)
    angle = 2 * math.pi * frequencies[kept].unsqueeze(-1).unsqueeze(-1) * lag  # (kept, O, n)
    return torch.cos(angle).sum(0) / n
