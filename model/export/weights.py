"""Makes files smaller: leaves out what can be computed, and shares weights. Used by `model.export.graphs`."""

from pathlib import Path

import numpy as np
import onnx
import torch
from onnx import TensorProto, helper, numpy_helper
from torch import Tensor

from artifact.backends.torchscript import SharedTensor, tensor_constants

SMALLEST = 1024
"""Size in bytes of the smallest tensor that is shared, or computed."""


def leave_out_computable(path: Path) -> None:
    """Rewrite an ONNX file: initializers that repeat one value become nodes that compute them; types are left out.

    The exporter stores the zeros to which a graph adds, which take a quarter of a megabyte for 65,536 n-grams, and the
    types and shapes of all values, which ONNX Runtime infers.
    """
    model = onnx.load(path)
    graph, nodes = model.graph, list[onnx.NodeProto]()
    for tensor in list(graph.initializer):
        values = numpy_helper.to_array(tensor)
        if values.nbytes < SMALLEST or values.tobytes() != values.size * values.flat[0].tobytes():
            continue
        shape, value = f"{tensor.name}_shape", numpy_helper.from_array(values.flat[:1])
        nodes.append(helper.make_node("ConstantOfShape", [shape], [tensor.name], value=value))
        graph.initializer.remove(tensor)
        graph.initializer.append(numpy_helper.from_array(np.array(values.shape), shape))
    for node in nodes:
        graph.node.insert(0, node)
    graph.ClearField("value_info")
    path.write_bytes(model.SerializeToString())


def share_weights(path: Path, other: Path) -> None:
    """Rewrite an ONNX file: weights that another file in its folder also holds become references to that file.

    Only initializers of the main graph of at least SMALLEST bytes are replaced, unless they are references already.
    They may be unaligned in `other`.

    Reference:  ONNX external data, whose location here is the other ONNX file: https://onnx.ai/onnx/repo-docs/ExternalData.html
    """
    content, model = other.read_bytes(), onnx.load(path, load_external_data=False)
    for tensor in model.graph.initializer:
        raw = tensor.raw_data
        if len(raw) < SMALLEST or (offset := content.find(raw)) < 0:
            continue
        tensor.ClearField("raw_data")
        tensor.data_location = TensorProto.EXTERNAL
        for key, value in (("location", other.name), ("offset", offset), ("length", len(raw))):
            tensor.external_data.add(key=key, value=str(value))
    path.write_bytes(model.SerializeToString())


def share_constants(module: torch.jit.ScriptModule, other: Path) -> tuple[SharedTensor, ...]:
    """Empty the constants of a frozen module that an ONNX file also holds; returns where they are.

    Only constants of at least SMALLEST bytes are shared. A matrix may be transposed in the ONNX file.
    """
    content, shared = other.read_bytes(), list[SharedTensor]()
    for node in tensor_constants(module):
        tensor = node.t("value")
        found = _shared(tensor, content, other.name)
        if found is None and tensor.ndim == 2:
            found = _shared(tensor.T.contiguous().T, content, other.name)
        if found is not None:
            node.t_("value", torch.empty(0, len(shared), dtype=tensor.dtype))
            shared.append(found)
    return tuple(shared)


def _shared(tensor: Tensor, content: bytes, name: str) -> SharedTensor | None:
    """Where a file holds the storage of a tensor; None if it does not."""
    raw = torch.empty(0, dtype=torch.uint8).set_(tensor.untyped_storage()).numpy().tobytes()
    if len(raw) < SMALLEST or (offset := content.find(raw)) < 0:
        return None
    return SharedTensor(
        file=name,
        offset=offset,
        length=len(raw),
        shape=tensor.shape,
        stride=tensor.stride(),
        start=int(tensor.storage_offset()),
    )
