"""Tower of a matcher: learned from pairs, on the vectors of the lexical view. Used by `model.nn.lexical`."""

import math

import torch
from torch import Tensor, nn

from model.config.models import LexicalViewConfig, TowerConfig


class Tower(nn.Module):
    """Vectors of a document's lexical view -> one vector, with a mean square of 1.

    x = scale (u - mean);  y = W x + b + W_2 gelu(W_1 x);  out = sqrt(dim) y / |y|

    `standardise` computes `mean` and `scale` from training documents. Initially, W adds the first dimensions of the
    vectors in u, and W_2 is zero, so that the product of two outputs is the sum of the products of the vectors.

    Shape:      u (B, P * D), for P vectors of D dimensions, those of the largest singular values first; returns
                (B, dim).
    Reference:  one tower for both texts, trained on pairs: Huang et al. 2013, "Learning deep structured semantic
                models for web search using clickthrough data", CIKM.
    Deviates:   the linear term W x; the input is a projection of TF-IDF, not of letter trigrams.
    """

    mean: Tensor
    scale: Tensor

    def __init__(self, config: TowerConfig, num_vectors: int, dim: int) -> None:
        super().__init__()
        size = num_vectors * dim
        self.dropout = nn.Dropout(config.dropout)
        self.linear = nn.Linear(size, config.dim)
        nn.init.zeros_(self.linear.bias)
        last = nn.Linear(config.hidden_dim, config.dim, bias=False)
        nn.init.zeros_(last.weight)
        self.mlp = nn.Sequential(nn.Linear(size, config.hidden_dim), nn.GELU(), nn.Dropout(config.dropout), last)
        first = torch.eye(config.dim, dim).repeat(1, num_vectors)  # (config.dim, size)
        with torch.no_grad():
            self.linear.weight.copy_(first / math.sqrt(num_vectors))
        self.register_buffer("mean", torch.zeros(size))
        self.register_buffer("scale", torch.ones(()))

    def forward(self, u: Tensor) -> Tensor:
        """Transform (B, P * D) -> (B, dim)."""
        x = self.dropout((u - self.mean) * self.scale)
        y = self.linear(x) + self.mlp(x)
        return y * torch.rsqrt(y.square().mean(dim=1, keepdim=True) + 1e-6)  # type: ignore[no-any-return]

    @torch.no_grad()
    def standardise(self, u: Tensor) -> None:
        """Compute mean and scale from the vectors (B, P * D) of training documents."""
        self.mean.copy_(u.mean(dim=0))
        self.scale.copy_(1 / u.std(dim=0).mean().clamp(min=1e-6))


class TowerHead(nn.Module):
    """Logit that two documents match: weights of the products of their vectors, which have length 1.

    Shape:      a, b (B, dim); returns (B, 1).
    """

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.full((dim,), 8.0))
        self.bias = nn.Parameter(torch.full((1,), -1.0))

    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        """Logit (B, 1) of the vectors a and b, both (B, dim)."""
        return ((a * b) @ self.weight + self.bias).unsqueeze(-1)

    def between(self, a: Tensor, b: Tensor) -> Tensor:
        """Logits (P, Q) of each of the vectors a (P, dim) with each of b (Q, dim)."""
        return (a * self.weight) @ b.T + self.bias


class TowerMatcher(nn.Module):
    """Tower and head as they are trained, on vectors of the lexical view instead of bytes."""

    def __init__(self, config: LexicalViewConfig) -> None:
        super().__init__()
        assert config.tower is not None
        self.tower = Tower(config.tower, config.num_vectors, config.dim)
        self.head = TowerHead(config.tower.dim)

    def forward(self, windows: Tensor, document: Tensor) -> Tensor:
        """Vectors (U, dim) of length 1, means over windows: (W, P * D), and the document (W,) of each, ascending."""
        vectors = self.tower(windows)
        total = torch.zeros(int(document[-1]) + 1, vectors.shape[1], device=vectors.device)
        return nn.functional.normalize(total.index_add(0, document, vectors), dim=1)
