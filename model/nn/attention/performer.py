"""Performer: positive random features for softmax attention. Used through `model.nn.attention`."""

import math

import torch
from torch import Tensor

from model.config.attentions import PerformerOptions
from model.config.encoder import EncoderConfig
from model.nn.attention.base import HeadedAttention, hide_padding


class Performer(HeadedAttention):
    """Softmax attention in linear time: exp(q k) is the expectation of a product of random features.

    out = phi(Q) (phi(K)^T V) / (phi(Q) phi(K)^T 1),  phi(x) = exp(W x - |x|^2 / 2), x scaled by D^(-1/4)    O(N m C)

    Shape:      W (m, D), orthogonal in blocks of D rows; 1 (N,), all ones.
    Reference:  Choromanski et al. 2020, arXiv:2009.14794 (FAVOR+).
    Deviates:   features are drawn once and saved with the model. Computed as softmax(log phi(Q) + s) softmax(log
                phi(K)^T) V with s = log sum_n phi(k_n), which is equivalent and neither overflows nor divides by zero.
    """

    features: Tensor

    def __init__(self, config: EncoderConfig, generator: torch.Generator) -> None:
        super().__init__(config, generator)
        options = config.options_of(PerformerOptions)
        self.scale = config.head_dim**-0.25
        self.register_buffer("features", orthogonal_features(options.num_features, config.head_dim, generator))

    def mix(self, q: Tensor, k: Tensor, v: Tensor, lengths: Tensor, mask: Tensor | None) -> Tensor:
        """Attend within each head: q, k, v (B, H, N, D) -> (B, H, N, D)."""
        del lengths
        k_logs = hide_padding(self._logs(k).transpose(2, 3), mask)  # (B, H, m, N)
        weights = torch.softmax(self._logs(q) + torch.logsumexp(k_logs, dim=-1).unsqueeze(2), dim=-1)  # (B, H, N, m)
        return self.dropout(weights) @ (torch.softmax(k_logs, dim=-1) @ v)  # type: ignore[no-any-return]

    def _logs(self, x: Tensor) -> Tensor:
        """Logarithms of the random features: (B, H, N, D) -> (B, H, N, m)."""
        x = x * self.scale
        return x @ self.features.T - x.square().sum(-1, keepdim=True) / 2


def orthogonal_features(count: int, dim: int, generator: torch.Generator) -> Tensor:
    """Random directions (count, dim), orthogonal in blocks of dim, with the norms of Gaussian vectors.

    Reference:  Choromanski et al. 2020, arXiv:2009.14794 (orthogonal features).
    """
    blocks = [torch.linalg.qr(torch.randn(dim, dim, generator=generator))[0].T for _ in range(math.ceil(count / dim))]
    lengths = torch.randn(count, dim, generator=generator).norm(dim=1, keepdim=True)
    return torch.cat(blocks)[:count] * lengths  # type: ignore[no-any-return]
