"""Nystromformer: Nystrom approximation of softmax attention. Used through `model.nn.attention`."""

import math

import torch
from torch import Tensor, nn

from model.config.attentions import NystromOptions
from model.config.encoder import EncoderConfig
from model.nn.attention.base import HeadedAttention, hide_padding, zero_padding
from model.nn.ops.inverse import apply_iterative_inverse, identity_like


class Nystromformer(HeadedAttention):
    """Softmax attention approximated with landmarks L_Q and L_K, the means of m segments of Q and K.

    out = s(Q L_K^T) A^+ s(L_Q K^T) V + conv(V),  A = s(L_Q L_K^T),  s(x) = softmax(x / sqrt(D))    O(N m C)

    A^+ is the pseudo-inverse of A, computed by an iteration; conv is a convolution over the tokens of each head.

    Reference:  Xiong et al. 2021, arXiv:2102.03902; described in Chen et al. 2021, arXiv:2111.00035, sec. 2.
    Deviates:   segments divide the real tokens; with fewer tokens than landmarks, neighbouring landmarks share a token.
                The iteration starts from A^T / (|A|_1 |A|_inf) with the norms of each matrix instead of the largest
                norms in the batch, so that outputs do not depend on the other documents of a batch;
                test_answer_does_not_depend_on_neighbours.
    """

    def __init__(self, config: EncoderConfig, generator: torch.Generator) -> None:
        super().__init__(config, generator)
        options = config.options_of(NystromOptions)
        self.num_landmarks = min(options.num_landmarks, config.seq_len)
        self.scale = 1 / math.sqrt(config.head_dim)
        self.num_steps = options.num_steps
        size, heads = options.kernel_size, config.num_heads
        self.conv = nn.Conv2d(heads, heads, (size, 1), padding=(size // 2, 0), groups=heads, bias=False)

    def mix(self, q: Tensor, k: Tensor, v: Tensor, lengths: Tensor, mask: Tensor | None) -> Tensor:
        """Attend within each head: q, k, v (B, H, N, D) -> (B, H, N, D)."""
        means = self._segments(q, lengths)  # (B, 1, m, N)
        v = zero_padding(v, mask)
        q_marks, k_marks = means @ q, means @ k  # (B, H, m, D)
        to_marks = torch.softmax(q @ k_marks.transpose(2, 3) * self.scale, dim=-1)  # (B, H, N, m)
        middle = torch.softmax(q_marks @ k_marks.transpose(2, 3) * self.scale, dim=-1)  # (B, H, m, m)
        scores = hide_padding(q_marks @ k.transpose(2, 3) * self.scale, mask)
        values = torch.softmax(scores, dim=-1) @ v  # (B, H, m, D)
        exact = middle.double()  # float64: the inverse amplifies small singular values
        values = apply_pseudo_inverse(exact, values.double(), self.num_steps).to(q.dtype)
        return self.dropout(to_marks) @ values + self.conv(v)  # type: ignore[no-any-return]

    def _segments(self, q: Tensor, lengths: Tensor) -> Tensor:
        """Averaging weights (B, 1, m, N) of m segments of the real tokens; each segment has at least one token."""
        count = self.num_landmarks
        mark = torch.arange(count, device=q.device)
        length = lengths.long().unsqueeze(1)  # (B, 1)
        start = mark * length // count  # (B, m)
        end = torch.maximum((mark + 1) * length // count, start + 1)
        place = self.positions[: q.shape[2]]
        is_in = (place >= start.unsqueeze(-1)) & (place < end.unsqueeze(-1))  # (B, m, N)
        return (is_in.to(q.dtype) / (end - start).unsqueeze(-1)).unsqueeze(1)


def apply_pseudo_inverse(a: Tensor, values: Tensor, num_steps: int) -> Tensor:
    """Approximate A^+ x for row-stochastic A (..., m, m), with A^+ its Moore-Penrose inverse; x `values` (..., m, D).

    Reference:  Razavi et al. 2014; initial value of Xiong et al. 2021, for each matrix separately.
    """
    norms = a.abs().sum(-2).amax(-1) * a.abs().sum(-1).amax(-1)  # |A|_1 |A|_inf
    start = a.transpose(-2, -1) / norms[..., None, None]
    return start @ apply_iterative_inverse(identity_like(a) - a @ start, values, num_steps)
