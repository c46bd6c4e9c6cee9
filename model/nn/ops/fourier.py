"""Fourier convolution over the sequence. Used by `model.nn.attention.s3`."""

import math

import torch
from torch import Tensor, nn


def segment_means(x: Tensor, num_segments: int) -> Tensor:
    """Mean over each of r equal segments of the channels: the distinct columns of X S.

    Shape:      x (B, N, C); returns (B, N, r).
    Reference:  Wang et al. 2024, arXiv:2408.08567, sec. III-B, eq. (4).
    """
    return x.reshape(*x.shape[:-1], num_segments, -1).mean(-1)


def fourier_convolution(segments: Tensor, kernel: Tensor, seq_len: int) -> Tensor:
    """Circular convolution of length n = seq_len with a kernel learned in the frequency domain: irfft(rfft(X S) * L).

    Channel c is convolved with the mean of **its own** segment, segment floor(c r / C). A sequence of b < n tokens is
    treated as zero-padded to n. Its first b outputs only depend on the lags -(b - 1) ... b - 1 of the kernel, so that
    an FFT of 2 b points suffices. O(b log b * (r + C)), plus O(n log n * C) for the lags.

    Shape:      segments (B, b, r), b <= n; kernel (n/2 + 1, C, 2), real and imaginary parts of L; returns (B, b, C).
    Reference:  Wang et al. 2024, arXiv:2408.08567, sec. III-B, eqs. (2) to (4), Algorithm 2.
    Deviates:   the published code tiles the segments, so that channel c gets segment c mod r; this follows eq. (4),
                test_fourier_convolution_uses_each_channels_own_segment. Computed in float32 under autocast. Sequences
                shorter than n are not in the paper; test_shorter_sequences_are_convolved_as_if_padded.
    """
    with torch.autocast(segments.device.type, enabled=False):
        length = segments.shape[1]
        segments = segments.to(kernel.dtype)
        size, response = seq_len, _response(kernel)  # (F, C), F = n/2 + 1
        # A traced graph serves every length, so no branch may depend on the length.
        if not torch.jit.is_tracing() and length < seq_len:  # type: ignore[attr-defined,no-untyped-call]
            size = 2 * length
            taps = torch.fft.irfft(response, n=seq_len, dim=0)  # (n, C)
            taps = torch.cat((taps[:length], taps[seq_len - length :]))  # (2b, C): lags 0 ... b-1, -b ... -1
            response = torch.fft.rfft(taps, dim=0)  # (b + 1, C)
        spectrum = torch.fft.rfft(segments, n=size, dim=1)  # (B, F, r)
        product = spectrum.unsqueeze(-1) * torch.unflatten(response, 1, (segments.shape[2], -1))  # (B, F, r, C/r)
        return torch.fft.irfft(product.flatten(2), n=size, dim=1)[:, :length]  # type: ignore[no-any-return]


def _response(kernel: Tensor) -> Tensor:
    """Kernel (F, C, 2) as complex numbers (F, C), without the imaginary parts of its first and last frequency.

    A real sequence has none there. `irfft` ignores them on a CPU; on CUDA it may add them to the output.
    """
    real, imaginary = kernel.unbind(-1)
    count = kernel.shape[0]
    frequency = torch.arange(count, device=kernel.device)
    is_inner = (frequency > 0) & (frequency < count - 1)
    return torch.complex(real, imaginary * is_inner.unsqueeze(1))


