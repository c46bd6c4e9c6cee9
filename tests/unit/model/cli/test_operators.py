"""Operators of exported graphs that CUDA computes."""

from pathlib import Path

import onnx
import pytest
from onnx import NodeProto, TensorProto, helper

from artifact.manifest import version_folder
from model.cli.operators import check_operators
from model.errors import UserError
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


def write(path: Path, node: NodeProto, datatype: int) -> None:
    """Write a graph of one node, x (2, 2) and pads (4,) -> y."""
    x = helper.make_tensor_value_info("x", datatype, [2, 2])
    pads = helper.make_tensor_value_info("pads", TensorProto.INT64, [4])
    y = helper.make_tensor_value_info("y", datatype, None)
    graph = helper.make_graph([node], "graph", [x, pads], [y])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)]), path)
