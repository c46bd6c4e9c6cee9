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


def fourier_convolution(segments: Tensor, kernel: Tensor) -> Tensor:
    """Circular convolution with a kernel learned in the frequency domain: irfft(rfft(X S) * L).

    Channel c is convolved with the mean of **its own** segment, segment floor(c r / C). O(N log N * (r + C)).

    Shape:      segments (B, N, r); kernel (N/2 + 1, C, 2), real and imaginary parts of L; returns (B, N, C).
    Reference:  Wang et al. 2024, arXiv:2408.08567, sec. III-B, eqs. (2) to (4), Algorithm 2.
    Deviates:   the published code tiles the segments, so that channel c gets segment c mod r; here eq. (4),
                test_fourier_convolution_uses_each_channels_own_segment. The product is written out in real
                arithmetic because complex tensors do not export. Computed in float32 under autocast.
    """
    with torch.autocast(segments.device.type, enabled=False):
        seq_len, num_segments = segments.shape[-2:]
        spectrum = torch.view_as_real(torch.fft.rfft(segments.to(kernel.dtype), dim=-2))  # (B, F, r, 2)
        real, imag = spectrum.unsqueeze(-2).unbind(-1)  # (B, F, r, 1)
        kernel_real, kernel_imag = kernel.reshape(kernel.shape[0], num_segments, -1, 2).unbind(-1)  # (F, r, C/r)
        product = torch.stack(
            (real * kernel_real - imag * kernel_imag, real * kernel_imag + imag * kernel_real), dim=-1
        ).flatten(2, 3)  # (B, F, C, 2)
        return torch.fft.irfft(torch.view_as_complex(product), n=seq_len, dim=-2)  # type: ignore[no-any-return]


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
