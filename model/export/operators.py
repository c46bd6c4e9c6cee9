"""Operators that ONNX Runtime and PyTorch compute on CUDA. Used by `model.export.graphs`.

ONNX Runtime computes a node without a CUDA kernel on the CPU: each batch then waits for copies of inputs and outputs.
PyTorch raises an error for a tensor on the CPU, unless it is a number that arithmetic combines with a tensor on CUDA.
"""

import warnings
from pathlib import Path
from typing import Any

import onnx
import torch
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
            "operator, or add it to model/export/operators.py"
        )


ARITHMETIC = frozenset({f"aten::{name}" for name in ("add", "div", "floor_divide", "mul", "sub")})
"""Operators that combine a tensor on CUDA with a number (a tensor of rank 0) on the CPU."""
OF_FLOATS = frozenset({"aten::fmod", "aten::remainder"})
"""Operators that PyTorch's fuser without profiling does not compile for integers on CUDA."""


def check_script(path: Path) -> None:
    """Check that CUDA computes every node of a traced TorchScript file, and in float32.

    Tracing stores numbers and sizes as tensors of rank 0 on the CPU, and whether convolutions may use TF32.

    Raises: UserError naming the first operator that it does not.

    """
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", r"`torch\.jit\.\w+` is deprecated", DeprecationWarning)
        graph: Any = torch.jit.load(path, map_location="cpu").inlined_graph
    numbers = set[str]()  # values that are numbers on the CPU
    for node in graph.nodes():
        name, tensors = node.kind(), [value for value in node.inputs() if value.type().kind() == "TensorType"]
        are_numbers = [value.debugName() in numbers for value in tensors]
        if _is_number(node) or (tensors and all(are_numbers)):
            numbers |= {value.debugName() for value in node.outputs()}
        elif any(are_numbers) and name not in ARITHMETIC:
            raise UserError(f"{path.name}: {name} gets a number on the CPU: make it a tensor of its input's device")
        if name in OF_FLOATS:
            raise UserError(
                f"{path.name}: PyTorch may not compile {name} of integers on CUDA; use model.nn.ops.integers"
            )
        if name == "aten::_convolution" and list(node.inputs())[-1].toIValue():
            raise UserError(f"{path.name}: {name} may use TF32: trace it with torch.backends.cudnn.allow_tf32 off")


def _is_number(node: Any) -> bool:
    """Whether a node's output is a number on the CPU: a size, or a constant of rank 0."""
    if node.kind() == "prim::NumToTensor":
        return True
    is_tensor = node.kind() == "prim::Constant" and node.output().type().kind() == "TensorType"
    return bool(is_tensor and node.t("value").ndim == 0)
