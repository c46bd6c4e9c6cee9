"""Exports: what training writes and the service runs, and all that both compute around the model.

`artifact.load("exports/imdb-s3").classify("A text of any length.")` answers without a server.
"""

from os import PathLike
from typing import TYPE_CHECKING

__version__ = "0.1.0"
"""Of the project; the package and the server take it from here."""

if TYPE_CHECKING:
    from artifact.backends.base import Device
    from artifact.local import Model
    from artifact.manifest import Format


def load(folder: "str | PathLike[str]", *, format: "Format" = "onnx", device: "Device" = "auto") -> "Model":
    """Check and load an export; the model that it returns answers as the server does.

    Args:
        folder: `exports/NAME`, of which the highest version is taken, or `exports/NAME/VERSION`.
        format: onnx (ONNX Runtime) or torchscript (PyTorch).
        device: auto takes CUDA where the runtime offers it.

    Raises: BadExport (artifact.errors), one line that says which file and why.

    """
    from pathlib import Path

    from artifact.loading import load_export
    from artifact.local import Model
    from artifact.manifest import newest_version

    return Model(load_export(newest_version(Path(folder)), format=format, device=device))
