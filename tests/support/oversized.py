"""Exports that would take much longer to check than others, or for ever."""

import os
from pathlib import Path

import onnx
from onnx import TensorProto, helper

from tests.support.versions import rehash

LIMITED = """
import sys
from artifact import loading
from service.__main__ import main

create = loading.create_backend

def create_backend(graph, folder, **options):
    loading.LOAD_LIMIT_S = 0.2 if "endless" in folder.parts else 3600.0
    return create(graph, folder, **options)

loading.create_backend = create_backend
sys.exit(main(sys.argv[1:]))
"""
"""The service with a short limit for models named `endless`, and none for others, however slow the machine is."""


def make_sparse(path: Path, size: int) -> None:
    """Make a file of zeros that takes no room on the disk; an existing one becomes longer."""
    with path.open("ab") as stream:
        os.truncate(stream.fileno(), size)


def make_endless(folder: Path) -> None:
    """Replace the graphs of a classifier of documents by one with a loop that never ends."""
    for name in ("model.256.onnx", "model.onnx"):
        (folder / name).unlink()
        onnx.save(endless_graph(), folder / name)
        rehash(folder, name)


def endless_graph() -> onnx.ModelProto:
    """Return a graph with the inputs and outputs of a classifier, and a loop whose condition stays true."""
    value = helper.make_tensor_value_info
    body = helper.make_graph(
        [helper.make_node("Identity", ["is_true"], ["stays_true"]), helper.make_node("Identity", ["x"], ["same"])],
        "body",
        [
            value("i", TensorProto.INT64, []),
            value("is_true", TensorProto.BOOL, []),
            value("x", TensorProto.FLOAT, None),
        ],
        [value("stays_true", TensorProto.BOOL, []), value("same", TensorProto.FLOAT, None)],
    )
    graph = helper.make_graph(
        [
            helper.make_node("Constant", [], ["true"], value=helper.make_tensor("true", TensorProto.BOOL, [], [True])),
            helper.make_node("Cast", ["bytes"], ["values"], to=TensorProto.FLOAT),
            helper.make_node("Loop", ["", "true", "values"], ["looped"], body=body),
            helper.make_node("Identity", ["looped"], ["logits"]),
            helper.make_node("Identity", ["looped"], ["contributions"]),
            helper.make_node("Identity", ["looped"], ["known"]),
        ],
        "endless",
        [value("bytes", TensorProto.UINT8, ["rows", "length"]), value("lengths", TensorProto.INT32, ["rows"])],
        [value(name, TensorProto.FLOAT, None) for name in ("logits", "contributions", "known")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
