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


def test_zeros_are_no_onnx_file(tmp_path: Path) -> None:
    """Read as fields without a number, each byte of a large file would be visited."""
    (tmp_path / "model.onnx").write_bytes(bytes(1000))
    with pytest.raises(BadExport, match="not an ONNX file"):
        refuse_external_data(tmp_path / "model.onnx")


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
    with pytest.raises(BadExport, match="takes weights from") as caught:
        refuse_external_data(path)
    assert caught.value.reason == "backend"


def test_tensors_may_be_in_files_that_are_covered(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(PLACES["branch of a branch"](tensor(is_external=True)).SerializeToString())
    refuse_external_data(path, {"v.bin", "w.bin"})
    with pytest.raises(BadExport, match="takes weights from"):
        refuse_external_data(path, {"v.bin"})


@pytest.mark.parametrize("places", [[], ["w.bin", "w.bin"], ["w.bin", "/etc/passwd"], ["../w.bin"], ["W.bin"]])
def test_unclear_place_of_a_tensor_is_rejected(tmp_path: Path, places: list[str]) -> None:
    made = tensor(is_external=True)
    del made.external_data[:]
    for place in places:
        made.external_data.add(key="location", value=place)
    (tmp_path / "model.onnx").write_bytes(PLACES["initializer"](made).SerializeToString())
    with pytest.raises(BadExport, match="takes weights from"):
        refuse_external_data(tmp_path / "model.onnx", {"w.bin"})


def test_error_shows_the_start_of_one_name(tmp_path: Path) -> None:
    model = PLACES["initializer"](tensor(is_external=True))
    for name in ("a" * 1000, "b"):
        more = tensor(is_external=True)
        more.external_data[0].value = name
        model.graph.initializer.append(more)
    (tmp_path / "model.onnx").write_bytes(model.SerializeToString())
    with pytest.raises(BadExport) as caught:
        refuse_external_data(tmp_path / "model.onnx", {"v.bin"})
    assert str(caught.value) == (
        f"model.onnx takes weights from '{'a' * 100}' and 2 more; allowed: the file itself or v.bin"
    )


def field(number: int, value: bytes | int) -> bytes:
    """A protobuf field, short enough for lengths of one byte."""
    if isinstance(value, int):
        return bytes([number << 3, value])
    return bytes([number << 3 | 2, len(value)]) + value


COVERED = field(1, b"location") + field(2, b"w.bin")
EVIL = field(1, b"location") + field(2, b"evil.bin")


@pytest.mark.parametrize(
    "fields",
    [
        field(14, COVERED) + field(13, EVIL + field(1, 0)) + field(14, 1),
        field(13, COVERED) + field(13, EVIL + field(1, 0)) + field(14, 1),
        field(13, field(2, b"evil.bin") + field(1, b"location")) + field(14, 1),
        field(13, EVIL + COVERED) + field(14, 1),
        field(13, 1) + field(14, 1),
        field(13, b"") + field(14, 1),
    ],
)
def test_entry_that_parsers_read_differently_is_rejected(tmp_path: Path, fields: bytes) -> None:
    """Other parsers skip a field of another type, and take the last of several."""
    initializer = field(8, b"w") + field(1, 2) + field(2, 1) + fields
    (tmp_path / "model.onnx").write_bytes(field(7, field(5, initializer)))
    with pytest.raises(BadExport, match="not an ONNX file"):
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
        covered = {"model.fixed.onnx": {"model.onnx"}, "model.float16.fixed.onnx": {"model.onnx", "model.float16.onnx"}}
        covered["model.float16.onnx"] = {"model.onnx"}
        refuse_external_data(path, covered.get(path.name, ()))


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
    with pytest.raises(BadExport, match="not an ONNX file"):
        refuse_external_data(tmp_path / "model.onnx")
