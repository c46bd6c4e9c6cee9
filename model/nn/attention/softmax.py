"""Softmax attention, the baseline of all papers. Used through `model.nn.attention`."""

from torch import Tensor, nn

from model.nn.attention.base import HeadedAttention


class SoftmaxAttention(HeadedAttention):
    """Every token attends to every token.

    out = softmax(Q K^T / sqrt(D)) V    O(N^2 C)

    PyTorch's fused kernel computes it block by block, so that its memory does not grow with N^2, as it does in the
    papers' comparisons.

    Reference:  Vaswani et al. 2017, arXiv:1706.03762; Chen et al. 2021, arXiv:2111.00035, sec. 3.1.
    """

    def mix(self, q: Tensor, k: Tensor, v: Tensor, lengths: Tensor, mask: Tensor | None) -> Tensor:
        """Mix (B, H, N, D) three times -> (B, H, N, D)."""
        del lengths
        allowed = None if mask is None else mask[:, None, None, :]
        dropout = self.dropout.p if self.training else 0.0
        return nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=allowed, dropout_p=dropout)
