"""ONNX files with external tensors anywhere in the file; the onnx package writes them."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx
import pytest
from onnx import TensorProto, helper

from artifact.backends.external import PARTS, Message, refuse_external_data
from artifact.errors import BadExport
from tests.support.paths import EXPORTS


def tensor(*, is_external: bool) -> TensorProto:
    made = helper.make_tensor("w", TensorProto.FLOAT, [2], [1.0, 2.0])
    if is_external:
        made.ClearField("float_data")
        made.data_location = TensorProto.EXTERNAL
        made.external_data.add(key="location", value="w.bin")
    return made


def graph(*nodes: onnx.NodeProto, initializers: tuple[TensorProto, ...] = ()) -> onnx.GraphProto:
    return helper.make_graph(list(nodes), "g", [], [], list(initializers))


def branching(inner: onnx.GraphProto) -> onnx.NodeProto:
    return helper.make_node("If", ["c"], ["y"], then_branch=inner, else_branch=graph())


def with_function(made: TensorProto) -> onnx.ModelProto:
    node = helper.make_node("Constant", [], ["y"], value=made)
    opset = helper.make_opsetid("", 18)
    return helper.make_model(graph(), functions=[helper.make_function("d", "f", [], ["y"], [node], [opset])])


def with_sparse(made: TensorProto) -> onnx.ModelProto:
    model = helper.make_model(graph())
    indices = helper.make_tensor("i", TensorProto.INT64, [2], [0, 1])
    model.graph.sparse_initializer.append(onnx.SparseTensorProto(values=made, indices=indices, dims=[4]))
    return model


def with_training(made: TensorProto) -> onnx.ModelProto:
    model = helper.make_model(graph())
    model.training_info.add().algorithm.CopyFrom(graph(initializers=(made,)))
    return model


PLACES: dict[str, Callable[[TensorProto], onnx.ModelProto]] = {
    "initializer": lambda made: helper.make_model(graph(initializers=(made,))),
    "constant": lambda made: helper.make_model(graph(helper.make_node("Constant", [], ["y"], value=made))),
    "branch": lambda made: helper.make_model(graph(branching(graph(initializers=(made,))))),
    "branch of a branch": lambda made: helper.make_model(
        graph(branching(graph(branching(graph(initializers=(made,))))))
    ),
    "function": with_function,
    "sparse": with_sparse,
    "training": with_training,
}


@pytest.mark.parametrize("place", PLACES)
def test_external_tensor_is_rejected_wherever_it_occurs(tmp_path: Path, place: str) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(PLACES[place](tensor(is_external=False)).SerializeToString())
    refuse_external_data(path)
    path.write_bytes(PLACES[place](tensor(is_external=True)).SerializeToString())
    with pytest.raises(BadExport, match=r"^model\.onnx keeps weights in another file") as caught:
        refuse_external_data(path)
    assert caught.value.reason == "backend"


def test_tensors_may_be_in_files_that_are_covered(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(PLACES["branch of a branch"](tensor(is_external=True)).SerializeToString())
    refuse_external_data(path, {"v.bin", "w.bin"})
    with pytest.raises(BadExport, match="keeps weights in another file"):
        refuse_external_data(path, {"v.bin"})


@pytest.mark.parametrize("places", [[], ["w.bin", "w.bin"], ["w.bin", "/etc/passwd"], ["../w.bin"], ["W.bin"]])
def test_unclear_place_of_a_tensor_is_rejected(tmp_path: Path, places: list[str]) -> None:
    made = tensor(is_external=True)
    del made.external_data[:]
    for place in places:
        made.external_data.add(key="location", value=place)
    (tmp_path / "model.onnx").write_bytes(PLACES["initializer"](made).SerializeToString())
    with pytest.raises(BadExport, match="keeps weights in another file"):
        refuse_external_data(tmp_path / "model.onnx", {"w.bin"})


def test_every_message_type_that_contains_tensors_is_listed() -> None:
    """Compared with the descriptors of the onnx package."""
    kinds: dict[Message, Any] = {
        "model": onnx.ModelProto,
        "training": onnx.TrainingInfoProto,
        "graph": onnx.GraphProto,
        "function": onnx.FunctionProto,
        "node": onnx.NodeProto,
        "attribute": onnx.AttributeProto,
        "sparse": onnx.SparseTensorProto,
        "tensor": onnx.TensorProto,
    }
    names = {kind.DESCRIPTOR.name: name for name, kind in kinds.items()}
    for name, kind in kinds.items():
        found = {
            field.number: names[field.message_type.name]
            for field in kind.DESCRIPTOR.fields
            if field.message_type is not None and field.message_type.name in names
        }
        assert found == PARTS[name], name


def test_files_of_the_repository_are_accepted() -> None:
    paths = sorted(EXPORTS.rglob("*.onnx"))
    assert paths
    for path in paths:
        refuse_external_data(path, {"model.onnx"} if path.name == "model.fixed.onnx" else ())


@pytest.mark.parametrize(
    "content",
    [
        b"no model",
        b"\x3a\x05\x0a",  # a truncated graph
        b"\xff" * 11,  # an integer without an end
        b"\x80\x80\x80\x80\x10",  # a field number of 33 bits
        b"\x0b\x0c",  # a group, which ONNX does not have
    ],
)
def test_file_that_is_not_onnx_is_rejected(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "model.onnx").write_bytes(content)
    with pytest.raises(BadExport, match=r"^model\.onnx cannot be loaded: it is not an ONNX file$"):
        refuse_external_data(tmp_path / "model.onnx")
