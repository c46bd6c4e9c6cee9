"""Inference runtimes behind one protocol. `create_backend` imports only the requested runtime."""

from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import get_args

from artifact.backends.base import Device, InferenceBackend
from artifact.errors import BadExport
from artifact.manifest import Format, Graph


def create_backend(graph: Graph, folder: Path, *, format: Format = "onnx", device: Device = "auto") -> InferenceBackend:
    """Load the model files of one format.

    Args:
        graph: graph of the export in `folder`; its hashes are already checked.
        folder: folder that holds the files.
        format: onnx (ONNX Runtime) or torchscript (PyTorch).
        device: auto uses CUDA if the runtime offers it.

    Raises: BadExport if the files cannot be loaded, or the runtime or the device is missing.

    """
    for name, given, kinds in (("format", format, Format), ("device", device, Device)):
        if given not in (allowed := get_args(kinds)):
            raise BadExport(f"{name} {given!r} is none of {', '.join(allowed)}", "backend")
    files = {bucket: folder / file.path for bucket, file in graph.files_of(format).items()}
    try:
        if format == "torchscript":
            from artifact.backends.torchscript import TorchScriptBackend

            return TorchScriptBackend(files, graph, device=device)
        return _create_onnx_backend(files, graph, folder, device)
    except ModuleNotFoundError as error:
        needed = {"onnxruntime": "install the extra `cpu` or `gpu`", "torch": "install torch to use torchscript"}
        hint = needed.get(error.name or "", f"install {error.name}")
        raise BadExport(f"backend {format}: {error.name} is not installed; {hint}", "backend") from None


def _create_onnx_backend(files: dict[int, Path], graph: Graph, folder: Path, device: Device) -> InferenceBackend:
    """ONNX Runtime on CUDA if it is available and not excluded by `device`, else on the CPU. Raises: BadExport."""
    from artifact.backends.cuda import CudaBackend, use_cuda
    from artifact.backends.onnx import OnnxBackend

    if use_cuda(device):
        on_cuda = CudaBackend({bucket: folder / path for bucket, path in graph.cuda_files().items()}, graph)
        if on_cuda.is_usable:
            return on_cuda
        if device == "cuda":
            raise BadExport("device cuda: ONNX Runtime finds no usable CUDA device or driver", "backend")
    return OnnxBackend(files, graph)


def require_one_runtime() -> None:
    """Check that exactly one ONNX Runtime package is installed; two overwrite each other's files. Raises: BadExport."""
    found = []
    for name in ("onnxruntime", "onnxruntime-gpu"):
        try:
            version(name)
            found.append(name)
        except PackageNotFoundError:
            continue
    if not found:
        raise BadExport("no ONNX Runtime is installed; run pip install '.[cpu]', or '.[gpu]' for CUDA", "backend")
    if len(found) == 2:
        raise BadExport("onnxruntime and onnxruntime-gpu exclude each other; uninstall one of them", "backend")
