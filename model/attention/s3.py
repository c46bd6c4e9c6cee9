"""S3Attention as published: the smoother and skeleton attention. Used by `model.encoder`."""

import math

import torch
from torch import Tensor, nn

from model.config import EncoderConfig
from model.ops.fourier import fourier_convolution, segment_means


class Smoother(nn.Module):
    """Mixes tokens globally by a Fourier convolution and locally by a convolution stem.

    h = drop(relu(BN(conv1d([irfft(rfft(X S) * L); X]))))    O(N log N * C)

    Shape:      x (B, N, C); returns (B, N, C).
    Reference:  Wang et al. 2024, arXiv:2408.08567, sec. III-B, eqs. (2) to (4), Algorithm 2.
    Deviates:   the stem is a Conv1d as the text says, Algorithm 2 lists a Conv2d that does not fit its input;
                test_smoother_equals_reference. L starts at standard deviation 1/sqrt(C), what Kaiming
                normal initialisation gives in the published layout (proposition 2 wants it small).
    """

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.num_segments = config.num_segments
        self.use_fourier = config.use_fourier
        if config.use_fourier:
            self.kernel = nn.Parameter(torch.empty(config.seq_len // 2 + 1, config.dim, 2))
            nn.init.normal_(self.kernel, std=1 / math.sqrt(config.dim))
        width = 2 * config.dim if config.use_fourier else config.dim
        self.conv = nn.Conv1d(width, config.dim, kernel_size=3, padding=1)
        self.norm = nn.BatchNorm1d(config.seq_len)
        self.dropout = nn.Dropout(config.dropout.smoother)

    def forward(self, x: Tensor) -> Tensor:
        """Smooth (B, N, C) -> (B, N, C)."""
        h = x
        if self.use_fourier:
            smooth = fourier_convolution(segment_means(x, self.num_segments), self.kernel)  # (B, N, C)
            h = torch.cat((smooth.to(x.dtype), x), dim=-1)  # (B, N, 2C)
        h = self.conv(h.transpose(1, 2)).transpose(1, 2)  # (B, N, C)
        h = self.norm(h)  # statistics of each position, over batch and width
        return self.dropout(torch.relu(h))  # type: ignore[no-any-return]  # nn.Module.__call__ is untyped


class SkeletonAttention(nn.Module):
    """Row and column attention on sampled rows and columns of K and V.

    out = LN1(softmax(Q K_r^T / sqrt(D)) V_r) / 2 + LN2(V_c softmax(Q^T K_c / sqrt(N))^T) / 2    O(N (s1 + s2) C)

    Shape:      q, k, v (B, H, N, D); returns (B, N, C), heads concatenated.
    Reference:  Wang et al. 2024, arXiv:2408.08567, sec. III-A, eq. (1), Algorithm 1, whose names are used: rows
                are tokens, columns are features (the text of III-A swaps the words).
    Deviates:   the sampled indices are buffers drawn from a seeded generator (plain attributes in the published
                code, so a reloaded model changes), test_reloaded_model_is_identical; the factor 1/2 is
                Algorithm 1's, eq. (1) has none, test_skeleton_attention_equals_reference.
    """

    rows: Tensor
    columns: Tensor

    def __init__(self, config: EncoderConfig, generator: torch.Generator) -> None:
        super().__init__()
        self.register_buffer("rows", torch.randperm(config.seq_len, generator=generator)[: config.num_rows])
        self.register_buffer("columns", torch.randperm(config.head_dim, generator=generator)[: config.num_columns])
        self.row_scale = 1 / math.sqrt(config.head_dim)
        self.column_scale = 1 / math.sqrt(config.seq_len)
        self.row_norm = nn.LayerNorm(config.dim)
        self.column_norm = nn.LayerNorm(config.dim)
        self.dropout = nn.Dropout(config.dropout.attention)

    def forward(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Attend (B, H, N, D) three times -> (B, N, C)."""
        k_rows, v_rows = k.index_select(2, self.rows), v.index_select(2, self.rows)  # (B, H, s1, D)
        weights = torch.softmax(q @ k_rows.transpose(2, 3) * self.row_scale, dim=-1)  # (B, H, N, s1)
        row = self.dropout(weights) @ v_rows  # (B, H, N, D)

        k_cols, v_cols = k.index_select(3, self.columns), v.index_select(3, self.columns)  # (B, H, N, s2)
        weights = torch.softmax(q.transpose(2, 3) @ k_cols * self.column_scale, dim=-1)  # (B, H, D, s2)
        column = v_cols @ self.dropout(weights.transpose(2, 3))  # (B, H, N, D)

        row = row.transpose(1, 2).flatten(2)  # (B, N, C)
        column = column.transpose(1, 2).flatten(2)  # (B, N, C)
        return self.row_norm(row) / 2 + self.column_norm(column) / 2  # type: ignore[no-any-return]


class S3Attention(nn.Module):
    """Smoother, then multi-head skeleton attention on its output.

    out = W_o skeleton(W_q h, W_k h, W_v h),  h = smoother(x)

    Shape:      x (B, N, C); returns (B, N, C).
    Reference:  Wang et al. 2024, arXiv:2408.08567, sec. III, Figure 1.
    """

    def __init__(self, config: EncoderConfig, generator: torch.Generator) -> None:
        super().__init__()
        self.num_heads = config.num_heads
        self.smoother = Smoother(config)
        self.qkv = nn.Linear(config.dim, 3 * config.dim)
        self.skeleton = SkeletonAttention(config, generator)
        self.out = nn.Linear(config.dim, config.dim)

    def forward(self, x: Tensor) -> Tensor:
        """Attend (B, N, C) -> (B, N, C)."""
        h = self.smoother(x)  # (B, N, C)
        heads = self.qkv(h).unflatten(-1, (3, self.num_heads, -1))  # (B, N, 3, H, D)
        q, k, v = heads.permute(2, 0, 3, 1, 4).unbind(0)  # (B, H, N, D)
        return self.out(self.skeleton(q, k, v))  # type: ignore[no-any-return]
