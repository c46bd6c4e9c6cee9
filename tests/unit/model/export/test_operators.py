"""Operators of exported graphs that CUDA computes."""

import warnings
from collections.abc import Callable
from pathlib import Path

import onnx
import pytest
import torch
from onnx import NodeProto, TensorProto, helper
from torch import Tensor, nn

from artifact.exports import version_folder
from model.errors import UserError
from model.export.operators import check_operators, check_script
from tests.support.exported import files_for_cuda
from tests.support.paths import EXPORTS


@pytest.mark.parametrize("path", files_for_cuda(), ids=lambda path: "-".join(path.parts[-3:]))
def test_shipped_graphs_are_computed_on_cuda(path: Path) -> None:
    check_operators(path)


def test_sum_in_int8_is_not_computed_on_cuda() -> None:
    """The matcher has a separate file for CUDA because of this."""
    folder = version_folder(EXPORTS / "aan")
    assert folder / "model.fixed.onnx" in files_for_cuda()
    assert folder / "model.onnx" not in files_for_cuda()
    with pytest.raises(UserError, match="not known to compute MatMulInteger on CUDA"):
        check_operators(folder / "model.onnx")


@pytest.mark.parametrize(
    ("operator", "datatype", "message"),
    [
        ("Pad", TensorProto.INT64, r"compute Pad of INT64 on CUDA \(node first\)"),
        ("Det", TensorProto.FLOAT, r"compute Det on CUDA \(node first\)"),
    ],
)
def test_operator_that_cuda_does_not_compute_is_an_error(
    tmp_path: Path, operator: str, datatype: int, message: str
) -> None:
    inputs = ["x", "pads"] if operator == "Pad" else ["x"]
    write(tmp_path / "model.onnx", helper.make_node(operator, inputs, ["y"], name="first"), datatype)
    with pytest.raises(UserError, match=rf"^model\.onnx: ONNX Runtime is not known to {message}; use another operator"):
        check_operators(tmp_path / "model.onnx")


def test_padding_of_floats_is_computed(tmp_path: Path) -> None:
    write(tmp_path / "model.onnx", helper.make_node("Pad", ["x", "pads"], ["y"], name="first"), TensorProto.FLOAT)
    check_operators(tmp_path / "model.onnx")


class Traced(nn.Module):
    """A module of one function of x (2, 5)."""

    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        """Call the function."""
        return self.function(x)


def traced(path: Path, function: Callable[[Tensor], Tensor], x: Tensor) -> Path:
    """Trace a function as a TorchScript file."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        torch.jit.save(torch.jit.freeze(torch.jit.trace(Traced(function).eval(), x)), path / "model.ts")
    return path / "model.ts"


IMAGE, WHOLE = torch.randn(2, 3, 5), torch.arange(10).reshape(2, 5)


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda x: x.clamp(max=x.shape[1] - 1), "aten::clamp gets a number on the CPU"),
        (lambda x: x % 3, "may not compile aten::remainder of integers on CUDA"),
        (lambda x: torch.fmod(x, 3), "may not compile aten::fmod of integers on CUDA"),
    ],
)
def test_traced_operator_that_cuda_does_not_compute_is_an_error(
    tmp_path: Path, function: Callable[[Tensor], Tensor], message: str
) -> None:
    with pytest.raises(UserError, match=rf"^model\.ts: .*{message}"):
        check_script(traced(tmp_path, function, WHOLE))


def test_traced_arithmetic_with_sizes_is_computed(tmp_path: Path) -> None:
    check_script(traced(tmp_path, lambda x: (x + x.shape[1] * 2 - 1) // 3 + x[:, : x.shape[1] // 2].sum(), WHOLE))


def test_traced_convolution_must_not_use_tf32(tmp_path: Path) -> None:
    weight = torch.randn(4, 3, 3)
    with pytest.raises(UserError, match="aten::_convolution may use TF32"):
        check_script(traced(tmp_path, lambda x: nn.functional.conv1d(x, weight), IMAGE))
    with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
        check_script(traced(tmp_path, lambda x: nn.functional.conv1d(x, weight), IMAGE))


def write(path: Path, node: NodeProto, datatype: int) -> None:
    """Write a graph of one node, x (2, 2) and pads (4,) -> y."""
    x = helper.make_tensor_value_info("x", datatype, [2, 2])
    pads = helper.make_tensor_value_info("pads", TensorProto.INT64, [4])
    y = helper.make_tensor_value_info("y", datatype, None)
    graph = helper.make_graph([node], "graph", [x, pads], [y])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)]), path)
