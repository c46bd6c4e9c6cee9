"""Skyformer: kernelized attention by the Nystrom method on a symmetric matrix. Used through `model.nn.attention`."""

import torch
from torch import Tensor

from model.config.attentions import SkyformerOptions
from model.config.encoder import EncoderConfig
from model.nn.attention.base import HeadedAttention, take_tokens, zero_padding
from model.nn.attention.kernelized import gaussian_kernel
from model.nn.ops.inverse import apply_iterative_inverse, identity_like


class Skyformer(HeadedAttention):
    """Kernelized attention through landmarks L among the rows of [Q; K].

    out = kappa(Q, L) (M + gamma I)^-1 kappa(L, K) V,  M = kappa(L, L)    O(N d C)

    M is symmetric and positive, which kappa(Q, K) itself is not: the Nystrom method needs that.

    Reference:  Chen et al. 2021, arXiv:2111.00035, sec. 4.2, eqs. (4) to (6); inverse: sec. 4.4, Lemma 3.
    Deviates:   landmarks are drawn once, without replacement, half of them queries and half keys, and are part of the
                model (the published code draws again in every forward); they lie among the real tokens, at the same
                relative place in every length.
                The iteration starts from I, which Lemma 3 allows; the published code's start depends on the whole
                batch, and so would answers: test_answer_does_not_depend_on_neighbours. Lemma 3 says that singular
                values are below 1; the largest is 1, test_lemma_3.
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
        """Mix (B, H, N, D) three times -> (B, H, N, D)."""
        queries = take_tokens(q, self._tokens(self.query_places, lengths))
        landmarks = torch.cat((queries, take_tokens(k, self._tokens(self.key_places, lengths))), dim=2)  # (B, H, d, D)
        values = gaussian_kernel(landmarks, k) @ zero_padding(v, mask)  # (B, H, d, D)
        exact = landmarks.double()  # rounding errors are multiplied by up to 1 / gamma
        matrix = gaussian_kernel(exact, exact)
        values = solve_regularised(matrix, values.double(), self.gamma, self.num_steps).to(q.dtype)
        return self.dropout(gaussian_kernel(q, landmarks)) @ values  # type: ignore[no-any-return]

    def _tokens(self, places: Tensor, lengths: Tensor) -> Tensor:
        """Tokens (B, d) at these places of seq_len, among the real ones."""
        return places * lengths.long().unsqueeze(1) // self.seq_len


def solve_regularised(matrix: Tensor, values: Tensor, gamma: float, num_steps: int) -> Tensor:
    """Approximate A^-1 x, A = M + gamma I, as D^(-1/2) (D^(-1/2) A D^(-1/2))^-1 D^(-1/2) x, D = diag(A 1).

    Shape:      matrix M (..., d, d), symmetric, positive, of entries that are not negative; values x (..., d, D), as is
                returned.
    Reference:  Chen et al. 2021, arXiv:2111.00035, sec. 4.4, Lemma 3.
    """
    balanced, scale = balance(matrix, gamma)
    return scale * apply_iterative_inverse(identity_like(matrix) - balanced, scale * values, num_steps)


def balance(matrix: Tensor, gamma: float) -> tuple[Tensor, Tensor]:
    """Lemma 3's D^(-1/2) (M + gamma I) D^(-1/2), whose singular values are in (0, 1], and the diagonal D^(-1/2).

    Shape:      matrix M (..., d, d); returns (..., d, d) and (..., d, 1).
    """
    matrix = matrix + gamma * identity_like(matrix)
    scale = torch.rsqrt(matrix.sum(-1, keepdim=True))
    return scale * matrix * scale.transpose(-2, -1), scale
