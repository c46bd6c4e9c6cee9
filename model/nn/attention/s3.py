"""S3Attention: smoother and skeleton attention.

In length-aware mode, padding does not affect real tokens: it is masked, rows are sampled within the document, and
scores are scaled by the document's length. The output is then the same for every padded length up to `seq_len`. In mode
`paper-masked`, K and V are zero at padding, but the smoother reads padding. In mode `paper`, nothing is masked.
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from model.config.attentions import S3Options, fourier_factors
from model.config.encoder import EncoderConfig
from model.nn.attention.base import Attention
from model.nn.ops.fourier import (
    FactoredFourierConvolution,
    dense_fourier_convolution,
    dft_matrices,
    fourier_convolution,
    kernel_taps,
    segment_means,
    short_fourier_convolution,
)
from model.nn.ops.integers import divide, take

DENSE_LENGTH = 256
"""Largest `seq_len` for which the Fourier convolution is a dense matrix product."""
SHORT, SHORT_LENGTH = 4, 64
"""Exported graphs for one length have `short_fourier_convolution` up to `seq_len` / SHORT and SHORT_LENGTH tokens."""


class Smoother(nn.Module):
    """Global mixing by a Fourier convolution and local mixing by a convolution stem.

    h = drop(relu(norm(conv1d([irfft(rfft(X S) * L); X]))))    O(N log N * C)

    X S replaces each channel by the mean of its segment; there are `num_segments` equal segments of channels. L is the
    learned kernel, in the frequency domain.

    Shape:      x (B, N, C); mask (B, N, 1) of real tokens, in length-aware mode only; returns (B, N, C).
    Reference:  Wang et al. 2024, arXiv:2408.08567, sec. III-B, eqs. (2) to (4), Algorithm 2.
    Deviates:   the stem is a Conv1d as in the text; Algorithm 2 lists a Conv2d that does not fit its input
                (see test_smoother_equals_reference). The released code for Long Range Arena uses kernel size 1, ELU,
                and no segments. L is initialised with standard deviation 1/sqrt(C), which Kaiming normal
                initialisation gives in the published layout (proposition 2 requires a small L). In length-aware mode,
                norm is a LayerNorm of each token instead of the published BatchNorm of each position, because positions
                that few documents reach have no reliable statistics.
    """

    forward_dft: Tensor
    inverse_dft: Tensor

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        options = config.options_of(S3Options)
        self.seq_len = config.seq_len
        self.num_segments = options.num_segments
        self.use_fourier = options.use_fourier
        self.is_dense = config.seq_len <= DENSE_LENGTH
        if options.use_fourier:
            self.kernel = nn.Parameter(torch.empty(config.seq_len // 2 + 1, config.dim, 2))
            nn.init.normal_(self.kernel, std=1 / math.sqrt(config.dim))
            if self.is_dense:
                for name, matrix in zip(("forward_dft", "inverse_dft"), dft_matrices(config.seq_len), strict=True):
                    self.register_buffer(name, matrix.float(), persistent=False)
            else:
                self.factored = FactoredFourierConvolution(*fourier_factors(config.seq_len)).float()
        width = 2 * config.dim if options.use_fourier else config.dim
        size = options.kernel_size
        self.conv = nn.Conv1d(width, config.dim, size, padding=size // 2) if options.use_stem else None
        self.norm = nn.LayerNorm(config.dim) if config.is_length_aware else nn.BatchNorm1d(config.seq_len)
        self.dropout = nn.Dropout(config.dropout.smoother)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Smooth (B, N, C) -> (B, N, C)."""
        h = x if mask is None else x * mask
        parts = [h]
        if self.use_fourier:
            smooth = self.convolve(h).to(x.dtype)  # (B, N, C)
            if mask is not None:
                smooth = smooth * mask  # the convolution stem reads beyond the last real token
            parts = [smooth, h]
        h = parts[0] if self.conv is None else self._convolve_locally(parts)  # (B, N, C)
        return self.dropout(torch.relu(self.norm(h)))  # type: ignore[no-any-return]  # nn.Module.__call__ is untyped

    def _convolve_locally(self, parts: list[Tensor]) -> Tensor:
        """Conv1d over the concatenated parts (B, N, C) -> (B, N, C), without concatenating them.

        Each part is convolved as an image of one row in channels-last layout, which avoids copies.
        """
        assert self.conv is not None
        weights = self.conv.weight.unsqueeze(2).chunk(len(parts), dim=1)  # (C, C, 1, kernel_size) each
        biases = (self.conv.bias, None)  # add the bias only once
        images = [
            nn.functional.conv2d(part.transpose(1, 2).unsqueeze(2), weight, bias, padding=(0, weight.shape[-1] // 2))
            for part, weight, bias in zip(parts, weights, biases, strict=False)
        ]
        return sum(images[1:], images[0]).squeeze(2).transpose(1, 2)

    def convolve(self, x: Tensor) -> Tensor:
        """Fourier convolution (B, N, C) -> (B, N, C)."""
        segments = segment_means(x, self.num_segments)  # (B, N, r)
        length = x.shape[1]
        is_short = isinstance(length, int) and length <= min(self.seq_len // SHORT, SHORT_LENGTH)
        if is_short and torch.compiler.is_exporting():
            return short_fourier_convolution(segments, self._taps())
        if self.is_dense:
            return dense_fourier_convolution(segments, self.kernel, self.forward_dft, self.inverse_dft)
        if torch.compiler.is_exporting() or x.dtype == torch.float16:  # PyTorch has no FFT of float16 on a CPU
            return self.factored(segments, self.kernel)  # type: ignore[no-any-return]
        return fourier_convolution(segments, self.kernel, self.seq_len)

    def _taps(self) -> Tensor:
        """The kernel in the time domain (seq_len, C), which ONNX Runtime computes when it loads a graph."""
        if self.is_dense:
            return kernel_taps(self.kernel, self.inverse_dft)
        impulse = nn.functional.pad(self.kernel.new_ones(1, 1, self.num_segments), (0, 0, 0, self.seq_len - 1))
        return self.factored(impulse, self.kernel).squeeze(0)  # type: ignore[no-any-return]


class SkeletonAttention(nn.Module):
    """Row and column attention on sampled rows and columns of K and V.

    out = LN1(softmax(Q K_r^T / sqrt(D)) V_r) / 2 + LN2(V_c softmax(Q^T K_c / sqrt(N))^T) / 2,  Q, K, V = W h

    In each head, of width D, K_r and V_r are s1 sampled rows of K and V, K_c and V_c are s2 sampled columns.
    K and V are computed only at the sampled rows and columns. Time: O(N (s1 + s2 + C) C).
    In length-aware mode, row k is token floor((2k + 1) l / (2 s1)) of the l real tokens, and sqrt(l) replaces sqrt(N).
    With a mask, K and V are zero at padding positions, as in the released code.

    Shape:      h (B, N, C); lengths (B,), number of real tokens, in length-aware mode only; mask (B, N, 1) of real
                tokens, not in mode `paper`; returns (B, N, C), heads concatenated.
    Reference:  Wang et al. 2024, arXiv:2408.08567, sec. III-A, eq. (1), Algorithm 1, whose names are used: rows
                are tokens, columns are features (the text of III-A uses the opposite names).
    Deviates:   the sampled indices are buffers, drawn from a seeded generator. In the published code they are not saved
                with the model, so that a reloaded model differs (see test_reloaded_model_is_identical). The factor 1/2
                is from Algorithm 1; eq. (1) omits it (see test_skeleton_attention_equals_reference).
    """

    rows: Tensor
    columns: Tensor
    odd: Tensor
    """2k + 1 for each sampled row k, in length-aware mode."""

    def __init__(self, config: EncoderConfig, generator: torch.Generator) -> None:
        super().__init__()
        options = config.options_of(S3Options)
        self.num_rows, self.num_columns = options.num_rows, options.num_columns
        self.per_head = (config.num_heads, config.head_dim)
        self.qkv = nn.Linear(config.dim, 3 * config.dim)
        if config.is_length_aware:
            self.register_buffer("odd", 2 * torch.arange(options.num_rows) + 1, persistent=False)
        else:
            self.register_buffer("rows", torch.randperm(config.seq_len, generator=generator)[: options.num_rows])
        self.register_buffer("columns", torch.randperm(config.head_dim, generator=generator)[: options.num_columns])
        self.row_scale = 1 / math.sqrt(config.head_dim)
        self.column_scale = 1 / math.sqrt(config.seq_len)
        self.row_norm = nn.LayerNorm(config.dim) if options.use_rows else None
        self.column_norm = nn.LayerNorm(config.dim) if options.use_columns else None
        self.dropout = nn.Dropout(config.dropout.attention)

    def forward(self, h: Tensor, lengths: Tensor | None = None, mask: Tensor | None = None) -> Tensor:
        """Attend (B, N, C) -> (B, N, C)."""
        (num_heads, dim), columns, s2 = self.per_head, self.columns, self.num_columns
        channels, size = torch.arange(dim, device=h.device), num_heads * dim
        q, k_columns, v_columns = self._project(h, (channels, size + columns, 2 * size + columns), (dim, s2, s2))
        parts = []
        if self.row_norm is not None:
            rows = self._project(self._rows(h, lengths), (size + channels, 2 * size + channels), (dim, dim))
            if mask is not None and lengths is None:  # otherwise all sampled rows are real tokens
                rows = [x * mask.index_select(1, self.rows).unsqueeze(1) for x in rows]
            k_rows, v_rows = rows
            parts.append(half(self.row_norm, self._row_attention(q, k_rows, v_rows)))
        if self.column_norm is not None:
            scale: Tensor | float = self.column_scale
            if lengths is not None:
                scale = torch.rsqrt(lengths.to(h.dtype)).reshape(-1, 1, 1, 1)
            if mask is not None:
                scale = scale * mask.unsqueeze(1)
                if lengths is None:  # otherwise V only affects the output of its own token
                    v_columns = v_columns * mask.unsqueeze(1)
            parts.append(half(self.column_norm, self._column_attention(q, k_columns * scale, v_columns)))
        return sum(parts[1:], parts[0])

    def _project(self, x: Tensor, groups: Sequence[Tensor], sizes: Sequence[int]) -> Sequence[Tensor]:
        """Some channels of Q, K and V: (B, N, C) -> (B, H, N, size) for each group of channels.

        A group lists outputs of `qkv` that belong to the first head; those of head i are i D further.
        """
        num_heads, dim = self.per_head
        first = dim * torch.arange(num_heads, device=x.device).unsqueeze(1)
        chosen = torch.cat([(first + group).flatten() for group in groups])
        weight, bias = self.qkv.weight.index_select(0, chosen), self.qkv.bias.index_select(0, chosen)
        projected = nn.functional.linear(x.flatten(0, 1), weight, bias)
        parts = projected.split([num_heads * size for size in sizes], dim=1)
        return [
            part.view(*x.shape[:2], num_heads, size).transpose(1, 2) for part, size in zip(parts, sizes, strict=True)
        ]

    def _row_attention(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """softmax(Q K_r^T / sqrt(D)) V_r: (B, H, N, D), (B, H, s1, D) and (B, H, s1, D) -> (B, N, C)."""
        # In this layout (B, H, s1, N), softmax over s1 is fast.
        weights = torch.softmax((k * self.row_scale) @ q.transpose(2, 3), dim=2)
        return (self.dropout(weights).transpose(2, 3) @ v).transpose(1, 2).flatten(2)  # type: ignore[no-any-return]

    def _column_attention(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """V_c softmax(Q^T K_c)^T: (B, H, N, D), (B, H, N, s2) and (B, H, N, s2) -> (B, N, C)."""
        weights = torch.softmax(k.transpose(2, 3) @ q, dim=2)  # (B, H, s2, D)
        return (v @ self.dropout(weights)).transpose(1, 2).flatten(2)  # type: ignore[no-any-return]

    def _rows(self, h: Tensor, lengths: Tensor | None) -> Tensor:
        """Gather the sampled tokens: (B, N, C) -> (B, s1, C)."""
        if lengths is None:
            return h.index_select(1, self.rows)
        rows = divide(self.odd * lengths.long().unsqueeze(1), 2 * self.num_rows)  # with repeated rows if l < s1
        return take(h, rows)


def half(norm: nn.LayerNorm, x: Tensor) -> Tensor:
    """norm(x) / 2, with the factor folded into the norm's parameters."""
    return nn.functional.layer_norm(x, x.shape[-1:], norm.weight / 2, norm.bias / 2, norm.eps)


class S3Attention(Attention):
    """Smoother, then multi-head skeleton attention on its output.

    out = W_o skeleton(h),  h = smoother(x)

    For ablations, the smoother or the skeleton attention can be left out.

    Reference:  Wang et al. 2024, arXiv:2408.08567, sec. III, Figure 1.
    """

    def __init__(self, config: EncoderConfig, generator: torch.Generator) -> None:
        super().__init__(config, generator)
        self.is_length_aware = config.is_length_aware
        self.smoother = Smoother(config) if config.options_of(S3Options).use_smoother else None
        options = config.options_of(S3Options)
        self.skeleton = SkeletonAttention(config, generator) if options.use_rows or options.use_columns else None
        self.out = nn.Linear(config.dim, config.dim)

    def forward(self, x: Tensor, lengths: Tensor | None = None) -> Tensor:
        """Attend (B, N, C) -> (B, N, C)."""
        token_counts, is_real = self.real_tokens(x, lengths)
        mask = None if is_real is None else is_real.unsqueeze(-1).to(x.dtype)  # (B, N, 1)
        aware = self.is_length_aware
        h = x if self.smoother is None else self.smoother(x, mask if aware else None)  # (B, N, C)
        attended = h if self.skeleton is None else self.skeleton(h, token_counts if aware else None, mask)
        return torch.unflatten(self.out(attended.flatten(0, 1)), 0, x.shape[:2])
