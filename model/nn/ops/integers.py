"""Operations on integers that become single ONNX operators. Used by `model.nn`."""

import torch
from torch import Tensor


def lookup(table: Tensor, index: Tensor) -> Tensor:
    """table[index] for any shape of index. ONNX: Gather, which is faster than the GatherND of indexing."""
    return table.index_select(0, index.flatten()).reshape(index.shape + table.shape[1:])


def divide(x: Tensor, y: Tensor | int) -> Tensor:
    """X // y for integers x >= 0 and y > 0. ONNX: Div; rounding towards minus infinity takes seven operators more."""
    return torch.div(x, y, rounding_mode="trunc")
