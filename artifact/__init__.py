"""Exports: the files that training writes and the service loads, with the processing code that both share.

`artifact.load("exports/imdb-s3").classify("A text of any length.")` answers without a server.
"""

import os
from typing import TYPE_CHECKING

__version__ = "0.2.0"
"""Version of the project, also reported by the package and the server."""

# ONNX Runtime 1.29 and later sends telemetry unless this is set when it is imported. Here, because every program of the
# project imports this package before any module that imports ONNX Runtime.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")

if TYPE_CHECKING:
    from artifact.backends.base import Device
    from artifact.local import Model
    from artifact.manifest import Format, Precision


def load(
    folder: "str | os.PathLike[str]",
    *,
    format: "Format" = "onnx",
    device: "Device" = "auto",
    precision: "Precision" = "float32",
) -> "Model":
    """Check and load an export. The returned model gives the same answers as a server with the same options.

    Args:
        folder: `exports/NAME`, which selects the highest version, or `exports/NAME/VERSION`.
        format: onnx (ONNX Runtime) or torchscript (PyTorch).
        device: auto uses CUDA if the runtime offers it.
        precision: precision of encoder blocks; float16 is for CUDA and has no effect on an export without it.

    Raises: BadExport (artifact.errors); the message is one line that names the file and the reason.

    """
    from pathlib import Path

    from artifact.exports import version_folder
    from artifact.loading import load_export
    from artifact.local import Model

    return Model(load_export(version_folder(Path(folder)), format=format, device=device, precision=precision))
