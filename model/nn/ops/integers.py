"""Operations on integers that become few ONNX operators. Used by `model.nn`."""

import torch
from torch import Tensor

SPARE = 4096
"""Number of spare places of `spread`."""


def lookup(table: Tensor, index: Tensor) -> Tensor:
    """table[index] for any shape of index. ONNX: Gather alone, which is faster than the GatherND of indexing.

    The exporter writes a Reshape before the Gather of `index_select`, and two Reshapes more unless the index is flat.
    """
    if torch.onnx.is_in_onnx_export():
        shape = (*index.shape, *table.shape[1:])
        return torch.onnx.ops.symbolic("::Gather", (table, index), {"axis": 0}, dtype=table.dtype, shape=shape)
    if index.ndim == 1:
        return table.index_select(0, index)
    return table.index_select(0, index.flatten()).reshape(index.shape + table.shape[1:])


def take(x: Tensor, index: Tensor) -> Tensor:
    """Rows of matrices: x (B, N, C), index (B, m) -> (B, m, C). ONNX: GatherND, which copies whole rows."""
    if torch.onnx.is_in_onnx_export():
        inputs, shape = (x, index.unsqueeze(2)), (*index.shape, x.shape[2])
        return torch.onnx.ops.symbolic("::GatherND", inputs, {"batch_dims": 1}, dtype=x.dtype, shape=shape)
    return x.gather(1, index.unsqueeze(2).expand(-1, -1, x.shape[2]))


def divide(x: Tensor, y: Tensor | int) -> Tensor:
    """Quotient x // y of int64 0 <= x < 2^52 and y > 0, by division in float64, which is exact after truncation.

    ONNX: three or four operators instead of eight. The exporter computes integer division with `rounding_mode="trunc"`
    in float32, which is wrong above 2^24.
    """
    return (x.double() / y).long()


def remainder(x: Tensor, y: Tensor | int) -> Tensor:
    """Remainder x mod y of int64 x and y > 0, in 0 ... y - 1. ONNX: Mod.

    TorchScript: from the quotient, or bits if y is a power of two. PyTorch's fuser without profiling computes the
    remainder of integers with `fmod`, which CUDA does not compile.
    """
    if not torch.jit.is_tracing():  # type: ignore[attr-defined,no-untyped-call]
        return x % y
    if isinstance(y, int) and y & (y - 1) == 0:
        return x & (y - 1)
    return x - torch.div(x, y, rounding_mode="floor") * y


def sum_rows(x: Tensor, *, in_int8: bool) -> Tensor:
    """Sum of int8 rows: (M, K, C) -> (M, C) float32. The sum is exact for K up to 2^16.

    Args:
        x: the rows.
        in_int8: whether the ONNX graph multiplies by a row of ones in int8 (MatMulInteger). This needs no float32 copy
            of the rows, but has no CUDA kernel.

    """
    if not (in_int8 and torch.onnx.is_in_onnx_export()):
        return x.float().sum(1)
    ones = torch.ones(1, x.shape[1], dtype=torch.uint8)
    shape = (x.shape[0], 1, x.shape[2])
    return torch.onnx.ops.symbolic("::MatMulInteger", (ones, x), dtype=torch.int32, shape=shape).squeeze(1).float()


def as_tensor(size: int, like: Tensor) -> Tensor:
    """A size as a tensor (1,) on the device of another one.

    ONNX: Range, whose output is on the device. A size itself is computed on the CPU: to use it as a number, CUDA would
    copy it in every batch. TorchScript: a size is a tensor on the CPU, which only arithmetic combines with one on CUDA.
    """
    return torch.arange(size, size + 1, device=like.device)


def spread(place: Tensor, is_used: Tensor, first: int) -> Tensor:
    """Replace the places (M,) that are not used by first ... first + SPARE - 1, in rotation.

    On CUDA, `index_add` into one element is serialised; spreading the unused places avoids this.
    """
    spare = as_tensor(first, place) + remainder(torch.arange(place.shape[0], device=place.device), SPARE)
    return torch.where(is_used, place, spare)
