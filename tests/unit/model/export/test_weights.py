"""Weights that a file takes from an ONNX file."""

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper
from torch import nn

from artifact.backends.torchscript import SHARED, SHARED_TENSORS, load_module, tensor_constants
from model.export.weights import SMALLEST, leave_out_computable, share_constants, share_weights
from tests.support.exported import repeated_weights

TRACED = pytest.mark.filterwarnings(r"ignore:`torch\.jit\.\w+` is deprecated:DeprecationWarning")
LARGE = np.arange(SMALLEST, dtype=np.float32)
SMALL = np.array([2.0], np.float32)


def write(path: Path, operator: str, **weights: np.ndarray) -> None:
    """Write y = operator(operator(x, weight), ...)."""
    nodes, last = [], "x"
    for name in weights:
        nodes.append(helper.make_node(operator, [last, name], [f"{name}_out"]))
        last = f"{name}_out"
    first, *inner, final = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, [None])
        for name in ("x", *(output for node in nodes for output in node.output))
    ]
    initializers = [numpy_helper.from_array(array, name) for name, array in weights.items()]
    opset = [helper.make_opsetid("", 18)]
    graph = helper.make_graph(nodes, "g", [first], [final], initializers, value_info=inner)
    path.write_bytes(helper.make_model(graph, opset_imports=opset, ir_version=9).SerializeToString())


def test_tables_of_one_value_and_types_are_left_out(tmp_path: Path) -> None:
    path, twos = tmp_path / "model.onnx", np.full(SMALLEST, 2, np.float32)
    write(path, "Add", w=LARGE, twos=twos, few=SMALL)
    x = np.array([1.0], np.float32)
    (before,) = onnxruntime.InferenceSession(path).run(None, {"x": x})
    assert onnx.load(path).graph.value_info
    leave_out_computable(path)
    onnx.checker.check_model(onnx.load(path), full_check=True)
    assert path.stat().st_size < LARGE.nbytes + 1024
    graph = onnx.load(path).graph
    assert [tensor.name for tensor in graph.initializer] == ["w", "few", "twos_shape"]
    assert not graph.value_info
    (after,) = onnxruntime.InferenceSession(path).run(None, {"x": x})
    assert np.array_equal(after, before)


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


class Products(nn.Module):
    """x w + a column of w + another column times a number; freezing computes the last product."""

    w: torch.Tensor
    b: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("w", torch.from_numpy(LARGE.reshape(32, 32)))
        self.register_buffer("b", torch.from_numpy(SMALL))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x @ self.w + self.w[:, 3] + self.w[:, 5] * self.b


@TRACED
def test_constants_are_read_from_the_onnx_file(tmp_path: Path) -> None:
    """Also parts of a constant, which freezing makes constants of their own in the same storage."""
    write(tmp_path / "model.onnx", "Add", w=LARGE)
    x, product = torch.ones(2, 32), Products()
    frozen = torch.jit.freeze(torch.jit.trace(product.eval(), x))
    shared, path = share_constants(frozen, tmp_path / "model.onnx"), tmp_path / "model.ts"
    torch.jit.save(frozen, path, _extra_files={SHARED: SHARED_TENSORS.dump_json(shared)})
    assert {tensor.length for tensor in shared} == {LARGE.nbytes}
    assert repeated_weights(path) == []
    module = load_module(path, "cpu")
    assert torch.equal(module(x), product(x))
    storages = [node.t("value").untyped_storage() for node in tensor_constants(module)]
    large = [storage.data_ptr() for storage in storages if storage.nbytes() == LARGE.nbytes]
    assert (len(large), len(set(large))) == (len(shared), 1)


@TRACED
def test_constants_that_the_onnx_file_lacks_stay(tmp_path: Path) -> None:
    write(tmp_path / "model.onnx", "Add", w=LARGE + 1)
    x, product = torch.ones(2, 32), Products()
    frozen = torch.jit.freeze(torch.jit.trace(product.eval(), x))
    assert share_constants(frozen, tmp_path / "model.onnx") == ()
    assert torch.equal(frozen(x), product(x))


class Transposed(nn.Module):
    """A product with a matrix that the ONNX file holds transposed."""

    w: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("w", torch.from_numpy(LARGE.reshape(16, 64).T.copy()))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x @ self.w


@TRACED
def test_matrices_that_the_onnx_file_holds_transposed_are_read_from_it(tmp_path: Path) -> None:
    write(tmp_path / "model.onnx", "Add", w=LARGE)
    x, product = torch.ones(2, 64), Transposed()
    frozen = torch.jit.freeze(torch.jit.trace(product.eval(), x))
    shared, path = share_constants(frozen, tmp_path / "model.onnx"), tmp_path / "model.ts"
    torch.jit.save(frozen, path, _extra_files={SHARED: SHARED_TENSORS.dump_json(shared)})
    assert [(tensor.shape, tensor.stride) for tensor in shared] == [((64, 16), (1, 64))]
    assert torch.equal(load_module(path, "cpu")(x), product(x))
