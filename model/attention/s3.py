"""S3Attention: the smoother and skeleton attention, as published and length-aware. Used by `model.encoder`.

Length-aware, padding is no input: it is masked where it could leak into real tokens, rows are sampled within the
document, and scores are scaled by its length. A document then has the same answer in every padded length up to n.
"""

import math

import torch
from torch import Tensor, nn

from model.attention.base import Attention
from model.config import EncoderConfig
from model.ops.fourier import dense_fourier_convolution, dft_matrices, fourier_convolution, segment_means

DENSE_LENGTH = 256
"""Up to this n the Fourier convolution is a matrix product."""


class Smoother(nn.Module):
    """Mixes tokens globally by a Fourier convolution and locally by a convolution stem.

    h = drop(relu(norm(conv1d([irfft(rfft(X S) * L); X]))))    O(N log N * C)

    Shape:      x (B, N, C); mask (B, N, 1) of real tokens, length-aware only; returns (B, N, C).
    Reference:  Wang et al. 2024, arXiv:2408.08567, sec. III-B, eqs. (2) to (4), Algorithm 2.
    Deviates:   the stem is a Conv1d as the text says, Algorithm 2 lists a Conv2d that does not fit its input;
                test_smoother_equals_reference. L starts at standard deviation 1/sqrt(C), what Kaiming
                normal initialisation gives in the published layout (proposition 2 wants it small). As published, norm
                is a BatchNorm of each position; length-aware a LayerNorm of each token, since positions that few
                documents reach have no statistics.
    """

    forward_dft: Tensor
    inverse_dft: Tensor

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.seq_len = config.seq_len
        self.num_segments = config.num_segments
        self.use_fourier = config.use_fourier
        self.is_dense = config.seq_len <= DENSE_LENGTH
        if config.use_fourier:
            self.kernel = nn.Parameter(torch.empty(config.seq_len // 2 + 1, config.dim, 2))
            nn.init.normal_(self.kernel, std=1 / math.sqrt(config.dim))
            if self.is_dense:
                for name, matrix in zip(("forward_dft", "inverse_dft"), dft_matrices(config.seq_len), strict=True):
                    self.register_buffer(name, matrix.float(), persistent=False)
        width = 2 * config.dim if config.use_fourier else config.dim
        self.conv = nn.Conv1d(width, config.dim, kernel_size=3, padding=1) if config.use_stem else None
        self.norm = nn.LayerNorm(config.dim) if config.is_length_aware else nn.BatchNorm1d(config.seq_len)
        self.dropout = nn.Dropout(config.dropout.smoother)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Smooth (B, N, C) -> (B, N, C)."""
        h = x if mask is None else x * mask
        if self.use_fourier:
            smooth = self.convolve(h).to(x.dtype)  # (B, N, C)
            if mask is not None:
                smooth = smooth * mask  # the convolution stem looks one token past the end
            h = smooth if self.conv is None else torch.cat((smooth, h), dim=-1)  # (B, N, C or 2C)
        if self.conv is not None:
            h = self.conv(h.transpose(1, 2)).transpose(1, 2)  # (B, N, C)
        return self.dropout(torch.relu(self.norm(h)))  # type: ignore[no-any-return]  # nn.Module.__call__ is untyped

    def convolve(self, x: Tensor) -> Tensor:
        """Fourier convolution (B, N, C) -> (B, N, C)."""
        segments = segment_means(x, self.num_segments)  # (B, N, r)
        if self.is_dense:
            return dense_fourier_convolution(segments, self.kernel, self.forward_dft, self.inverse_dft)
        return fourier_convolution(segments, self.kernel, self.seq_len)


class SkeletonAttention(nn.Module):
    """Row and column attention on sampled rows and columns of K and V.

    out = LN1(softmax(Q K_r^T / sqrt(D)) V_r) / 2 + LN2(V_c softmax(Q^T K_c / sqrt(N))^T) / 2    O(N (s1 + s2) C)

    Length-aware, row k is token floor((2k + 1) l / (2 s1)) of the l real ones, and sqrt(l) replaces sqrt(N).

    Shape:      q, k, v (B, H, N, D), q zero where there is no token; lengths (B,), length-aware only;
                returns (B, N, C), heads concatenated.
    Reference:  Wang et al. 2024, arXiv:2408.08567, sec. III-A, eq. (1), Algorithm 1, whose names are used: rows
                are tokens, columns are features (the text of III-A swaps the words).
    Deviates:   the sampled indices are buffers drawn from a seeded generator (plain attributes in the published
                code, so a reloaded model changes), test_reloaded_model_is_identical; the factor 1/2 is
                Algorithm 1's, eq. (1) has none, test_skeleton_attention_equals_reference.
    """

    rows: Tensor
    columns: Tensor
    odd: Tensor

    def __init__(self, config: EncoderConfig, generator: torch.Generator) -> None:
        super().__init__()
        self.num_rows = config.num_rows
        if config.is_length_aware:
            self.register_buffer("odd", 2 * torch.arange(config.num_rows) + 1, persistent=False)
        else:
            self.register_buffer("rows", torch.randperm(config.seq_len, generator=generator)[: config.num_rows])
        self.register_buffer("columns", torch.randperm(config.head_dim, generator=generator)[: config.num_columns])
        self.row_scale = 1 / math.sqrt(config.head_dim)
        self.column_scale = 1 / math.sqrt(config.seq_len)
        self.row_norm = nn.LayerNorm(config.dim) if config.use_rows else None
        self.column_norm = nn.LayerNorm(config.dim) if config.use_columns else None
        self.dropout = nn.Dropout(config.dropout.attention)

    def forward(self, q: Tensor, k: Tensor, v: Tensor, lengths: Tensor | None = None) -> Tensor:
        """Attend (B, H, N, D) three times -> (B, N, C)."""
        out: Tensor | float = 0.0
        if self.row_norm is not None:
            k_rows, v_rows = self._rows(k, lengths), self._rows(v, lengths)  # (B, H, s1, D)
            weights = torch.softmax(q @ k_rows.transpose(2, 3) * self.row_scale, dim=-1)  # (B, H, N, s1)
            row = self.dropout(weights) @ v_rows  # (B, H, N, D)
            out = self.row_norm(row.transpose(1, 2).flatten(2)) / 2  # (B, N, C)
        if self.column_norm is not None:
            k_cols, v_cols = k.index_select(3, self.columns), v.index_select(3, self.columns)  # (B, H, N, s2)
            scale: Tensor | float = self.column_scale
            if lengths is not None:
                scale = torch.rsqrt(lengths.to(q.dtype)).reshape(-1, 1, 1, 1)
            weights = torch.softmax(q.transpose(2, 3) @ k_cols * scale, dim=-1)  # (B, H, D, s2)
            column = v_cols @ self.dropout(weights.transpose(2, 3))  # (B, H, N, D)
            out = out + self.column_norm(column.transpose(1, 2).flatten(2)) / 2
        assert isinstance(out, Tensor)
        return out

    def _rows(self, x: Tensor, lengths: Tensor | None) -> Tensor:
        """Sampled tokens: (B, H, N, D) -> (B, H, s1, D)."""
        if lengths is None:
            return x.index_select(2, self.rows)
        rows = self.odd * lengths.long().unsqueeze(1) // (2 * self.num_rows)  # (B, s1), repeated where l < s1
        return x.gather(2, rows.reshape(-1, 1, self.num_rows, 1).expand(-1, x.shape[1], -1, x.shape[3]))


class S3Attention(Attention):
    """Smoother, then multi-head skeleton attention on its output.

    out = W_o skeleton(W_q h, W_k h, W_v h),  h = smoother(x)

    Reference:  Wang et al. 2024, arXiv:2408.08567, sec. III, Figure 1.
    """

    def __init__(self, config: EncoderConfig, generator: torch.Generator) -> None:
        super().__init__(config, generator)
        self.num_heads = config.num_heads
        self.smoother = Smoother(config) if config.use_smoother else None
        self.qkv = nn.Linear(config.dim, 3 * config.dim)
        self.skeleton = SkeletonAttention(config, generator)
        self.out = nn.Linear(config.dim, config.dim)

    def forward(self, x: Tensor, lengths: Tensor | None = None) -> Tensor:
        """Attend (B, N, C) -> (B, N, C)."""
        real, is_real = self.real_tokens(x, lengths)
        mask = None if is_real is None else is_real.unsqueeze(-1).to(x.dtype)  # (B, N, 1)
        h = x if self.smoother is None else self.smoother(x, mask)  # (B, N, C)
        heads = self.qkv(h).unflatten(-1, (3, self.num_heads, -1))  # (B, N, 3, H, D)
        q, k, v = heads.permute(2, 0, 3, 1, 4).unbind(0)  # (B, H, N, D)
        if mask is not None:
            q = q * mask.unsqueeze(1)
        return self.out(self.skeleton(q, k, v, real if self.is_length_aware else None))  # type: ignore[no-any-return]