def dense_fourier_convolution(segments: Tensor, kernel: Tensor, forward: Tensor, inverse: Tensor) -> Tensor:
    """Same as `fourier_convolution`, by matrix products: O(b n (r + C)), faster for small n, without a DFT operator.

    Shape:      segments (B, b, r); kernel (n/2 + 1, C, 2); forward, inverse: of `dft_matrices(n)`; returns (B, b, C).
    """
    with torch.autocast(segments.device.type, enabled=False):
        length, num_segments, num_channels = segments.shape[1], segments.shape[2], kernel.shape[1]
        # Segments are repeated for their channels by a product: ONNX Runtime broadcasts short rows slowly.
        repeat = torch.eye(num_segments, dtype=kernel.dtype, device=kernel.device)
        repeat = repeat.unsqueeze(2).expand(-1, -1, num_channels // num_segments).flatten(1)  # (r, C)
        if isinstance(length, torch.SymInt):  # exports of several lengths can cut the rows of a matrix only
            spectrum = (segments.to(kernel.dtype).transpose(1, 2) @ forward.T[:length]).transpose(1, 2)
        else:
            spectrum = forward[:, :length] @ segments.to(kernel.dtype)  # (B, 2F, r)
        spectrum = spectrum @ repeat  # (B, 2F, C)
        real, imag = spectrum.chunk(2, dim=1)  # (B, F, C) each
        kernel_real, kernel_imag = kernel.unbind(-1)
        product = (real * kernel_real - imag * kernel_imag, real * kernel_imag + imag * kernel_real)
        return inverse[:length] @ torch.cat(product, dim=1)


def kernel_taps(kernel: Tensor, inverse: Tensor) -> Tensor:
    """The kernel (n/2 + 1, C, 2) in the time domain, (n, C); inverse: of `dft_matrices(n)`."""
    return inverse @ kernel.permute(2, 0, 1).flatten(0, 1)


def short_fourier_convolution(segments: Tensor, taps: Tensor) -> Tensor:
    """Same as `fourier_convolution`, by Toeplitz matrices of the kernel, one product a segment: O(b^2 C), for b << n.

    Shape:      segments (B, b, r); taps (n, C), the kernel in the time domain; returns (B, b, C).
    """
    with torch.autocast(segments.device.type, enabled=False):
        (batch, length, num_segments), n = segments.shape, taps.shape[0]
        # Row i of a matrix has the lags -i ... b - 1 - i: repeated and cut into rows of 2b - 1, the 2b lags shift by
        # one from row to row. Exported graphs would store a table of indices.
        lags = torch.cat((taps[:length], taps[n - length :]))  # (2b, C): 0 ... b - 1, -b ... -1
        matrices = lags.repeat(length, 1)[:-length].reshape(length, 2 * length - 1, num_segments, -1)[:, :length]
        matrices = matrices.permute(2, 0, 3, 1).flatten(2)  # (r, b, C / r b)
        found = segments.to(taps.dtype).permute(2, 0, 1) @ matrices  # (r, B, C / r b)
        return found.transpose(0, 1).reshape(batch, -1, length).transpose(1, 2)


def dft_matrices(n: int) -> tuple[Tensor, Tensor]:
    """Real DFT as matrices: forward @ x stacks the real and imaginary parts of rfft(x); inverse @ (forward @ x) = x.

    Shape:      forward (2F, n), inverse (n, 2F), F = n/2 + 1, float64; n even.
    """
    frequency = torch.arange(n // 2 + 1, dtype=torch.float64).unsqueeze(1)
    angle = 2 * math.pi / n * (frequency * torch.arange(n, dtype=torch.float64) % n)  # (F, n)
    forward = torch.cat((torch.cos(angle), -torch.sin(angle)))
    weight = torch.full((n // 2 + 1, 1), 2.0, dtype=torch.float64)  # each frequency also stands for its conjugate
    weight[0] = weight[-1] = 1.0
    inverse = torch.cat((weight * torch.cos(angle), -weight * torch.sin(angle))).T / n
    return forward, inverse.contiguous()


class FactoredFourierConvolution(nn.Module):
    """Same as `fourier_convolution`, by small matrix products: ONNX's DFT operator is slow on CPU and missing on GPU.

    n = n1 n2, ideally both near sqrt(n): DFTs of n1 points, twiddle factors, DFTs of n2 points, and the inverse
    likewise. With t = n2 a + b and k = c + n1 d, X[k] = sum_b W^(b k) (sum_a x[t] W^(n2 a c)), W = exp(-2 pi i / n).
    For real input only c <= n1/2 is computed; the rest is conjugate. O(n sqrt(n) (r + C)).

    Channels come first in all steps, so that every row is long: ONNX Runtime broadcasts and multiplies short rows
    slowly.

    Shape:      segments (B, b, r), b <= n; kernel (n/2 + 1, C, 2); returns (B, b, C).
    Reference:  Cooley and Tukey, "An algorithm for the machine calculation of complex Fourier series", 1965.
    """

    forward_outer: Tensor
    forward_inner: Tensor
    inverse_outer: Tensor
    inverse_inner: Tensor
    cosine: Tensor
    sine: Tensor
    place: Tensor
    sign: Tensor

    def __init__(self, n1: int, n2: int) -> None:
        """Precompute the constant matrices in float64."""
        super().__init__()
        n = n1 * n2
        self.n1, self.n2 = n1, n2
        a, b = (torch.arange(size, dtype=torch.float64) for size in (n1, n2))
        c = a[: n1 // 2 + 1]  # (F1,)
        outer = 2 * math.pi / n1 * (c.unsqueeze(1) * a % n1)  # (F1, n1)
        inner = 2 * math.pi / n2 * (b.unsqueeze(1) * b % n2)  # (n2, n2)
        twiddle = 2 * math.pi / n * (c.unsqueeze(1) * b)  # (F1, n2)
        # All frequencies but c = 0 and c = n1/2 also stand for their conjugates.
        weight = (2.0 - ((c == 0) | (2 * c == n1)).double()).unsqueeze(1) / n
        cos, sin = torch.cos(inner), torch.sin(inner)
        k = c.long().unsqueeze(1) + n1 * b.long()  # (F1, n2)
        for name, matrix in {
            "forward_outer": torch.cat((torch.cos(outer), -torch.sin(outer))),  # (2 F1, n1)
            "forward_inner": torch.cat((torch.cat((cos, -sin), 1), torch.cat((sin, cos), 1))),  # (2 n2, 2 n2)
            "inverse_inner": torch.cat((torch.cat((cos, sin), 1), torch.cat((-sin, cos), 1))),  # (2 n2, 2 n2)
            "inverse_outer": torch.cat((weight * torch.cos(outer), -weight * torch.sin(outer))).T,  # (n1, 2 F1)
            "cosine": torch.cos(twiddle),  # (F1, n2)
            "sine": torch.sin(twiddle),
            "sign": torch.where(2 * k > n, -1.0, 1.0),
        }.items():
            self.register_buffer(name, matrix.contiguous(), persistent=False)
        self.register_buffer("place", torch.where(2 * k > n, n - k, k).flatten(), persistent=False)

    def forward(self, segments: Tensor, kernel: Tensor) -> Tensor:
        """Convolve (B, b, r) -> (B, b, C)."""
        length, num_segments = segments.shape[1], segments.shape[2]
        x = torch.nn.functional.pad(segments.transpose(1, 2), (0, self.n1 * self.n2 - length))  # (B, r, n)
        x = self.forward_outer @ torch.unflatten(x, 2, (self.n1, self.n2))  # (B, r, 2 F1, n2)
        real, imag = x.chunk(2, dim=2)  # (B, r, F1, n2) each
        real, imag = real * self.cosine + imag * self.sine, imag * self.cosine - real * self.sine
        x = torch.cat((real, imag), dim=3) @ self.forward_inner
        real, imag = x.unsqueeze(2).chunk(2, dim=4)  # (B, r, 1, F1, n2) each
        response = kernel.permute(2, 1, 0).index_select(2, self.place)  # (2, C, F1 n2)
        response = torch.unflatten(torch.unflatten(response, 2, self.cosine.shape), 1, (num_segments, -1))
        kernel_real, kernel_imag = response[0], response[1] * self.sign  # (r, C/r, F1, n2)
        product = (real * kernel_real - imag * kernel_imag, real * kernel_imag + imag * kernel_real)
        x = torch.cat(product, dim=4).flatten(1, 2) @ self.inverse_inner  # (B, C, F1, 2 n2)
        real, imag = x.chunk(2, dim=3)
        real, imag = real * self.cosine - imag * self.sine, imag * self.cosine + real * self.sine
        y = self.inverse_outer @ torch.cat((real, imag), dim=2)  # (B, C, n1, n2)
        return y.flatten(2)[:, :, :length].transpose(1, 2)


def extrapolation_matrix(context_length: int, prediction_length: int, num_harmonics: int) -> Tensor:
    """Fourier extrapolation as a linear map: the lowest frequencies of a window, evaluated after its end.

    The kept frequencies lie on the grid k / n, so that the forecast is the low-pass filtered window, repeated with
    period n.

    Shape:      returns (O, n) float64, O = prediction_length, n = context_length; forecast = matrix @ window.
    Reference:  Wang et al. 2024, arXiv:2408.08567, sec. IV-B and supplement A, Algorithm 4.
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
