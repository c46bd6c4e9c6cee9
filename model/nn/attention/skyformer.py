"""Skyformer: Nystrom approximation of kernelized attention. Used through `model.nn.attention`."""

import torch
from torch import Tensor

from model.config.attentions import SkyformerOptions
from model.config.encoder import EncoderConfig
from model.nn.attention.base import HeadedAttention, take_tokens, zero_padding
from model.nn.attention.kernelized import gaussian_kernel
from model.nn.ops.inverse import apply_iterative_inverse, identity_like


class Skyformer(HeadedAttention):
    """Kernelized attention approximated with d landmarks L, sampled from the rows of [Q; K].

    out = kappa(Q, L) (M + gamma I)^-1 kappa(L, K) V,  M = kappa(L, L)    O(N d C)

    kappa is the `gaussian_kernel`. M is symmetric and positive semidefinite, as the Nystrom method requires, unlike
    kappa(Q, K).

    Reference:  Chen et al. 2021, arXiv:2111.00035, sec. 4.2, eqs. (4) to (6); inverse: sec. 4.4, Lemma 3.
    Deviates:   landmarks are drawn once, without replacement, half of them queries and half keys, and are saved with
                the model; the published code draws them in every forward pass. They are real tokens, at the same
                relative positions for every length. The iteration for the inverse starts from I, which Lemma 3 allows.
                That of the published code starts from a value of the whole batch, so that outputs depend on the other
                documents of a batch; test_answer_does_not_depend_on_neighbours. gamma is 0.01, and 0.1 in the published
                code. Lemma 3 states that all singular values are below 1, but the largest equals 1; test_lemma_3.
    """

    query_places: Tensor
    key_places: Tensor

    def __init__(self, config: EncoderConfig, generator: torch.Generator) -> None:
        super().__init__(config, generator)
        options = config.options_of(SkyformerOptions)
        self.seq_len = config.seq_len
        self.gamma, self.num_steps = options.gamma, options.num_steps
        count = options.num_landmarks
        for name, half in (("query_places", count // 2), ("key_places", count - count // 2)):
            self.register_buffer(name, torch.randperm(config.seq_len, generator=generator)[:half])

    def mix(self, q: Tensor, k: Tensor, v: Tensor, lengths: Tensor, mask: Tensor | None) -> Tensor:
        """Attend within each head: q, k, v (B, H, N, D) -> (B, H, N, D)."""
        queries = take_tokens(q, self._indices(self.query_places, lengths))
        landmarks = torch.cat((queries, take_tokens(k, self._indices(self.key_places, lengths))), dim=2)  # (B, H, d, D)
        values = gaussian_kernel(landmarks, k) @ zero_padding(v, mask)  # (B, H, d, D)
        exact = landmarks.double()  # float64: rounding errors grow by up to 1 / gamma
        matrix = gaussian_kernel(exact, exact)
        values = solve_regularised(matrix, values.double(), self.gamma, self.num_steps).to(q.dtype)
        return self.dropout(gaussian_kernel(q, landmarks)) @ values  # type: ignore[no-any-return]

    def _indices(self, places: Tensor, lengths: Tensor) -> Tensor:
        """Token indices (B, places) of positions (places,) in 0 ... seq_len - 1, scaled to the real tokens."""
        return places * lengths.long().unsqueeze(1) // self.seq_len


def solve_regularised(matrix: Tensor, values: Tensor, gamma: float, num_steps: int) -> Tensor:
    """Approximate A^-1 x, A = M + gamma I, as S (S A S)^-1 S x with the scale S = diag(A 1)^(-1/2).

    Shape:      matrix M (..., d, d), symmetric, positive semidefinite, with non-negative entries; values x (..., d, D);
                returns (..., d, D).
    Reference:  Chen et al. 2021, arXiv:2111.00035, sec. 4.4, Lemma 3.
    """
    balanced, scale = balance(matrix, gamma)
    return scale * apply_iterative_inverse(identity_like(matrix) - balanced, scale * values, num_steps)


def balance(matrix: Tensor, gamma: float) -> tuple[Tensor, Tensor]:
    """Matrix S A S, with singular values in (0, 1], and the diagonal of S; A and S are those of `solve_regularised`.

    Shape:      matrix M (..., d, d); returns (..., d, d) and (..., d, 1).
    """
    matrix = matrix + gamma * identity_like(matrix)
    scale = torch.rsqrt(matrix.sum(-1, keepdim=True))
    return scale * matrix * scale.transpose(-2, -1), scale
