"""Weights that an ONNX file takes from another one."""

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from artifact.backends.external import refuse_external_data
from artifact.errors import BadExport
from model.cli.weights import SMALLEST, share_weights

LARGE = np.arange(SMALLEST, dtype=np.float32)
SMALL = np.array([2.0], np.float32)


def write(path: Path, operator: str, **weights: np.ndarray) -> None:
    """Write y = operator(operator(x, weight), ...)."""
    nodes, last = [], "x"
    for name in weights:
        nodes.append(helper.make_node(operator, [last, name], [f"{name}_out"]))
        last = f"{name}_out"
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [None]) for name in ("x", last)]
    initializers = [numpy_helper.from_array(array, name) for name, array in weights.items()]
    opset = [helper.make_opsetid("", 18)]
    graph = helper.make_graph(nodes, "g", values[:1], values[1:], initializers)
    path.write_bytes(helper.make_model(graph, opset_imports=opset, ir_version=9).SerializeToString())


def test_shared_weights_are_read_from_the_other_file(tmp_path: Path) -> None:
    first, second = tmp_path / "model.onnx", tmp_path / "model.fixed.onnx"
    write(first, "Add", b=SMALL, w=LARGE)
    write(second, "Mul", v=LARGE, b=SMALL, own=LARGE + 1)
    size = second.stat().st_size
    share_weights(second, first)
    assert size - second.stat().st_size > 0.9 * LARGE.nbytes
    stored = {
        tensor.name: bool(tensor.external_data)
        for tensor in onnx.load(second, load_external_data=False).graph.initializer
    }
    assert stored == {"v": True, "b": False, "own": False}
    session = onnxruntime.InferenceSession(second, providers=["CPUExecutionProvider"])
    (found,) = session.run(None, {"x": np.ones_like(LARGE)})
    assert np.array_equal(found, LARGE * 2 * (LARGE + 1))


def test_file_with_shared_weights_is_accepted_beside_the_other_one_only(tmp_path: Path) -> None:
    first, second = tmp_path / "model.onnx", tmp_path / "model.fixed.onnx"
    write(first, "Add", w=LARGE)
    write(second, "Mul", w=LARGE)
    share_weights(second, first)
    refuse_external_data(second, {"model.onnx"})
    with pytest.raises(BadExport, match="takes weights from"):
        refuse_external_data(second, {"other.onnx"})
