"""S3Attention: smoother and skeleton attention.

In length-aware mode, padding does not affect real tokens: it is masked, rows are sampled within the document, and
scores are scaled by the document's length. The output is then the same for every padded length up to `seq_len`. In mode
`paper-masked`, K and V are zero at padding, but the smoother reads padding. In mode `paper`, nothing is masked.
"""

import math

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
    segment_means,
    short_fourier_convolution,
)

DENSE_LENGTH = 256
"""Largest `seq_len` for which the Fourier convolution is a dense matrix product."""
SHORT = 4
"""Exported graphs for one length, of at most `seq_len` / SHORT tokens, have `short_fourier_convolution`."""


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
        if self.is_dense:
            length = x.shape[1]
            if torch.compiler.is_exporting() and isinstance(length, int) and SHORT * length <= self.seq_len:
                return short_fourier_convolution(segments, self.kernel, self.inverse_dft)
            return dense_fourier_convolution(segments, self.kernel, self.forward_dft, self.inverse_dft)
        if torch.compiler.is_exporting() or x.dtype == torch.float16:  # PyTorch has no FFT of float16 on a CPU
            return self.factored(segments, self.kernel)  # type: ignore[no-any-return]
        return fourier_convolution(segments, self.kernel, self.seq_len)


class SkeletonAttention(nn.Module):
    """Row and column attention on sampled rows and columns of K and V.

    out = LN1(softmax(Q K_r^T / sqrt(D)) V_r) / 2 + LN2(V_c softmax(Q^T K_c / sqrt(N))^T) / 2,  Q, K, V = W h

    In each head, of width D, K_r and V_r are s1 sampled rows of K and V, K_c and V_c are s2 sampled columns.
    Q is never computed, because it only occurs in products: Q K_r^T = h (W_q^T K_r^T), Q^T K_c = W_q^T (h^T K_c).
    K and V are computed only at the sampled rows and columns. Time: O(N (s1 + s2) C).
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
    same_head: Tensor
    """Identity matrix over the heads, (H, 1, H, 1): 1 where two heads are the same."""

    def __init__(self, config: EncoderConfig, generator: torch.Generator) -> None:
        super().__init__()
        options = config.options_of(S3Options)
        self.num_rows = options.num_rows
        self.per_head = (config.num_heads, config.head_dim)
        self.qkv = nn.Linear(config.dim, 3 * config.dim)
        if config.is_length_aware:
            self.register_buffer("odd", 2 * torch.arange(options.num_rows) + 1, persistent=False)
        else:
            self.register_buffer("rows", torch.randperm(config.seq_len, generator=generator)[: options.num_rows])
        self.register_buffer("columns", torch.randperm(config.head_dim, generator=generator)[: options.num_columns])
        self.register_buffer("same_head", torch.eye(config.num_heads)[:, None, :, None], persistent=False)
        self.row_scale = 1 / math.sqrt(config.head_dim)
        self.column_scale = 1 / math.sqrt(config.seq_len)
        self.row_norm = nn.LayerNorm(config.dim) if options.use_rows else None
        self.column_norm = nn.LayerNorm(config.dim) if options.use_columns else None
        self.dropout = nn.Dropout(config.dropout.attention)

    def forward(self, h: Tensor, lengths: Tensor | None = None, mask: Tensor | None = None) -> Tensor:
        """Attend (B, N, C) -> (B, N, C)."""
        parts = []
        if self.row_norm is not None:
            parts.append(half(self.row_norm, self._row_attention(h, lengths, mask)))
        if self.column_norm is not None:
            parts.append(half(self.column_norm, self._column_attention(h, lengths, mask)))
        return sum(parts[1:], parts[0])

    def _row_attention(self, h: Tensor, lengths: Tensor | None, mask: Tensor | None) -> Tensor:
        """softmax(Q K_r^T / sqrt(D)) V_r: (B, N, C) -> (B, N, C)."""
        w_q, b_q, w_kv, b_kv = self._projections()
        rows = nn.functional.linear(self._rows(h, lengths), w_kv.flatten(0, 2), b_kv.flatten())
        if mask is not None and lengths is None:  # otherwise all sampled rows are real tokens
            rows = rows * mask.index_select(1, self.rows)
        rows = torch.unflatten(rows, -1, (2, *self.per_head))  # (B, s1, 2, H, D)
        k_rows, v_rows = rows.permute(2, 0, 3, 1, 4).unbind(0)  # (B, H, s1, D)
        k_rows = k_rows * self.row_scale
        # In this layout (B, H s1, N), softmax over s1 is fast.
        scores = (k_rows @ w_q).flatten(1, 2) @ h.transpose(1, 2)
        scores = scores + (k_rows @ b_q.unsqueeze(-1)).flatten(1, 2)
        weights = torch.softmax(torch.unflatten(scores, 1, (self.per_head[0], -1)), dim=2).flatten(1, 2)
        return self.dropout(weights).transpose(1, 2) @ self._block_diagonal(v_rows)  # type: ignore[no-any-return]

    def _column_attention(self, h: Tensor, lengths: Tensor | None, mask: Tensor | None) -> Tensor:
        """V_c softmax(Q^T K_c / sqrt(N))^T: (B, N, C) -> (B, N, C)."""
        w_q, b_q, w_kv, b_kv = self._projections()
        weight, bias = w_kv.index_select(2, self.columns), b_kv.index_select(2, self.columns)  # (2, H, s2, C)
        columns = nn.functional.linear(h, weight.flatten(0, 2), bias.flatten())
        if mask is not None:
            columns = columns * mask
        k_cols, v_cols = columns.chunk(2, dim=-1)  # (B, N, H s2)
        per_head = (self.per_head[0], -1)
        scores = torch.unflatten(k_cols.transpose(1, 2) @ h, 1, per_head) @ w_q.transpose(1, 2)  # (B, H, s2, D)
        scores = scores + torch.unflatten(k_cols.sum(1), 1, per_head).unsqueeze(-1) * b_q.unsqueeze(1)
        scale: Tensor | float = self.column_scale
        if lengths is not None:
            scale = torch.rsqrt(lengths.to(h.dtype)).reshape(-1, 1, 1, 1)
        weights = torch.softmax(scores * scale, dim=2)  # (B, H, s2, D)
        return v_cols @ self._block_diagonal(self.dropout(weights))

    def _projections(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Weights and biases of Q (H, D, C) and (H, D), of K and V (2, H, D, C) and (2, H, D)."""
        weight, bias = (torch.unflatten(x, 0, (3, *self.per_head)) for x in (self.qkv.weight, self.qkv.bias))
        return weight[0], bias[0], weight[1:], bias[1:]

    def _rows(self, h: Tensor, lengths: Tensor | None) -> Tensor:
        """Gather the sampled tokens: (B, N, C) -> (B, s1, C)."""
        if lengths is None:
            return h.index_select(1, self.rows)
        rows = self.odd * lengths.long().unsqueeze(1) // (2 * self.num_rows)  # (B, s1), with repeated rows if l < s1
        return h.gather(1, rows.unsqueeze(-1).expand(-1, -1, h.shape[2]))

    def _block_diagonal(self, x: Tensor) -> Tensor:
        """Block-diagonal matrix of the heads' blocks: (B, H, s, D) -> (B, H s, H D)."""
        return (x.unsqueeze(3) * self.same_head).flatten(3).flatten(1, 2)


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
        return self.out(attended)  # type: ignore[no-any-return]
