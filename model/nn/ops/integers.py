"""Operations on integers that become few ONNX operators. Used by `model.nn`."""

from torch import Tensor


def lookup(table: Tensor, index: Tensor) -> Tensor:
    """table[index] for any shape of index. ONNX: Gather, which is faster than the GatherND of indexing."""
    return table.index_select(0, index.flatten()).reshape(index.shape + table.shape[1:])


def divide(x: Tensor, y: Tensor | int) -> Tensor:
    """Quotient x // y of int64 0 <= x < 2^52 and y > 0, by division in float64, which is exact after truncation.

    ONNX: three or four operators instead of eight. The exporter computes integer division with `rounding_mode="trunc"`
    in float32, which is wrong above 2^24.
    """
    return (x.double() / y).long()
