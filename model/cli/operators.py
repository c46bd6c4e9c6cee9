"""Operators that ONNX Runtime computes on CUDA. Used by `model.cli.export`.

A node without a CUDA kernel is computed on the CPU: each batch then waits for copies of its inputs and outputs.
"""

from pathlib import Path

import onnx
from onnx import TensorProto

from model.errors import UserError

NAMES = """
Abs Add And ArgMax ArgMin BatchNormalization Cast Ceil Clip Concat ConstantOfShape Constant Conv Cos CumSum Div
Einsum Equal Erf Exp Expand Flatten Floor Gather GatherElements GatherND Gelu Gemm Greater GreaterOrEqual Identity
LayerNormalization LeakyRelu Less LessOrEqual Log LogSoftmax MatMul Max Min Mod Mul Neg NonZero Not Or Pad Pow Range
Reciprocal ReduceL2 ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum ReduceSumSquare Relu Reshape
Round ScatterElements ScatterND Shape Sigmoid Sign Sin Size Slice Softmax Softplus Split Sqrt Squeeze Sub Sum Tanh
Tile TopK Transpose Trilu Unsqueeze Where
"""
ON_CUDA = frozenset(NAMES.split())
NO_INTEGERS = frozenset({"Pad", "ScatterND"})
"""Operators that CUDA does not compute for integers (ScatterND: if it has a reduction)."""
INTEGERS = (TensorProto.INT8, TensorProto.UINT8, TensorProto.INT32, TensorProto.INT64)


def check_operators(path: Path) -> None:
    """Check that CUDA computes every node of a graph. Raises: UserError naming the first node that it does not."""
    graph = onnx.shape_inference.infer_shapes(onnx.load(path)).graph
    types = {value.name: value.type.tensor_type.elem_type for value in (*graph.value_info, *graph.output)}
    for node in graph.node:
        datatype = types.get(node.output[0], TensorProto.UNDEFINED)
        what = node.op_type
        if what in NO_INTEGERS and datatype in INTEGERS:
            what = f"{what} of {TensorProto.DataType.Name(datatype)}"
        elif what in ON_CUDA:
            continue
        raise UserError(
            f"{path.name}: ONNX Runtime is not known to compute {what} on CUDA (node {node.name}); use another "
            "operator, or add it to model/cli/operators.py"
        )
