"""The encoder: embedding, blocks, final norm. Used by `model.nn.classifier`."""

from itertools import pairwise

import torch
from torch import Tensor, nn

from model.config.encoder import EncoderConfig
from model.nn.attention import create_attention

NUM_BYTES = 256


class Block(nn.Module):
    """Pre-norm transformer block.

    x = x + drop(attention(LN(x)));  x = x + MLP(LN(x)),  MLP = Linear, GELU, drop, Linear, drop

    Shape:      x (B, N, C); lengths (B,), as in Attention; returns (B, N, C).
    Reference:  Wang et al. 2024, arXiv:2408.08567, Figure 1, with any attention of `model.nn.attention`.
    """

    def __init__(self, config: EncoderConfig, generator: torch.Generator) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(config.dim)
        self.attention = create_attention(config, generator)
        self.dropout = nn.Dropout(config.dropout.hidden)
        self.mlp_norm = nn.LayerNorm(config.dim)
        self.mlp = nn.Sequential(
            nn.Linear(config.dim, config.ffn_dim),
            nn.GELU(),
            nn.Dropout(config.dropout.hidden),
            nn.Linear(config.ffn_dim, config.dim),
            nn.Dropout(config.dropout.hidden),
        )

    def forward(self, x: Tensor, lengths: Tensor | None = None) -> Tensor:
        """Transform (B, N, C) -> (B, N, C)."""
        x = x + self.dropout(self.attention(self.attention_norm(x), lengths))
        flat = x.flatten(0, 1)  # (B N, C): products of matrices add the bias
        return torch.unflatten(flat + self.mlp(self.mlp_norm(flat)), 0, x.shape[:2])


class Blocks(nn.ModuleList):
    """Sequence of blocks. `sampling_seed` determines the indices and random features of their attention."""

    def __init__(self, config: EncoderConfig) -> None:
        generator = torch.Generator().manual_seed(config.sampling_seed)
        blocks = [Block(config, generator) for _ in range(config.num_layers)]
        for below, above in pairwise(blocks):
            above.attention.share(below.attention)
        super().__init__(blocks)

    def forward(self, x: Tensor, lengths: Tensor | None = None) -> Tensor:
        """Transform (B, N, C) -> (B, N, C)."""
        for block in self:
            x = block(x, lengths)
        return x


class ByteEncoder(nn.Module):
    """Encodes raw bytes to contextual token vectors.

    out = LN(block_m(... block_1(x))),  x = drop(E[byte + 1, or 0 for padding] + P)

    E are the byte embeddings, P the position embeddings, m is `num_layers`.

    Shape:      document (B, N) uint8, zero-padded to N = seq_len, or in length-aware mode to any N <= seq_len; lengths
                (B,) int32, number of bytes in each document; returns (B, N, C).
    Reference:  Wang et al. 2024, arXiv:2408.08567, sec. IV-A (LRA Text: bytes); learned positions: its code.
    Deviates:   padding has its own embedding, so that NUL is an ordinary byte; test_nul_is_not_padding. Position
                embeddings start at zero. The published ones start at N(0, 0.02^2), like the byte embeddings, which
                slows down early training (512 bytes, one epoch: validation accuracy 0.655 instead of 0.725).
    """

    positions: Tensor

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.byte_embedding = nn.Embedding(1 + NUM_BYTES, config.dim)
        self.position_embedding = nn.Parameter(torch.zeros(config.seq_len, config.dim))
        nn.init.normal_(self.byte_embedding.weight, std=0.02)
        self.register_buffer("positions", torch.arange(config.seq_len, dtype=torch.int32), persistent=False)
        self.dropout = nn.Dropout(config.dropout.embedding)
        self.blocks = Blocks(config)
        self.norm = nn.LayerNorm(config.dim)

    def forward(self, document: Tensor, lengths: Tensor) -> Tensor:
        """Encode (B, N) bytes -> (B, N, C)."""
        length = document.shape[1]
        is_real = self.positions[:length] < lengths.unsqueeze(1)  # (B, N)
        tokens = (document.int() + 1) * is_real  # (B, N), 0 = padding
        x = self.dropout(self.byte_embedding(tokens) + self.position_embedding[:length])  # (B, N, C)
        return self.norm(self.blocks(x, lengths))  # type: ignore[no-any-return]


def masked_mean(x: Tensor, lengths: Tensor) -> Tensor:
    """Mean over real tokens: x (B, N, C), lengths (B,) -> (B, C)."""
    positions = torch.arange(x.shape[1], device=x.device)
    share = (positions < lengths.unsqueeze(1)).to(x.dtype) / lengths.unsqueeze(1)  # (B, N)
    return (share.unsqueeze(1) @ x).squeeze(1)
