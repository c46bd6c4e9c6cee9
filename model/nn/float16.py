"""Encoder blocks that compute in float16, for export. Used by `model.tasks.graphs`."""

import copy

import torch
from torch import Tensor, nn

from model.nn.encoder import Blocks


class Float16Blocks(nn.Module):
    """A copy of encoder blocks with weights and activations in float16; its input and output are in float32.

    Shape:      x (B, N, C) float32; lengths (B,), as in Attention; returns (B, N, C) float32.
    Reference:  mixed precision: Micikevicius et al. 2018, arXiv:1710.03740.
    Deviates:   that paper stores the results of normalisation and softmax in float32; here they are in float16.
    """

    def __init__(self, blocks: Blocks) -> None:
        super().__init__()
        self.blocks = copy.deepcopy(blocks).half()

    def forward(self, x: Tensor, lengths: Tensor | None = None) -> Tensor:
        """Transform (B, N, C) -> (B, N, C)."""
        return self.blocks(x.half(), lengths).to(torch.float32)  # type: ignore[no-any-return]  # nn.Module.__call__


def with_float16_blocks(module: nn.Module) -> nn.Module | None:
    """A copy of a model whose blocks compute in float16 and everything else in float32; None if it has no blocks."""
    other = copy.deepcopy(module)
    places = [
        (parent, name, child)
        for parent in other.modules()
        for name, child in parent.named_children()
        if isinstance(child, Blocks) and len(child) > 0
    ]
    for parent, name, blocks in places:
        setattr(parent, name, Float16Blocks(blocks))
    return other if places else None
