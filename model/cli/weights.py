"""Weights that two ONNX files share. Used by `model.cli.export`."""

from pathlib import Path

import onnx
from onnx import TensorProto

SMALLEST = 1024
"""Size in bytes of the smallest tensor that is shared."""


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
