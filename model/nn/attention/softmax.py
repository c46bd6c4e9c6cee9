"""Softmax attention, the common baseline. Used through `model.nn.attention`."""

import torch
from torch import Tensor, nn

from model.nn.attention.base import HeadedAttention


class SoftmaxAttention(HeadedAttention):
    """Full softmax attention.

    out = softmax(Q K^T / sqrt(D)) V    O(N^2 C)

    Uses PyTorch's fused kernel, whose memory is not quadratic in N, unlike the implementations that the papers compare
    with.

    Reference:  Vaswani et al. 2017, arXiv:1706.03762; Chen et al. 2021, arXiv:2111.00035, sec. 3.1.
    """

    def mix(self, q: Tensor, k: Tensor, v: Tensor, lengths: Tensor, mask: Tensor | None) -> Tensor:
        """Attend within each head: q, k, v (B, H, N, D) -> (B, H, N, D)."""
        del lengths
        added = None
        if mask is not None:  # added, because ONNX Runtime does not compute the graph of a Boolean mask on CUDA
            least = torch.finfo(q.dtype).min
            added = torch.zeros_like(mask, dtype=q.dtype).masked_fill(~mask, least)[:, None, None, :]
        dropout = self.dropout.p if self.training else 0.0
        return nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=added, dropout_p=dropout)
